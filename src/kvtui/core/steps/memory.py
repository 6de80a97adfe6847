"""The GPU memory budget: prefill chunk, graph limits and the static fraction.

Mirrors `srt/arg_groups/memory_hook.py` of 0.5.23. Memory is in MiB throughout.
"""

from __future__ import annotations

from kvtui.core.derived import architecture, attn_dp_enabled, max_prefill_buffer_tokens, uses_mla
from kvtui.core.graphs import BREAKABLE, GraphConfig
from kvtui.core.model import archs
from kvtui.core.resolution import Part, Resolution, step
from kvtui.core.steps.memory_classes import gpu_memory
from kvtui.core.steps.memory_encoders import encoder_size
from kvtui.core.steps.memory_graphs import (
    chunk_by_memory,
    decode_graph_limit,
    decode_graph_list,
    multimodal_graphs_reach_running_limit,
    prefill_graph_list,
)


def _unified_pool_resizes(r: Resolution) -> bool:
    """Whether the unified pool of this launch can be sized after capture."""
    model = r.model
    algorithm = str(r.speculative_algorithm or "").upper()
    own_draft_pool = algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH", "DSPARK")
    return bool(model.is_hybrid_swa and model.mambaish is None and not own_draft_pool)


def post_capture_sizing(r: Resolution) -> bool:
    """Whether KV pools are sized after graphs were captured, so that nothing is reserved.

    An opt-in (`SGLANG_ENABLE_POST_CAPTURE_KV_SIZING`) with many exceptions
    (`arg_groups/overrides.py:1794`).
    """
    if not r.env_flag("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING") or r.enable_kv_cache_sharding:
        return False
    config: GraphConfig = r.cuda_graph_config
    efa = r.env.get("MOONCAKE_PROTOCOL", "rdma").lower() == "efa"
    decodes, prefills = (r.disaggregation_mode != role for role in ("prefill", "decode"))
    captured = max(config.prefill.bs or (0,))
    if (
        r.device != "cuda"
        or r.dcp_size != 1
        or r.prefill_only_disable_kv_cache
        or r.enable_memory_saver
        or "SGLANG_MOONCAKE_CUSTOM_MEM_POOL" in r.env
        or (r.disaggregation_transfer_backend == "mooncake" and efa)
        or (decodes and not config.decode.enabled)
        or (prefills and not config.prefill.enabled)
        or (prefills and not 0 < max_prefill_buffer_tokens(r) <= captured)
    ):
        return False
    if uses_mla(r) or (r.enable_unified_memory and not _unified_pool_resizes(r)):
        return False
    return architecture(r) not in archs.DEEPSEEK_V4 | archs.MINIMAX_SPARSE


def activation_tokens(r: Resolution) -> int:
    """Tokens of the largest forward, which activations scale with; at least 2048."""
    if r.disaggregation_mode == "decode":
        requests = r.max_running_requests or r.cuda_graph_config.decode.max_bs or 1
        return max(int(requests * (r.speculative_num_draft_tokens or 1)), 2048)
    tokens = r.chunked_prefill_size if r.chunked_prefill_size > 0 else r.max_prefill_tokens
    return max(int(tokens), 2048)


def graph_reserve(r: Resolution) -> float:
    """MiB that captured graphs and data-parallel padding take."""
    config: GraphConfig = r.cuda_graph_config
    decodes, prefills = (r.disaggregation_mode != role for role in ("prefill", "decode"))
    captured = config.decode.max_bs or 0
    reserve = 0.0
    if decodes and config.decode.enabled:
        reserve += captured * 2
    if decodes and attn_dp_enabled(r):
        reserve += captured * r.attn_dp_size * (4.5 if captured > 300 else 3)
    if prefills and config.prefill.enabled:
        reserve += 1536 if uses_mla(r) else len(config.prefill.bs or ()) * 8
        if config.prefill.backend == BREAKABLE and r.moe_a2a_backend == "deepep":
            reserve += 1024
    return reserve


def reserved_memory(r: Resolution) -> float:
    """MiB kept out of the static budget for activations, graphs and communication."""
    parallel = int(r.tp_size) * int(r.pp_size) / 8 * 1024
    if post_capture_sizing(r):
        return 1536 + parallel
    reserve = 512 + activation_tokens(r) * 1.5 + parallel + graph_reserve(r)
    memory = gpu_memory(r)
    if memory is not None and memory > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    captures_decode = r.disaggregation_mode != "prefill" and r.cuda_graph_config.decode.enabled
    if captures_decode and r.moe_a2a_backend == "deepep":
        reserve += 2048
    return reserve + 2048 if r.platform.is_xpu else reserve


def serves_images(r: Resolution) -> bool:
    """True where this server runs a vision or audio encoder itself."""
    return bool(
        r.model.is_multimodal
        and not r.language_only
        and not r.language_model_only
        and r.disaggregation_mode != "decode"
    )


def encoder_factor(r: Resolution) -> float:
    """Share of the fraction that stays for a multimodal model; bigger encoders leave less.

    95% for an encoder like ViT-L/14 (24 layers of width 1024), 9.5 points less for each
    further such encoder's worth of parameters, bounded to 76%..99.75%.
    """
    config = r.model.hf_config
    size = encoder_size(str(config.get("model_type")), config.get("vision_config"))
    if size is None:
        return 1.0
    layers, width = size
    relative = layers * width**2 / (24 * 1024**2)
    return 0.95 * float(max(0.8, min(1.05, 1.0 - 0.1 * (relative - 1.0))))


def automatic_fraction(r: Resolution) -> tuple[float, str]:
    """(the fraction that the engine would choose, why), whatever the user set."""
    memory = gpu_memory(r)
    reserve = reserved_memory(r)
    fraction = 0.95 if memory is None else round((memory - reserve) / memory, 3)
    why = f"{reserve:.0f} MiB stay free for activations and graphs"
    if serves_images(r):
        why += " and some for the encoder"
        if not post_capture_sizing(r):
            fraction *= encoder_factor(r)
        elif memory is not None:
            fraction -= 8 * 1024 / memory
    return fraction, why


@step("arg_groups/memory_hook.py:262")
def static_fraction(r: Resolution) -> None:
    """What weights and KV cache may take: all but the reserve, less for encoders."""
    if r.mem_fraction_static is not None:
        return
    fraction, why = automatic_fraction(r)
    r.default(why, mem_fraction_static=fraction)


@step("arg_groups/memory_hook.py:330")
def symmetric_memory_preallocation(r: Resolution) -> None:
    """Symmetric memory preallocates 4 GB unless the environment says otherwise."""
    if r.enable_symm_mem:
        r.env.setdefault("SGLANG_SYMM_MEM_PREALLOC_GB_SIZE", "4")


HANDLE_GPU_MEMORY_SETTINGS: tuple[Part, ...] = (
    chunk_by_memory,
    decode_graph_limit,
    multimodal_graphs_reach_running_limit,
    decode_graph_list,
    prefill_graph_list,
    static_fraction,
    symmetric_memory_preallocation,
)
