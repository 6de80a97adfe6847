"""The experimental Marlin runner (`srt/lora/marlin_lora_temp` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

MARLIN_PLACEMENT = (
    "ep_num_redundant_experts", "enable_eplb", "elastic_ep_backend", "enable_elastic_expert_backup",
)  # fmt: skip


@rule(
    "KV1007", stage=Stage.RESOLVE, option="moe_runner_backend",
    source="lora/marlin_lora_temp/policy.py:19",
    example=Example(
        "--moe-runner-backend experimental_sgl_marlin --enable-lora --max-lora-rank 16 "
        "--lora-target-modules all", model="Qwen/Qwen3-30B-A3B",
    ),
    fragments=("experimental_sgl_marlin",),
)  # fmt: skip
def experimental_marlin_needs(r: Resolution) -> Iterator[Hit]:
    """The experimental Marlin runner serves adapters in one narrow set-up.

    Why: its temporary kernels read Triton batch metadata and know plain expert placement only.

    Fix: leave the runner to the engine.
    """
    if r.moe_runner_backend != "experimental_sgl_marlin":
        return
    lora = bool(r.enable_lora) or (r.enable_lora is None and bool(r.lora_paths))
    ranks = whole(r.ep_size, 1)
    moved = r.init_expert_location != "trivial" or any(getattr(r, n) for n in MARLIN_PLACEMENT)
    fix = drop("moe_runner_backend")
    for broken, found in (
        (ranks > 1 and r.moe_a2a_backend != "none", f"--moe-a2a-backend is {r.moe_a2a_backend}"),
        (lora and not r.lora_use_virtual_experts, "LoRA without --lora-use-virtual-experts"),
        (lora and r.lora_backend != "triton", f"LoRA with --lora-backend {r.lora_backend}"),
        (lora and ranks > 1 and moved, "LoRA over expert ranks with moved or spare experts"),
    ):
        if broken:
            yield hit(f"--moe-runner-backend experimental_sgl_marlin: {found}", fix)


VALIDATE_EXPERIMENTAL_SGL_MARLIN: tuple[Part, ...] = (experimental_marlin_needs,)
