"""Make this process believe in a GPU: answers to device queries, nothing that runs on one."""

from __future__ import annotations

import importlib.util
import os
import types
from typing import Any

MIB = 1 << 20
RESERVED_MIB = 600
"""What a driver context takes of a fresh GPU."""
DEVICES = 8


def claim_gpu(claim: dict[str, Any]) -> None:
    """Answer torch's device queries for `claim`: name, capability, memory_mib, count.

    Must run before SGLang is imported: it keeps answers in module constants.
    """
    import torch

    from . import stub_library

    spec = importlib.util.find_spec("sgl_kernel")
    if spec is not None and spec.origin is not None:
        stub_library.load_stub(os.path.dirname(spec.origin))
    capability = tuple(claim["capability"])
    total = int(claim["memory_mib"]) * MIB
    name = str(claim["name"])
    count = int(claim.get("count") or DEVICES)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "current_device": lambda: 0,
        "is_initialized": lambda: True,
        "get_device_capability": lambda *a, **k: capability,
        "get_device_name": lambda *a, **k: name,
        "mem_get_info": lambda *a, **k: (total - RESERVED_MIB * MIB, total),
        "set_device": lambda *a, **k: None,
        "empty_cache": lambda *a, **k: None,
        "synchronize": lambda *a, **k: None,
        "get_device_properties": lambda *a, **k: types.SimpleNamespace(
            name=name,
            major=capability[0],
            minor=capability[1],
            total_memory=total,
            multi_processor_count=132,
            gcnArchName="",
            shared_memory_per_block_optin=232448,
            shared_memory_per_multiprocessor=233472,
            warp_size=32,
            L2_cache_size=60 * MIB,
            max_threads_per_multi_processor=2048,
            regs_per_multiprocessor=65536,
            is_integrated=False,
            uuid="claimed",
        ),
    }
    for attribute, answer in answers.items():
        setattr(torch.cuda, attribute, answer)
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"


def claim_in_sglang(claim: dict[str, Any]) -> None:
    """The queries that SGLang makes past torch: nvidia-smi and NVML."""
    from sglang.srt.utils import common

    memory_mib = int(claim["memory_mib"])
    major, minor = claim["capability"]
    for attribute, value in (
        ("get_nvgpu_memory_capacity", memory_mib),
        ("get_device_sm", major * 10 + minor),
    ):
        if hasattr(common, attribute):
            setattr(common, attribute, _constant(value))


def _constant(value: Any) -> Any:
    return lambda *args, **kwargs: value
