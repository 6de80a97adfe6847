"""Programs that travel: packed into one line, unpacked in memory, and the driver stub."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from kvtui.probe.engine.child.stub_library import CODE, NO_DEVICE
from kvtui.probe.pack import BOOTSTRAP, bootstrap_command, pack


def test_the_program_is_one_line_of_ascii() -> None:
    line = pack("kvtui.probe.engine.child", "serve")
    assert line.isascii()
    assert "\n" not in line


def test_the_bootstrap_is_quoted_for_a_remote_shell_only() -> None:
    assert bootstrap_command(["ssh", "host", "python3"])[-1] == f"'{BOOTSTRAP}'"
    assert bootstrap_command(["docker", "run", "-i", "x", "python3"])[-1] == BOOTSTRAP


def test_the_program_runs_where_kvtui_is_not_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-u", "-c", BOOTSTRAP],
        input=pack("kvtui.probe.engine.child", "serve") + "\n",
        capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"event": "booted"' in done.stdout


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in CODE, reason="ELF stub is for Linux"
)
def test_the_stub_library_loads_and_refuses(tmp_path: object) -> None:
    program = (
        "import ctypes;"
        "from kvtui.probe.engine.child.stub_library import shared_object;"
        f"p=r'{tmp_path}/libcuda.so.1';open(p,'wb').write(shared_object([b'cuInit',b'cuCtxX']));"
        "l=ctypes.CDLL(p);print(l.cuInit(0), l.cuCtxX(), hasattr(l, 'cuNot'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(NO_DEVICE), str(NO_DEVICE), "False"], done.stderr
