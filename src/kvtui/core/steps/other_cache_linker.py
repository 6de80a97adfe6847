"""The external linker of the unified radix cache: its configuration and its neighbours."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

HOOK = "arg_groups/hicache_hook.py"
FLAG = "enable_unified_cache_external_linker"
CONFIG = "unified_cache_external_linker_config"
LINKER_OFF = drop(FLAG, title="drop the external cache linker")
CONFIG_FIELDS = ("linker", "linker_module_path", "linker_extra_config")
"""Keys of a dynamic linker's configuration. Source: unified_cache/linker_config.py:15."""


def _complaints(config: object) -> Iterator[str]:
    if not isinstance(config, dict):
        yield "a dynamic linker needs a JSON object that names it"
        return
    unknown = sorted(set(config) - set(CONFIG_FIELDS))
    if unknown:
        yield f"unknown keys {', '.join(map(str, unknown))}; known are {', '.join(CONFIG_FIELDS)}"
    for key in CONFIG_FIELDS[:2]:
        value = config.get(key)
        if not isinstance(value, str) or not value.strip():
            yield f"{key} must be a non-empty string"
    if not isinstance(config.get("linker_extra_config", {}), dict):
        yield "linker_extra_config must be a JSON object"


@rule(
    "KV680",
    stage=Stage.RESOLVE,
    option=CONFIG,
    source=f"{HOOK}:29",
    example=Example(
        "--enable-unified-cache-external-linker --unified-cache-external-linker-backend dynamic"
    ),
    fragments=("--unified-cache-external-linker-config",),
)
def linker_config(r: Resolution) -> Iterator[Hit]:
    """The linker's configuration is a JSON object that names the linker.

    Why: back end dynamic imports the class that the object names; the built-in ones take
    settings from it.
    Fix: '{"linker": "Class", "linker_module_path": "package.module"}', or drop it.
    """
    config = r.unified_cache_external_linker_config
    dynamic = r.unified_cache_external_linker_backend == "dynamic"
    named = set_to(
        "name the linker's class",
        **{CONFIG: {"linker": "MyLinker", "linker_module_path": "package.module"}},
    )
    if config is not None and not isinstance(config, dict):
        yield hit(
            f"it must be a JSON object, not {type(config).__name__}",
            named if dynamic else drop(CONFIG),
        )
    elif dynamic and (r.enable_unified_cache_external_linker or config is not None):
        for found in _complaints(config):
            yield hit(found, named)


@rule(
    "KV681",
    stage=Stage.RESOLVE,
    option="enable_linker_mla_dedup",
    source=f"{HOOK}:43",
    example=Example("--enable-linker-mla-dedup", model="deepseek-ai/DeepSeek-V3", gpu="h200"),
    fragments=("--enable-linker-mla-dedup requires the Mooncake linker",),
)
def linker_dedup_needs_mooncake(r: Resolution) -> Iterator[Hit]:
    """Deduplication of MLA pages belongs to the Mooncake linker.

    Why: only that linker sends one rank's copy to all others.
    Fix: --enable-unified-cache-external-linker with back end mooncake, or drop the option.
    """
    mooncake = r.unified_cache_external_linker_backend == "mooncake"
    if r.enable_linker_mla_dedup and not (r.enable_unified_cache_external_linker and mooncake):
        yield hit(
            "it works in the Mooncake linker, which is not in use",
            drop("enable_linker_mla_dedup"),
            set_to(
                "use the Mooncake linker",
                **{FLAG: True},
                unified_cache_external_linker_backend="mooncake",
            ),
        )


@rule(
    "KV682",
    stage=Stage.RESOLVE,
    option=FLAG,
    source=f"{HOOK}:45",
    example=Example("--enable-unified-cache-external-linker --disable-radix-cache"),
    fragments=("--enable-unified-cache-external-linker requires the default",),
)
def linker_needs_radix(r: Resolution) -> Iterator[Hit]:
    """The external linker extends the built-in radix cache.

    Why: it loads and stores nodes of that tree.
    Fix: drop --disable-radix-cache and --radix-cache-backend, or the linker.
    """
    if not r.enable_unified_cache_external_linker:
        return
    if r.disable_radix_cache:
        undo = drop("disable_radix_cache")
        if r.disaggregation_mode == "decode":
            undo = set_to(
                "keep the radix cache on this decode server",
                disable_radix_cache=None,
                disaggregation_decode_enable_radix_cache=True,
            )
        yield hit("the radix cache is off, and the linker extends it", undo, LINKER_OFF)
    if r.radix_cache_backend is not None:
        yield hit(
            f"radix cache {r.radix_cache_backend} replaces the built-in one",
            drop("radix_cache_backend"),
            LINKER_OFF,
            option="radix_cache_backend",
        )


@rule(
    "KV683",
    stage=Stage.RESOLVE,
    option=FLAG,
    source=f"{HOOK}:50",
    example=Example("--enable-unified-cache-external-linker --enable-hierarchical-cache"),
    fragments=(
        "--enable-hierarchical-cache are mutually exclusive",
        "does not use --hicache-storage-backend",
    ),
)
def linker_or_hicache(r: Resolution) -> Iterator[Hit]:
    """The external linker excludes HiCache and its stores.

    Why: both would serve the tiers below GPU memory.
    Fix: drop one of the two.
    """
    if not r.enable_unified_cache_external_linker:
        return
    if r.enable_hierarchical_cache:
        yield hit(
            "HiCache and the external linker would both serve the lower tiers",
            drop("enable_hierarchical_cache"),
            LINKER_OFF,
        )
    if r.hicache_storage_backend is not None:
        yield hit(
            "the linker has its own store and does not use HiCache's",
            drop("hicache_storage_backend"),
            LINKER_OFF,
            option="hicache_storage_backend",
        )


LINKER_GATES: tuple[Part, ...] = (
    linker_config,
    linker_dedup_needs_mooncake,
    linker_needs_radix,
    linker_or_hicache,
)
