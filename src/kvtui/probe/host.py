"""The machine's memory and cores, container limits included."""

from __future__ import annotations

import os
from pathlib import Path

from kvtui.core.facts import HostFacts

NO_LIMIT = 1 << 60
"""cgroup v1 writes a huge number where there is no limit."""


def read_host(root: Path = Path("/")) -> HostFacts | None:
    """Facts from /proc and the cgroup file system under `root`; None where /proc is absent."""
    meminfo = _meminfo(root / "proc/meminfo")
    if "MemTotal" not in meminfo:
        return None
    total = meminfo["MemTotal"]
    available = meminfo.get("MemAvailable", meminfo.get("MemFree", total))
    limit, used = _cgroup(root)
    if limit is not None:
        available = min(available, max(0, limit - used))
    return HostFacts(
        total_bytes=total if limit is None else min(total, limit),
        available_bytes=available,
        cgroup_limit_bytes=limit,
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    )


def _meminfo(path: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for line in _lines(path):
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[key] = int(words[0]) * (1024 if len(words) > 1 else 1)
    return sizes


def _cgroup(root: Path) -> tuple[int | None, int]:
    """(smallest limit on the way up, bytes in use under it) in either cgroup version."""
    base = root / "sys/fs/cgroup"
    inner = ""
    v1_inner = ""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            inner = path.strip("/")
        elif "memory" in controllers.split(","):
            v1_inner = path.strip("/")
    found: list[tuple[int, int]] = []
    for folder in _upwards(base, inner):
        for name in ("memory.max", "memory.high"):
            limit = _number(folder / name)
            if limit is not None:
                found.append((limit, _v2_used(folder)))
    for folder in _upwards(base / "memory", v1_inner):
        limit = _number(folder / "memory.limit_in_bytes")
        if limit is not None and limit < NO_LIMIT:
            found.append((limit, _number(folder / "memory.usage_in_bytes") or 0))
    if not found:
        return None, 0
    return min(found, key=lambda pair: pair[0] - pair[1])


def _v2_used(folder: Path) -> int:
    """Bytes in use without the page cache that the kernel gives back under pressure."""
    used = _number(folder / "memory.current") or 0
    for line in _lines(folder / "memory.stat"):
        key, _, value = line.partition(" ")
        if key == "inactive_file" and value.strip().isdigit():
            used -= int(value)
    return max(0, used)


def _upwards(base: Path, inner: str) -> list[Path]:
    folder = base / inner if inner else base
    folders = [folder]
    while folder != base and base in folder.parents:
        folder = folder.parent
        folders.append(folder)
    if base not in folders:
        folders.append(base)
    return folders


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
