"""Writes a pattern over whole allocations and reads it back: every byte is backed by memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .build import Pool
from .wire import Refused

CHUNK_BYTES = 64 << 20
SECONDS = {"cpu": 0.6, "cuda": 10.0}
"""Time after which no further byte is written; the share that was covered is reported."""


def _words(pool: Pool) -> Iterator[torch.Tensor]:
    """All allocations as 8-byte words, in chunks; a tail of fewer than 8 bytes is left out."""
    for storage in pool.storages:
        words = storage.numel() // 8
        if words:
            yield from torch.split(storage[: words * 8].view(torch.int64), CHUNK_BYTES // 8)


def _pattern(number: int, words: torch.Tensor, seed: int) -> torch.Tensor:
    """Different for each word of each chunk."""
    start = (number + 1) * 0x9E3779B97F + seed
    steps = torch.arange(len(words), dtype=torch.int64, device=words.device)
    return (steps + start) * 0x5851F42D4C957F2D


def sweep(pool: Pool, seed: int, follow: Callable[[float], None], whole: bool) -> dict[str, Any]:
    """Write all chunks (as many as the time allows unless `whole`), then read them; figures."""
    limit = float("inf") if whole else SECONDS.get(pool.device.type, SECONDS["cpu"])
    start = time.perf_counter()
    written: list[torch.Tensor] = []
    chunks = list(_words(pool))
    for number, words in enumerate(chunks):
        follow(number / len(chunks) / 2)
        if time.perf_counter() - start > limit / 2:
            break
        words.copy_(_pattern(number, words, seed))
        if pool.device.type == "cuda" and not whole:
            torch.cuda.synchronize(pool.device)
        written.append(words)
    for number, words in enumerate(written):
        follow(0.5 + number / len(written) / 2)
        if not torch.equal(words, _pattern(number, words, seed)):
            raise Refused(
                "corrupt", f"chunk {number} of {CHUNK_BYTES} bytes reads back differently"
            )
    covered = sum(words.numel() * 8 for words in written)
    return {"bytes": covered, "share": round(covered / max(1, pool.allocated_bytes), 4)}
