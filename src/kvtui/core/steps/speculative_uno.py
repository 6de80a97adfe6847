"""UNO: a target that drafts by its own adapter (`speculative_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

MOST_NODES = 128
MOST_SLOTS = 2048


def _tree_capacity(steps: int, branches: int, enough: int) -> int:
    nodes = level = 1
    for _ in range(steps):
        level *= branches
        nodes += level
        if nodes >= enough:
            break
    return nodes


def _tree_problem(r: Resolution, width: int, branches: int) -> str | None:
    steps = r.speculative_num_steps
    if steps is None or whole(steps) < 1:
        return f"--speculative-num-steps is {steps}; a tree needs at least 1"
    if width < steps + 1:
        return f"{width} tokens are less than the {steps + 1} of one branch"
    if width > MOST_NODES or width * branches > MOST_SLOTS:
        return f"{width} tokens in {branches} branches; at most {MOST_NODES} and {MOST_SLOTS} slots"
    capacity = _tree_capacity(steps, branches, width)
    if width > capacity:
        return f"{width} tokens do not fit a tree of {capacity}"
    parents = branches * (steps - 1) + 1
    if width - 1 > parents:
        return f"{width} tokens are more than {parents} parents can list"
    return None


@rule(
    "KV840", stage=Stage.RESOLVE, option="speculative_num_draft_tokens",
    source="arg_groups/speculative_hook.py:472",
    example=Example("--speculative-algorithm UNO --uno-lora-path adapter"),
    fragments=("UNO requires --speculative-num-draft-tokens", "UNO tree mode"),
)  # fmt: skip
def uno_shape(r: Resolution) -> Iterator[Hit]:
    """UNO is told how many tokens it verifies; a tree must hold that many.

    Why: the draft is a slice of the target's own forward, as wide as the option says; trees are
    stored in EAGLE's parent list.

    Fix: give `--speculative-num-draft-tokens`, and for trees steps and branches that hold it.
    """
    if r.speculative_algorithm != "UNO":
        return
    width, branches = r.speculative_num_draft_tokens, r.speculative_eagle_topk
    if whole(width) < 1:
        yield hit(
            f"--speculative-num-draft-tokens is {width}",
            set_to("verify 4 tokens", speculative_num_draft_tokens=4),
        )
        return
    if branches is not None and whole(branches) < 1:
        yield hit(f"--speculative-eagle-topk is {branches}", drop("speculative_eagle_topk"))
        return
    if whole(branches, 1) > 1:
        found = _tree_problem(r, width, branches)
        if found:
            yield hit(f"UNO tree: {found}", drop("speculative_eagle_topk"))


def _tree_conflicts(r: Resolution) -> tuple[tuple[object, str, str], ...]:
    if whole(r.raw.speculative_eagle_topk, 1) <= 1:
        return ()
    return (
        (r.enable_pdmux, "--enable-pdmux with a tree", "enable_pdmux"),
        (r.enable_two_batch_overlap, "--enable-two-batch-overlap with a tree",
         "enable_two_batch_overlap"),
        (r.speculative_accept_threshold_single != 1.0, "an accept threshold with a tree",
         "speculative_accept_threshold_single"),
        (r.speculative_accept_threshold_acc != 1.0, "an accept threshold with a tree",
         "speculative_accept_threshold_acc"),
    )  # fmt: skip


@rule(
    "KV841", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="arg_groups/speculative_hook.py:445",
    example=Example("--tp-size 2 --speculative-algorithm UNO --uno-lora-path adapter "
                    "--speculative-num-draft-tokens 4"),
    fragments=("UNO ",),
)  # fmt: skip
def uno_needs(r: Resolution) -> Iterator[Hit]:
    """UNO runs on one CUDA GPU with FA3, its own adapter and its own sampling.

    Why: the target drafts with an adapter switched on for part of the batch; nothing else may
    split the model or claim adapters and sampling.

    Fix: drop what the line names.
    """
    if r.speculative_algorithm != "UNO":
        return
    conditions: tuple[tuple[object, str, str], ...] = (
        (not str(r.device).startswith("cuda"), f"it does not run on {r.device}",
         "speculative_algorithm"),
        (r.speculative_draft_model_path is not None, "it takes no draft model",
         "speculative_draft_model_path"),
        (r.uno_lora_path is None, "--uno-lora-path is not set", "speculative_algorithm"),
        (r.enable_deterministic_inference, "its sampling is not deterministic",
         "enable_deterministic_inference"),
        (r.enable_strict_thinking, "strict thinking needs grammars", "enable_strict_thinking"),
        (whole(r.tp_size, 1) != 1, f"--tp-size is {r.tp_size}", "tp_size"),
        (whole(r.pp_size, 1) != 1, f"--pp-size is {r.pp_size}", "pp_size"),
        (attn_dp_enabled(r), f"--attn-dp-size is {r.attn_dp_size}", "attn_dp_size"),
        (r.attn_cp_size != 1, f"--attn-cp-size is {r.attn_cp_size}", "attn_cp_size"),
        (r.enable_lora, "--enable-lora serves other adapters", "enable_lora"),
        (r.lora_paths, "--lora-paths serves other adapters", "lora_paths"),
        (r.speculative_use_rejection_sampling, "it verifies by its own sampling",
         "speculative_use_rejection_sampling"),
        *_tree_conflicts(r),
    )  # fmt: skip
    for broken, found, option in conditions:
        if broken:
            yield hit(f"--speculative-algorithm UNO: {found}", drop(option))


@rule(
    "KV842", stage=Stage.RESOLVE, option="attention_backend",
    source="arg_groups/speculative_hook.py:610",
    example=Example("--speculative-algorithm UNO --uno-lora-path adapter "
                    "--speculative-num-draft-tokens 4 --attention-backend triton"),
    fragments=("UNO requires FA3 for both prefill and decode attention",),
)  # fmt: skip
def uno_needs_fa3(r: Resolution) -> Iterator[Hit]:
    """UNO runs on FA3 attention, prefill and decode.

    Why: the mixed forward of drafts and verification is written for it.

    Fix: choose fa3.
    """
    if r.speculative_algorithm == "UNO" and r.backends != ("fa3", "fa3"):
        prefill, decode = r.backends
        yield hit(
            f"UNO with {prefill} for prefill and {decode} for decode",
            set_to("run attention on fa3", attention_backend="fa3",
                   prefill_attention_backend=None, decode_attention_backend=None),
        )  # fmt: skip


@step("arg_groups/speculative_hook.py:566")
def uno_values(r: Resolution) -> None:
    """UNO drafts one chain unless branches are asked for, and takes no mixed steps."""
    if r.speculative_algorithm != "UNO":
        return
    if whole(r.speculative_eagle_topk, 1) <= 1:
        r.declare("UNO drafts one chain", speculative_num_steps=1, speculative_eagle_topk=1)
    r.declare(
        "UNO manages its adapter", enable_lora_overlap_loading=False, lora_strict_loading=True
    )
    if r.enable_mixed_chunk:
        r.declare("UNO has no mixed steps", enable_mixed_chunk=False)


HANDLE_UNO: tuple[Part, ...] = (uno_shape, uno_needs, uno_values, uno_needs_fa3)
