"""The offline catalogue of GPUs."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cache
from importlib import resources

from kvtui.core.facts import GpuFacts


@cache
def _table() -> tuple[tuple[GpuFacts, ...], dict[str, GpuFacts]]:
    text = (resources.files("kvtui.core.tables") / "gpus.toml").read_text(encoding="utf-8")
    rows: list[GpuFacts] = []
    by_name: dict[str, GpuFacts] = {}
    for row in tomllib.loads(text)["gpu"]:
        gpu = GpuFacts(
            key=row["key"],
            name=row["name"],
            vendor=row.get("vendor", "nvidia"),
            capability=(row["capability"][0], row["capability"][1]),
            memory_mib=row["memory_mib"],
            gcn_arch=row.get("gcn_arch", ""),
            unified_memory=row.get("unified_memory", False),
        )
        rows.append(gpu)
        for name in (gpu.key, gpu.name, *row.get("aliases", ())):
            by_name[_normal(name)] = gpu
    return tuple(rows), by_name


def _normal(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("nvidia").removeprefix("amd"))


def gpus() -> tuple[GpuFacts, ...]:
    """All GPUs of the catalogue, oldest family first."""
    return _table()[0]


def find_gpu(name: str) -> GpuFacts | None:
    """The GPU that `name` means: key, alias or full name, case and dashes ignored."""
    return _table()[1].get(_normal(name))


def nearest_gpus(name: str) -> tuple[str, ...]:
    """Catalogue keys that look like `name`, best first."""
    keys = [gpu.key for gpu in gpus()]
    return tuple(difflib.get_close_matches(name.lower(), keys, n=3, cutoff=0.4))
