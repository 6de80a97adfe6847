"""The GPU in the engine's terms: which families of kernels it may run."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.facts import GpuFacts

_DEVICE_BY_VENDOR = {
    "nvidia": "cuda", "amd": "cuda", "intel": "xpu", "ascend": "npu", "apple": "mps",
    "habana": "hpu", "moorethreads": "musa",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Platform:
    """Predicates as in the engine's `runtime_context.get_platform()` (0.5.23).

    Each asks for a family of compute capabilities and a minimal CUDA (12.8 for Blackwell, 12.3
    for Hopper), which the released wheels always meet (`utils/common.py:274`).
    """

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
    def is_musa(self) -> bool:
        """Moore Threads."""
        return self.gpu.vendor == "moorethreads"

    @property
    def is_mps(self) -> bool:
        """Apple silicon."""
        return self.gpu.vendor == "apple"

    @property
    def is_cpu(self) -> bool:
        """No accelerator."""
        return self.gpu.vendor == "cpu"

    @property
    def device(self) -> str:
        """The engine's `--device` word for it."""
        return _DEVICE_BY_VENDOR.get(self.gpu.vendor, "cpu")

    @property
    def device_sm(self) -> int:
        """Compute capability as one number, 90 for 9.0; 0 where there is no CUDA."""
        return self.gpu.sm if self.is_cuda else 0

    @property
    def sm(self) -> int:
        """Compute capability as one number, 90 for 9.0."""
        return self.device_sm

    @property
    def device_capability(self) -> tuple[int, int]:
        """Compute capability as PyTorch reports it."""
        return self.gpu.capability

    @property
    def is_sm80(self) -> bool:
        """Ampere and Ada (8.x)."""
        return self._family(8)

    @property
    def is_sm90(self) -> bool:
        """Hopper (9.x)."""
        return self._family(9)

    @property
    def is_sm100(self) -> bool:
        """Data-centre Blackwell (10.x)."""
        return self._family(10)

    @property
    def is_sm110(self) -> bool:
        """Thor (11.x)."""
        return self._family(11)

    @property
    def is_sm100_or_sm110(self) -> bool:
        """Where FA4 implements absorbed MLA."""
        return self._family(10, 11)

    @property
    def is_sm120(self) -> bool:
        """Consumer and workstation Blackwell (12.x), GB10 included."""
        return self._family(12)

    @property
    def is_blackwell(self) -> bool:
        """Any of 10.x, 11.x, 12.x."""
        return self._family(10, 11, 12)

    @property
    def is_hopper_with_cuda_12_3(self) -> bool:
        """Hopper under a CUDA that FA3 needs."""
        return self._family(9)

    @property
    def is_gfx95(self) -> bool:
        """AMD MI350 family."""
        return self.is_hip and "gfx95" in self.gpu.gcn_arch

    @property
    def has_flashinfer(self) -> bool:
        """FlashInfer is a dependency of the CUDA release."""
        return self.is_cuda

    @property
    def memory_mib(self) -> int:
        """Total memory in MiB as nvidia-smi prints it."""
        return self.gpu.memory_mib

    def _family(self, *majors: int) -> bool:
        return self.is_cuda and self.gpu.capability[0] in majors
