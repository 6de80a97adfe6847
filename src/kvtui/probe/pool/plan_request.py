"""From a report to a pool check: which host tier and offload settings the launch runs with."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from .device_memory import has_nvidia_device
from .protocol import HostTier, Offload, PoolRequest

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

STRIDE_VARIABLE = "SGLANG_HICACHE_DECODE_OFFLOAD_STRIDE"
FULL_TIME_LIMIT_S = 600.0


def request_for(
    report: Report,
    *,
    python: tuple[str, ...] = (),
    limit_bytes: int | None = None,
    full: bool = False,
    device: str = "auto",
) -> PoolRequest:
    """The check of the report's pool; raises ValueError where no pool is planned.

    Without `python` the child runs in this Python, or in the engine's where only that one's
    torch can use the GPU.
    """
    plan = report.pool
    if plan is None:
        raise ValueError("no pool is planned for this launch")
    values = report.plan.values
    host = host_tier(values) if plan.writable else None
    offload = decode_offload(values, report.draft.env)
    extra = [name for name, wanted in (("host", host), ("offload", offload)) if wanted]
    return PoolRequest(
        plan=plan,
        device=device,
        python=python or default_python(),
        full=full,
        limit_bytes=limit_bytes,
        time_limit_s=FULL_TIME_LIMIT_S if full else PoolRequest(plan).time_limit_s,
        steps=("build", "exercise", *(("sweep",) if plan.writable else ()), *extra, "release"),
        host=host,
        offload=offload,
    )


def host_tier(values: Mapping[str, Any]) -> HostTier | None:
    """The host pool that the launch builds; None where it builds none."""
    backup = values.get("disaggregation_decode_retraction_backup") == "host_pool"
    wanted = values.get("enable_hierarchical_cache") or backup or _offloads(values)
    if not wanted:
        return None
    return HostTier(
        layout=str(values.get("hicache_mem_layout") or "layer_first"),
        io_backend=str(values.get("hicache_io_backend") or "kernel"),
        ratio=_number(values.get("hicache_ratio"), 2.0),
        size_gb=_number(values.get("hicache_size"), 0.0),
        ranks=max(1, ranks_on_host(values)),
        fraction=_fraction(values) if values.get("enable_hierarchical_cache") or backup else None,
    )


def ranks_on_host(values: Mapping[str, Any]) -> int:
    """Ranks that share one machine's memory (pool_host/base.py:65)."""
    world = _count(values.get("tp_size")) * _count(values.get("pp_size"))
    return world // _count(values.get("nnodes"))


def decode_offload(values: Mapping[str, Any], env: Mapping[str, str]) -> Offload | None:
    """The offload manager's settings; None where it is off."""
    if not _offloads(values):
        return None
    try:
        stride = int(env.get(STRIDE_VARIABLE, ""))
    except ValueError:
        stride = None
    return Offload(stride=stride, storage=str(values.get("hicache_storage_backend") or ""))


def _offloads(values: Mapping[str, Any]) -> bool:
    return bool(values.get("disaggregation_decode_enable_offload_kvcache"))


def _fraction(values: Mapping[str, Any]) -> float | None:
    value = values.get("hicache_host_memory_fraction")
    return float(value) if isinstance(value, (int, float)) else None


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) else default


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def default_python() -> tuple[str, ...]:
    """The engine's Python where there is an NVIDIA device that kvtui's own torch can't use."""
    if not has_nvidia_device() or not _cpu_only_torch():
        return ()
    from kvtui.probe.engine.discover import find_engine

    engine = find_engine()
    return engine.command if engine is not None else ()


def _cpu_only_torch() -> bool:
    """Whether this Python's torch lacks CUDA, told from its version without importing it."""
    try:
        return metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return True
