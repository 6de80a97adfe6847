"""Which quantization the engine runs a checkpoint with (`ModelConfig._verify_quantization`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtui.core.model.request import ModelRequest

METHODS = (
    "fp8", "mxfp8", "minimax_m3_nvfp4", "blockwise_int8", "modelopt", "modelopt_fp8",
    "modelopt_fp4", "nvfp4_online", "modelopt_mixed", "w8a8_int8", "w8a8_fp8", "awq",
    "awq_marlin", "bitsandbytes", "gguf", "gptq_marlin", "moe_wna16", "compressed-tensors",
    "w4afp8", "petit_nvfp4", "quark", "quark_mxfp4", "auto-round", "auto-round-int8",
    "modelslim", "quark_int4fp8_moe", "humming", "mxfp_w4a8", "mxfp4",
)  # fmt: skip
"""Methods with an implementation on CUDA (layers/quantization/__init__.py:77)."""

ROCM_METHODS = frozenset(
    {
        "awq", "fp8", "compressed_tensors", "compressed-tensors", "w8a8_fp8", "petit_nvfp4",
        "quark", "mxfp4", "mxfp8", "auto-round", "auto-round-int8", "quark_int4fp8_moe",
        "quark_mxfp4",
    }
)  # fmt: skip

COMPATIBLE: Mapping[str, frozenset[str]] = {
    "modelopt_fp8": frozenset({"modelopt"}),
    "modelopt_fp4": frozenset({"modelopt", "fp8"}),
    "modelopt_mixed": frozenset({"modelopt"}),
    "nvfp4_online": frozenset({"fp8", "modelopt_fp8"}),
    "minimax_m3_nvfp4": frozenset({"mxfp8"}),
    "petit_nvfp4": frozenset({"modelopt"}),
    "w8a8_int8": frozenset({"compressed-tensors", "compressed_tensors"}),
    "w8a8_fp8": frozenset({"compressed-tensors", "compressed_tensors"}),
    "auto-round-int8": frozenset({"compressed-tensors", "compressed_tensors"}),
}
"""Requested method -> checkpoint methods that it may run over (model_config.py:2030)."""

REQUANTIZE = frozenset({"quark_mxfp4"})
MODELOPT_METHODS = frozenset(
    {"modelopt", "modelopt_fp8", "modelopt_fp4", "nvfp4_online", "modelopt_mixed"}
)
MARLIN_GROUPS = frozenset({-1, 32, 64, 128})
MODELOPT_ALGOS = {
    "FP8": "modelopt_fp8",
    "MXFP8": "mxfp8",
    "FP4": "modelopt_fp4",
    "NVFP4": "modelopt_fp4",
    "NVFP4_AWQ": "modelopt_fp4",
    "W4A16_NVFP4": "modelopt_fp4",
}
"""ModelOpt's algorithm names (layers/modelopt_utils.py:23)."""

Config = Mapping[str, Any]


def _modelopt_body(config: Config) -> Config:
    outer = config.get("quantization", config)
    if not isinstance(outer, Mapping):
        return {}
    nested = outer.get("quantization")
    return nested if isinstance(nested, Mapping) else outer


def _mxfp8(body: Config) -> dict[str, Any]:
    parsed: dict[str, Any] = {
        "quant_method": "mxfp8",
        "quant_algo": "MXFP8",
        "activation_scheme": "dynamic",
        "weight_block_size": [1, body.get("group_size", 32)],
        "scale_fmt": "ue8m0",
    }
    ignored = body.get("exclude_modules", body.get("ignore"))
    if ignored is not None:
        parsed["modules_to_not_convert"] = ignored
    kv = body.get("kv_cache_quant_algo")
    scheme = body.get("kv_cache_scheme")
    if kv is None and isinstance(scheme, Mapping):
        is_fp8 = scheme.get("type") == "float" and scheme.get("num_bits") == 8
        kv = "FP8" if is_fp8 else None
    if kv is not None:
        parsed["kv_cache_quant_algo"] = kv
    return parsed


def parse_modelopt(config: Config) -> dict[str, Any] | None:
    """What a ModelOpt description means to the engine, or None for one it doesn't know."""
    body = _modelopt_body(config)
    algo = body.get("quant_algo")
    if not isinstance(algo, str) or not algo:
        return None
    if algo == "MIXED_PRECISION":
        layers = body.get("quantized_layers") or {}
        algos = {
            str(one.get("quant_algo", "")).upper()
            for one in (layers.values() if isinstance(layers, Mapping) else ())
            if isinstance(one, Mapping)
        }
        mixed = not algos.isdisjoint({"NVFP4", "W4A16_NVFP4"})
        return {"quant_method": "modelopt_mixed" if mixed else "w4afp8", "quant_algo": algo}
    if "FP4" in algo:
        return {"quant_method": "modelopt_fp4", "quant_algo": algo}
    if algo == "FP8":
        return {"quant_method": "modelopt_fp8", "quant_algo": algo}
    return _mxfp8(body) if algo == "MXFP8" else None


def checkpoint_quant(
    config: Config | None, compression: Config | None, side_file: Config | None
) -> dict[str, Any] | None:
    """The checkpoint's own quantization, from config.json or hf_quant_config.json."""
    if config is not None:
        found = dict(config)
        if found.get("quant_method", "modelopt") == "modelopt":
            found.update(parse_modelopt({"quantization": config}) or {})
        return found
    if compression is not None:
        return dict(compression)
    return parse_modelopt(side_file) if side_file is not None else None


def _awq_marlin(config: Config, request: ModelRequest) -> bool:
    return (
        request.vendor == "nvidia"
        and request.sm >= 80
        and config.get("bits") == 4
        and config.get("group_size") in MARLIN_GROUPS
        and bool(config.get("zero_point"))
    )


def _gptq_marlin(config: Config, request: ModelRequest) -> bool:
    marlin_file = config.get("checkpoint_format") == "marlin" or config.get("is_marlin_format")
    return (
        not marlin_file
        and request.sm >= 80
        and config.get("bits") in (4, 8)
        and config.get("sym") is True
        and config.get("desc_act") is not None
        and config.get("group_size") in MARLIN_GROUPS
    )


def _override(config: Config, method: str, request: ModelRequest) -> str | None:
    """The method that claims the checkpoint, in the engine's order of asking."""
    wanted = request.quantization
    if wanted != "nvfp4_online":
        by_algo = MODELOPT_ALGOS.get(str(config.get("quant_algo", "")).upper())
        if wanted == "modelopt" and by_algo:
            return by_algo
        if method in ("modelopt_fp8", "modelopt_fp4"):
            return method
    if method == "modelopt_mixed":
        return method
    awq_asked = method == "awq" and wanted in (None, "marlin", "awq_marlin")
    gptq_asked = method == "gptq" and wanted in (None, "marlin", "gptq_marlin")
    if awq_asked and _awq_marlin(config, request):
        return "awq_marlin"
    if gptq_asked and _gptq_marlin(config, request):
        return "gptq_marlin"
    if wanted == "moe_wna16":
        gptq = method == "gptq" and not config.get("desc_act") and config.get("bits") in (4, 8)
        awq = method == "awq" and config.get("bits") == 4 and request.sm >= 75
        if gptq or awq:
            return wanted
    if method == "modelopt" and request.vendor == "amd":
        return "petit_nvfp4"
    return "humming" if wanted == "humming" and method != "mxfp4" else None


def resolve_quantization(
    config: Config | None, request: ModelRequest
) -> tuple[str | None, str | None]:
    """(method the engine runs, checkpoint's method where the request contradicts it)."""
    wanted = request.quantization.lower() if isinstance(request.quantization, str) else None
    if config is None:
        return wanted, None
    stated = config.get("quant_method", wanted or "")
    method = stated.lower() if isinstance(stated, str) else ""
    keep_online_draft = (
        request.is_draft_model
        and wanted == "nvfp4_online"
        and method in ("modelopt_fp4", "modelopt_mixed")
    )
    if wanted not in REQUANTIZE and not keep_online_draft:
        claimed = _override(config, method, request)
        if claimed is not None:
            method = wanted = claimed
    if wanted is None or wanted == method:
        return method, None
    if keep_online_draft or method in COMPATIBLE.get(wanted, ()):
        return wanted, None
    if request.is_draft_model and not (
        request.draft_quantization_chosen and wanted in REQUANTIZE and request.vendor == "amd"
    ):
        return method, None
    return wanted, None if wanted in REQUANTIZE else method
