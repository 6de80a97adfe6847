"""Where an installed SGLang lies, for tests that ask it."""

from __future__ import annotations

import os
from pathlib import Path
from pwd import getpwuid

import pytest

from kvtui.core.options import NEWEST


def engine_home() -> Path:
    """The virtual environment of the installed release; skips the test where there is none.

    KVTUI_ENGINE names its Python; otherwise the usual cache of the user is looked into, whose
    home the tests replace.
    """
    given = os.environ.get("KVTUI_ENGINE")
    usual = Path(getpwuid(os.geteuid()).pw_dir) / ".cache" / "kvtui-engine" / f"sglang-{NEWEST}"
    home = Path(given).parents[1] if given else usual
    if not (home / "bin" / "python").exists():
        pytest.skip(f"no SGLang {NEWEST} is installed")
    return home
