"""What a prefill or decode server refuses once weights are loaded, or with its first partner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one, number
from kvtui.core.steps.pd_late_hisparse import HISPARSE_PAIR_GATES
from kvtui.core.steps.pd_notes import PAIR_NOTES

DECODE = "disaggregation/decode.py"
COMMON = "disaggregation/common/conn.py"
STAGING = "SGLANG_DISAGG_STAGING_BUFFER"
NIXL_PARAMS = "SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS"
MLA = "deepseek-ai/DeepSeek-V3"


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


PAIR_GATES: tuple[Part, ...] = (
    staging_fits,
    prefill_complete_model,
    host_receive_backend,
    nixl_params,
    decode_has_no_attention_cp,
    decode_dcp_model,
    *HISPARSE_PAIR_GATES,
    *PAIR_NOTES,
)
