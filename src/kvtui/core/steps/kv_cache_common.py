"""Small readings of a launch that the KV-cache steps share."""

from __future__ import annotations

from kvtui.core.findings import Change, Fix, Value, set_to
from kvtui.core.resolution import Resolution

FP4_DTYPES = ("nvfp4", "fp4_mx_block16")
"""KV dtypes that store two 4-bit values a byte."""
FP8_TITLE = "store KV as fp8_e4m3 (twice the bytes of FP4)"
AUTO_KV = set_to("store KV in the model's dtype", kv_cache_dtype=None)


def number(value: Value) -> float | None:
    """The value where it is a real number, None for anything else (booleans included)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def above_one(value: Value) -> bool:
    """True for a width greater than one; False for values of a wrong type."""
    count = number(value)
    return count is not None and count > 1


def is_positive(value: Value) -> bool:
    """True for a number greater than zero."""
    count = number(value)
    return count is not None and count > 0


def in_pd(r: Resolution) -> bool:
    """True on either side of a prefill/decode pair."""
    return bool(r.disaggregation_mode != "null")


def spec_name(r: Resolution) -> str | None:
    """The speculative algorithm in capitals, None without one."""
    name = r.speculative_algorithm
    return name.upper() if isinstance(name, str) else None


def is_nvfp4(r: Resolution) -> bool:
    """True where KV is stored as nvfp4."""
    return bool(r.kv_cache_dtype == "nvfp4")


def fp8_kv(r: Resolution) -> Fix:
    """The fix that stores KV as fp8_e4m3 instead of an FP4 dtype."""
    changes = {"kv_cache_dtype": "fp8_e4m3"}
    if r.chose("prefill_kv_cache_dequant_dtype"):
        return set_to(FP8_TITLE, prefill_kv_cache_dequant_dtype=None, **changes)
    return set_to(FP8_TITLE, **changes)


def forced(r: Resolution, option: str) -> bool:
    """True where another option put the present value there, so dropping it changes nothing."""
    return not r.chose(option) and r.origin(option).kind == "forced"


def combine(title: str, *fixes: Fix) -> Fix:
    """One fix that makes all changes of the given ones; the first wins on one option."""
    changes: dict[str, Change] = {}
    for fix in fixes:
        for change in fix.changes:
            changes.setdefault(change.option, change)
    return Fix(title, tuple(changes.values()))


def is_fp4(r: Resolution) -> bool:
    """True where KV is stored in 4 bits."""
    return r.kv_cache_dtype in FP4_DTYPES


def fp4_on_cuda(r: Resolution) -> bool:
    """True where FP4 pages meet an NVIDIA GPU."""
    return is_fp4(r) and r.platform.is_cuda


def native_nvfp4(r: Resolution) -> bool:
    """True where trtllm_mha on SM100 keeps nvfp4 pages in its own scale layout."""
    return is_nvfp4(r) and r.platform.is_sm100 and "trtllm_mha" in r.backends


def mixed_nvfp4(r: Resolution) -> bool:
    """True where prefill unpacks nvfp4 to FP8 and decode reads it natively."""
    return is_nvfp4(r) and r.backends == ("flashinfer", "trtllm_mha")


def receives_in_host(r: Resolution) -> bool:
    """True where a decode server may receive pages into host memory."""
    threshold = number(r.disaggregation_decode_host_receive_threshold)
    return threshold is not None and threshold < 1
