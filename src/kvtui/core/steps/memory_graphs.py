"""Prefill chunk and captured sizes by memory class (`srt/arg_groups/memory_hook.py:93`, 0.5.23)."""

from __future__ import annotations

from kvtui.core.derived import uses_mla, whole
from kvtui.core.graphs import (
    BREAKABLE,
    DECODE,
    PREFILL,
    GraphConfig,
    cpu_graph_sizes,
    decode_graph_sizes,
    prefill_graph_sizes,
)
from kvtui.core.resolution import Resolution, step
from kvtui.core.steps.memory_classes import gpu_memory, memory_class

MLA_PREFILL_GRAPH_TOKENS = 8192
PIPELINE_PREFILL_GRAPH_TOKENS = 8192
LLAMA_2_PREFILL_GRAPH_TOKENS = 4096

QWEN3_VL_GRAPH_TYPES = ("qwen3_vl", "qwen3_vl_moe")


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
