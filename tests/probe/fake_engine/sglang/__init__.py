"""Stands in for SGLang: every way in which an engine can behave badly, on request."""

__version__ = "9.9.9"
