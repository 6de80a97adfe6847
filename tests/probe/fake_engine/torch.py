"""Stands in for torch where a test's fake engine imports it."""

from types import SimpleNamespace

__version__ = "0.0.fake"
version = SimpleNamespace(cuda=None)
cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
