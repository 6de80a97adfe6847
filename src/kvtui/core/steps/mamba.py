"""Recurrent states: rounding, checkpoints and the kernels that read them."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import number

HOOK = "arg_groups/mamba_hook.py"
ROUNDING = "enable_mamba_cache_stochastic_rounding"
ROUNDING_OFF = drop(ROUNDING, title="round states to nearest")
INT8_OFF = drop("enable_int8_mamba_checkpoint", title="keep state checkpoints in full width")
HYBRID = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"


@rule(
    "KV700",
    stage=Stage.RESOLVE,
    option="mamba_cache_philox_rounds",
    source=f"{HOOK}:21",
    example=Example("--mamba-cache-philox-rounds -1", model=HYBRID),
    fragments=("--mamba-cache-philox-rounds must be non-negative",),
)
def philox_rounds_not_negative(r: Resolution) -> Iterator[Hit]:
    """The number of Philox rounds is zero or more.

    Why: it counts rounds of the random generator behind stochastic rounding.
    Fix: 0 for the default number, or a positive one.
    """
    rounds = number(r.mamba_cache_philox_rounds)
    if rounds is not None and rounds < 0:
        yield hit(
            f"{rounds:g} rounds are asked for; the least is 0", drop("mamba_cache_philox_rounds")
        )


@rule(
    "KV701",
    stage=Stage.RESOLVE,
    option="mamba_max_states_per_path",
    source=f"{HOOK}:24",
    example=Example("--mamba-max-states-per-path 0", model=HYBRID),
    fragments=("--mamba-max-states-per-path must be -1",),
)
def states_per_path(r: Resolution) -> Iterator[Hit]:
    """States kept along a prefix are -1 for no limit, or at least 1.

    Why: with none kept no prefix of a recurrent model could be reused.
    Fix: -1, or a positive number.
    """
    states = number(r.mamba_max_states_per_path)
    if states is not None and (states == 0 or states < -1):
        yield hit(
            f"{states:g} states a path are asked for; -1 means no limit, else at least 1",
            drop("mamba_max_states_per_path"),
        )


@rule(
    "KV702",
    stage=Stage.RESOLVE,
    option="mamba_ssm_dtype",
    source=f"{HOOK}:31",
    example=Example("--enable-mamba-cache-stochastic-rounding", model=HYBRID),
    fragments=("Stochastic rounding for the Mamba SSM cache requires",),
)
def rounding_needs_float16(r: Resolution) -> Iterator[Hit]:
    """Stochastic rounding rounds states to float16.

    Why: the rounding instruction packs float32 into float16 pairs.
    Fix: --mamba-ssm-dtype float16, or round to nearest.
    """
    if r.enable_mamba_cache_stochastic_rounding and r.mamba_ssm_dtype != "float16":
        found = r.mamba_ssm_dtype or "left to the model"
        yield hit(
            f"the state dtype is {found}; stochastic rounding needs float16",
            set_to("keep states in float16", mamba_ssm_dtype="float16"),
            ROUNDING_OFF,
        )


@rule(
    "KV703",
    stage=Stage.RESOLVE,
    option=ROUNDING,
    source=f"{HOOK}:38",
    example=Example(
        "--enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype float16", model=HYBRID
    ),
    fragments=("supported on NVIDIA CUDA platforms", "--mamba-backend triton requires SM100"),
)
def rounding_needs_blackwell(r: Resolution) -> Iterator[Hit]:
    """Stochastic rounding needs an NVIDIA GPU, on triton SM100.

    Why: triton uses an instruction that SM100 introduced; FlashInfer rounds in software.
    Fix: --mamba-backend flashinfer, or round to nearest.
    """
    if not r.enable_mamba_cache_stochastic_rounding:
        return
    gpu = r.platform
    if not gpu.is_cuda:
        yield hit(
            f"stochastic rounding needs an NVIDIA GPU, and this is {gpu.gpu.name}", ROUNDING_OFF
        )
    elif r.mamba_backend == "triton" and not gpu.is_sm100:
        yield hit(
            f"{gpu.gpu.name} is SM{gpu.sm}; on triton stochastic rounding needs SM100",
            set_to("run Mamba on FlashInfer", mamba_backend="flashinfer"),
            ROUNDING_OFF,
        )


@rule(
    "KV704",
    stage=Stage.RESOLVE,
    option="mamba_backend",
    source=f"{HOOK}:60",
    example=Example("--mamba-backend flashinfer", model=HYBRID, gpu="mi300x"),
    fragments=("FlashInfer mamba module not available",),
)
def flashinfer_mamba_exists(r: Resolution) -> Iterator[Hit]:
    """Mamba on FlashInfer needs FlashInfer.

    Why: FlashInfer is built for NVIDIA GPUs.
    Fix: --mamba-backend triton.
    """
    if r.mamba_backend == "flashinfer" and not r.platform.has_flashinfer:
        both: Fix = set_to(
            "run Mamba on triton, round to nearest", mamba_backend="triton", **{ROUNDING: None}
        )
        plain = set_to("run Mamba on triton", mamba_backend="triton")
        yield hit(
            f"FlashInfer does not run on {r.platform.gpu.name}",
            both if r.enable_mamba_cache_stochastic_rounding else plain,
        )


@rule(
    "KV706",
    stage=Stage.RESOLVE,
    option="enable_int8_mamba_checkpoint",
    source=f"{HOOK}:79",
    example=Example("--enable-int8-mamba-checkpoint --enable-hierarchical-cache", model=HYBRID),
    fragments=(
        "--enable-int8-mamba-checkpoint is not supported together with",
        "--enable-int8-mamba-checkpoint only supports the built-in mamba",
    ),
)
def int8_checkpoints_stay_on_gpu(r: Resolution) -> Iterator[Hit]:
    """State checkpoints of 8 bits live in the built-in radix cache only.

    Why: HiCache, LMCache and other radix caches would read 8-bit rows as full-width ones.
    Fix: drop one of the two.
    """
    if not r.enable_int8_mamba_checkpoint:
        return
    for option in ("enable_hierarchical_cache", "radix_cache_backend", "enable_lmcache"):
        if getattr(r, option):
            yield hit(
                f"--{option.replace('_', '-')} would read 8-bit checkpoints as full-width states",
                INT8_OFF,
                drop(option),
            )


HANDLE_MAMBA_BACKEND: tuple[Part, ...] = (
    philox_rounds_not_negative,
    states_per_path,
    rounding_needs_float16,
    rounding_needs_blackwell,
    flashinfer_mamba_exists,
)

HANDLE_INT8_MAMBA_CHECKPOINT: tuple[Part, ...] = (int8_checkpoints_stay_on_gpu,)
