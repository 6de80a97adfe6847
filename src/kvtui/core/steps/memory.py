"""The GPU memory budget: prefill chunk, graph limits and the static fraction.

Mirrors `srt/arg_groups/memory_hook.py` of 0.5.23. Memory is in MiB throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.core.derived import (
    architecture,
    attn_dp_enabled,
    max_prefill_buffer_tokens,
    uses_mla,
    whole,
)
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.graphs import (
    BREAKABLE,
    DECODE,
    PREFILL,
    GraphConfig,
    cpu_graph_sizes,
    decode_graph_sizes,
    prefill_graph_sizes,
)
from kvtui.core.model import archs
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.memory_encoders import encoder_size


@dataclass(frozen=True, slots=True)
class MemoryClass:
    """Defaults of all GPUs below one size."""

    below_mib: float
    chunked_prefill_size: int
    decode_max_bs: int
    decode_max_bs_wide: int
    """Decode graph limit from four tensor-parallel ranks up."""
    examples: str


MEMORY_CLASSES = (
    MemoryClass(20 * 1024, 2048, 8, 8, "T4, 4080"),
    MemoryClass(35 * 1024, 4096, 48, 160, "A10, 4090, 5090"),
    MemoryClass(60 * 1024, 4096, 32, 160, "A100 40 GB, L40"),
    MemoryClass(160 * 1024, 8192, 256, 512, "A100 80 GB, H100, H200"),
    MemoryClass(float("inf"), 16384, 512, 512, "B200, MI300"),
)
"""memory_hook.py:93, smallest first."""

UNKNOWN_MEMORY = MemoryClass(0, 4096, 160, 160, "unknown")

MLA_PREFILL_GRAPH_TOKENS = 8192
PIPELINE_PREFILL_GRAPH_TOKENS = 8192
LLAMA_2_PREFILL_GRAPH_TOKENS = 4096

QWEN3_VL_GRAPH_TYPES = ("qwen3_vl", "qwen3_vl_moe")


def memory_class(memory_mib: int | None) -> MemoryClass:
    """The class of a GPU with that much memory, None where it is not known."""
    if not memory_mib:
        return UNKNOWN_MEMORY
    return next(row for row in MEMORY_CLASSES if memory_mib < row.below_mib)


def gpu_memory(r: Resolution) -> int | None:
    """Total memory of the smallest GPU in MiB; None where the engine could not tell either."""
    return r.platform.memory_mib or None


@rule(
    "KV410",
    stage=Stage.RESOLVE,
    option="ple_offload_embedding",
    source="arg_groups/memory_hook.py:31",
    example=Example("--ple-offload-embedding --cpu-offload-gb 4"),
    fragments=("--ple-offload-embedding cannot be combined",),
)
def ple_offload_is_the_only_offload(r: Resolution) -> Iterator[Hit]:
    """Offloaded per-layer embeddings exclude generic weight offload.

    Why: generic offload would stage the pinned embedding table back onto the GPU.

    Fix: keep one of the two.
    """
    others = [name for name in ("cpu_offload_gb", "offload_group_size") if getattr(r, name) > 0]
    if r.ple_offload_embedding and others:
        flags = " and ".join("--" + name.replace("_", "-") for name in others)
        yield hit(
            f"the per-layer embedding table can't be offloaded beside {flags}",
            drop(*others),
            set_to("keep the table on the GPU", ple_offload_embedding=False),
        )


@rule(
    "KV411",
    stage=Stage.RESOLVE,
    option="ple_offload_backend",
    source="arg_groups/memory_hook.py:40",
    example=Example("--ple-offload-backend file --no-ple-offload-embedding"),
    fragments=("--ple-offload-backend file requires",),
)
def ple_file_needs_offload(r: Resolution) -> Iterator[Hit]:
    """A file-backed embedding table is an offloaded one.

    Why: the file takes the place of the table in host memory, so there is nothing to back
    while the table stays on the GPU.

    Fix: offload the table, or drop the file backend.
    """
    if r.ple_offload_backend == "file" and r.ple_offload_embedding is False:
        yield hit(
            "file backs an offloaded table, and offloading is off",
            set_to("offload the table to the file", ple_offload_embedding=True),
            drop("ple_offload_backend"),
        )


@step("arg_groups/memory_hook.py:93")
def chunk_by_memory(r: Resolution) -> None:
    """The prefill chunk follows the GPU's memory class."""
    if r.chunked_prefill_size is None:
        row = memory_class(gpu_memory(r))
        r.default(
            f"GPUs of this memory ({row.examples}) prefill in chunks of that size",
            chunked_prefill_size=row.chunked_prefill_size,
        )


@step("arg_groups/memory_hook.py:104")
def decode_graph_limit(r: Resolution) -> None:
    """The largest captured decode batch follows memory class, width and request limit."""
    config: GraphConfig = r.cuda_graph_config
    if config.decode.max_bs is not None:
        return
    row = memory_class(gpu_memory(r))
    limit = row.decode_max_bs if r.tp_size < 4 else row.decode_max_bs_wide
    if r.max_running_requests is not None:
        limit = min(limit, r.max_running_requests)
    r.default(
        "the GPU's memory class sets the largest captured decode batch",
        cuda_graph_config=config.with_phase(DECODE, max_bs=limit),
    )


def large_hopper_qwen3_vl(r: Resolution) -> str | None:
    """The model type where Qwen3-VL serves on a Hopper GPU of 60 GiB or more, else None."""
    memory = gpu_memory(r)
    if not r.platform.is_sm90 or memory is None or memory < 60 * 1024:
        return None
    model = r.model
    kind = model.hf_config.get("model_type", "")
    return str(kind) if model.is_multimodal and kind in QWEN3_VL_GRAPH_TYPES else None


@step("arg_groups/model_overrides/qwen3_vl.py:36")
def multimodal_graphs_reach_running_limit(r: Resolution) -> None:
    """Qwen3-VL on large Hopper GPUs captures up to the request limit."""
    config: GraphConfig = r.cuda_graph_config
    limit, captured = r.max_running_requests, config.decode.max_bs
    if limit is None or captured is None or not captured < limit <= 512:
        return
    if config.is_locked(DECODE, "max_bs") or config.is_locked(DECODE, "bs"):
        return
    if large_hopper_qwen3_vl(r) is not None:
        r.declare(
            "Qwen3-VL decodes inside graphs up to the request limit",
            cuda_graph_config=config.with_phase(DECODE, max_bs=limit),
        )


@step("arg_groups/memory_hook.py:186")
def decode_graph_list(r: Resolution) -> None:
    """The list of captured decode batches, or the limit from a given list."""
    config: GraphConfig = r.cuda_graph_config
    limit = config.decode.max_bs
    padding = not r.disable_cuda_graph_padding
    if r.device == "cpu":
        limit = max(config.decode.bs) if config.decode.bs else r.torch_compile_max_bs or limit
        sizes = config.decode.bs or cpu_graph_sizes(limit, padding)
        r.default("a CPU compiles for these batch sizes", torch_compile_max_bs=limit)
    elif not config.decode.bs:
        sizes = decode_graph_sizes(limit, padding, r.speculative_algorithm is not None)
    else:
        sizes, limit = config.decode.bs, max(config.decode.bs)
    changed = config.with_phase(DECODE, bs=sizes, max_bs=limit)
    r.default("the captured batches end at the limit", cuda_graph_config=changed)


def prefill_graph_limit(r: Resolution) -> int:
    """Tokens of the largest captured prefill batch where the user names none."""
    config: GraphConfig = r.cuda_graph_config
    limit = int(r.chunked_prefill_size)
    if uses_mla(r):
        limit = min(MLA_PREFILL_GRAPH_TOKENS, limit)
    if (
        r.pp_size > 1
        and config.prefill.backend == BREAKABLE
        and not config.is_locked(PREFILL, "bs")
    ):
        limit = min(limit, PIPELINE_PREFILL_GRAPH_TOKENS)
    if r.max_total_tokens is not None:
        limit = min(limit, whole(r.max_total_tokens, limit))
    if "llama-2" in str(r.model_path).lower():
        limit = min(limit, LLAMA_2_PREFILL_GRAPH_TOKENS)
    return limit


@step("arg_groups/memory_hook.py:218")
def prefill_graph_list(r: Resolution) -> None:
    """Captured prefill sizes reach the chunk, less for MLA and pipelines."""
    config: GraphConfig = r.cuda_graph_config
    limit = config.prefill.max_bs
    if limit is None:
        limit = prefill_graph_limit(r)
    sizes = config.prefill.bs
    if sizes is None:
        sizes = prefill_graph_sizes(limit)
    r.default(
        "captured prefill sizes end at the chunk",
        cuda_graph_config=config.with_phase(PREFILL, max_bs=limit, bs=sizes),
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


HANDLE_OFFLOAD_COMPATIBILITY: tuple[Part, ...] = (
    ple_offload_is_the_only_offload,
    ple_file_needs_offload,
)
HANDLE_GPU_MEMORY_SETTINGS: tuple[Part, ...] = (
    chunk_by_memory,
    decode_graph_limit,
    multimodal_graphs_reach_running_limit,
    decode_graph_list,
    prefill_graph_list,
    static_fraction,
    symmetric_memory_preallocation,
)
