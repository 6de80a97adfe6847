"""Kernel plug-ins of vendors (`srt/kernel_plugins` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule


@rule(
    "KV1099", stage=Stage.RESOLVE, option="enable_nvidia_megakernel",
    source="kernel_plugins/nvidia/binding.py:331", example=Example("--enable-nvidia-megakernel"),
    fragments=("--enable-nvidia-megakernel cannot run this setup",),
)  # fmt: skip
def nvidia_megakernel_needs_plugin(r: Resolution) -> Iterator[Hit]:
    """NVIDIA's megakernels come with a plug-in that the release does not hold.

    Why: the engine asks the installed plug-in `sgl-nvidia-mega` for a kernel of this model and
    GPU, and refuses where there is none.

    Fix: drop the flag, or ask an engine with the plug-in installed.
    """
    if r.enable_nvidia_megakernel:
        yield hit(
            "--enable-nvidia-megakernel needs the sgl-nvidia-mega plug-in",
            drop("enable_nvidia_megakernel"),
        )


@rule(
    "KV1100", stage=Stage.RESOLVE, option="enable_amd_monokernel",
    source="kernel_plugins/amd/binding.py:205", example=Example("--enable-amd-monokernel"),
    fragments=("--enable-amd-monokernel cannot run this setup",),
)  # fmt: skip
def amd_monokernel_needs_plugin(r: Resolution) -> Iterator[Hit]:
    """AMD's one-kernel decode comes with a plug-in that the release does not hold.

    Why: the engine looks for a kernel registered for this model and GPU, and refuses where there
    is none.

    Fix: drop the flag, or ask an engine with the plug-in installed.
    """
    if r.enable_amd_monokernel:
        yield hit(
            "--enable-amd-monokernel needs a plug-in with a kernel for this model",
            drop("enable_amd_monokernel"),
        )


HANDLE_NVIDIA_MEGAKERNEL: tuple[Part, ...] = (nvidia_megakernel_needs_plugin,)
HANDLE_AMD_MONOKERNEL: tuple[Part, ...] = (amd_monokernel_needs_plugin,)
