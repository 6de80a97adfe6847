"""DeepSeek V4: KV dtype, attention kernels, speculation and context parallelism.

Mirrors `srt/arg_groups/deepseek_v4_hook.py` of 0.5.23; what only V4.1 has is in
`deepseek_v41.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_tp_size, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.model_common import arch, listed, settle
from kvtui.core.steps.model_overrides_families import context_parallel_groups

HOOK = "arg_groups/deepseek_v4_hook.py"
V4 = "deepseek-ai/DeepSeek-V4-Flash"
V4_ARCH = "DeepseekV4ForCausalLM"
MAX_RUNNING = 256
EXCHANGES = ("none", "deepep", "megamoe", "mori")


def serves_v4(r: Resolution) -> bool:
    """True for a DeepSeek V4 target model."""
    return arch(r) == V4_ARCH


def is_v41(r: Resolution) -> bool:
    """True for DeepSeek V4.1."""
    return serves_v4(r) and r.model.model_type == "deepseek_v41"


@rule(
    "KV141",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/overrides.py:907",
    example=Example("--tp-size 8 --kv-cache-dtype fp8_e5m2", model=V4, gpu="h200"),
    fragments=("is not supported for DeepseekV4ForCausalLM",),
)
def v4_kv_dtype(r: Resolution) -> Iterator[Hit]:
    """DeepSeek V4 stores KV as fp8_e4m3 or bfloat16.

    Why: its compressed pools have layouts for these two dtypes only.

    Fix: use fp8_e4m3 (the default), or bfloat16 at twice the bytes.
    """
    if (
        serves_v4(r)
        and r.device != "npu"
        and r.kv_cache_dtype
        not in (
            "auto",
            "fp8_e4m3",
            "bfloat16",
        )
    ):
        yield hit(
            f"{r.kv_cache_dtype} KV with {V4_ARCH}",
            set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
            set_to("use bfloat16", kv_cache_dtype="bfloat16"),
        )


@step("arg_groups/overrides.py:892")
def v4_kv_cache_dtype(r: Resolution) -> None:
    """fp8_e4m3 unless chosen otherwise; bfloat16 on Ascend."""
    if not serves_v4(r):
        return
    if r.device == "npu":
        settle(r, "the Ascend pools hold it", kv_cache_dtype="bfloat16")
    elif r.kv_cache_dtype == "auto":
        settle(r, "DeepSeek V4 stores it by default", kv_cache_dtype="fp8_e4m3")


def _mega_attention(r: Resolution) -> bool:
    layout = r.env.get("SGLANG_DSV4_KV_LAYOUT")
    own_layout = layout is None or layout.lower() in ("auto", "v41", "v41_new")
    split = not r.enable_prefill_cp and attn_tp_size(r) > 1
    return (
        is_v41(r)
        and r.device == "cuda"
        and r.platform.is_sm100
        and r.kv_cache_dtype == "fp8_e4m3"
        and own_layout
        and not (r.disaggregation_mode == "null" and split)
    )


@step(f"{HOOK}:88")
def v4_attention_kernels(r: Resolution) -> None:
    """FlashMLA, or its merged kernel for V4.1 on SM100."""
    if not serves_v4(r):
        return
    if r.platform.is_hip:
        r.env["SGLANG_OPT_FLASHMLA_SPARSE_PREFILL"] = "false"
    if r.dsv4_attn_backend == "auto":
        name = "flashmla_mega" if _mega_attention(r) else "flashmla"
        settle(r, "it is the fastest validated one here", dsv4_attn_backend=name)


@rule(
    "KV142",
    stage=Stage.RESOLVE,
    option="dsv4_attn_backend",
    source=f"{HOOK}:98",
    example=Example("--tp-size 8 --dsv4-attn-backend flashmla_mega", model=V4, gpu="b200"),
    fragments=("flashmla_mega requires DeepSeek-V4.1",),
)
def v4_mega_needs(r: Resolution) -> Iterator[Hit]:
    """The flashmla_mega kernel is for DeepSeek V4.1 on SM100.

    Why: the merged kernel is written for V4.1's KV layout and for that GPU generation.

    Fix: leave --dsv4-attn-backend to the engine.
    """
    if not serves_v4(r) or r.dsv4_attn_backend != "flashmla_mega":
        return
    if not (is_v41(r) and r.device == "cuda" and r.platform.is_sm100):
        yield hit(
            f"flashmla_mega with {r.model.model_type} on {r.platform.gpu.name}",
            drop("dsv4_attn_backend"),
        )


def _trtllm_conflict(r: Resolution) -> tuple[str, str] | None:
    """(what excludes the trtllm kernels, its option) in the engine's order, or None."""
    if not (r.device == "cuda" and r.platform.is_sm100):
        return f"{r.platform.gpu.name} is not SM100 or SM103", "dsv4_attn_backend"
    if r.kv_cache_dtype not in ("auto", "fp8_e4m3"):
        return f"KV is {r.kv_cache_dtype}, not fp8_e4m3", "kv_cache_dtype"
    if r.enable_hisparse:
        return "--enable-hisparse is on", "enable_hisparse"
    if whole(r.attn_cp_size, 1) > 1 or whole(r.dcp_size, 1) > 1 or r.enable_prefill_cp:
        return "context parallelism is on", "enable_prefill_cp"
    if r.disaggregation_mode != "null":
        return f"--disaggregation-mode is {r.disaggregation_mode}", "disaggregation_mode"
    if whole(r.chunked_prefill_size) <= 0:
        return "prompts are not read in chunks", "chunked_prefill_size"
    return None


@rule(
    "KV143",
    stage=Stage.RESOLVE,
    option="dsv4_attn_backend",
    source=f"{HOOK}:109",
    example=Example("--tp-size 8 --dsv4-attn-backend trtllm", model=V4, gpu="h200"),
    fragments=("--dsv4-attn-backend trtllm",),
)
def v4_trtllm_needs(r: Resolution) -> Iterator[Hit]:
    """The trtllm kernels for DeepSeek V4 need SM100, 8-bit KV and plain serving.

    Why: they keep one uniform 8-bit KV layout, sized by the prefill chunk, which HiSparse,
    context parallelism and prefill/decode disaggregation don't know.

    Fix: leave --dsv4-attn-backend to the engine.
    """
    if not serves_v4(r) or r.dsv4_attn_backend != "trtllm":
        return
    conflict = _trtllm_conflict(r)
    if conflict is not None:
        yield hit(f"--dsv4-attn-backend trtllm: {conflict[0]}", drop("dsv4_attn_backend"))


@step(f"{HOOK}:133")
def v4_running_requests(r: Resolution) -> None:
    """At most 256 running requests unless chosen otherwise."""
    if serves_v4(r) and r.max_running_requests is None:
        r.default("DeepSeek V4's state pools are sized by it", max_running_requests=MAX_RUNNING)


@rule(
    "KV144",
    stage=Stage.RESOLVE,
    option="speculative_algorithm",
    source=f"{HOOK}:149",
    example=Example("--tp-size 8 --speculative-algorithm NGRAM", model=V4, gpu="h200"),
    fragments=("Only EAGLE and DSPARK speculative algorithms",),
)
def v4_speculation(r: Resolution) -> Iterator[Hit]:
    """DeepSeek V4 speculates with EAGLE or DSPARK.

    Why: compressed states can be rolled back for these two only.

    Fix: use EAGLE, or drop speculation.
    """
    if serves_v4(r) and r.speculative_algorithm not in (None, "EAGLE", "DSPARK"):
        yield hit(
            f"--speculative-algorithm {r.speculative_algorithm} with {V4_ARCH}",
            set_to(
                "use EAGLE with one path",
                speculative_algorithm="EAGLE",
                speculative_eagle_topk=1,
            ),
            drop("speculative_algorithm"),
        )


@rule(
    "KV145",
    stage=Stage.RESOLVE,
    option="speculative_eagle_topk",
    source=f"{HOOK}:156",
    example=Example("--tp-size 8 --speculative-algorithm EAGLE", model=V4, gpu="h200"),
    fragments=("Only EAGLE speculative algorithm with topk == 1",),
)
def v4_one_path(r: Resolution) -> Iterator[Hit]:
    """EAGLE drafts one path with DeepSeek V4.

    Why: compressed states follow one sequence; a tree of drafts has several. The number has to
    be given, the engine fills it in only later.

    Fix: set --speculative-eagle-topk 1.
    """
    if serves_v4(r) and r.speculative_algorithm == "EAGLE" and r.speculative_eagle_topk != 1:
        found = r.speculative_eagle_topk
        yield hit(
            f"--speculative-eagle-topk is {'not given' if found is None else found}, not 1",
            set_to("draft one path", speculative_eagle_topk=1),
        )


APPLY_DEEPSEEK_V4_DEFAULTS: tuple[Part, ...] = (
    v4_kv_dtype,
    v4_kv_cache_dtype,
    v4_attention_kernels,
    v4_mega_needs,
    v4_trtllm_needs,
    v4_running_requests,
    v4_speculation,
    v4_one_path,
)


def _no_cp() -> Fix:
    return drop("enable_prefill_cp")


def _hip_conflict(r: Resolution) -> str | None:
    """What excludes prefill context parallelism of V4 on ROCm, or None."""
    if not r.platform.is_hip:
        return None
    if r.backends != ("dsv4", "dsv4"):
        return "ROCm needs the dsv4 attention backend for both phases"
    parts = {
        "several nodes": whole(r.nnodes, 1) > 1,
        "DeepSeek V4.1": is_v41(r),
        "--enable-decoder-swa-bounded-replay": r.enable_decoder_swa_bounded_replay,
        "--enable-two-batch-overlap": r.enable_two_batch_overlap,
    }
    found = next((name for name, on in parts.items() if on), None)
    return None if found is None else f"{found} is not served by it on ROCm"


@rule(
    "KV146",
    stage=Stage.RESOLVE,
    option="enable_prefill_cp",
    source=f"{HOOK}:161",
    example=Example("--tp-size 8 --enable-prefill-cp --cp-strategy zigzag", model=V4, gpu="h200"),
    fragments=(
        "DeepSeekV4 only supports interleave/zigzag",
        "DeepSeekV4 zigzag CP requires",
        "For round-robin split mode, dp attention",
        "DeepSeekV4 CP supports moe_a2a_backend",
    ),
)
def v4_prefill_cp_needs(r: Resolution) -> Iterator[Hit]:
    """Prefill context parallelism of DeepSeek V4 interleaves one node's ranks.

    Why: CUDA and ROCm kernels reindex tokens in interleaved order, over one attention-DP group
    of at most eight ranks, with four ways to exchange expert tokens.

    Fix: use --cp-strategy interleave on up to eight GPUs, or drop --enable-prefill-cp.
    """
    if not serves_v4(r) or not r.enable_prefill_cp:
        return
    if r.cp_strategy not in ("interleave", "zigzag"):
        yield hit(f"--cp-strategy {r.cp_strategy}", drop("cp_strategy"), option="cp_strategy")
    elif r.cp_strategy == "zigzag" and not r.platform.is_npu:
        yield hit(
            "--cp-strategy zigzag needs Ascend NPUs",
            set_to("interleave ranks", cp_strategy="interleave"),
            option="cp_strategy",
        )
    conflict = _hip_conflict(r)
    if conflict is not None:
        yield hit(f"--enable-prefill-cp: {conflict}", _no_cp())
    if r.scratch.get("v4_cp_groups", 1) != 1:
        yield hit("--enable-prefill-cp with attention data parallelism", _no_cp())
    if whole(r.tp_size, 1) > 8:
        yield hit(f"--enable-prefill-cp over {r.tp_size} ranks, 8 at most", _no_cp())
    if r.moe_a2a_backend not in EXCHANGES:
        yield hit(
            f"--moe-a2a-backend {r.moe_a2a_backend}; it serves {listed(EXCHANGES)}",
            drop("moe_a2a_backend"),
            option="moe_a2a_backend",
        )


@step(f"{HOOK}:212")
def v4_prefill_cp_layout(r: Resolution) -> None:
    """All ranks of a group take part in attention of one prompt."""
    if not serves_v4(r) or not r.enable_prefill_cp:
        return
    groups = context_parallel_groups(r)
    r.scratch["v4_cp_groups"] = groups
    settle(
        r,
        "context parallelism lays ranks out like that",
        attn_dp_size=groups,
        dp_size=1,
        moe_dense_tp_size=1,
        attn_cp_size=whole(r.tp_size, 1) // groups,
    )
    if not is_v41(r):
        r.env["SGLANG_OPT_FLASHMLA_SPARSE_PREFILL"] = "false"


VALIDATE_DEEPSEEK_V4_CP: tuple[Part, ...] = (v4_prefill_cp_layout, v4_prefill_cp_needs)
