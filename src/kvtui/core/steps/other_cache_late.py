"""Everything about caches and pairs that is refused after argument resolution, in order."""

from __future__ import annotations

from kvtui.core.resolution import Part
from kvtui.core.steps.hicache_host import HOST_POOL_GATES
from kvtui.core.steps.hicache_storage import STORE_GATES
from kvtui.core.steps.hisparse_config import HISPARSE_CONFIG
from kvtui.core.steps.other_cache_tree import TREE_GATES
from kvtui.core.steps.pd_late import PAIR_GATES
from kvtui.core.steps.pd_offload import DECODE_OFFLOAD_CONFIG

LATE_CACHES: tuple[Part, ...] = (
    *HISPARSE_CONFIG,
    *TREE_GATES,
    *HOST_POOL_GATES,
    *STORE_GATES,
    *DECODE_OFFLOAD_CONFIG,
    *PAIR_GATES,
)
"""Pool and offload stage findings are among them; each carries its own stage."""
