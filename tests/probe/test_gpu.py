"""Local GPUs through a pretended NVML, and every way in which it fails."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvtui.core.facts import MIB
from kvtui.core.gpus import find_gpu, gpus, nearest_gpus
from kvtui.probe import gpu as probe

read_amd = probe._amd


class FakeNvmlError(Exception):
    """NVML's own exception."""


def fake_nvml(**changes: Any) -> ModuleType:
    """An NVML with two H200."""
    module = ModuleType("pynvml")
    free = [100_000, 90_000]
    members: dict[str, Any] = {
        "NVMLError": FakeNvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.1",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
            total=143771 * MIB, free=free[handle] * MIB
        ),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        **changes,
    }
    for name, value in members.items():
        setattr(module, name, value)
    return module


@pytest.fixture(autouse=True)
def no_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_amd", lambda nodes: ())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def use(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    """Put a pretended NVML (or none) where the probe imports it."""
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fake_nvml())
    found = probe.read_gpus()
    assert found.count == 2
    assert found.first is not None
    assert found.first.key == "h200"
    assert found.first.free_mib == 90_000, "the one with the least room stands for all"
    assert found.first.local
    assert found.first.driver == "580.1"


@pytest.mark.parametrize(
    ("setting", "count"),
    [("0", 1), ("1,0", 2), ("", 0), ("-1", 0), ("0,7,1", 1), ("GPU-abc", 2), (None, 2)],
)
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, setting: str | None, count: int) -> None:
    use(monkeypatch, fake_nvml())
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert len(probe.read_gpus().gpus) == count


def test_unified_memory_is_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> None:
        raise FakeNvmlError("Not Supported")

    use(monkeypatch, fake_nvml(
        nvmlDeviceGetName=lambda h: "NVIDIA GB10", nvmlDeviceGetMemoryInfo=refuse,
    ))  # fmt: skip
    found = probe.read_gpus()
    assert found.first is not None
    assert found.first.unified_memory
    assert found.first.memory_mib > 0


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    assert "not installed" in probe.read_gpus().reason


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise FakeNvmlError("NVML Shared Library Not Found")

    use(monkeypatch, fake_nvml(nvmlInit=fail))
    assert probe.read_gpus().reason == "no NVIDIA driver on this machine"


def test_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fake_nvml(nvmlInit=lambda: time.sleep(1)))
    found = probe.read_gpus(timeout_s=0.05)
    assert found.gpus == ()
    assert "did not answer" in found.reason


def test_amd_from_the_kernel_s_topology(tmp_path: Path) -> None:
    node = tmp_path / "1"
    (node / "mem_banks" / "0").mkdir(parents=True)
    (node / "properties").write_text("cpu_cores_count 0\ngfx_target_version 90402\n")
    (node / "mem_banks/0/properties").write_text("heap_type 1\nsize_in_bytes 206141652992\n")
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "properties").write_text("gfx_target_version 0\n")
    amd = read_amd(tmp_path)
    assert len(amd) == 1
    assert amd[0].gcn_arch == "gfx942"
    assert amd[0].memory_mib == 206141652992 // MIB


def test_the_catalogue() -> None:
    keys = [gpu.key for gpu in gpus()]
    assert len(keys) == len(set(keys)) >= 20
    for name in ("H100", "nvidia h200", "RTX 5090", "a100", "dgx-spark", "MI300X", "gb10"):
        assert find_gpu(name) is not None, name
    assert find_gpu("h1000") is None
    assert "h100" in nearest_gpus("h1000")
