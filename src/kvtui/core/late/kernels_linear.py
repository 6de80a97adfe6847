"""Kernels of linear attention (GDN, KDA) that a GPU or a kind of state lacks."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.late.backends import backend_table, sm_names
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.attention_kernels import decode_kernels, verify_kernels

COMMON = "linear_attn_backend"


def _in_use(r: Resolution) -> Iterator[tuple[str, str, str]]:
    """(phase, option, kernels) of the linear attention of a hybrid model."""
    yield "decode", "linear_attn_decode_backend", decode_kernels(r)
    prefill = str(r.linear_attn_prefill_backend or r.linear_attn_backend)
    yield "prefill", "linear_attn_prefill_backend", prefill
    if r.speculative_algorithm is not None:
        yield "verify", "linear_attn_verify_backend", verify_kernels(r) or "triton"


def _back(r: Resolution, option: str) -> Fix:
    named = option if r.chose(option) else COMMON
    if r.chose(named):
        return drop(named)
    return set_to("use triton", **{option: "triton"})


@rule(
    "KV926",
    stage=Stage.SERVE,
    option=COMMON,
    source="layers/attention/linear/gdn_backend.py:251",
    example=Example("--linear-attn-backend flashinfer", model="Qwen/Qwen3.5-27B", gpu="a100-80"),
    fragments=(
        "FlashInfer GDN kernels are not available",
        "Unsupported GDN decode backend",
        "Unsupported GDN prefill backend",
        "Unsupported KDA decode backend",
        "Unsupported KDA prefill backend",
    ),
)
def linear_kernels_for_gpu(r: Resolution) -> Iterator[Hit]:
    """Linear-attention kernels exist for the model's kind of state and for this GPU.

    Why: GDN and KDA have kernels of their own, some for single GPU generations; which are
    there shows when the backend is built.

    Fix: use triton, which covers every phase.
    """
    mambaish = r.model.mambaish
    if mambaish is None or not r.platform.is_cuda:
        return
    table = backend_table().linear.get(mambaish.kind)
    if table is None:
        return
    for phase, option, kernels in _in_use(r):
        known = getattr(table, phase)
        if known and kernels not in known:
            wanted = f"{phase} of {mambaish.kind.upper()} layers takes {', '.join(known)}"
            yield hit(f"{wanted}; found {kernels}", _back(r, option), option=option)
        elif known and known[kernels] and r.platform.device_capability[0] not in known[kernels]:
            yield hit(
                f"{kernels} kernels ({phase}) exist for {sm_names(known[kernels])}; "
                f"{r.platform.gpu.name} is SM{r.platform.sm}",
                _back(r, option),
                option=option,
            )


@rule(
    "KV927",
    stage=Stage.SERVE,
    option="linear_attn_prefill_backend",
    source="layers/attention/linear/gdn_backend.py:239",
    example=Example(
        "--linear-attn-prefill-backend flashinfer --enable-deterministic-inference",
        model="Qwen/Qwen3.5-27B",
    ),
    fragments=("FlashInfer GDN prefill is not supported with",),
)
def deterministic_gdn_prefill(r: Resolution) -> Iterator[Hit]:
    """Deterministic inference excludes FlashInfer's GDN prefill.

    Why: its sums depend on how requests are batched.

    Fix: prefill linear attention with triton.
    """
    mambaish = r.model.mambaish
    if mambaish is None or mambaish.kind != "gdn" or not r.enable_deterministic_inference:
        return
    if (r.linear_attn_prefill_backend or r.linear_attn_backend) == "flashinfer":
        yield hit(
            "flashinfer's GDN prefill is not deterministic",
            set_to("prefill with triton", linear_attn_prefill_backend="triton"),
        )


LINEAR_KERNELS: tuple[Part, ...] = (linear_kernels_for_gpu, deterministic_gdn_prefill)
