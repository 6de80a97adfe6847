"""What the conditions on KV sharding share."""

from __future__ import annotations

from kvtui.core.findings import drop
from kvtui.core.resolution import Resolution

HOOK = "arg_groups/kv_shard_hook.py"
FLAG = "enable_kv_cache_sharding"
OFF = drop(FLAG, title="drop KV sharding (every rank keeps whole pages)")
MLA = "deepseek-ai/DeepSeek-V3"
SHARDED = (
    "--enable-kv-cache-sharding --disaggregation-mode prefill --tp-size 8 --page-size 64 "
    "--attention-backend fa3"
)
"""A launch that KV sharding takes on an MLA model."""


def on(r: Resolution) -> bool:
    """True where the launch asks for KV sharding."""
    return bool(r.enable_kv_cache_sharding)
