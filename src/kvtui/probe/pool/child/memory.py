"""How much memory may be taken, and how much was."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

GIB = 1 << 30
CPU_CAP_BYTES = GIB // 4
"""Most that an unasked check takes of main memory: more proves nothing more, and takes seconds."""
CPU_MOST_BYTES = 2 * GIB
"""Most that it takes where even the smallest pool of a class is larger than that."""
CUDA_MARGIN_BYTES = GIB
"""Left free on the device whatever is asked, for kernels, staging and others."""
UNLIMITED_CGROUP_V1 = 1 << 60


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text().strip())
    except (OSError, ValueError):
        return None


def _cgroup_folders(proc: Path, root: Path) -> list[tuple[Path, str, str]]:
    """Folders of this process's memory cgroups, with the names of limit and usage files."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        path = PurePosixPath(parts[2].lstrip("/"))
        if not parts[1]:
            base, names = root, ("memory.max", "memory.current")
        elif "memory" in parts[1].split(","):
            base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        # A container often sees its own group mounted as the root.
        folders = [base.joinpath(*path.parts[:depth]) for depth in range(len(path.parts) + 1)]
        found += [(folder, *names) for folder in folders]
    return found


def cgroup_headroom(proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes left under the tightest memory limit of this process's cgroups (v1 and v2)."""
    room: int | None = None
    for folder, limit_name, usage_name in _cgroup_folders(proc, root):
        limit = _read_int(folder / limit_name)
        usage = _read_int(folder / usage_name)
        if limit is None or usage is None or limit >= UNLIMITED_CGROUP_V1:
            continue
        left = max(0, limit - usage + _page_cache(folder))
        room = left if room is None else min(room, left)
    return room


def _page_cache(folder: Path) -> int:
    """File pages that the kernel gives back under pressure; they count as used in the group."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    stat = dict(line.split() for line in lines if len(line.split()) == 2)
    names = ("active_file", "inactive_file")
    prefix = "total_" if "total_inactive_file" in stat else ""
    return sum(int(stat.get(prefix + name, 0)) for name in names)


def _address_space_left() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return None
    pages = _read_statm()
    return max(0, soft - pages * os.sysconf("SC_PAGE_SIZE"))


def _read_statm() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def available_host_bytes() -> int:
    """Main memory that could be taken now: the machine's, the container's and the ulimit's."""
    candidates = [_meminfo("MemAvailable"), cgroup_headroom(), _address_space_left()]
    known = [value for value in candidates if value is not None]
    return min(known) if known else GIB


def _meminfo(key: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def host_budget(limit: int | None, share: float, full: bool) -> int:
    """Bytes of main memory that a pool may take: a share of what is free and at most 256 MiB,
    unless a limit or the full size was asked for."""
    available = available_host_bytes()
    if limit is not None:
        return min(limit, available)
    if full:
        return int(available * 0.9)
    return min(int(available * share), CPU_CAP_BYTES)


def host_most(limit: int | None, share: float, full: bool) -> int:
    """Bytes of main memory for a pool whose smallest size is above `host_budget`."""
    if limit is not None or full:
        return host_budget(limit, share, full)
    return min(int(available_host_bytes() * share), CPU_MOST_BYTES)


def cuda_budget(free: int, limit: int | None, share: float, full: bool) -> int:
    """Bytes of device memory that a pool may take of `free`."""
    most = max(0, free - CUDA_MARGIN_BYTES)
    if limit is not None:
        return min(limit, most)
    return most if full else int(most * share)
