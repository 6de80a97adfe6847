"""Host memory from /proc and both cgroup versions, on file trees made up for the test."""

from __future__ import annotations

from pathlib import Path

from kvtui.probe.host import read_host

GIB = 1 << 30
MEMINFO = "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   33554432 kB\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write `files` under `root`."""
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_plain_machine(tmp_path: Path) -> None:
    host = read_host(tree(tmp_path, {}))
    assert host is not None
    assert (host.total_bytes, host.available_bytes) == (64 * GIB, 32 * GIB)
    assert host.cgroup_limit_bytes is None


def test_cgroup_v2_limit_of_a_parent_counts(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/kube/pod"
    host = read_host(
        tree(
            tmp_path,
            {
                "proc/self/cgroup": "0::/kube/pod/box\n",
                f"{base}/box/memory.max": "max\n",
                f"{base}/memory.max": f"{16 * GIB}\n",
                f"{base}/memory.current": f"{6 * GIB}\n",
                f"{base}/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n",
            },
        )
    )
    assert host is not None
    assert host.cgroup_limit_bytes == 16 * GIB
    assert host.total_bytes == 16 * GIB
    assert host.available_bytes == 12 * GIB, "page cache that can be given back is free"


def test_memory_high_is_a_limit_too(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.high": f"{8 * GIB}\n", "sys/fs/cgroup/memory.max": "max\n"}
    host = read_host(tree(tmp_path, files))
    assert host is not None
    assert host.cgroup_limit_bytes == 8 * GIB


def test_cgroup_v1(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/memory/box"
    host = read_host(
        tree(
            tmp_path,
            {
                "proc/self/cgroup": "9:cpu,memory:/box\n",
                f"{base}/memory.limit_in_bytes": f"{10 * GIB}\n",
                f"{base}/memory.usage_in_bytes": f"{1 * GIB}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
        )
    )
    assert host is not None
    assert host.cgroup_limit_bytes == 10 * GIB
    assert host.available_bytes == 9 * GIB


def test_no_proc_is_no_fact(tmp_path: Path) -> None:
    assert read_host(tmp_path) is None


def test_garbage_is_not_a_crash(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemTotal\nMemTotal: x kB\n\x00:\nMemTotal: 8 kB",
        "proc/self/cgroup": "::\nnonsense\n0",
        "sys/fs/cgroup/memory.max": "-3",
    }
    host = read_host(tree(tmp_path, files))
    assert host is not None
    assert host.total_bytes == 8192
