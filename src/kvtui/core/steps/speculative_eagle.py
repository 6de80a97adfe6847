"""EAGLE, EAGLE3, STANDALONE and FROZEN_KV_MTP (`speculative_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import MIXED_CHUNK_ALGORITHMS, attn_dp_enabled, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.speculative_dflash import running_requests_default
from kvtui.core.steps.speculative_drafts import draft_config

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")

DRAFT_IN_CHECKPOINT = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "Qwen4ExpForConditionalGeneration",
    }
)
"""Targets that bring their draft layer along (speculative_hook.py:1121)."""

TREE_TARGETS = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
TREE = (5, 4, 8)
CHAIN = (3, 1, 4)
"""(steps, branches, draft tokens) where nothing is set (speculative_hook.py:1424)."""

PAGED_TREE_BACKENDS = ("flashinfer", "fa3", "triton")
IQUEST = "IQuestQ1ForCausalLM"


def _in_family(r: Resolution) -> bool:
    return r.speculative_algorithm in EAGLE_FAMILY


def no_overlap_on_cpu(r: Resolution) -> None:
    """Speculation on a CPU runs without the overlap scheduler."""
    if r.device == "cpu" and not r.disable_overlap_schedule:
        r.declare("speculation on a CPU has no overlap", disable_overlap_schedule=True)


@rule(
    "KV810", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="arg_groups/speculative_hook.py:1078",
    example=Example("--tp-size 2 --attn-dp-size 2 --speculative-algorithm STANDALONE "
                    "--speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("standalone speculative decoding does not support dp attention",),
)  # fmt: skip
def standalone_without_attention_dp(r: Resolution) -> Iterator[Hit]:
    """A stand-alone draft does not run under attention data parallelism.

    Why: the draft model has its own attention layout, which is not split into groups.

    Fix: drop attention DP, or use EAGLE.
    """
    if r.speculative_algorithm == "STANDALONE" and attn_dp_enabled(r):
        yield hit(
            f"--speculative-algorithm STANDALONE with --attn-dp-size {r.attn_dp_size}",
            set_to("run attention without data parallelism", attn_dp_size=1),
        )


@step("arg_groups/speculative_hook.py:1085")
def eagle_defaults(r: Resolution) -> None:
    """Admission, mixed chunks and the draft's path."""
    if not _in_family(r):
        return
    running_requests_default(r)
    no_overlap_on_cpu(r)
    if r.enable_mixed_chunk and r.speculative_algorithm not in MIXED_CHUNK_ALGORITHMS:
        r.declare(f"{r.speculative_algorithm} has no mixed steps", enable_mixed_chunk=False)
    if r.speculative_draft_model_path is None and r.model.arch in DRAFT_IN_CHECKPOINT:
        r.default(
            "the target's checkpoint holds the draft layer",
            speculative_draft_model_path=r.model_path,
            speculative_draft_model_revision=r.revision,
        )


@rule(
    "KV811", stage=Stage.RESOLVE, option="speculative_draft_model_path",
    source="arg_groups/speculative_hook.py:1022",
    example=Example("--speculative-algorithm EAGLE --json-model-override-args "
                    """'{"architectures": ["IQuestQ1ForCausalLM"]}'"""),
    fragments=("IQuest Q1 requires", "MTP draft", "MTP requires", "MTP verification width"),
)  # fmt: skip
def iquest_draft(r: Resolution) -> Iterator[Hit]:
    """IQuest Q1 drafts with its own MTP checkpoint, in a chain.

    Why: the draft continues the target's hidden states, so sizes must agree.

    Fix: point `--speculative-draft-model-path` at the MTP checkpoint of that target.
    """
    if not _in_family(r) or r.model.arch != IQUEST:
        return
    fix = drop("speculative_algorithm")
    if r.speculative_draft_model_path in (None, r.model_path):
        yield hit("IQuest Q1 needs a draft checkpoint of its own", fix)
        return
    draft, target = draft_config(r), r.model.hf_config
    steps = whole(r.speculative_num_steps or draft.get("num_draft_slots"), 0)
    width = r.raw.speculative_num_draft_tokens
    for broken, found in (
        (draft.get("model_type") != "iquest_q1_mtp", "the draft is no IQuest Q1 MTP checkpoint"),
        (draft.get("hidden_size") != target.get("hidden_size"), "hidden sizes differ"),
        (draft.get("vocab_size") != target.get("vocab_size"), "vocabularies differ"),
        (draft.get("num_target_layers") != target.get("num_hidden_layers"),
         "the draft was made for another number of layers"),
        (r.speculative_token_map is not None, "--speculative-token-map is set"),
        (steps < 1, f"--speculative-num-steps is {steps}"),
        (r.speculative_eagle_topk not in (None, 1),
         f"--speculative-eagle-topk is {r.speculative_eagle_topk}"),
        (width not in (None, steps + 1), f"--speculative-num-draft-tokens is {width}"),
    ):  # fmt: skip
        if broken:
            yield hit(f"IQuest Q1 MTP: {found}", fix)


@rule(
    "KV812", stage=Stage.RESOLVE, option="speculative_num_steps",
    source="arg_groups/speculative_hook.py:1160",
    example=Example("--speculative-algorithm EAGLE --speculative-eagle-topk 4"),
)  # fmt: skip
def draft_shape_complete(r: Resolution) -> Iterator[Hit]:
    """The shape of a draft is given whole or not at all.

    Why: without steps the engine asserts, without a word, that branches and tokens are unset too;
    with steps it compares branches as a number, and dies on a missing one.

    Fix: give `--speculative-num-steps`, `--speculative-eagle-topk` and
    `--speculative-num-draft-tokens` together, or none of them.
    """
    if not _in_family(r) or r.speculative_adaptive:
        return
    steps, topk = r.raw.speculative_num_steps, r.raw.speculative_eagle_topk
    tokens = r.raw.speculative_num_draft_tokens
    none = drop("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
                title="let the engine choose the shape")  # fmt: skip
    if steps is None and not (topk is None and tokens is None):
        yield hit(
            f"--speculative-eagle-topk is {topk}, --speculative-num-draft-tokens is {tokens}, "
            "--speculative-num-steps is not set",
            none,
        )
    elif steps is not None and topk is None and r.model.arch != IQUEST:
        chain = set_to("draft one chain", speculative_eagle_topk=1)
        yield hit(f"--speculative-num-steps {steps} without --speculative-eagle-topk", chain, none)


@step("arg_groups/speculative_hook.py:1157")
def draft_shape(r: Resolution) -> None:
    """The shape of the draft, from the target's architecture where nothing is set."""
    if not _in_family(r):
        return
    if r.model.arch == IQUEST and r.speculative_draft_model_path not in (None, r.model_path):
        steps = whole(r.speculative_num_steps or draft_config(r).get("num_draft_slots"), 1)
        r.default(
            "the draft's slots",
            speculative_num_steps=steps,
            speculative_eagle_topk=1,
            speculative_num_draft_tokens=steps + 1,
        )
    elif not r.speculative_adaptive and r.speculative_num_steps is None:
        tree = r.speculative_algorithm != "STANDALONE" and r.model.arch in TREE_TARGETS
        steps, topk, tokens = TREE if tree else CHAIN
        r.default(
            f"the shape tuned for {r.model.arch}",
            speculative_num_steps=steps,
            speculative_eagle_topk=topk,
            speculative_num_draft_tokens=tokens,
        )


@rule(
    "KV813", stage=Stage.RESOLVE, option="speculative_eagle_topk",
    source="arg_groups/speculative_hook.py:1177",
    example=Example("--speculative-algorithm EAGLE --attention-backend trtllm_mha "
                    "--speculative-num-steps 3 --speculative-eagle-topk 4 "
                    "--speculative-num-draft-tokens 8", gpu="b200"),
    fragments=("trtllm_mha backend only supports topk = 1",),
)  # fmt: skip
def trtllm_mha_drafts_a_chain(r: Resolution) -> Iterator[Hit]:
    """TRT-LLM attention verifies chains, no trees.

    Why: its kernels have no tree mask.

    Fix: draft one branch, or choose another attention back end.
    """
    if _in_family(r) and "trtllm_mha" in r.backends and whole(r.speculative_eagle_topk) > 1:
        yield hit(
            f"trtllm_mha with --speculative-eagle-topk {r.speculative_eagle_topk}",
            set_to("draft one chain", speculative_eagle_topk=1),
            set_to("run attention on triton", attention_backend="triton",
                   prefill_attention_backend=None, decode_attention_backend=None),
        )  # fmt: skip


@step("arg_groups/speculative_hook.py:1188")
def rocm_samples_drafts(r: Resolution) -> None:
    """ROCm has no greedy verify kernel, so chains of EAGLE are sampled there."""
    if (
        r.speculative_algorithm == "EAGLE"
        and r.platform.is_hip
        and not r.speculative_use_rejection_sampling
        and r.speculative_token_map is None
        and r.speculative_eagle_topk == 1
        and r.speculative_accept_threshold_single == 1.0
        and r.speculative_accept_threshold_acc == 1.0
        and not r.enable_deterministic_inference
        and "SGLANG_SIMULATE_ACC_LEN" not in r.env
    ):
        r.default("ROCm verifies by sampling", speculative_use_rejection_sampling=True)


@rule(
    "KV814", stage=Stage.RESOLVE, option="speculative_use_rejection_sampling",
    source="arg_groups/speculative_hook.py:1215",
    example=Example("--speculative-algorithm EAGLE --speculative-use-rejection-sampling "
                    "--speculative-num-steps 3 --speculative-eagle-topk 4 "
                    "--speculative-num-draft-tokens 8"),
    fragments=("--speculative-use-rejection-sampling", "Deterministic rejection sampling"),
)  # fmt: skip
def rejection_sampling_needs(r: Resolution) -> Iterator[Hit]:
    """Rejection sampling verifies chains of EAGLE drafts without accept thresholds.

    Why: the kernel reads one proposal distribution over the target's vocabulary for each step,
    and accepts by its ratio alone.

    Fix: drop the flag, or draft one chain.
    """
    if not (_in_family(r) and r.speculative_use_rejection_sampling):
        return
    fix = drop("speculative_use_rejection_sampling")
    thresholds = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
    for broken, found, other in (
        (r.speculative_algorithm == "STANDALONE", "--speculative-algorithm is STANDALONE", fix),
        (r.speculative_eagle_topk != 1, f"--speculative-eagle-topk is {r.speculative_eagle_topk}",
         fix),
        (r.enable_deterministic_inference and not str(r.device).startswith("cuda"),
         f"deterministic sampling does not run on {r.device}", fix),
        (any(getattr(r, name) != 1.0 for name in thresholds), "accept thresholds are set",
         drop(*thresholds)),
    ):  # fmt: skip
        if broken:
            yield hit(f"--speculative-use-rejection-sampling: {found}", other)


@step("arg_groups/speculative_hook.py:1256")
def chain_width(r: Resolution) -> None:
    """A chain and its anchor are verified: steps + 1 tokens."""
    if not _in_family(r) or r.speculative_eagle_topk != 1 or r.speculative_num_steps is None:
        return
    width = r.speculative_num_steps + 1
    if r.speculative_num_draft_tokens != width:
        r.declare("a chain and its anchor are verified", speculative_num_draft_tokens=width)


@rule(
    "KV815", stage=Stage.RESOLVE, option="speculative_eagle_topk",
    source="arg_groups/speculative_hook.py:1273",
    example=Example("--speculative-algorithm EAGLE --speculative-num-steps 3 "
                    "--speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
                    model="deepseek-ai/DeepSeek-V3.2"),
    fragments=("speculative_eagle_topk > 1 with page_size > 1",),
)  # fmt: skip
def trees_over_pages(r: Resolution) -> Iterator[Hit]:
    """Tree drafts over pages larger than one token run on three attention back ends.

    Why: branches share a half-filled page, which needs a second pass over the tree.

    Fix: draft one branch, use pages of one token, or one of those back ends.
    """
    if (
        _in_family(r)
        and whole(r.speculative_eagle_topk) > 1
        and whole(r.page_size, 1) > 1
        and r.attention_backend not in PAGED_TREE_BACKENDS
    ):
        yield hit(
            f"--speculative-eagle-topk {r.speculative_eagle_topk} with pages of {r.page_size} "
            f"tokens on {r.attention_backend}",
            set_to("draft one chain", speculative_eagle_topk=1),
        )


HANDLE_EAGLE_FAMILY: tuple[Part, ...] = (
    standalone_without_attention_dp,
    eagle_defaults,
    iquest_draft,
    draft_shape_complete,
    draft_shape,
    trtllm_mha_drafts_a_chain,
    rocm_samples_drafts,
    rejection_sampling_needs,
    chain_width,
    trees_over_pages,
)


@step("arg_groups/speculative_hook.py:985")
def frozen_kv_mtp_defaults(r: Resolution) -> None:
    """A draft on the target's frozen cache takes no mixed steps."""
    if r.speculative_algorithm != "FROZEN_KV_MTP":
        return
    running_requests_default(r)
    if r.enable_mixed_chunk:
        r.declare("FROZEN_KV_MTP has no mixed steps", enable_mixed_chunk=False)


HANDLE_FROZEN_KV_MTP: tuple[Part, ...] = (frozen_kv_mtp_defaults,)
