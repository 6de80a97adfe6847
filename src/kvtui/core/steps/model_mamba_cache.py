"""How prefix reuse and recurrent state go together (`handle_mamba_radix_cache` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import from_instance, mamba_extra_buffer, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.model_common import arch, settle, use_backend

HYBRID = "Qwen/Qwen3.5-27B"

REGISTRY_ARCHS = frozenset({"GigaChat35ForCausalLM", "GigaChat35ForCausalLMNextN"})
"""Models of the linear-attention registry; they resolve before the model overrides do."""

RADIX_ARCHS = frozenset(
    {
        "KimiLinearForCausalLM",
        "KimiK3ForConditionalGeneration",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen4ExpForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
        "FalconH1ForCausalLM",
        "JetNemotronForCausalLM",
        "JetVLMForConditionalGeneration",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "ZayaForCausalLM",
        "Glm5NextForConditionalGeneration",
    }
)
"""Hybrid models whose prefix cache also keeps recurrent state (overrides.py:365)."""

EXTRA_BUFFER_ARCHS = frozenset(
    {
        "KimiLinearForCausalLM",
        "KimiK3ForConditionalGeneration",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen4ExpForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
        "FalconH1ForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "Glm5NextForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
        "InklingForConditionalGeneration",
        "InklingForConditionalGenerationMTP",
    }
)
"""Models that can keep spare state buffers (overrides.py:398)."""

STATE_CHUNK = 64
"""Tokens between state snapshots where the model names no chunk of its own."""


def keeps_state(r: Resolution) -> bool:
    """True for a hybrid model whose prefix cache has to keep recurrent state."""
    name = arch(r)
    if name == "GraniteMoeHybridForCausalLM":
        return "mamba" in (r.model.hf_config.get("layer_types") or ())
    return name in RADIX_ARCHS or name in REGISTRY_ARCHS


def supports_extra_buffer(r: Resolution) -> bool:
    """True where the model and the linear-attention kernels can snapshot state."""
    return (
        not r.platform.is_xpu
        and arch(r) in EXTRA_BUFFER_ARCHS
        and r.linear_attn_backend == "triton"
    )


def _uses_state(r: Resolution) -> bool:
    return bool(r.uses_mamba_radix_cache)


@step("arg_groups/overrides.py:454")
def mamba_radix_cache_resolution(r: Resolution) -> None:
    """Pick how a prefix cache keeps recurrent state, and what that costs."""
    if from_instance(r) or not keeps_state(r) or r.disable_radix_cache:
        return
    r.default("the model keeps recurrent state", uses_mamba_radix_cache=True)
    if r.mamba_radix_cache_strategy != "auto":
        return
    wants_buffer = not r.disable_overlap_schedule or whole(r.page_size, 1) > 1
    if wants_buffer and supports_extra_buffer(r):
        settle(
            r,
            "spare state buffers allow overlap scheduling and pages",
            mamba_radix_cache_strategy="extra_buffer",
        )
        return
    why = f"{arch(r)} can't snapshot recurrent state with {r.linear_attn_backend} kernels"
    settle(r, why, mamba_radix_cache_strategy="no_buffer")
    settle(r, "a prefix cache without spare state buffers", disable_overlap_schedule=True)


@rule(
    "KV124",
    stage=Stage.RESOLVE,
    option="mamba_radix_cache_strategy",
    source="arg_groups/model_hook.py:1066",
    example=Example("--mamba-radix-cache-strategy extra_buffer"),
    fragments=("needs mamba state, got",),
)
def state_strategy_needs_state(r: Resolution) -> Iterator[Hit]:
    """Spare state buffers are for models with recurrent layers.

    Why: the strategy sets aside buffers for recurrent state, and this model has none to keep.

    Fix: drop the option.
    """
    if not from_instance(r) and not _uses_state(r) and mamba_extra_buffer(r):
        yield hit(
            f"--mamba-radix-cache-strategy {r.mamba_radix_cache_strategy} with {arch(r)}, "
            "which keeps no recurrent state in its prefix cache",
            drop("mamba_radix_cache_strategy"),
        )


@rule(
    "KV125",
    stage=Stage.RESOLVE,
    option="mamba_radix_cache_strategy",
    source="arg_groups/mamba_hook.py:117",
    example=Example(
        "--mamba-radix-cache-strategy extra_buffer --linear-attn-backend cutedsl", model=HYBRID
    ),
    fragments=("extra_buffer is not supported for",),
)
def extra_buffer_supported(r: Resolution) -> Iterator[Hit]:
    """Spare state buffers need a model and kernels that write snapshots.

    Why: only Triton's linear-attention kernels, and only for some models, write the state
    snapshots that spare buffers hold.

    Fix: use no_buffer (no overlap scheduling, pages of one token), or Triton kernels.
    """
    if not (_uses_state(r) and mamba_extra_buffer(r)) or supports_extra_buffer(r):
        return
    plain = set_to("use no_buffer (no overlap)", mamba_radix_cache_strategy="no_buffer",
                   disable_overlap_schedule=True, page_size=None)  # fmt: skip
    fixes = [plain]
    if arch(r) in EXTRA_BUFFER_ARCHS:
        fixes.insert(0, drop("linear_attn_backend"))
    yield hit(
        f"{r.mamba_radix_cache_strategy} is not available for {arch(r)} "
        f"with {r.linear_attn_backend} linear-attention kernels",
        *fixes,
    )


@rule(
    "KV126",
    stage=Stage.RESOLVE,
    option="mamba_radix_cache_strategy",
    source="arg_groups/mamba_hook.py:125",
    example=Example(
        "--mamba-radix-cache-strategy extra_buffer_lazy --disaggregation-mode prefill", model=HYBRID
    ),
    fragments=("extra_buffer_lazy unsupported under PD",),
)
def lazy_buffer_without_pd(r: Resolution) -> Iterator[Hit]:
    """Lazy state buffers don't go with prefill/decode disaggregation.

    Why: the transfer of states between the two servers knows only buffers that are always there.

    Fix: use extra_buffer (a buffer more a request), or serve without disaggregation.
    """
    lazy = r.mamba_radix_cache_strategy == "extra_buffer_lazy" and mamba_extra_buffer(r)
    if _uses_state(r) and lazy and r.disaggregation_mode != "null":
        yield hit(
            f"extra_buffer_lazy with --disaggregation-mode {r.disaggregation_mode}",
            set_to(
                "use extra_buffer (a state more a request)",
                mamba_radix_cache_strategy="extra_buffer",
            ),
        )


@rule(
    "KV127",
    stage=Stage.RESOLVE,
    option="mamba_track_interval",
    source="arg_groups/mamba_hook.py:133",
    example=Example(
        "--mamba-track-interval 2 --speculative-algorithm NGRAM --speculative-num-draft-tokens 8",
        model=HYBRID,
    ),
)
def track_interval_covers_drafts(r: Resolution) -> Iterator[Hit]:
    """State snapshots are at least as far apart as one draft is long.

    Why: a verify step may accept every draft token, and at most one snapshot fits in a step.

    Fix: raise --mamba-track-interval to the number of draft tokens, or draft fewer.
    """
    drafts, interval = r.speculative_num_draft_tokens, whole(r.mamba_track_interval, 256)
    if not (_uses_state(r) and mamba_extra_buffer(r)) or not isinstance(drafts, int):
        return
    if interval < drafts:
        yield hit(
            f"--mamba-track-interval {interval} is less than {drafts} draft tokens",
            drop("mamba_track_interval", title="go back to an interval of 256 tokens"),
        )


@rule(
    "KV128",
    stage=Stage.RESOLVE,
    option="page_size",
    source="arg_groups/mamba_hook.py:135",
    example=Example("--page-size 7", model=HYBRID),
)
def track_interval_in_pages(r: Resolution) -> Iterator[Hit]:
    """State snapshots lie on page borders.

    Why: a snapshot is kept with the last page of its prefix, so the interval between snapshots
    has to be a whole number of pages.

    Fix: choose a page size that divides --mamba-track-interval.
    """
    page, interval = r.page_size, whole(r.mamba_track_interval, 256)
    if not (_uses_state(r) and mamba_extra_buffer(r)) or not isinstance(page, int) or page <= 0:
        return
    if interval % page:
        yield hit(
            f"--mamba-track-interval {interval} is no multiple of --page-size {page}",
            drop("page_size"),
            set_to("use pages of 64 tokens", page_size=64),
        )


@rule(
    "KV129",
    stage=Stage.RESOLVE,
    option="page_size",
    source="arg_groups/overrides.py:1917",
    example=Example("--page-size 96 --mamba-track-interval 192", model=HYBRID),
    fragments=("either chunk_size or page_size must be divisible",),
)
def state_chunk_in_pages(r: Resolution) -> Iterator[Hit]:
    """Pages and state chunks divide one another.

    Why: a prefix ends on a page border and on a chunk border of the recurrent kernels at once.

    Fix: choose a page size that divides the model's chunk, or a multiple of it.
    """
    page = r.page_size
    if not (_uses_state(r) and mamba_extra_buffer(r)) or not isinstance(page, int) or page <= 0:
        return
    chunk = whole(r.model.hf_config.get("mamba_chunk_size", STATE_CHUNK), STATE_CHUNK)
    if max(chunk, page) % max(1, min(chunk, page)):
        yield hit(
            f"pages of {page} tokens and state chunks of {chunk} don't divide one another",
            drop("page_size"),
            set_to("use pages of 64 tokens", page_size=64),
        )


def _no_buffer(r: Resolution) -> bool:
    return _uses_state(r) and not mamba_extra_buffer(r)


def _to_extra_buffer() -> tuple[str, dict[str, str]]:
    return "keep spare state buffers", {"mamba_radix_cache_strategy": "extra_buffer"}


@rule(
    "KV130",
    stage=Stage.RESOLVE,
    option="page_size",
    source="arg_groups/mamba_hook.py:157",
    example=Example("--mamba-radix-cache-strategy no_buffer --page-size 16", model=HYBRID),
    fragments=("no_buffer only supports page_size=1",),
)
def no_buffer_pages(r: Resolution) -> Iterator[Hit]:
    """Without spare state buffers pages hold one token.

    Why: the state of a prefix is then known only where a request stopped, which may be anywhere.

    Fix: use pages of one token, spare buffers where the model has them, or no prefix cache.
    """
    if not _no_buffer(r) or r.page_size in (1, None):
        return
    fixes = [set_to("use pages of one token", page_size=1)]
    if supports_extra_buffer(r):
        title, values = _to_extra_buffer()
        fixes.append(set_to(title, **values))
    fixes.append(set_to("switch prefix reuse off", disable_radix_cache=True))
    yield hit(f"no_buffer with pages of {r.page_size} tokens", *fixes)


@rule(
    "KV131",
    stage=Stage.RESOLVE,
    option="mamba_radix_cache_strategy",
    source="arg_groups/mamba_hook.py:158",
    example=Example("--mamba-radix-cache-strategy no_buffer", model=HYBRID),
    fragments=("no_buffer do not support overlap",),
)
def no_buffer_overlap(r: Resolution) -> Iterator[Hit]:
    """Without spare state buffers the overlap scheduler has to be off.

    Why: it starts the next step before the state of the last one has been copied away.

    Fix: add --disable-overlap-schedule, or leave the strategy to the engine.
    """
    if _no_buffer(r) and not r.disable_overlap_schedule:
        yield hit(
            "no_buffer with the overlap scheduler",
            set_to("switch overlap scheduling off", disable_overlap_schedule=True),
            drop("mamba_radix_cache_strategy"),
        )


@rule(
    "KV132",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/mamba_hook.py:161",
    example=Example(
        "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule"
        " --attention-backend trtllm_mha",
        model=HYBRID,
        gpu="b200",
    ),
    fragments=("no_buffer do not support trtllm_mha",),
)
def no_buffer_trtllm(r: Resolution) -> Iterator[Hit]:
    """Without spare state buffers trtllm_mha can't serve a hybrid model.

    Why: trtllm_mha works on pages of 16 tokens and more, no_buffer on pages of one.

    Fix: use another attention backend, or spare state buffers.
    """
    if _no_buffer(r) and r.attention_backend == "trtllm_mha":
        yield hit("no_buffer with trtllm_mha", *use_backend(r, "triton"))


HANDLE_MAMBA_RADIX_CACHE: tuple[Part, ...] = (
    mamba_radix_cache_resolution,
    state_strategy_needs_state,
    extra_buffer_supported,
    lazy_buffer_without_pd,
    track_interval_covers_drafts,
    track_interval_in_pages,
    state_chunk_in_pages,
    no_buffer_pages,
    no_buffer_overlap,
    no_buffer_trtllm,
)
