"""Fixtures of the pool tests; all of them run on the CPU with one torch thread."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def cpu() -> torch.device:
    return torch.device("cpu")
