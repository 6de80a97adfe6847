"""The first minute in a real terminal, without a picture of it: tmux types and reads."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if shutil.which("tmux") is None:
    pytest.skip("no tmux here", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("terminal")
LIMIT_S = 90.0
NUMBERS = itertools.count()


class Terminal:
    """One tmux session of its own with kvtui in it."""

    def __init__(self, home: Path, *words: str) -> None:
        self.socket = f"kvtui-test-{os.getpid()}-{next(NUMBERS)}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "80", "-y", "24", "sh")
        env = f"HOME={home} XDG_CONFIG_HOME={home} XDG_STATE_HOME={home} LANG=C.UTF-8"
        command = " ".join((env, sys.executable, "-m", "kvtui", *words))
        self.type(f"{command}; echo left with $?", "Enter")

    def tmux(self, *words: str) -> str:
        """Run one tmux command on this test's own server."""
        env = {k: v for k, v in os.environ.items() if k != "TMUX"}
        done = subprocess.run(
            ["tmux", "-u", "-L", self.socket, *words], capture_output=True, text=True, env=env,
            timeout=30, check=True,
        )  # fmt: skip
        return done.stdout

    def type(self, *keys: str) -> None:
        """Type keys by tmux's names."""
        self.tmux("send-keys", "-t", "t", *keys)

    @property
    def text(self) -> str:
        """What is on screen."""
        return self.tmux("capture-pane", "-p", "-t", "t")

    def see(self, pattern: str) -> str:
        """Wait until the screen shows `pattern`; returns the screen."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            text = self.text
            if re.search(pattern, text):
                return text
            time.sleep(0.1)
        raise AssertionError(f"never saw {pattern!r} in:\n{self.text}")

    def child(self) -> int:
        """The process of kvtui under the shell."""
        shell = self.tmux("display-message", "-p", "-t", "t", "#{pane_pid}").strip()
        found = subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of this test's own."""
    return tmp_path


@pytest.fixture
def opened(home: Path) -> Iterator[list[Terminal]]:
    """Terminals that are closed at the end."""
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.tmux("kill-server")


def test_the_first_minute(home: Path, opened: list[Terminal]) -> None:
    """Model, hardware, verdict, pool check, export, leave."""
    terminal = Terminal(home)
    opened.append(terminal)
    terminal.see("another model")
    terminal.type("m")
    terminal.see("type to filter")
    terminal.type("-l", "qwen3-8b")
    terminal.see("› Qwen/Qwen3-8B")
    terminal.type("Enter")
    text = terminal.see("Hardware")
    if "NOT KNOWN" not in text and "type to filter, such as" in text:
        terminal.type("-l", "h100")
        terminal.see("› 8× +NVIDIA H100")
        terminal.type("Enter")
    terminal.see("STARTS")
    terminal.type("p")
    terminal.see("pool ✓")
    terminal.type("e")
    terminal.see("docker")
    terminal.type("Down")
    terminal.see("set -euo pipefail")
    terminal.type("w")
    terminal.see("Qwen3-8B.sh")
    terminal.type("C-u")
    terminal.type("-l", str(home / "serve.sh"))
    terminal.type("Enter")
    terminal.see("written to")
    assert "--model-path Qwen/Qwen3-8B" in (home / "serve.sh").read_text()
    terminal.type("Escape")
    time.sleep(0.5)
    terminal.type("q")
    terminal.see("left with 0")


def test_a_termination_restores_the_terminal_and_keeps_the_work(
    home: Path, opened: list[Terminal]
) -> None:
    """SIGTERM leaves the shell as it was; the next start offers the launch."""
    terminal = Terminal(home, "--gpu", "h100", "--", "--model-path", "Qwen/Qwen3-8B")
    opened.append(terminal)
    terminal.see("STARTS")
    terminal.type("4")
    terminal.see("kv-cache-dtype")
    terminal.type("Down", "Space")
    terminal.see("--kv-cache-dtype fp8_e5m2")
    os.kill(terminal.child(), signal.SIGTERM)
    text = terminal.see("left with")
    assert "Set-up" not in text
    terminal.type("stty -a | tr ' ' '\\n' | grep -x -e echo -e icanon", "Enter")
    terminal.see("icanon\necho|echo\nicanon")
    terminal.type("clear", "Enter")
    again = Terminal(home)
    opened.append(again)
    again.see("continue")
    again.type("Enter")
    again.see("--kv-cache-dtype fp8_e5m2")
