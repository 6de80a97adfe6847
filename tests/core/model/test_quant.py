"""Which quantization a checkpoint runs with."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.core.model.quant import checkpoint_quant, resolve_quantization
from kvtui.core.model.request import ModelRequest

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
FP8 = {"quant_method": "fp8"}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}


@pytest.mark.parametrize(
    ("stated", "asked", "sm", "expected"),
    [
        (None, None, 90, (None, None)),
        (None, "FP8", 90, ("fp8", None)),
        (FP8, None, 90, ("fp8", None)),
        (FP8, "bitsandbytes", 90, ("bitsandbytes", "fp8")),
        (FP8, "modelopt_fp4", 100, ("modelopt_fp4", None)),
        (FP8, "nvfp4_online", 100, ("nvfp4_online", None)),
        (AWQ, None, 80, ("awq_marlin", None)),
        (AWQ, None, 75, ("awq", None)),
        (AWQ, "awq", 80, ("awq", None)),
        (AWQ, "moe_wna16", 80, ("moe_wna16", None)),
        ({**AWQ, "bits": 8}, None, 80, ("awq", None)),
        (GPTQ, None, 80, ("gptq_marlin", None)),
        (GPTQ, "gptq", 80, ("gptq", None)),
        (GPTQ, None, 75, ("gptq", None)),
        ({**GPTQ, "checkpoint_format": "marlin"}, None, 90, ("gptq", None)),
        (NVFP4, None, 100, ("modelopt_fp4", None)),
        (NVFP4, "modelopt", 100, ("modelopt_fp4", None)),
        (NVFP4, "quark_mxfp4", 100, ("quark_mxfp4", None)),
        ({"quant_method": "compressed-tensors"}, "w8a8_fp8", 90, ("w8a8_fp8", None)),
        ({"quant_method": "mxfp4"}, "humming", 90, ("humming", "mxfp4")),
    ],
)
def test_resolution(
    stated: dict[str, Any] | None,
    asked: str | None,
    sm: int,
    expected: tuple[str | None, str | None],
) -> None:
    own = checkpoint_quant(stated, None, None)
    assert resolve_quantization(own, ModelRequest(quantization=asked, sm=sm)) == expected


@pytest.mark.parametrize(
    ("side", "method"),
    [
        ({"quantization": {"quant_algo": "FP8"}}, "modelopt_fp8"),
        ({"quantization": {"quant_algo": "NVFP4"}}, "modelopt_fp4"),
        ({"quantization": {"quant_algo": "MXFP8", "group_size": 32}}, "mxfp8"),
        ({"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {
            "a": {"quant_algo": "NVFP4"}}}}, "modelopt_mixed"),
        ({"quantization": {"quant_algo": "MIXED_PRECISION"}}, "w4afp8"),
        ({"quantization": {"quant_algo": "INT4_AWQ"}}, None),
        ({"quantization": 3}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_side_file(side: dict[str, Any], method: str | None) -> None:
    found = checkpoint_quant(None, None, side)
    assert (found or {}).get("quant_method") == method


def test_a_draft_follows_its_own_checkpoint() -> None:
    request = ModelRequest(quantization="awq", is_draft_model=True)
    assert resolve_quantization(FP8, request) == ("fp8", None)
    online = ModelRequest(quantization="nvfp4_online", is_draft_model=True)
    own = checkpoint_quant(NVFP4, None, None)
    assert resolve_quantization(own, online) == ("nvfp4_online", None)
