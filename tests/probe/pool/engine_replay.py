"""Runs in an SGLang's Python: plays allocator histories on the engine's own allocators.

Reads a JSON list of {page, size, size_swa, need_sort, ops} from standard input; answers with what
each operation returned and how much was free after it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool

DTYPE = torch.bfloat16


def ints(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


class Window(BaseSWAKVPool):  # type: ignore[misc]
    """As much of a sliding pool as its allocator asks for."""

    full_kv_pool = swa_kv_pool = swa_req_ring_size = None

    def register_mapping(self, mapping: torch.Tensor) -> None:
        self.full_to_swa_index_mapping = mapping

    def translate_loc_from_full_to_swa(self, slots: torch.Tensor) -> torch.Tensor:
        return self.full_to_swa_index_mapping[slots]


Window.__abstractmethods__ = frozenset()


def make(case: dict[str, Any]) -> Any:
    page, size, sort = case["page"], case["size"], case["need_sort"]
    if case["size_swa"]:
        allocator = SWATokenToKVPoolAllocator(
            size, case["size_swa"], page, DTYPE, "cpu", Window.__new__(Window), sort
        )
        sides = [allocator.full_attn_allocator, allocator.swa_attn_allocator]
    elif page == 1:
        return TokenToKVPoolAllocator(size, DTYPE, "cpu", None, sort)
    else:
        allocator = PagedTokenToKVPoolAllocator(size, page, DTYPE, "cpu", None, sort)
        sides = [allocator]
    for side in sides:
        side.use_triton_kernels = False
    return allocator


def play(allocator: Any, page: int, op: list[Any]) -> Any:
    if op[0] == "free":
        return allocator.free(ints(op[1]))
    if op[0] == "window":
        return allocator.free_swa(ints(op[1]))
    if op[0] == "decode":
        if page == 1:
            return allocator.alloc(len(op[1]))
        return allocator.alloc_decode(ints(op[1]), ints(op[1]), ints(op[2]))
    before, after = ints(op[1]), ints(op[2])
    need = int(after.sum() - before.sum())
    if page == 1:
        return allocator.alloc(need)
    return allocator.alloc_extend(before, before, after, after, ints(op[3]), need)


answers = []
for case in json.load(sys.stdin):
    allocator = make(case)
    told = []
    for op in case["ops"]:
        got = play(allocator, case["page"], op)
        told.append([None if got is None else got.tolist(), allocator.available_size()])
    answers.append(told)
print("ANSWERS" + json.dumps(answers))
