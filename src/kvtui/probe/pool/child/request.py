"""The request as the child reads it: a pool plan and how to check it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from kvtui.core.pools.spec import ITEM_BITS, BufferSpec, PoolPlan, SubPool


class BadRequest(ValueError):
    """The request names the key that is wrong and what was expected."""


@dataclass(frozen=True)
class HostTier:
    """The host pool to build beside the device pool (HiCache)."""

    layout: str = "layer_first"
    io_backend: str = "kernel"
    ratio: float = 2.0
    size_gb: float = 0.0
    """GB (10^9 bytes) a rank as in `--hicache-size`; 0 sizes by `ratio`."""
    pin: bool = True
    ranks: int = 1
    """Ranks on the machine; all of them take host memory."""
    fraction: float | None = None
    """Share of the free host memory to which the engine cuts a default ratio down; None where
    ratio or size were given."""


@dataclass(frozen=True)
class Offload:
    """The decode offload manager to try on the built pool."""

    stride: int | None = None
    """SGLANG_HICACHE_DECODE_OFFLOAD_STRIDE; None or <= 0: one page."""
    storage: str = ""
    """Storage backend; `file` is tried for real, others are not touched."""
    folder: str = ""
    """Folder of the file backend; empty: a temporary one that is removed."""


@dataclass(frozen=True)
class Request:
    """What to build, where, within which limits, and which steps to take."""

    plan: PoolPlan
    device: str = "auto"
    full: bool = False
    limit_bytes: int | None = None
    share: float = 0.25
    host_limit_bytes: int | None = None
    time_limit_s: float = 120.0
    steps: tuple[str, ...] = ("build", "exercise")
    host: HostTier | None = None
    offload: Offload | None = None
    seed: int = 1


def _record(kind: type, data: Any, where: str, nested: dict[str, Any] | None = None) -> Any:
    """Build the dataclass `kind` from a JSON object; unknown and missing keys are named."""
    if not isinstance(data, dict):
        raise BadRequest(f"{where}: expected an object, got {type(data).__name__}")
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise BadRequest(f"{where}.{unknown[0]}: unknown key")
    values = {}
    for name, field in known.items():
        if name in data:
            values[name] = _value(data[name], str(field.type), f"{where}.{name}", nested or {})
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BadRequest(f"{where}.{name}: missing")
    return kind(**values)


def _value(value: Any, annotation: str, where: str, nested: dict[str, Any]) -> Any:
    name = where.rsplit(".", 1)[-1]
    if name in nested:
        return nested[name](value, where)
    if "None" in annotation and value is None:
        return None
    base = annotation.split("|")[0].strip()
    if base.startswith("tuple"):
        inner = base[len("tuple[") :].split(",")[0]
        if not isinstance(value, list):
            raise BadRequest(f"{where}: expected a list, got {type(value).__name__}")
        return tuple(_value(item, inner, where + "[]", {}) for item in value)
    wanted: Any = {"int": int, "float": (int, float), "str": str, "bool": bool}[base]
    if not isinstance(value, wanted) or (base != "bool" and isinstance(value, bool)):
        raise BadRequest(f"{where}: expected {base}, got {value!r:.80}")
    return value


def _buffer(data: Any, where: str) -> BufferSpec:
    spec: BufferSpec = _record(BufferSpec, data, where)
    if spec.dtype not in ITEM_BITS:
        raise BadRequest(f"{where}.dtype: unknown dtype {spec.dtype!r:.40}")
    if spec.count < 0 or not spec.shape or min(spec.shape) < 0:
        raise BadRequest(f"{where}: expected a shape and a count of 0 or more, got {spec.shape}")
    if spec.tokens_per_row < 1 or spec.compress < 1:
        raise BadRequest(f"{where}: expected tokens_per_row and compress of 1 or more")
    if spec.rows not in ("slot", "page", "request", "flat"):
        raise BadRequest(f"{where}.rows: expected slot, page, request or flat, got {spec.rows!r}")
    if spec.row_axis not in (0, 1) or spec.row_axis >= len(spec.shape):
        raise BadRequest(f"{where}.row_axis: expected 0 or 1, got {spec.row_axis}")
    return spec


def _many(reader: Any) -> Any:
    def read(data: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise BadRequest(f"{where}: expected a list, got {type(data).__name__}")
        return tuple(reader(item, f"{where}[{index}]") for index, item in enumerate(data))

    return read


def _sub_pool(data: Any, where: str) -> SubPool:
    sub: SubPool = _record(SubPool, data, where, {"buffers": _many(_buffer)})
    if sub.page_size < 1 or sub.slots < 0:
        raise BadRequest(f"{where}: expected page_size >= 1 and slots >= 0")
    return sub


def read_plan(data: Any, where: str = "plan") -> PoolPlan:
    """The plan in `data` (as `dataclasses.asdict` writes it); raises BadRequest."""
    plan: PoolPlan = _record(PoolPlan, data, where, {"sub_pools": _many(_sub_pool)})
    if plan.page_size < 1 or plan.tokens < 0:
        raise BadRequest(f"{where}: expected page_size >= 1 and tokens >= 0")
    return plan


def read_request(data: Any) -> Request:
    """The request in `data`; raises BadRequest naming the first key that is wrong."""

    def optional(kind: type) -> Any:
        return lambda value, where: None if value is None else _record(kind, value, where)

    nested = {"plan": read_plan, "host": optional(HostTier), "offload": optional(Offload)}
    request: Request = _record(Request, data, "request", nested)
    if request.time_limit_s <= 0:
        raise BadRequest("request.time_limit_s: expected more than 0")
    if not 0 < request.share <= 1:
        raise BadRequest(f"request.share: expected 0 to 1, got {request.share}")
    return request
