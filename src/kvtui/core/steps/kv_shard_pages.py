"""Pages and prompt chunks under KV sharding."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import number
from kvtui.core.steps.kv_shard_common import HOOK, MLA, OFF, SHARDED, on

MIN_CHUNK = 2048
ACTIVATION_MIB_PER_TOKEN = 1.5
"""Activation memory assumed a token above `MIN_CHUNK`. Source: kv_shard_hook.py:321."""


@rule(
    "KV375",
    stage=Stage.RESOLVE,
    option="page_size",
    source=f"{HOOK}:298",
    example=Example(
        "--enable-kv-cache-sharding --disaggregation-mode prefill --tp-size 8 --page-size 1 "
        "--attention-backend fa3",
        model=MLA,
        gpu="h200",
    ),
    fragments=(
        "--enable-kv-cache-sharding requires a real page size",
        "--enable-kv-cache-sharding requires chunked prefill",
    ),
)
def sharding_needs_pages(r: Resolution) -> Iterator[Hit]:
    """KV sharding needs pages and prompt chunks.

    Why: pages are the unit that is striped, gathered and sent; scratch memory is sized for one
    chunk.
    Fix: --page-size 64, and a positive --chunked-prefill-size.
    """
    if not on(r):
        return
    page = number(r.page_size) if r.page_size is not None else 1
    if page is not None and page <= 1:
        yield hit(
            f"the page size is {page:g}, which leaves nothing to stripe",
            set_to("use pages of 64 tokens", page_size=64),
            OFF,
        )
    chunk = number(r.chunked_prefill_size)
    if chunk is None or chunk <= 0:
        yield hit(
            "prompts run in one piece, and scratch memory is sized for a chunk",
            set_to("run prompts in chunks of 8192", chunked_prefill_size=8192),
            OFF,
            option="chunked_prefill_size",
        )


def rounded_chunk(r: Resolution) -> int | None:
    """The chunk size rounded up to whole pages, None where nothing needs rounding."""
    page, chunk = number(r.page_size), number(r.chunked_prefill_size)
    if page is None or chunk is None or page <= 1 or chunk <= 0 or chunk % page == 0:
        return None
    return int((chunk + page - 1) // page * page)


def _memory_after(r: Resolution, rounded: int) -> float | None:
    """The memory share once the longer chunk's activations are reserved, None for no change."""
    chunk, share = number(r.chunked_prefill_size), number(r.mem_fraction_static)
    if r.raw.mem_fraction_static is not None or chunk is None or share is None:
        return None
    delta = max(rounded, MIN_CHUNK) - max(chunk, MIN_CHUNK)
    if delta <= 0:
        return None
    return share - ACTIVATION_MIB_PER_TOKEN * delta / r.platform.memory_mib


@rule(
    "KV376",
    stage=Stage.RESOLVE,
    option="chunked_prefill_size",
    source=f"{HOOK}:335",
    example=Example(
        f"{SHARDED.replace('64', '65536')} --chunked-prefill-size 1000", model=MLA, gpu="h100"
    ),
    fragments=("would consume all automatically reserved GPU memory",),
)
def sharding_chunk_fits(r: Resolution) -> Iterator[Hit]:
    """A chunk rounded up to whole pages must leave memory.

    Why: the longer chunk's activations are taken off the share for weights and KV.
    Fix: smaller pages, or a chunk size that is a multiple of the page size.
    """
    rounded = rounded_chunk(r) if on(r) else None
    share = None if rounded is None else _memory_after(r, rounded)
    if share is not None and share <= 0:
        yield hit(
            f"a chunk of {rounded} tokens leaves no GPU memory for weights and KV",
            set_to("use pages of 64 tokens", page_size=64),
        )


@step(f"{HOOK}:316")
def round_chunk_to_pages(r: Resolution) -> None:
    """Round the chunk size up to whole pages and reserve its activations."""
    rounded = rounded_chunk(r) if on(r) else None
    if rounded is None:
        return
    share = _memory_after(r, rounded)
    if share is not None and share > 0:
        r.default("the longer chunk's activations are set aside", mem_fraction_static=share)
    r.declare(f"chunks end on pages of {r.page_size} tokens", chunked_prefill_size=rounded)


SHARD_PAGES: tuple[Part, ...] = (
    sharding_needs_pages,
    sharding_chunk_fits,
    round_chunk_to_pages,
)
