"""Accepted, but known bad: launches that start and then corrupt, crash or crawl.

Each names a public report. `since` and `until` are releases; without `until` it still holds in
the newest release that the rules know.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, num_dp_ranks
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.memory import automatic_fraction

FP8_KV = ("fp8_e4m3", "fp8_e5m2")
SMALL_CARD_MIB = 35 * 1024
"""Cards on which one vision encoder run decides whether the launch stays up."""
MARGIN = 0.04
"""How far above the engine's own choice a fraction is worth a word: below, launches came up."""
NPU_BLOCK = 128
"""Tokens that the Ascend attention kernel's block holds."""
HYBRID_DRAFTS = ("NEXTN", "EAGLE", "EAGLE3", "MTP")


def _has_kv_scales(r: Resolution) -> bool:
    """True where the checkpoint carries scales for stored keys and values."""
    quant = r.model.hf_quant_config
    kv_scheme = quant.get("kv_cache_scheme") if hasattr(quant, "get") else None
    scheme = quant.get("kv_cache_quant_algo") if hasattr(quant, "get") else None
    return bool(kv_scheme or scheme or r.quantization_param_path)


@rule(
    "ADV001", stage=Stage.SERVE, severity=Severity.WARNING, option="kv_cache_dtype",
    source="sgl-project/sglang#20820",
    example=Example("--kv-cache-dtype fp8_e4m3"),
)  # fmt: skip
def fp8_kv_without_scales(r: Resolution) -> Iterator[Hit]:
    """FP8 keys and values are stored with scale 1.0.

    Why: the checkpoint carries no scales for K and V, so values outside the FP8 range are cut
    and accuracy can drop; users saw it on MiniMax-M2.5.
    Fix: use auto, or give scales with --quantization-param-path.
    """
    if r.kv_cache_dtype != "fp8_e4m3" or not r.chose("kv_cache_dtype"):
        return
    if r.model.attention_arch == "MLA" or _has_kv_scales(r):
        return
    yield hit(
        "FP8 keys and values are stored with scale 1.0, since the checkpoint carries no K and V "
        "scales: accuracy can drop",
        drop("kv_cache_dtype", title="use the model's own dtype (twice the bytes per token)"),
    )


@rule(
    "ADV002", stage=Stage.SERVE, severity=Severity.WARNING, option="attention_backend",
    source="sgl-project/sglang#24633",
    example=Example("--attention-backend trtllm_mla --tp-size 8", model="deepseek-ai/DeepSeek-R1",
                    gpu="rtxpro6000"),
)  # fmt: skip
def trtllm_mla_on_sm120(r: Resolution) -> Iterator[Hit]:
    """TRT-LLM MLA kernels are doubtful on SM120.

    Why: the arguments are accepted there, but the kernels were built for SM100; on RTX PRO 6000 a
    launch died at the first batch.
    Fix: use flashinfer or triton if it fails.
    """
    if r.platform.is_sm120 and "trtllm_mla" in r.backends:
        yield hit(
            f"trtllm_mla is accepted on SM{r.platform.sm}, but its kernels were built for SM100 "
            "and failed there",
            set_to("use triton", attention_backend="triton", prefill_attention_backend=None,
                   decode_attention_backend=None, page_size=None),
        )  # fmt: skip


@rule(
    "ADV003", stage=Stage.SERVE, severity=Severity.WARNING, option="page_size",
    source="sgl-project/sglang#38196",
)  # fmt: skip
def ascend_page_size(r: Resolution) -> Iterator[Hit]:
    """The Ascend attention kernel wants pages of 128 tokens.

    Why: nothing checks the page size there, and with 16 the kernel fails on its block alignment.
    Fix: use a page size of 128.
    """
    page = r.page_size
    if "ascend" in r.backends and isinstance(page, int) and page % NPU_BLOCK:
        yield hit(
            f"page size {page} is no multiple of the {NPU_BLOCK} tokens that Ascend's attention "
            "kernel works on",
            set_to("use pages of 128 tokens", page_size=NPU_BLOCK),
        )


@rule(
    "ADV004", stage=Stage.SERVE, severity=Severity.WARNING, option="page_size",
    source="sgl-project/sglang#14439",
    example=Example("--prefill-attention-backend fa4 --decode-attention-backend trtllm_mha",
                    gpu="b200"),
)  # fmt: skip
def fa4_with_trtllm_mha(r: Resolution) -> Iterator[Hit]:
    """fa4 and trtllm_mha side by side share one page size that fa4 decides.

    Why: each backend snaps the page size to its own values, the last one wins, and which it is
    depends on the order; trtllm_mha takes 128 only for models with equal K and V heads.
    Fix: say the page size, or use one backend for both phases.
    """
    if set(r.backends) == {"fa4", "trtllm_mha"} and not r.chose("page_size"):
        yield hit(
            f"fa4 and trtllm_mha share a page size; {r.page_size} comes out of the order in which "
            "they snap it",
            set_to("use trtllm_mha for both phases", attention_backend="trtllm_mha",
                   prefill_attention_backend=None, decode_attention_backend=None),
            set_to("say --page-size 128", page_size=128),
        )  # fmt: skip


@rule(
    "ADV005", stage=Stage.LOAD, severity=Severity.WARNING, option="mem_fraction_static",
    source="sgl-project/sglang#18262",
    example=Example("--tp-size 1", model="Qwen/Qwen3-30B-A3B", gpu="mi355x"),
)  # fmt: skip
def aiter_workspace(r: Resolution) -> Iterator[Hit]:
    """The workspace of aiter grows with the pool and is in no budget.

    Why: above a context of 8192 tokens the engine takes 15 % off even a hand-set fraction, and
    large pools still ran out of memory.
    Fix: cap the tokens with --max-total-tokens, or lower the fraction.
    """
    if r.platform.is_hip and "aiter" in r.backends and r.model.context_len > 8192:
        yield hit(
            "aiter's workspace grows with the token count outside the memory budget; with a "
            f"context of {r.model.context_len:,} the engine takes 15 % off the fraction",
            set_to("use triton", attention_backend="triton"),
        )


@rule(
    "ADV006", stage=Stage.SERVE, severity=Severity.WARNING, option="kv_cache_dtype",
    source="sgl-project/sglang#39517",
    example=Example("--speculative-algorithm NEXTN --kv-cache-dtype fp8_e4m3",
                    model="Qwen/Qwen3.5-27B", gpu="mi300x"),
)  # fmt: skip
def rocm_fp8_with_drafts(r: Resolution) -> Iterator[Hit]:
    """FP8 KV with speculation faults in aiter's paged prefill on hybrid models.

    Why: the batch-prefill kernel faulted on MI300X, MI325X and MI355X; triton is not affected.
    Fix: use triton.
    """
    if (
        r.platform.is_hip
        and r.speculative_algorithm is not None
        and r.kv_cache_dtype in FP8_KV
        and r.model.mambaish is not None
        and "triton" not in r.backends
    ):
        yield hit(
            "FP8 KV with speculation on a hybrid model faulted in aiter's paged prefill kernel",
            set_to("use triton", attention_backend="triton"),
            drop("kv_cache_dtype", title="keep KV in the model's dtype"),
        )


@rule(
    "ADV009", stage=Stage.SERVE, severity=Severity.WARNING, option="hicache_storage_backend",
    source="sgl-project/sglang#33268",
    example=Example("--enable-hierarchical-cache --hicache-storage-backend file "
                    "--kv-cache-dtype fp8_e4m3"),
)  # fmt: skip
def storage_keys_without_dtype(r: Resolution) -> Iterator[Hit]:
    """Stored KV pages carry no dtype, page size or layout in their key.

    Why: keys name the model and the parallel geometry only, so after a change of KV dtype, page
    size or layout the server reads back pages of the old kind.
    Fix: use a fresh folder or prefix whenever one of them changes.
    """
    changed = [n for n in ("kv_cache_dtype", "page_size", "hicache_mem_layout") if r.chose(n)]
    if r.hicache_storage_backend == "file" and changed:
        yield hit(
            "pages in the store are named by model and parallel sizes alone: clear it or use "
            f"another folder whenever {' or '.join(changed)} changes"
        )


@rule(
    "ADV010", stage=Stage.SERVE, severity=Severity.WARNING,
    option="disaggregation_decode_enable_offload_kvcache",
    source="sgl-project/sglang#11016",
    example=Example("--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
                    "--hicache-storage-backend mooncake --tp-size 2"),
)  # fmt: skip
def decode_offload_over_ranks(r: Resolution) -> Iterator[Hit]:
    """Decode KV offload over several ranks raced.

    Why: ranks acknowledge their copies separately; a decode server with two ranks hung, and the
    report is still open.
    Fix: drop the offload if the server hangs.
    """
    if r.disaggregation_decode_enable_offload_kvcache and r.tp_size > 1:
        yield hit(
            f"decode KV offload over {r.tp_size} ranks was reported to hang; the report is open",
            drop("disaggregation_decode_enable_offload_kvcache"),
        )


@rule(
    "ADV011", stage=Stage.SERVE, severity=Severity.WARNING, option="enable_hisparse",
    source="sgl-project/sglang#33385",
)  # fmt: skip
def hisparse_retraction(r: Resolution) -> Iterator[Hit]:
    """A HiSparse decode server can't back up a request that it retracts.

    Why: retraction copies a request's KV to the CPU, and the compressed pool of DeepSeek-V4 has no
    such copy: the first retraction stops the server.
    Fix: leave headroom: fewer running requests, or a higher schedule conservativeness.
    """
    if r.enable_hisparse and r.disaggregation_mode == "decode" and r.model.is_deepseek_v4_arch:
        yield hit(
            "the compressed pool has no CPU copy, so the first retracted request stops the server",
            set_to("schedule more carefully (fewer requests at once)",
                   schedule_conservativeness=1.5, enable_hisparse=None),
        )  # fmt: skip


@rule(
    "ADV013", stage=Stage.LOAD, severity=Severity.WARNING, option="speculative_algorithm",
    source="sgl-project/sglang#31588",
)  # fmt: skip
def many_draft_pools(r: Resolution) -> Iterator[Hit]:
    """Several draft layers each take a KV pool, and one of them is in the budget.

    Why: models with many multi-token-prediction layers build a pool a layer; eight pools on B300
    ran out of memory at the last one.
    Fix: cap the tokens with --max-total-tokens, or lower the fraction.
    """
    layers = r.model.num_nextn_predict_layers or 0
    if r.speculative_algorithm in HYBRID_DRAFTS and layers > 2:
        yield hit(
            f"{layers} draft layers each take a KV pool of their own; leave room for them",
            set_to("lower the fraction by 0.1",
                   mem_fraction_static=round(max(0.1, (r.mem_fraction_static or 0.8) - 0.1), 3),
                   speculative_algorithm=None),
        )  # fmt: skip


@rule(
    "ADV015", stage=Stage.SERVE, severity=Severity.WARNING, option="mem_fraction_static",
    source="sgl-project/sglang#6082",
    example=Example("--tp-size 4", model="Qwen/Qwen3-VL-32B-Instruct", gpu="rtx4090"),
)  # fmt: skip
def images_on_a_small_card(r: Resolution) -> Iterator[Hit]:
    """Image preprocessing shares a small card with the model.

    Why: the tokenizer process prepares images on the first GPU, outside the memory budget; on
    24 GB cards that ran out of memory under load.
    Fix: lower the fraction and limit the image size.
    """
    model = r.model
    if not model.is_multimodal or r.language_model_only or r.language_only:
        return
    if r.platform.memory_mib < SMALL_CARD_MIB and r.tp_size * r.pp_size > 1:
        low = round(min(0.7, (r.mem_fraction_static or 0.7) - 0.05), 2)
        yield hit(
            f"images are prepared on the first of these {r.platform.memory_mib // 1024} GiB cards, "
            "outside the memory budget",
            set_to(f"lower the fraction to {low} and serve text only",
                   mem_fraction_static=low, language_model_only=True),
        )  # fmt: skip


@rule(
    "ADV016", stage=Stage.SERVE, severity=Severity.WARNING, option="attn_dp_size",
    source="sgl-project/sglang#6027",
    example=Example("--tp-size 8 --attn-dp-size 8 --mem-fraction-static 0.9",
                    model="deepseek-ai/DeepSeek-R1", gpu="h200"),
)  # fmt: skip
def dp_attention_with_a_high_fraction(r: Resolution) -> Iterator[Hit]:
    """DP attention gathers activations outside the memory budget.

    Why: every rank holds the tokens of all groups while experts run; with a hand-set fraction near
    0.9 that ran out of memory.
    Fix: lower the fraction, or the prefill chunk; --max-total-tokens bounds the KV pool exactly.
    """
    if attn_dp_enabled(r) and r.chose("mem_fraction_static"):
        fraction = r.mem_fraction_static
        if isinstance(fraction, float) and fraction >= 0.88:
            yield hit(
                f"{num_dp_ranks(r)} attention groups gather their tokens outside the fraction of "
                f"{fraction}",
                drop("mem_fraction_static", title="let the engine choose the fraction"),
            )


@rule(
    "ADV014", stage=Stage.SERVE, severity=Severity.WARNING, option="mem_fraction_static",
    source="sgl-project/sglang#35777",
    example=Example("--mem-fraction-static 0.92", gpu="rtx5090"),
)  # fmt: skip
def fraction_above_the_engines_own(r: Resolution) -> Iterator[Hit]:
    """A hand-set memory fraction leaves less than the engine would keep free.

    Why: graphs, activations and workspaces come out of what the fraction leaves; a launch on a
    32 GB card with 0.92 died in graph capture, where the engine's own choice was near 0.79.
    Fix: let the engine choose, or capture fewer graphs.
    """
    fraction = r.mem_fraction_static
    if not r.chose("mem_fraction_static") or not isinstance(fraction, float):
        return
    own, _ = automatic_fraction(r)
    memory = r.platform.memory_mib
    if fraction - own >= MARGIN:
        left, kept = (memory * (1 - f) / 1024 for f in (fraction, own))
        yield hit(
            f"fraction {fraction} leaves {left:.1f} GiB for graphs and activations; the engine "
            f"would keep {kept:.1f} GiB (fraction {own:.3f})",
            set_to("let the engine choose (fewer tokens)", mem_fraction_static=None),
        )


ADVISORIES: tuple[Part, ...] = (
    fraction_above_the_engines_own,
    fp8_kv_without_scales,
    trtllm_mla_on_sm120,
    ascend_page_size,
    fa4_with_trtllm_mha,
    aiter_workspace,
    rocm_fp8_with_drafts,
    storage_keys_without_dtype,
    decode_offload_over_ranks,
    hisparse_retraction,
    many_draft_pools,
    images_on_a_small_card,
    dp_attention_with_a_high_fraction,
)
