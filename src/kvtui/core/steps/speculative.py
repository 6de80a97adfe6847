"""Speculative decoding, common part (`srt/arg_groups/speculative_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import ADAPTIVE_STEPS, attn_dp_enabled, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.attention_kernels import RAGGED_MODES
from kvtui.core.steps.moe_a2a_common import set_env
from kvtui.core.steps.speculative_dflash import HANDLE_DFLASH
from kvtui.core.steps.speculative_drafts import is_gemma4_draft
from kvtui.core.steps.speculative_dspark import HANDLE_DSPARK
from kvtui.core.steps.speculative_eagle import HANDLE_EAGLE_FAMILY, HANDLE_FROZEN_KV_MTP
from kvtui.core.steps.speculative_ngram import HANDLE_NGRAM
from kvtui.core.steps.speculative_uno import HANDLE_UNO

ALGORITHMS = (
    "DFLASH", "UNO", "DSPARK", "EAGLE", "EAGLE3", "FROZEN_KV_MTP", "STANDALONE", "NGRAM",
)  # fmt: skip
"""What the release implements (speculative/spec_info.py:36); NEXTN is another word for EAGLE."""
ALIASES = ("NEXTN", "EAGLE")
RADIX_DECODE_ALGORITHMS = (None, "DSPARK", "EAGLE", "EAGLE3")
BLOCK_VERIFY_ALGORITHMS = ("EAGLE", "EAGLE3", "DFLASH", "DSPARK")
COORDINATED_ALGORITHMS = ("EAGLE", "EAGLE3", "DSPARK")


def _gemma4(r: Resolution) -> bool:
    return r.speculative_draft_model_path is not None and is_gemma4_draft(r)


@step("arg_groups/speculative_hook.py:124")
def speculative_basics(r: Resolution) -> None:
    """The draft's revision and MoE runner follow the target, the algorithm's name is settled."""
    if r.speculative_draft_model_path and r.speculative_draft_model_revision is None:
        r.default("the draft's main branch", speculative_draft_model_revision="main")
    if r.speculative_moe_runner_backend is None:
        runner = r.moe_runner_backend
        if runner == "flashinfer_megamoe":
            runner = "flashinfer_trtllm"
        elif str(runner).startswith("lora_"):
            runner = "auto"
        r.default("drafts run experts as the target does", speculative_moe_runner_backend=runner)
    name = r.speculative_algorithm
    if name is None:
        return
    name = str(name).upper()
    if name in ALIASES:
        name = "FROZEN_KV_MTP" if _gemma4(r) else "EAGLE"
    if name != r.speculative_algorithm:
        why = "the draft is a Gemma 4 assistant" if name == "FROZEN_KV_MTP" else "it means EAGLE"
        r.respell(why, speculative_algorithm=name)


@rule(
    "KV800", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="speculative/spec_info.py:66", example=Example("--speculative-algorithm MEDUSA"),
    fragments=("Unknown speculative algorithm name", "Gemma4AssistantForCausalLM draft"),
)  # fmt: skip
def algorithm_known(r: Resolution) -> Iterator[Hit]:
    """The speculative algorithm must be one that the engine has.

    Why: the option takes any word, because plug-ins may register more; the release has eight.
    Assistants of Gemma 4 read the target's KV cache, which EAGLE3 does not do.

    Fix: choose EAGLE for a draft head, STANDALONE for a small model, NGRAM for none.
    """
    name = r.speculative_algorithm
    if name is not None and name not in ALGORITHMS:
        yield hit(
            f"--speculative-algorithm {name} is none of {', '.join(ALGORITHMS)}",
            set_to("draft from the text itself", speculative_algorithm="NGRAM"),
            drop("speculative_algorithm"),
        )
    elif name == "EAGLE3" and _gemma4(r):
        yield hit(
            f"{r.speculative_draft_model_path} is a Gemma 4 assistant, no EAGLE3 head",
            set_to("speculate with NEXTN", speculative_algorithm="NEXTN"),
        )


@rule(
    "KV802", stage=Stage.RESOLVE, option="disaggregation_decode_enable_radix_cache",
    source="arg_groups/speculative_hook.py:160",
    example=Example("--disaggregation-mode decode --disaggregation-decode-enable-radix-cache "
                    "--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 1"),
    fragments=("is incompatible with speculative decoding",),
)  # fmt: skip
def decode_radix_cache_algorithms(r: Resolution) -> Iterator[Hit]:
    """A radix cache on a decode server goes with EAGLE, EAGLE3 and DSPARK.

    Why: other drafts keep state that a reused prefix does not bring along.

    Fix: drop one of the two.
    """
    if (
        r.disaggregation_mode == "decode"
        and r.disaggregation_decode_enable_radix_cache
        and r.speculative_algorithm not in RADIX_DECODE_ALGORITHMS
    ):
        yield hit(
            "--disaggregation-decode-enable-radix-cache with --speculative-algorithm "
            f"{r.speculative_algorithm}",
            drop("disaggregation_decode_enable_radix_cache"),
            drop("speculative_algorithm"),
        )


@rule(
    "KV803", stage=Stage.RESOLVE, option="speculative_use_block_verification",
    source="arg_groups/speculative_hook.py:171",
    example=Example("--speculative-use-block-verification"),
    fragments=("--speculative-use-block-verification only supports",),
)  # fmt: skip
def block_verification_needs(r: Resolution) -> Iterator[Hit]:
    """Block verification works on sampled drafts of EAGLE, DFLASH and DSPARK, on GPUs.

    Why: it needs the draft's whole distribution for every token of the block.

    Fix: drop the flag.
    """
    if not r.speculative_use_block_verification:
        return
    if r.speculative_algorithm not in BLOCK_VERIFY_ALGORITHMS:
        found = f"--speculative-algorithm is {r.speculative_algorithm}"
    elif r.device != "cuda":
        found = f"it does not run on {r.device}"
    else:
        return
    yield hit(
        f"--speculative-use-block-verification: {found}",
        drop("speculative_use_block_verification"),
    )


@step("arg_groups/speculative_hook.py:181")
def block_verification_samples(r: Resolution) -> None:
    """Block verification of EAGLE drafts samples them."""
    if r.speculative_use_block_verification and r.speculative_algorithm in ("EAGLE", "EAGLE3"):
        r.declare("block verification samples drafts", speculative_use_rejection_sampling=True)


@rule(
    "KV804", stage=Stage.RESOLVE, option="speculative_draft_window_size",
    source="arg_groups/speculative_hook.py:201",
    example=Example("--speculative-draft-sink-size 4"),
    fragments=("--speculative-draft-window-size must be positive",
               "--speculative-draft-sink-size"),
)  # fmt: skip
def draft_window_sizes(r: Resolution) -> Iterator[Hit]:
    """A draft's attention window is positive, and sinks are kept beside a window.

    Why: the draft keeps the first `sink` and the last `window` tokens.

    Fix: give a window, or drop both options.
    """
    window, sink = r.speculative_draft_window_size, r.speculative_draft_sink_size
    if window is not None and whole(window) <= 0:
        yield hit(
            f"--speculative-draft-window-size is {window}", drop("speculative_draft_window_size")
        )
    if sink is not None and whole(sink, -1) < 0:
        yield hit(f"--speculative-draft-sink-size is {sink}", drop("speculative_draft_sink_size"))
    elif sink is not None and window is None:
        yield hit(
            f"--speculative-draft-sink-size {sink} without a window",
            drop("speculative_draft_sink_size"),
            set_to("attend to the last 4096 tokens", speculative_draft_window_size=4096),
        )


@rule(
    "KV805", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="arg_groups/speculative_hook.py:246",
    example=Example("", env={"SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION": "1"}),
    fragments=("DP spec/prefill coordination requires",),
)  # fmt: skip
def coordination_needs(r: Resolution) -> Iterator[Hit]:
    """Coordinating drafts with prefill needs single-layer EAGLE, EAGLE3 or DSPARK.

    Why: only those workers know the protocol.

    Fix: unset SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION.
    """
    name = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"
    if r.env_flag(name) and (
        r.speculative_algorithm not in COORDINATED_ALGORITHMS or r.enable_multi_layer_eagle
    ):
        yield hit(
            f"{name} is set, --speculative-algorithm is {r.speculative_algorithm}",
            set_env(f"unset {name}", name, None),
        )


def _adaptive_obstacle(r: Resolution) -> str | None:
    if r.speculative_algorithm not in ("EAGLE", "EAGLE3"):
        return f"{r.speculative_algorithm} does not adapt"
    if r.speculative_eagle_topk not in (None, 1):
        return f"drafts of {r.speculative_eagle_topk} branches do not adapt"
    if attn_dp_enabled(r):
        return "attention-DP ranks would adapt apart"
    for name in ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux"):
        if getattr(r, name):
            return f"--{name.replace('_', '-')} does not adapt"
    return None


@step("arg_groups/speculative_hook.py:1378")
def adaptive_values(r: Resolution) -> None:
    """Adaptive speculation starts from the middle of its table, or is switched off."""
    if not r.speculative_adaptive:
        return
    obstacle = _adaptive_obstacle(r)
    if obstacle:
        r.declare(obstacle, speculative_adaptive=False)
        return
    if r.speculative_adaptive_config is not None:
        r.doubt("--speculative-adaptive-config names a file that only the engine reads")
    if r.speculative_eagle_topk is None:
        r.default("adaptive drafts are linear", speculative_eagle_topk=1)
    if r.speculative_num_steps is None:
        middle = ADAPTIVE_STEPS[len(ADAPTIVE_STEPS) // 2]
        r.default("the middle of the adaptive table", speculative_num_steps=middle)
    r.declare(
        "a linear draft and its anchor are verified",
        speculative_num_draft_tokens=whole(r.speculative_num_steps) + 1,
    )


@rule(
    "KV806", stage=Stage.RESOLVE, option="speculative_num_steps",
    source="arg_groups/speculative_hook.py:1412",
    example=Example("--speculative-algorithm EAGLE --speculative-adaptive "
                    "--speculative-num-steps 4"),
    fragments=("is not in the adaptive config candidate_steps",),
)  # fmt: skip
def adaptive_steps_listed(r: Resolution) -> Iterator[Hit]:
    """Adaptive speculation starts from a length of its table.

    Why: graphs and buffers exist for the listed lengths only.

    Fix: choose a listed length.
    """
    if (
        r.speculative_adaptive
        and r.speculative_adaptive_config is None
        and r.speculative_num_steps not in ADAPTIVE_STEPS
    ):
        yield hit(
            f"--speculative-num-steps {r.speculative_num_steps} is none of "
            f"{', '.join(map(str, ADAPTIVE_STEPS))}",
            set_to("start from 3", speculative_num_steps=3),
            drop("speculative_num_steps"),
        )


@rule(
    "KV807", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="speculative/ragged_verify.py:18",
    example=Example("--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 1",
                    env={"SGLANG_RAGGED_VERIFY_MODE": "ragged"}),
    fragments=("invalid SGLANG_RAGGED_VERIFY_MODE",),
)  # fmt: skip
def ragged_mode_known(r: Resolution) -> Iterator[Hit]:
    """SGLANG_RAGGED_VERIFY_MODE takes three words.

    Why: every speculative launch reads it at start.

    Fix: unset it.
    """
    name = "SGLANG_RAGGED_VERIFY_MODE"
    mode = r.env.get(name, RAGGED_MODES[0])
    if r.speculative_algorithm is not None and mode not in RAGGED_MODES:
        yield hit(
            f"{name} is {mode!r}, none of {', '.join(RAGGED_MODES)}",
            set_env(f"unset {name}", name, None),
        )


HANDLE_SPECULATIVE_DECODING: tuple[Part, ...] = (
    speculative_basics,
    decode_radix_cache_algorithms,
    block_verification_needs,
    block_verification_samples,
    draft_window_sizes,
    algorithm_known,
    coordination_needs,
    adaptive_values,
    adaptive_steps_listed,
    ragged_mode_known,
    *HANDLE_DFLASH,
    *HANDLE_UNO,
    *HANDLE_DSPARK,
    *HANDLE_FROZEN_KV_MTP,
    *HANDLE_EAGLE_FAMILY,
    *HANDLE_NGRAM,
)
