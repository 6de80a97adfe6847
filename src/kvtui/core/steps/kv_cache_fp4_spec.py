"""Speculative decoding on native nvfp4 pages."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import (
    fp4_on_cuda,
    fp8_kv,
    mixed_nvfp4,
    native_nvfp4,
    spec_name,
)

HOOK = "arg_groups/kv_cache_hook.py"
NATIVE_SPEC = ("EAGLE", "EAGLE3", "NEXTN", "NGRAM")
"""Speculative algorithms that write native nvfp4 pages. Source: kv_cache_hook.py:161."""


@rule(
    "KV307",
    stage=Stage.RESOLVE,
    option="speculative_algorithm",
    source=f"{HOOK}:166",
    example=Example(
        "--kv-cache-dtype nvfp4 --speculative-algorithm STANDALONE "
        "--speculative-draft-model-path Qwen/Qwen3-0.6B",
        gpu="b200",
    ),
    fragments=(
        "SM100 native NVFP4 speculative decoding does not yet support",
        "SM100 native NVFP4 speculative decoding supports",
    ),
)
def native_nvfp4_spec_algorithm(r: Resolution) -> Iterator[Hit]:
    """Native nvfp4 takes EAGLE, EAGLE3, NEXTN and NGRAM.

    Why: only their draft tokens are committed in trtllm_mha's scale layout.
    Fix: another algorithm, or KV dtype fp8_e4m3.
    """
    name = spec_name(r)
    if name and fp4_on_cuda(r) and native_nvfp4(r) and name not in NATIVE_SPEC:
        yield hit(
            f"{name} can't commit draft tokens to native nvfp4 pages; "
            "EAGLE, EAGLE3, NEXTN and NGRAM can",
            fp8_kv(r),
            drop("speculative_algorithm"),
        )


@rule(
    "KV308",
    stage=Stage.RESOLVE,
    option="speculative_ngram_max_bfs_breadth",
    source=f"{HOOK}:191",
    example=Example("--kv-cache-dtype nvfp4 --speculative-algorithm NGRAM", gpu="b200"),
    fragments=("SM100 native NVFP4 NGRAM speculative decoding requires",),
)
def native_nvfp4_ngram_is_linear(r: Resolution) -> Iterator[Hit]:
    """NGRAM on native nvfp4 drafts a chain, not a tree.

    Why: trtllm_mha verifies linear drafts only; NGRAM's default breadth is 10.
    Fix: --speculative-ngram-max-bfs-breadth 1.
    """
    breadth = r.speculative_ngram_max_bfs_breadth
    if spec_name(r) == "NGRAM" and fp4_on_cuda(r) and native_nvfp4(r) and breadth != 1:
        yield hit(
            f"NGRAM drafts trees of breadth {breadth}; trtllm_mha on nvfp4 verifies chains",
            set_to("draft one chain (fewer accepted tokens)", speculative_ngram_max_bfs_breadth=1),
            fp8_kv(r),
        )


def _native_draft(r: Resolution) -> bool:
    return spec_name(r) not in (None, "NGRAM") and fp4_on_cuda(r) and native_nvfp4(r)


@step(f"{HOOK}:212")
def draft_nvfp4_on_trtllm(r: Resolution) -> None:
    """Run the draft model of a native nvfp4 target on trtllm_mha."""
    if _native_draft(r) and r.speculative_draft_attention_backend is None:
        r.default(
            "the draft's nvfp4 pages are read by trtllm_mha only",
            speculative_draft_attention_backend="trtllm_mha",
        )


@rule(
    "KV309",
    stage=Stage.RESOLVE,
    option="speculative_draft_attention_backend",
    source=f"{HOOK}:223",
    example=Example(
        "--kv-cache-dtype nvfp4 --speculative-algorithm EAGLE "
        "--speculative-draft-model-path Qwen/Qwen3-0.6B --speculative-num-steps 3 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
        "--speculative-draft-attention-backend triton",
        gpu="b200",
    ),
    fragments=("--speculative-draft-attention-backend=trtllm_mha so the",),
)
def native_nvfp4_draft_backend(r: Resolution) -> Iterator[Hit]:
    """The draft of a native nvfp4 target runs on trtllm_mha.

    Why: the draft's pool has the target's scale layout, which no other back end reads.
    Fix: drop --speculative-draft-attention-backend.
    """
    backend = r.speculative_draft_attention_backend
    if _native_draft(r) and backend not in (None, "trtllm_mha"):
        yield hit(
            f"the draft's nvfp4 pages are read by trtllm_mha only, and {backend} is set",
            drop("speculative_draft_attention_backend"),
            fp8_kv(r),
        )


@step(f"{HOOK}:247")
def verify_mixed_nvfp4_on_decode(r: Resolution) -> None:
    """Verify drafts on the decode back end where prefill unpacks to FP8."""
    mixed = r.speculative_algorithm is not None and fp4_on_cuda(r) and native_nvfp4(r)
    if mixed and mixed_nvfp4(r) and r.speculative_attention_mode == "prefill":
        r.declare(
            "flashinfer's FP8 workspace can't be refreshed inside a captured verification",
            speculative_attention_mode="decode",
        )


NATIVE_SPEC_GATES: tuple[Part, ...] = (
    native_nvfp4_spec_algorithm,
    native_nvfp4_ngram_is_linear,
    draft_nvfp4_on_trtllm,
    native_nvfp4_draft_backend,
    verify_mixed_nvfp4_on_decode,
)
