"""What a word loads: fresh interpreters, because a static graph can't see a late import."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("textual", "torch", "pydantic", "huggingface_hub", "yaml", "pynvml", "rich")


def loaded_after(code: str) -> set[str]:
    """Heavy packages in sys.modules after `code` ran."""
    program = f"{code}\nimport sys\nprint([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: set[str] = set(eval(done.stdout.splitlines()[-1]))
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import kvtui",
        "from kvtui.cli import main; main(['--help'])",
        "import kvtui.core.evaluate, kvtui.core.render, kvtui.core.matrix, kvtui.cli.check",
        "from kvtui.cli import main; main(['gpus'])",
        "from kvtui.cli import main; main(['check', '--gpu', 'h100', '--', '--model-path',"
        " 'Qwen/Qwen3-8B'])",
        "import kvtui.probe.pool.client, kvtui.probe.engine.client",
    ],
)
def test_the_command_line_loads_nothing_heavy(code: str) -> None:
    assert loaded_after(code) == set()


def test_the_screen_never_loads_torch() -> None:
    assert "torch" not in loaded_after("import kvtui.tui.app")
