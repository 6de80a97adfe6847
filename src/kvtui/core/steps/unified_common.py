"""What the conditions on unified memory share."""

from __future__ import annotations

from kvtui.core.findings import Change, Fix, drop
from kvtui.core.resolution import Resolution

HOOK = "arg_groups/kv_cache_hook.py"
HYBRID = "Qwen/Qwen3.5-27B"
UNIFIED_OFF = drop("enable_unified_memory", title="drop unified memory (pools of fixed shares)")


def use_backend(r: Resolution, allowed: tuple[str, ...]) -> Fix:
    """The fix that runs attention on an allowed back end that suits the GPU."""
    platform = r.platform
    suits = {
        "fa3": platform.is_sm90,
        "fa4": platform.is_blackwell,
        "trtllm_mla": platform.is_sm100,
        "trtllm_mha": platform.is_sm100,
    }
    best = next((name for name in allowed if suits.get(name, False)), allowed[0])
    phases = ("prefill_attention_backend", "decode_attention_backend")
    unset = (Change(name) for name in phases if r.chose(name))
    return Fix(f"run attention on {best}", (Change("attention_backend", best), *unset))


def unlisted(r: Resolution, allowed: tuple[str, ...]) -> list[str]:
    """The resolved attention back ends that are not among `allowed`."""
    return sorted({name for name in r.backends if name and name not in allowed})
