"""Pack a package's modules into one line of Python, to run in an interpreter that lacks kvtui.

The line travels over standard input to a Python started with `-c "exec(input())"`; the modules
live in memory there and nothing is written to disk.
"""

from __future__ import annotations

import base64
import shlex
import zlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import PurePath

BOOTSTRAP = "exec(input())"
"""Reads the packed program as the first line of standard input and runs it."""

IN_MEMORY = "kvtui_child"
"""Name under which the packed package can be imported over there."""

_LOADER = """
import importlib.abc, importlib.util, sys
MODULES = {modules!r}
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            package = any(other.startswith(name + ".") for other in MODULES)
            return importlib.util.spec_from_loader(name, self, is_package=package)
        return None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compile(MODULES[name], "<" + name + ">", "exec"), module.__dict__)
sys.meta_path.insert(0, Finder())
import importlib
importlib.import_module({entry!r}).main()
"""


def _shared(names: Sequence[str]) -> dict[str, str]:
    """Sources of further modules under their own names, in packages that are empty over there."""
    modules = {}
    for name in names:
        package, _, stem = name.rpartition(".")
        modules[name] = (resources.files(package) / f"{stem}.py").read_text(encoding="utf-8")
        while package:
            modules.setdefault(package, "")
            package = package.rpartition(".")[0]
    return modules


@cache
def pack(package: str, entry: str, shared: tuple[str, ...] = ()) -> str:
    """One line of Python that holds every module of `package` and calls `entry`'s `main()`.

    The modules may use the standard library, relative imports among themselves, the modules
    named in `shared` by their full names, and whatever the interpreter over there has installed.
    """
    modules = {IN_MEMORY: "", **_shared(shared)}
    for item in resources.files(package).iterdir():
        if item.name.endswith(".py"):
            stem = item.name.removesuffix(".py")
            name = IN_MEMORY if stem == "__init__" else f"{IN_MEMORY}.{stem}"
            modules[name] = item.read_text(encoding="utf-8")
    source = _LOADER.format(modules=modules, entry=f"{IN_MEMORY}.{entry}")
    packed = base64.b64encode(zlib.compress(source.encode(), 9)).decode()
    # Without the current folder on the path nothing lying there is run in place of a library.
    path = "import sys;sys.path[:]=[p for p in sys.path if p]"
    return f'{path};import base64,zlib;exec(zlib.decompress(base64.b64decode("{packed}")).decode())'


def bootstrap_command(python: Sequence[str]) -> list[str]:
    """`python` (a path or a whole command that starts one) with the bootstrap added.

    ssh hands its words to a remote shell, so there the bootstrap is quoted once more.
    """
    quoted = shlex.quote(BOOTSTRAP) if PurePath(python[0]).name == "ssh" else BOOTSTRAP
    return [*python, "-u", "-c", quoted]
