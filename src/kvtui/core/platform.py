"""The GPU in the engine's terms: which families of kernels it may run."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.facts import GpuFacts


@dataclass(frozen=True, slots=True)
class Platform:
    """Predicates as in the engine's `runtime_context.get_platform()` (0.5.23)."""

    gpu: GpuFacts
    gpu_count: int

    @property
    def is_cuda(self) -> bool:
        """NVIDIA through CUDA."""
        return self.gpu.vendor == "nvidia"

    @property
    def is_hip(self) -> bool:
        """AMD through ROCm."""
        return self.gpu.vendor == "amd"

    @property
    def is_xpu(self) -> bool:
        """Intel GPU."""
        return self.gpu.vendor == "intel"

    @property
    def is_npu(self) -> bool:
        """Ascend."""
        return self.gpu.vendor == "ascend"

    @property
    def is_cpu(self) -> bool:
        """No accelerator."""
        return self.gpu.vendor == "cpu"

    @property
    def device(self) -> str:
        """The engine's `--device` word for it."""
        return {"nvidia": "cuda", "amd": "cuda", "intel": "xpu", "ascend": "npu"}.get(
            self.gpu.vendor, "cpu"
        )

    @property
    def sm(self) -> int:
        """Compute capability as one number, 90 for 9.0."""
        return self.gpu.sm if self.is_cuda else 0

    @property
    def is_sm90(self) -> bool:
        """Hopper (9.x)."""
        return self.is_cuda and self.gpu.capability[0] == 9

    @property
    def is_sm100(self) -> bool:
        """Data-centre Blackwell (10.x)."""
        return self.is_cuda and self.gpu.capability[0] == 10

    @property
    def is_sm110(self) -> bool:
        """Thor (11.x)."""
        return self.is_cuda and self.gpu.capability[0] == 11

    @property
    def is_sm120(self) -> bool:
        """Consumer and workstation Blackwell (12.x)."""
        return self.is_cuda and self.gpu.capability[0] == 12

    @property
    def is_blackwell(self) -> bool:
        """Any of 10.x, 11.x, 12.x."""
        return self.is_sm100 or self.is_sm110 or self.is_sm120

    @property
    def is_hopper_with_cuda_12_3(self) -> bool:
        """Hopper; released wheels carry a CUDA newer than 12.3."""
        return self.is_sm90

    @property
    def has_flashinfer(self) -> bool:
        """FlashInfer is a dependency of the release and runs from SM75 up."""
        return self.is_cuda

    @property
    def memory_mib(self) -> int:
        """Total memory in MiB as nvidia-smi prints it."""
        return self.gpu.memory_mib
