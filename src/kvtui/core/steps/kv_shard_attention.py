"""Attention back ends that gather striped pages."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one
from kvtui.core.steps.kv_shard_common import HOOK, MLA, OFF, SHARDED, on

DSA = "deepseek-ai/DeepSeek-V3.2"


def _dsa(r: Resolution) -> bool:
    return on(r) and r.backends[0] == "dsa"


@rule(
    "KV385",
    stage=Stage.RESOLVE,
    option="enable_prefill_cp",
    source=f"{HOOK}:40",
    example=Example(
        "--enable-kv-cache-sharding --disaggregation-mode prefill --tp-size 8",
        model=DSA,
        gpu="b200",
    ),
    fragments=("DSA KV sharding requires CUDA interleave prefill CP",),
)
def sharded_dsa_topology(r: Resolution) -> Iterator[Hit]:
    """Sharded DSA needs interleaved context-parallel prefill in one stage.

    Why: its index rows are striped over context-parallel ranks, token by token.
    Fix: --enable-prefill-cp --cp-strategy interleave with --attn-cp-size above 1.
    """
    if not _dsa(r):
        return
    missing = [
        words
        for met, words in (
            (r.device == "cuda", "device cuda"),
            (r.enable_prefill_cp, "--enable-prefill-cp"),
            (above_one(r.attn_cp_size), "--attn-cp-size above 1"),
            (r.cp_strategy == "interleave", "--cp-strategy interleave"),
            (r.pp_size == 1, "one pipeline stage"),
        )
        if not met
    ]
    if missing:
        ranks = r.tp_size if above_one(r.tp_size) else 2
        yield hit(
            f"sharded DSA pages need {', '.join(missing)}",
            set_to(
                "run prefill context-parallel",
                enable_prefill_cp=True,
                cp_strategy="interleave",
                attn_cp_size=ranks,
                tp_size=ranks,
                pp_size=None,
            ),
            OFF,
        )


@rule(
    "KV386",
    stage=Stage.RESOLVE,
    option="dsa_prefill_backend",
    source=f"{HOOK}:50",
    example=Example(
        "--enable-kv-cache-sharding --disaggregation-mode prefill --tp-size 8",
        model=DSA,
        gpu="h200",
    ),
    fragments=("DSA KV sharding requires TRTLLM",),
)
def sharded_dsa_kernels(r: Resolution) -> Iterator[Hit]:
    """Sharded DSA runs trtllm kernels on fp8_e4m3 pages of 64 tokens.

    Why: only these kernels gather striped pages of that form.
    Fix: set all four, on a Blackwell GPU.
    """
    wanted = {
        "dsa_prefill_backend": "trtllm",
        "dsa_decode_backend": "trtllm",
        "kv_cache_dtype": "fp8_e4m3",
        "page_size": 64,
    }
    if not _dsa(r):
        return
    other = [
        f"--{name.replace('_', '-')} {value}"
        for name, value in wanted.items()
        if getattr(r, name) != value
    ]
    if other:
        yield hit(
            f"sharded DSA pages need {', '.join(other)}",
            set_to("use trtllm on fp8_e4m3 pages of 64", **wanted),
            OFF,
        )


@rule(
    "KV387",
    stage=Stage.RESOLVE,
    option="enable_kv_cache_sharding",
    source=f"{HOOK}:60",
    example=Example(
        "--enable-kv-cache-sharding --disaggregation-mode prefill --tp-size 8 "
        "--disaggregation-transfer-backend nixl",
        model=DSA,
        gpu="b200",
    ),
    fragments=("DSA KV sharding requires Mooncake", "DSA KV sharding requires the dsa attention"),
)
def sharded_dsa_pool(r: Resolution) -> Iterator[Hit]:
    """Sharded DSA sends plain index rows by Mooncake, on the dsa back end.

    Why: pooled or layer-split index rows have other stripes, and other back ends have none.
    Fix: transfer back end mooncake, no --enable-dsa-cache-layer-split, attention back end dsa.
    """
    if not on(r):
        return
    if not _dsa(r):
        if r.model.is_dsa:
            yield hit(
                f"prefill runs on {r.backends[0]}; sharded DSA pages need dsa",
                set_to(
                    "run attention on dsa",
                    attention_backend="dsa",
                    prefill_attention_backend=None,
                    decode_attention_backend=None,
                ),
                OFF,
            )
        return
    if r.disaggregation_transfer_backend != "mooncake":
        yield hit(
            f"transfer back end {r.disaggregation_transfer_backend} can't send striped index rows",
            set_to("transfer with mooncake", disaggregation_transfer_backend="mooncake"),
            OFF,
        )
    if r.enable_dsa_cache_layer_split:
        yield hit(
            "index rows are split by layer and by stripe", drop("enable_dsa_cache_layer_split"), OFF
        )
    config = r.model.hf_config
    if config.get("index_kpool", 1) != 1 or config.get("index_kpool_compress", False):
        yield hit(f"{r.model.name} pools its index rows, which can't be striped", OFF)


@rule(
    "KV388",
    stage=Stage.RESOLVE,
    option="prefill_attention_backend",
    source=f"{HOOK}:71",
    example=Example(SHARDED.replace("fa3", "triton"), model=MLA, gpu="h200"),
    fragments=(
        "--enable-kv-cache-sharding currently requires the fa3 prefill",
        "KV sharding with trtllm_mla",
    ),
)
def sharding_prefill_backend(r: Resolution) -> Iterator[Hit]:
    """KV sharding prefills on fa3, or on trtllm_mla for plain MLA.

    Why: these back ends gather stripes before they attend; trtllm_mla does so over
    tensor-parallel ranks, chunk by chunk.
    Fix: fa3 on Hopper, trtllm_mla on Blackwell.
    """
    if not on(r) or _dsa(r) or r.model.is_dsa or r.backends[0] == "fa3":
        return
    fa3 = set_to("run prefill on fa3", prefill_attention_backend="fa3")
    if r.backends[0] != "trtllm_mla":
        yield hit(
            f"prefill runs on {r.backends[0]}; fa3 gathers stripes, and trtllm_mla does for "
            "MLA models",
            fa3,
            OFF,
        )
        return
    if not uses_mla(r):
        yield hit("trtllm_mla gathers stripes of MLA models only", fa3, OFF)
    elif above_one(r.attn_cp_size):
        yield hit(
            "trtllm_mla gathers stripes over tensor-parallel ranks only",
            drop("attn_cp_size", "enable_prefill_cp"),
            fa3,
            OFF,
        )
    elif r.disable_chunked_prefix_cache:
        yield hit(
            "trtllm_mla gathers stripes chunk by chunk, which is turned off",
            drop("disable_chunked_prefix_cache"),
            OFF,
            option="disable_chunked_prefix_cache",
        )


SHARD_ATTENTION_GATES: tuple[Part, ...] = (
    sharded_dsa_topology,
    sharded_dsa_kernels,
    sharded_dsa_pool,
    sharding_prefill_backend,
)
