"""The walk through a launch: which options belong to which step, and when one is not used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvtui.core.command import ordered_names
from kvtui.core.options import catalogue
from kvtui.tui.session import GPU, GPU_COUNT

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One step: options that most launches touch, and the catalogue groups behind "more"."""

    key: str
    title: str
    options: tuple[str, ...]
    groups: tuple[str, ...] = ()


STEPS: tuple[SetupStep, ...] = (
    SetupStep(
        "model",
        "Model",
        (
            "model_path", "quantization", "dtype", "context_length", "is_embedding",
            "trust_remote_code", "load_format", "revision",
        ),
        ("model", "mm", "lora"),
    ),
    SetupStep(
        "hardware",
        "Hardware",
        (GPU, GPU_COUNT, "tp_size", "dp_size", "attn_dp_size", "pp_size", "ep_size", "dcp_size",
         "nnodes", "device"),
        ("parallel", "device", "exec.comm"),
    ),
    SetupStep(
        "attention",
        "Attention",
        (
            "attention_backend", "prefill_attention_backend", "decode_attention_backend",
            "speculative_algorithm", "speculative_draft_model_path", "speculative_num_steps",
            "speculative_eagle_topk", "speculative_num_draft_tokens", "linear_attn_backend",
            "dsa_prefill_backend", "dsa_decode_backend", "enable_deterministic_inference",
            "disable_cuda_graph", "cuda_graph_max_bs_decode",
        ),
        ("exec.kernel", "spec", "exec.graph", "exec.moe", "exec.deterministic"),
    ),
    SetupStep(
        "kv",
        "KV cache",
        (
            "kv_cache_dtype", "page_size", "mem_fraction_static", "max_total_tokens",
            "max_running_requests", "chunked_prefill_size", "disable_radix_cache",
            "prefill_only_disable_kv_cache", "swa_full_tokens_ratio", "disable_hybrid_swa_memory",
            "enable_unified_memory", "max_mamba_cache_size", "mamba_full_memory_ratio",
            "mamba_ssm_dtype", "mamba_radix_cache_strategy", "radix_eviction_policy",
            "enable_kv_cache_sharding",
        ),
        ("schedule", "memory", "exec.mamba"),
    ),
    SetupStep(
        "offload",
        "Offload",
        (
            "enable_hierarchical_cache", "hicache_ratio", "hicache_size", "hicache_write_policy",
            "hicache_io_backend", "hicache_mem_layout", "hicache_storage_backend",
            "hicache_storage_prefetch_policy", "hicache_storage_backend_extra_config",
            "disaggregation_mode", "disaggregation_transfer_backend",
            "disaggregation_decode_enable_offload_kvcache",
            "disaggregation_decode_enable_radix_cache",
            "disaggregation_decode_retraction_backup", "enable_hisparse", "hisparse_config",
            "enable_lmcache", "cpu_offload_gb",
        ),
        ("memory", "disagg", "exec.offload"),
    ),
    SetupStep("review", "Review", ()),
)  # fmt: skip

STEP_BY_KEY: Mapping[str, SetupStep] = MappingProxyType({step.key: step for step in STEPS})

_GROUP_STEP = {
    group: step.key
    for step in reversed(STEPS)
    for group in step.groups
}  # fmt: skip
"""A group that two steps list ("memory") belongs to the earlier one; names decide before."""

_OFFLOAD_WORDS = ("hicache", "hisparse", "offload", "disaggregation", "lmcache", "flexkv")


@cache
def step_of(option: str | None) -> str:
    """The step in which an option is edited; what no step lists is looked at in the review."""
    if option is None:
        return "review"
    for step in STEPS:
        if option in step.options:
            return step.key
    if any(word in option for word in _OFFLOAD_WORDS):
        return "offload"
    known = catalogue().options.get(option)
    return _GROUP_STEP.get(known.group, "review") if known else "review"


def listed_options(
    step: SetupStep, report: Report, visited: Collection[str] = ()
) -> tuple[str, ...]:
    """The step's options in order: its own, then others that the user set or went to; those
    without effect last. The review lists everything that was set."""
    if step.key == "review":
        return (*set_by_user(report), *(n for n in visited if step_of(n) == step.key))
    others = dict.fromkeys((*report.draft.options, *visited))
    chosen = [n for n in others if n not in step.options and step_of(n) == step.key]
    names = [*step.options, *chosen]
    meant = {*report.draft.options, *visited}
    used = [n for n in names if n in meant or not_used(n, report) is None]
    return (*used, *(n for n in names if n not in used))


def set_by_user(report: Report) -> tuple[str, ...]:
    """Everything that was set, hardware first, options in the order of the command."""
    draft = report.draft
    hardware = [n for n, v in ((GPU, draft.gpu), (GPU_COUNT, draft.gpu_count)) if v is not None]
    env = [f"env:{name}" for name in sorted(draft.env)]
    return (*hardware, *ordered_names(draft.options), *env)


def _needs(option: str, why: str) -> Callable[[Report], str | None]:
    def check(report: Report) -> str | None:
        value = report.plan.values.get(option)
        return None if value and value != "null" else why

    return check


def _needs_swa(report: Report) -> str | None:
    if report.pool is None or "SWA" in report.pool.class_name:
        return None
    return "no sliding window in this pool"


def _needs_state(report: Report) -> str | None:
    if report.pool is None or report.pool.state_bytes_per_request:
        return None
    return "no recurrent layers in this model"


def _needs_hybrid(report: Report) -> str | None:
    return (
        None
        if _needs_swa(report) is None or _needs_state(report) is None
        else ("neither sliding window nor recurrent layers")
    )


def _needs_dsa(report: Report) -> str | None:
    return None if "dsa" in report.plan.backends else "no sparse attention (dsa) in use"


def _needs_host_cache(report: Report) -> str | None:
    values = report.plan.values
    names = ("enable_hierarchical_cache", "disaggregation_decode_enable_offload_kvcache")
    if any(values.get(name) for name in names):
        return None
    return "no host cache in use"


_DECODE_ONLY = "only on a decode server"


def _needs_decode(report: Report) -> str | None:
    return None if report.plan.values.get("disaggregation_mode") == "decode" else _DECODE_ONLY


def _needs_draft(report: Report) -> str | None:
    return _needs("speculative_algorithm", "no speculative decoding")(report)


USED_WHEN: Mapping[str, Callable[[Report], str | None]] = MappingProxyType({
    "swa_full_tokens_ratio": _needs_swa,
    "disable_hybrid_swa_memory": _needs_swa,
    "enable_unified_memory": _needs_hybrid,
    "max_mamba_cache_size": _needs_state,
    "mamba_full_memory_ratio": _needs_state,
    "mamba_ssm_dtype": _needs_state,
    "mamba_radix_cache_strategy": _needs_state,
    "linear_attn_backend": _needs_state,
    "speculative_draft_model_path": _needs_draft,
    "speculative_num_steps": _needs_draft,
    "speculative_eagle_topk": _needs_draft,
    "speculative_num_draft_tokens": _needs_draft,
    "dsa_prefill_backend": _needs_dsa,
    "dsa_decode_backend": _needs_dsa,
    "hicache_ratio": _needs_host_cache,
    "hicache_size": _needs_host_cache,
    "hicache_write_policy": _needs_host_cache,
    "hicache_io_backend": _needs_host_cache,
    "hicache_mem_layout": _needs_host_cache,
    "hicache_storage_backend": _needs_host_cache,
    "hicache_storage_prefetch_policy": _needs_host_cache,
    "hicache_storage_backend_extra_config": _needs("hicache_storage_backend", "no storage backend"),
    "disaggregation_transfer_backend": _needs("disaggregation_mode", "no PD disaggregation"),
    "disaggregation_decode_enable_offload_kvcache": _needs_decode,
    "disaggregation_decode_enable_radix_cache": _needs_decode,
    "disaggregation_decode_retraction_backup": _needs_decode,
    "hisparse_config": _needs("enable_hisparse", "HiSparse is off"),
})  # fmt: skip
"""Why an option has no effect on the report's launch, by name; absent means always used."""


def not_used(option: str, report: Report) -> str | None:
    """The reason for which an option has no effect here, or None where it has one."""
    check = USED_WHEN.get(option)
    return check(report) if check else None
