"""Size of a model's vision encoder as the engine's configuration classes report it.

A checkpoint may leave values to its configuration class, and a class that keeps the vision part
as a plain dictionary reports no size at all. Sources: `srt/configs` of 0.5.23 and the
transformers release that it pins.
"""

from __future__ import annotations

from typing import Any

UNSTATED = (24, 1024)
"""Layers and width that the engine assumes where a class reports none (ViT-L/14)."""

_CLASSES: tuple[tuple[int | None, int | None, str], ...] = (
    (12, 768, "clip cohere2_vision gemma3 jet_vlm lfm2_vl llava llava_next llava_onevision siglip"),
    (12, 768, "siglip2 aya_vision paligemma got_ocr2 video_llama_3 granite4_vision shieldgemma2"),
    (12, 1152, "aria idefics3 smolvlm"),
    (16, 768, "gemma4 gemma4_unified diffusion_gemma embedding_gemma2"),
    (24, 1024, "internvl lighton_ocr mistral3 ovis2"),
    (27, 1024, "kimi_k3"),
    (27, 1152, "cosmos3_edge kimi_k25 kimi_vl locateanything minicpmv4_6 minicpmv4_7"),
    (27, 1152, "paddleocr_vl phi4_multimodal hunyuan_vl"),
    (32, 1280, "mllama"),
    (34, 768, "llama4"),
    (42, 1536, "dots_ocr dots_vlm"),
    (48, 3200, "internvl_chat"),
    (50, 1536, "muse_glimmer"),
    (63, 1792, "step3_vl"),
    (None, 1024, "glm_ocr glm5_next"),
    (None, 1152, "qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe qwen4_exp intern_s2_preview"),
    (None, 1152, "interns2_mobius bailing_moe_v3_vl bailingmm_moe_v2_lite cosmos3_omni"),
    (None, 1280, "ernie4_5_vl_moe"),
    (None, 1536, "glm4v glm4v_moe glm46v glm_image"),
    (None, 2048, "gemma3n"),
    (None, 3584, "qwen2_vl qwen2_5_vl exaone4_5"),
    (None, None, "deepseek-ocr deepseek_ocr2 deepseek_vl_v2 multi_modality step3p7"),
    (None, None, "inkling_mm_model"),
)
"""Default layers and width (None: the class has no such attribute) by model type."""

DEFAULTS = {kind: (layers, width) for layers, width, kinds in _CLASSES for kind in kinds.split()}

NONE_UNLESS_STATED = frozenset(
    {"gemma4", "gemma4_unified", "diffusion_gemma", "embedding_gemma2", "glm5_next", "muse_glimmer"}
)
"""Model types whose class has no vision part where the checkpoint states none."""

KEYS = {"kimi_k3": ("vt_num_hidden_layers", "vt_hidden_size")}
"""Names of layers and width in the checkpoint where they are other than usual."""


def encoder_size(model_type: str, stated: Any) -> tuple[int, int] | None:
    """(layers, width) of the vision encoder, or None for a model without one.

    `stated` is the checkpoint's `vision_config`: anything with `.get`, or None.
    """
    known = DEFAULTS.get(model_type)
    if stated is None:
        if known is None or model_type in NONE_UNLESS_STATED:
            return None
        return known[0] or UNSTATED[0], known[1] or UNSTATED[1]
    if known is None or not hasattr(stated, "get"):
        return UNSTATED
    layers, width = KEYS.get(model_type, ("num_hidden_layers", "hidden_size"))
    return (
        _size(stated.get(layers), known[0] or UNSTATED[0]),
        _size(stated.get(width), known[1] or UNSTATED[1]),
    )


def _size(stated: Any, otherwise: int) -> int:
    return stated if isinstance(stated, int) and stated > 0 else otherwise
