"""What a prefill or decode server refuses once weights are loaded, or with its first partner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Fix, Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_pools import retraction_backup
from kvtui.core.steps.kv_cache_common import above_one, number

DECODE = "disaggregation/decode.py"
COMMON = "disaggregation/common/conn.py"
STAGING = "SGLANG_DISAGG_STAGING_BUFFER"
NIXL_PARAMS = "SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS"
MLA = "deepseek-ai/DeepSeek-V3"
BACKUP_RATIO, FULL_RATIO = 0.2, 2.0
"""Host pool over device pool for retraction alone, and beside HiCache.
Source: kv_cache_builder.py:152 and 226."""


def _unset(name: str) -> Fix:
    return set_to(f"unset {name}", **{f"env:{name}": None})


def _in_pair(r: Resolution) -> bool:
    return r.disaggregation_mode in ("prefill", "decode")


@rule(
    "KV550",
    stage=Stage.SERVE,
    option="attn_cp_size",
    source=f"{COMMON}:1493",
    example=Example("--disaggregation-mode decode --tp-size 2 --attn-cp-size 2"),
    fragments=("Decode cp size",),
)
def decode_has_no_attention_cp(r: Resolution) -> Iterator[Hit]:
    """A decode server runs without attention context parallelism.

    Why: it maps its ranks to the prefill side's, which is only defined for one context-parallel
    rank; the first connection fails.
    Fix: drop --attn-cp-size; --dcp-size splits decode over context.
    """
    if r.disaggregation_mode == "decode" and above_one(r.attn_cp_size):
        yield hit(
            f"--attn-cp-size {r.attn_cp_size} fails at the first connection of a decode server",
            drop("attn_cp_size", "enable_prefill_cp"),
        )


@rule(
    "KV551",
    stage=Stage.LOAD,
    option=f"env:{STAGING}",
    source="disaggregation/prefill.py:220",
    example=Example(
        "--disaggregation-mode decode --tp-size 8", model=MLA, gpu="h200", env={STAGING: "1"}
    ),
    fragments=(
        "SGLANG_DISAGG_STAGING_BUFFER is designed for non-MLA",
        "SGLANG_DISAGG_STAGING_BUFFER requires a positive",
        "SGLANG_DISAGG_STAGING_BUFFER with pp_size > 1",
    ),
)
def staging_fits(r: Resolution) -> Iterator[Hit]:
    """The staging buffer serves plain models, in page-aligned chunks.

    Why: it gathers heads for a partner of another tensor-parallel size; MLA rows have none, and
    its grid is one prompt chunk.
    Fix: unset it, or a --chunked-prefill-size that is a multiple of the page size.
    """
    if not _in_pair(r) or not r.env_flag(STAGING):
        return
    if uses_mla(r):
        yield hit("MLA rows have no heads to gather in a staging buffer", _unset(STAGING))
    if r.disaggregation_mode != "prefill":
        return
    page, chunk = number(r.page_size) or 1, number(r.chunked_prefill_size) or 8192
    if chunk <= 0 or chunk % page:
        yield hit(
            f"chunks of {chunk:g} tokens leave no grid of {page:g}-token pages",
            set_to("run prompts in chunks of 8192", chunked_prefill_size=8192),
            _unset(STAGING),
            option="chunked_prefill_size",
        )
    if above_one(r.pp_size) and r.disaggregation_transfer_backend != "mooncake":
        yield hit(
            "only Mooncake stages over several pipeline stages",
            set_to("transfer with mooncake", disaggregation_transfer_backend="mooncake"),
            _unset(STAGING),
            option="disaggregation_transfer_backend",
        )


@rule(
    "KV552",
    stage=Stage.SERVE,
    option="dcp_size",
    source=f"{COMMON}:1413",
    example=Example("--disaggregation-mode decode --tp-size 8 --dcp-size 2"),
    fragments=("PD decode DCP requires an MLA",),
)
def decode_dcp_model(r: Resolution) -> Iterator[Hit]:
    """A decode server splits context over ranks for MLA models only.

    Why: received pages are split row by row, and only MLA rows are the same on every rank.
    Fix: drop --dcp-size.
    """
    decode = r.disaggregation_mode == "decode" and above_one(r.dcp_size)
    if decode and r.disaggregation_transfer_backend != "fake" and not uses_mla(r):
        yield hit(
            f"pages of {r.model.arch} can't be split over {r.dcp_size} DCP ranks as they arrive",
            drop("dcp_size"),
        )


@rule(
    "KV553",
    stage=Stage.LOAD,
    option="disaggregation_decode_host_receive_threshold",
    source=f"{DECODE}:776",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 0.5"
    ),
    fragments=(
        "Transfer backend does not support decode host KV destinations",
        "Host receive supports full KV and separate paged SWA pools",
    ),
)
def host_receive_backend(r: Resolution) -> Iterator[Hit]:
    """No transfer back end of this release receives into host memory.

    Why: the decode server asks its transfer back end, and none of the built-in ones says yes.
    Fix: leave the threshold at 1.
    """
    threshold = number(r.disaggregation_decode_host_receive_threshold)
    if r.disaggregation_mode == "decode" and threshold is not None and 0 <= threshold < 1:
        yield hit(
            f"a threshold of {threshold:g} receives pages into host memory, and transfer back end "
            f"{r.disaggregation_transfer_backend} can't",
            drop("disaggregation_decode_host_receive_threshold", title="receive into GPU memory"),
        )


@rule(
    "KV554",
    stage=Stage.LOAD,
    option="disaggregation_decode_allocation_policy",
    source=f"{COMMON}:421",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-allocation-policy prefill_complete",
        model="openai/gpt-oss-20b",
    ),
    fragments=("prefill_complete currently supports full-attention",),
)
def prefill_complete_model(r: Resolution) -> Iterator[Hit]:
    """Allocation policy prefill_complete takes full attention and DSA only.

    Why: windows, recurrent states and block scales are sent apart from pages, which this policy
    does not wait for.
    Fix: policy early.
    """
    policy = r.disaggregation_decode_allocation_policy == "prefill_complete"
    if not policy or not _in_pair(r):
        return
    model = r.model
    other = model.is_hybrid_swa or model.mambaish is not None or model.is_deepseek_v4_arch
    if other or r.kv_cache_dtype == "mxfp8":
        yield hit(
            f"{model.arch} sends more than pages, and policy prefill_complete sends pages only",
            set_to("allocate pages early", disaggregation_decode_allocation_policy="early"),
        )


@rule(
    "KV555",
    stage=Stage.SERVE,
    option="disaggregation_transfer_backend",
    source=f"{DECODE}:1808",
    example=Example(
        "--disaggregation-mode decode --enable-hisparse --tp-size 8 "
        "--disaggregation-transfer-backend nixl",
        model="deepseek-ai/DeepSeek-V4-Flash",
        gpu="h200",
    ),
    fragments=(
        "HiSparse device-only PD transfer currently requires",
        "Ascend PD transfer does not support HiSparse",
    ),
)
def hisparse_transfer(r: Resolution) -> Iterator[Hit]:
    """HiSparse receives compressed or draft pages through Mooncake only.

    Why: part of the pages goes to the GPU and part to the host, each with places of its own,
    which NIXL, Ascend and MORI don't carry. The first request fails.
    Fix: transfer back end mooncake.
    """
    if r.disaggregation_mode != "decode" or not r.enable_hisparse:
        return
    split = r.model.is_deepseek_v4_arch or r.speculative_algorithm is not None
    backend = r.disaggregation_transfer_backend
    if split and backend not in ("mooncake", "fake"):
        yield hit(
            f"transfer back end {backend} can't send pages to GPU and host at once",
            set_to("transfer with mooncake", disaggregation_transfer_backend="mooncake"),
            drop("enable_hisparse"),
        )


@rule(
    "KV556",
    stage=Stage.SERVE,
    option="disaggregation_transfer_backend",
    source="disaggregation/nixl/conn.py:1590",
    severity=Severity.WARNING,
    example=Example(
        "--disaggregation-mode decode --enable-hisparse --tp-size 8 "
        "--disaggregation-transfer-backend nixl",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="h200",
    ),
    fragments=(
        "NIXL heterogeneous-TP direct-to-host KV transfer",
        "mixed KV memory kinds are not implemented",
    ),
)
def hisparse_nixl_same_width(r: Resolution) -> Iterator[Hit]:
    """NIXL fills a HiSparse host pool from a prefill side of the same width only.

    Why: pages go straight to host memory, and splitting heads on the way is not implemented.
    Fix: the same attention tensor-parallel size on both sides, or Mooncake.
    """
    nixl = r.disaggregation_transfer_backend == "nixl"
    if r.disaggregation_mode == "decode" and r.enable_hisparse and nixl:
        yield hit(
            "the prefill side must have the same attention tensor-parallel size as this "
            f"decode server ({r.tp_size}); other widths fail at the first request",
            set_to("transfer with mooncake", disaggregation_transfer_backend="mooncake"),
        )


@lru_cache(maxsize=32)
def _params_complaint(text: str) -> str | None:
    try:
        params = json.loads(text)
    except ValueError as error:
        return f"it is no JSON: {error}"
    if not isinstance(params, dict) or not all(isinstance(v, str) for v in params.values()):
        return "it must be a JSON object whose values are text"
    return None


@rule(
    "KV557",
    stage=Stage.LOAD,
    option=f"env:{NIXL_PARAMS}",
    source="disaggregation/nixl/conn.py:553",
    example=Example(
        "--disaggregation-mode decode --disaggregation-transfer-backend nixl",
        env={NIXL_PARAMS: '{"num_threads": 8}'},
    ),
    fragments=("SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS must be",),
)
def nixl_params(r: Resolution) -> Iterator[Hit]:
    """NIXL's parameters are a JSON object of text values.

    Why: they are handed to the plug-in as they are.
    Fix: '{"num_threads": "8"}', or unset it.
    """
    text = r.env.get(NIXL_PARAMS)
    if not _in_pair(r) or r.disaggregation_transfer_backend != "nixl" or text is None:
        return
    found = _params_complaint(text)
    if found is not None:
        yield hit(f"{NIXL_PARAMS}: {found}", _unset(NIXL_PARAMS))


@rule(
    "KV558",
    stage=Stage.SERVE,
    option="disaggregation_mode",
    source=f"{COMMON}:1320",
    severity=Severity.NOTE,
    example=Example("--disaggregation-mode decode"),
    fragments=(
        "Page size mismatch: prefill server",
        "KV cache dtype mismatch: prefill server",
        "KV layout mismatch: prefill server",
    ),
)
def pair_must_match(r: Resolution) -> Iterator[Hit]:
    """Both sides of a pair must agree on page size and KV dtype.

    Why: pages are copied byte for byte; the decode side compares both at its first connection.
    Fix: the same --page-size and --kv-cache-dtype on both sides.
    """
    if not _in_pair(r):
        return
    other = "decode" if r.disaggregation_mode == "prefill" else "prefill"
    yield hit(
        f"the {other} side must run page size {r.page_size} and KV dtype "
        f"{r.kv_cache_dtype} too, or no request is taken"
    )


@rule(
    "KV559",
    stage=Stage.LOAD,
    option="disaggregation_decode_retraction_backup",
    source="mem_cache/kv_cache_builder.py:172",
    severity=Severity.NOTE,
    example=Example("--disaggregation-mode decode"),
)
def retraction_backup_told(r: Resolution) -> Iterator[Hit]:
    """Where a decode server keeps requests that lose their GPU pages.

    Why: the engine decides once the pool is built: a host pool for plain and sliding-window
    pages, CPU tensors for all else and beside DCP, decode prefixes, offload or preemption.
    Fix: --disaggregation-decode-retraction-backup cpu_tensor or host_pool.
    """
    if r.disaggregation_mode != "decode" or r.pool is None:
        return
    if r.disaggregation_decode_retraction_backup is not None:
        return
    if retraction_backup(r) != "host_pool":
        yield hit("retracted requests are kept as CPU tensors, made when they are needed")
        return
    size = r.hicache_ratio or (FULL_RATIO if r.enable_hierarchical_cache else BACKUP_RATIO)
    yield hit(
        "retracted requests are kept in a host pool, at least "
        f"{size:g} times the size of the device pool"
    )


PAIR_GATES: tuple[Part, ...] = (
    staging_fits,
    prefill_complete_model,
    host_receive_backend,
    nixl_params,
    decode_has_no_attention_cp,
    decode_dcp_model,
    hisparse_transfer,
    hisparse_nixl_same_width,
    pair_must_match,
    retraction_backup_told,
)
