"""HiSparse decode servers and the transfer back ends that fill them."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

DECODE = "disaggregation/decode.py"


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


HISPARSE_PAIR_GATES: tuple[Part, ...] = (hisparse_transfer, hisparse_nixl_same_width)
