"""CUDA graph settings: how the user's spellings merge, and what switches capture off.

Mirrors `srt/arg_groups/cuda_graph_hook.py` of 0.5.23, hook by hook.
"""

from __future__ import annotations

from typing import Any

from kvtui.core.derived import architecture, from_instance, whole
from kvtui.core.graphs import (
    BREAKABLE,
    DECODE,
    DISABLED,
    FULL,
    PHASE_KEYS,
    PREFILL,
    PREFILL_DEFAULT_TOKENS,
    GraphConfig,
    PhaseConfig,
    prefill_graph_sizes,
)
from kvtui.core.model import archs
from kvtui.core.resolution import Part, Resolution, step
from kvtui.core.steps.graphs_rules import (
    SPELLINGS,
    asked_json,
    graph_backend_exists,
    graph_choice_overridden,
    graph_context_fits_the_model,
    graph_sizes_are_numbers,
    usable_value,
)

INKLING = frozenset({"InklingForConditionalGeneration", "InklingForConditionalGenerationMTP"})
MUSE_GLIMMER = frozenset({"MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration"})
MUSE_GLIMMER_TOKENS = 512

BREAKABLE_A2A = frozenset({"none", "deepep", "megamoe", "flashinfer"})
"""Expert exchanges that breakable capture was validated with."""


@step("arg_groups/cuda_graph_hook.py:385")
def inkling_captures_whole_prefill(r: Resolution) -> None:
    """Inkling opts into full prefill graphs unless the user says otherwise."""
    if r.cuda_graph_backend_prefill is not None or r.disable_prefill_cuda_graph:
        return
    if not from_instance(r) and architecture(r) in INKLING:
        r.default("Inkling is captured as one whole graph", cuda_graph_backend_prefill=FULL)


@step("arg_groups/cuda_graph_hook.py:412")
def muse_glimmer_captures_small_prefill(r: Resolution) -> None:
    """Muse Glimmer captures prefill graphs of few tokens."""
    if r.cuda_graph_max_bs_prefill is not None or from_instance(r):
        return
    if architecture(r) in MUSE_GLIMMER:
        r.default(
            "Muse Glimmer captures prefill up to 512 tokens",
            cuda_graph_max_bs_prefill=MUSE_GLIMMER_TOKENS,
        )


@step("arg_groups/cuda_graph_hook.py:33")
def merge_graph_spellings(r: Resolution) -> None:
    """Defaults, then the off switches, then one-key options, then the JSON."""
    keys: dict[str, dict[str, Any]] = {DECODE: {}, PREFILL: {}}
    if r.disable_cuda_graph:
        keys[DECODE]["backend"] = keys[PREFILL]["backend"] = DISABLED
    if r.disable_prefill_cuda_graph:
        keys[PREFILL]["backend"] = DISABLED
    if r.disable_decode_cuda_graph:
        keys[DECODE]["backend"] = DISABLED
    for option, phase, key in SPELLINGS:
        value = getattr(r, option)
        if value is not None:
            keys[phase][key] = value
    for phase, settings in asked_json(r).items():
        keys[phase].update((k, v) for k, v in settings.items() if k in PHASE_KEYS[phase])
    phases = {
        phase: {key: usable_value(key, value) for key, value in settings.items()}
        for phase, settings in keys.items()
    }
    prefill_default = BREAKABLE if r.platform.is_cuda else DISABLED
    asked = GraphConfig(
        PhaseConfig(**{"backend": FULL, **phases[DECODE]}),
        PhaseConfig(**{"backend": prefill_default, **phases[PREFILL]}),
        frozenset((phase, key) for phase, settings in keys.items() for key in settings),
    )
    r.scratch["graphs_asked"] = asked
    r.default("merged from all CUDA graph options", cuda_graph_config=asked)


def supports_prefill_cp_bcg(r: Resolution) -> bool:
    """Whether prefill context parallelism can run under breakable graphs (layers/cp/bcg)."""
    if not (r.enable_prefill_cp and r.pp_size == 1 and r.attn_cp_size == r.tp_size):
        return False
    backend = r.backends[0]
    if (r.cp_strategy, backend) == ("zigzag", "trtllm_mha"):
        return True
    return bool(
        (r.cp_strategy, backend) == ("interleave", "dsa")
        and r.dp_size == 1
        and r.ep_size == 1
        and r.attn_cp_size > 1
        and "Glm5NextForConditionalGeneration" in r.model.hf_config.architectures
    )


def uses_kda(r: Resolution) -> bool:
    """True for a hybrid whose linear layers are Kimi delta attention."""
    mambaish = r.model.mambaish
    return mambaish is not None and mambaish.kind == "kda"


def _breakable_conflict(r: Resolution) -> str | None:
    """Why breakable prefill graphs are left off by default, or None."""
    if r.dcp_size > 1:
        return "decode context parallelism is not captured"
    if r.enable_two_batch_overlap:
        return "two-batch overlap is not captured"
    if r.moe_a2a_backend not in BREAKABLE_A2A:
        return f"prefill capture with --moe-a2a-backend {r.moe_a2a_backend} is not validated"
    model = r.model
    names = model.hf_config.get("architectures") or ()
    if uses_kda(r) and "Glm5NextForConditionalGeneration" not in names:
        return "KDA linear attention is not validated under breakable graphs"
    if architecture(r) in archs.DEEPSEEK_V4 and not supports_prefill_cp_bcg(r):
        return "DeepSeek-V4 needs too much capture memory"
    if r.attn_cp_size > 1 and not supports_prefill_cp_bcg(r):
        return "this context parallel layout is not captured"
    if model.is_multimodal and not model.is_multimodal_breakable_cuda_graph_supported:
        return "multimodal prefill does not replay under breakable graphs"
    return None


def graphs_off(r: Resolution, why: str, *phases: str) -> None:
    """Switch capture off in the named phases."""
    config = r.cuda_graph_config
    for phase in phases:
        config = config.with_phase(phase, backend=DISABLED)
    r.declare(why, cuda_graph_config=config)


@step("arg_groups/cuda_graph_hook.py:134")
def prefill_graphs_off_where_incompatible(r: Resolution) -> None:
    """Breakable prefill graphs give way, unless the user chose the prefill backend."""
    config: GraphConfig = r.cuda_graph_config
    if config.is_locked(PREFILL, "backend") or config.prefill.backend != BREAKABLE:
        return
    if whole(r.pp_size) > 1:
        graphs_off(r, "pipeline parallelism captures prefill only on request", PREFILL)
        return
    why = _breakable_conflict(r)
    if why is not None:
        graphs_off(r, why, PREFILL)


@step("arg_groups/cuda_graph_hook.py:347")
def deepep_aligns_prefill_sizes(r: Resolution) -> None:
    """DeepEP may hang on captured token counts that are no multiple of eight."""
    config: GraphConfig = r.cuda_graph_config
    if r.moe_a2a_backend != "deepep" or config.prefill.backend != BREAKABLE:
        return
    sizes = config.prefill.bs
    if sizes is None:
        sizes = prefill_graph_sizes(config.prefill.max_bs or PREFILL_DEFAULT_TOKENS)
    aligned = tuple(sorted({-(-size // 8) * 8 for size in sizes}))
    if aligned and aligned != tuple(sorted(sizes)):
        r.declare(
            "DeepEP needs prefill graph sizes that are multiples of 8",
            cuda_graph_config=config.with_phase(PREFILL, bs=aligned, max_bs=aligned[-1]),
        )


@step("arg_groups/cuda_graph_hook.py:558")
def disaggregation_roles_capture_one_phase(r: Resolution) -> None:
    """A prefill server captures no decode graphs, a decode server no prefill graphs."""
    idle = {"prefill": DECODE, "decode": PREFILL}.get(r.disaggregation_mode)
    if idle is not None and not r.cuda_graph_config.is_locked(idle, "backend"):
        graphs_off(r, f"a {r.disaggregation_mode} server runs no {idle} steps", idle)


@step("arg_groups/cuda_graph_hook.py:310")
def deepseek_trtllm_mla_prefill_uncaptured(r: Resolution) -> None:
    """DeepSeek-V3 on trtllm_mla prefills faster without graphs."""
    config: GraphConfig = r.cuda_graph_config
    if config.is_locked(PREFILL, "backend") or not config.prefill.enabled:
        return
    names = r.model.hf_config.get("architectures") or ()
    if "DeepseekV3ForCausalLM" in names and r.backends[0] == "trtllm_mla":
        graphs_off(r, "a captured prefill would leave trtllm_mla's faster kernels", PREFILL)


def _cp_default_applies(r: Resolution) -> bool:
    return bool(
        r.enable_prefill_cp
        and not r.cuda_graph_config.is_locked(PREFILL, "backend")
        and supports_prefill_cp_bcg(r)
    )


@step("arg_groups/cuda_graph_hook.py:104")
def prefill_cp_captures_where_supported(r: Resolution) -> None:
    """Supported context parallel layouts get breakable graphs, then the usual vetoes."""
    if not _cp_default_applies(r):
        return
    r.declare(
        "this context parallel layout runs under breakable graphs",
        cuda_graph_config=r.cuda_graph_config.with_phase(PREFILL, backend=BREAKABLE),
    )
    prefill_graphs_off_where_incompatible.body(r)
    disaggregation_roles_capture_one_phase.body(r)
    deepep_aligns_prefill_sizes.body(r)


@step("arg_groups/cuda_graph_hook.py:479")
def align_graph_context(r: Resolution) -> None:
    """The captured context size is rounded up to whole pages."""
    config: GraphConfig = r.cuda_graph_config
    wanted, page = config.prefill.max_context_size, max(1, whole(r.page_size, 1))
    if wanted is not None and wanted % page:
        aligned = -(-wanted // page) * page
        r.declare(
            f"the captured context is counted in whole pages of {page} tokens",
            cuda_graph_config=config.with_phase(PREFILL, max_context_size=aligned),
        )


APPLY_INKLING_PREFILL_CUDA_GRAPH_DEFAULT: tuple[Part, ...] = (inkling_captures_whole_prefill,)
APPLY_MUSE_GLIMMER_PREFILL_CUDA_GRAPH_MAX_BS_DEFAULT: tuple[Part, ...] = (
    muse_glimmer_captures_small_prefill,
)
HANDLE_CUDA_GRAPH_CONFIG: tuple[Part, ...] = (
    merge_graph_spellings,
    prefill_graphs_off_where_incompatible,
    deepep_aligns_prefill_sizes,
    disaggregation_roles_capture_one_phase,
    graph_backend_exists,
    graph_sizes_are_numbers,
)
DISABLE_PREFILL_CUDA_GRAPH_FOR_DEEPSEEK_TRTLLM_MLA: tuple[Part, ...] = (
    deepseek_trtllm_mla_prefill_uncaptured,
)
APPLY_PREFILL_CP_CUDA_GRAPH_DEFAULT: tuple[Part, ...] = (prefill_cp_captures_where_supported,)
FINALIZE_CUDA_GRAPH_PREFILL_MAX_CONTEXT: tuple[Part, ...] = (
    graph_context_fits_the_model,
    align_graph_context,
    graph_choice_overridden,
)
