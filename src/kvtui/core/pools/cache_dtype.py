"""The dtype that `--kv-cache-dtype` and the checkpoint give the cache.

Mirrors srt/mem_cache/kv_cache_dtype.py (0.5.23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtui.core.model.config import ModelConfig
from kvtui.core.resolution import Resolution

KV_DTYPES = {
    "fp8_e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn",
    "mxfp8": "float8_e4m3fn",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "nvfp4": "float4_e2m1fn_x2",
    "fp4_mx_block16": "float4_e2m1fn_x2",
}
"""torch dtype of `--kv-cache-dtype` (mem_cache/kv_cache_dtype.py:41)."""


def kv_cache_dtype(r: Resolution, model: ModelConfig) -> tuple[str, str]:
    """(option value, torch dtype) of the cache; `auto` follows the checkpoint's quantisation.

    With sizes fixed from outside (`r.sizing.tokens`) the pool is described as the engine's
    builder makes it without a loaded model, so `auto` is the model's dtype.
    """
    name = r.kv_cache_dtype if isinstance(r.kv_cache_dtype, str) else "auto"
    if name in KV_DTYPES:
        return name, KV_DTYPES[name]
    if r.sizing.tokens is None and checkpoint_kv_algo(model) == "FP8":
        return "fp8_e4m3", "float8_e4m3fn"
    return name, str(model.dtype)


def checkpoint_kv_algo(model: ModelConfig) -> str | None:
    """KV-cache quantisation that the loaded checkpoint states, upper case, or None.

    Only modelopt, fp8, mxfp8 and compressed-tensors configs carry one (the engine's
    `kv_cache_quant_algo`); a static symmetric per-tensor scheme counts for the last.
    """
    method = str(model.quantization or "")
    config: Mapping[str, Any] = model.hf_quant_config
    side = model.checkpoint.quant_config
    stated = "kv_cache_quant_algo" in config or "kv_cache_scheme" in config
    if side is not None and (not config or (method == "modelopt_mixed" and not stated)):
        nested = side.get("quantization")
        config = nested if isinstance(nested, Mapping) else side
    scheme = config.get("kv_cache_scheme")
    if method.startswith("compressed"):
        return "FP8" if isinstance(scheme, Mapping) and _static_fp8(scheme) else None
    if not method.startswith(("modelopt", "fp8", "mxfp8", "minimax_m3")):
        return None
    if method.startswith("modelopt") and isinstance(scheme, Mapping):
        fp8 = scheme.get("type") == "float" and scheme.get("num_bits") == 8
        return "FP8" if fp8 else None
    algo = config.get("kv_cache_quant_algo")
    if algo is None and isinstance(scheme, str) and method == "modelopt_fp4":
        algo = scheme
    if algo is None and method == "minimax_m3_nvfp4":
        algo = "FP8"
    return algo.upper() if isinstance(algo, str) else None


def _static_fp8(scheme: Mapping[str, Any]) -> bool:
    return (
        scheme.get("type") == "float"
        and scheme.get("num_bits") == 8
        and scheme.get("strategy") == "tensor"
        and bool(scheme.get("symmetric", True))
        and not scheme.get("dynamic", False)
    )
