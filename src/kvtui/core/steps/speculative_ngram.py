"""NGRAM drafts (`srt/arg_groups/speculative_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.speculative_dflash import running_requests_default
from kvtui.core.steps.speculative_eagle import no_overlap_on_cpu

NGRAM_TOKENS = 12
DEVICES = ("cuda", "cpu", "xpu")


def _ngram(r: Resolution) -> bool:
    return bool(r.speculative_algorithm == "NGRAM")


@rule(
    "KV830", stage=Stage.RESOLVE, option="speculative_ngram_max_bfs_breadth",
    source="arg_groups/speculative_hook.py:1325",
    example=Example("--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 0"),
)  # fmt: skip
def ngram_breadth_positive(r: Resolution) -> Iterator[Hit]:
    """An n-gram draft has at least one branch.

    Why: the draft's tokens are divided by its branches; zero stops the engine with a division
    error.

    Fix: use 1 for a chain.
    """
    if (
        _ngram(r)
        and r.raw.speculative_num_steps is None
        and whole(r.speculative_ngram_max_bfs_breadth, 1) == 0
    ):
        yield hit(
            "--speculative-ngram-max-bfs-breadth is 0",
            set_to("draft one chain", speculative_ngram_max_bfs_breadth=1),
        )


@step("arg_groups/speculative_hook.py:1282")
def ngram_values(r: Resolution) -> None:
    """An n-gram draft is a tree as broad as its breadth option."""
    if not _ngram(r):
        return
    no_overlap_on_cpu(r)
    running_requests_default(r)
    breadth = r.speculative_ngram_max_bfs_breadth
    r.declare("NGRAM has no mixed steps", enable_mixed_chunk=False)
    r.declare(
        "NGRAM branches by --speculative-ngram-max-bfs-breadth", speculative_eagle_topk=breadth
    )
    if r.speculative_num_draft_tokens is None:
        r.default("n-gram drafts of 12 tokens", speculative_num_draft_tokens=NGRAM_TOKENS)
    if r.speculative_num_steps is None and breadth:
        r.default(
            "the depth that the tokens leave",
            speculative_num_steps=r.speculative_num_draft_tokens // breadth,
        )


@rule(
    "KV831", stage=Stage.RESOLVE, option="speculative_ngram_external_corpus_path",
    source="arg_groups/speculative_hook.py:1330",
    example=Example("--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 1 "
                    "--speculative-ngram-external-corpus-path corpus.txt"),
    fragments=("--speculative-ngram-external", "speculative_ngram_external_sam_budget"),
)  # fmt: skip
def ngram_corpus_budget(r: Resolution) -> Iterator[Hit]:
    """An external corpus has a share of the draft's tokens.

    Why: its matches fill part of the tree, at most all of it but the root.

    Fix: give `--speculative-ngram-external-sam-budget`, below the draft's tokens.
    """
    if not _ngram(r) or r.speculative_ngram_external_corpus_path is None:
        return
    budget = whole(r.speculative_ngram_external_sam_budget)
    most = whole(r.speculative_num_draft_tokens, NGRAM_TOKENS) - 1
    if budget <= 0 or budget > most:
        yield hit(
            f"--speculative-ngram-external-sam-budget is {budget}; it must be 1 to {most}",
            set_to(f"give it {most} tokens", speculative_ngram_external_sam_budget=most),
            drop("speculative_ngram_external_corpus_path"),
        )
    if whole(r.speculative_ngram_external_corpus_max_tokens) <= 0:
        yield hit(
            "--speculative-ngram-external-corpus-max-tokens is "
            f"{r.speculative_ngram_external_corpus_max_tokens}",
            drop("speculative_ngram_external_corpus_max_tokens"),
        )


@rule(
    "KV832", stage=Stage.RESOLVE, option="speculative_ngram_max_bfs_breadth",
    source="arg_groups/speculative_hook.py:1357",
    example=Example("--speculative-algorithm NGRAM --page-size 16"),
    fragments=("is unstable and produces incorrect results for paged attention backends",),
)  # fmt: skip
def ngram_trees_over_pages(r: Resolution) -> Iterator[Hit]:
    """N-gram trees over pages larger than one token run on FlashInfer only.

    Why: ten branches, the default, share half-filled pages; other back ends get that wrong.

    Fix: draft one chain, use pages of one token, or FlashInfer.
    """
    if (
        _ngram(r)
        and whole(r.speculative_eagle_topk) > 1
        and whole(r.page_size, 1) > 1
        and r.attention_backend != "flashinfer"
    ):
        fixes = [set_to("draft one chain", speculative_ngram_max_bfs_breadth=1)]
        if r.chose("page_size"):
            fixes.append(drop("page_size"))
        yield hit(
            f"{r.speculative_eagle_topk} branches with pages of {r.page_size} tokens on "
            f"{r.attention_backend}",
            *fixes,
        )


@rule(
    "KV833", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="arg_groups/speculative_hook.py:1368",
    example=Example("--tp-size 2 --attn-dp-size 2 --speculative-algorithm NGRAM"),
    fragments=("ngram speculative decoding does not support dp attention",
               "Ngram speculative decoding only supports"),
)  # fmt: skip
def ngram_needs(r: Resolution) -> Iterator[Hit]:
    """N-gram drafts run on CUDA, CPU and XPU, without attention data parallelism.

    Why: the tree of matches is built for one batch on the host.

    Fix: drop attention DP, or use EAGLE.
    """
    if not _ngram(r):
        return
    if r.device not in DEVICES:
        yield hit(f"NGRAM does not run on {r.device}", drop("speculative_algorithm"))
    if attn_dp_enabled(r):
        yield hit(
            f"--speculative-algorithm NGRAM with --attn-dp-size {r.attn_dp_size}",
            set_to("run attention without data parallelism", attn_dp_size=1),
            drop("speculative_algorithm"),
        )


HANDLE_NGRAM: tuple[Part, ...] = (
    ngram_breadth_positive,
    ngram_values,
    ngram_corpus_budget,
    ngram_trees_over_pages,
    ngram_needs,
)
