"""HiSparse's configuration: tokens attended to, and the buffers that hold them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from kvtui.core.findings import Fix, Stage, Value, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import number

SPARSITY = "mem_cache/sparsity/factory.py"
DSA = "deepseek-ai/DeepSeek-V3.2"
TOP_K, BLOCK = 2048, 960
"""Pages kept and copy block where the configuration names none. Source: factory.py:79-82."""
MAX_BLOCK = 1024


@lru_cache(maxsize=64)
def _complaint(text: str) -> str | None:
    try:
        config: Any = json.loads(text)
    except ValueError as error:
        return f"it is no JSON: {error}"
    if not isinstance(config, dict):
        return f"it must be a JSON object, not {type(config).__name__}"
    top_k = config.get("top_k", TOP_K)
    if number(top_k) is None:
        return f"top_k is {top_k!r}; it must be a number"
    buffer = config.get("device_buffer_size", 2 * top_k)
    if number(buffer) is None:
        return f"device_buffer_size is {buffer!r}; it must be a number"
    if buffer < top_k:
        return f"device_buffer_size {buffer} is below top_k {top_k}"
    block = config.get("swap_in_block_size", BLOCK)
    if not isinstance(block, int) or isinstance(block, bool) or not 0 < block <= MAX_BLOCK:
        return f"swap_in_block_size is {block!r}; it must be a whole number from 1 to {MAX_BLOCK}"
    ratio = config.get("host_to_device_ratio", 2)
    if number(ratio) is None:
        return f"host_to_device_ratio is {ratio!r}; it must be a number"
    return None


def config_complaint(text: Value) -> str | None:
    """What the engine refuses about a HiSparse configuration, None where it takes it."""
    return _complaint(text) if isinstance(text, str) else f"it is {text!r}, not text"


@rule(
    "KV667",
    stage=Stage.POOL,
    option="hisparse_config",
    source=f"{SPARSITY}:84",
    example=Example(
        "--enable-hisparse --disable-radix-cache "
        '--hisparse-config \'{"top_k": 2048, "device_buffer_size": 1024}\'',
        model=DSA,
        gpu="h200",
    ),
    fragments=(
        "Failed to parse hisparse_config",
        "must be no smaller than top_k",
        "swap_in_block_size",
    ),
)
def hisparse_config(r: Resolution) -> Iterator[Hit]:
    """The HiSparse configuration is a JSON object with a buffer of at least top_k tokens.

    Why: a token attends to top_k tokens, which must all fit the device buffer.
    Fix: '{"top_k": 2048, "device_buffer_size": 4096}', or drop it for these values.
    """
    text = r.hisparse_config
    if not r.enable_hisparse or text is None:
        return
    found = config_complaint(text)
    if found is not None:
        undo: Fix = drop("hisparse_config", title="use 2048 of 4096 tokens, twice that on the host")
        yield hit(found, undo)


HISPARSE_CONFIG: tuple[Part, ...] = (hisparse_config,)
