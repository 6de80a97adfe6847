"""Joins the child's modules into one program text that any Python with torch can run."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

CHILD = "kvtui.probe.pool.child"
SHARED = ("kvtui.core.pools.spec",)
"""Modules of kvtui proper that travel along; standard library only."""

_LOADER = """\
import importlib.abc, importlib.util, json, sys
sys.path[:] = [entry for entry in sys.path if entry]
class Packed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, sources): self.sources = sources
    def find_spec(self, name, path=None, target=None):
        package = any(other.startswith(name + ".") for other in self.sources)
        if name in self.sources or package:
            return importlib.util.spec_from_loader(name, self, is_package=package)
    def create_module(self, spec): return None
    def exec_module(self, module):
        name = module.__name__
        code = compile(self.sources.get(name, ""), "<pool child: " + name + ">", "exec")
        exec(code, module.__dict__)
for loaded in [name for name in sys.modules if name.split(".")[0] == "kvtui"]:
    del sys.modules[loaded]
sys.meta_path.insert(0, Packed(json.loads(SOURCES)))
import kvtui.probe.pool.child.worker as worker
worker.main(sys.stdin)
"""


def sources() -> dict[str, str]:
    """Source text by dotted module name, parents of packages left out."""
    found = {}
    for entry in sorted(files(CHILD).iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".py"):
            stem = entry.name.removesuffix(".py")
            name = CHILD if stem == "__init__" else f"{CHILD}.{stem}"
            found[name] = entry.read_text(encoding="utf-8")
    for name in SHARED:
        package, _, stem = name.rpartition(".")
        found[name] = (files(package) / f"{stem}.py").read_text(encoding="utf-8")
    return found


@cache
def pack() -> str:
    """The whole program, ASCII only; runs the worker on `sys.stdin`."""
    return f"SOURCES = {json.dumps(json.dumps(sources()))}\n{_LOADER}"


def envelope() -> bytes:
    """What goes into the child's standard input before the request: one line of Python that
    reads the program behind it (`BOOTSTRAP` executes that line)."""
    program = pack()
    line = f"exec(compile(sys.stdin.read({len(program)}), '<pool child>', 'exec'))\n"
    return (line + program).encode("ascii")


BOOTSTRAP = "import sys;exec(sys.stdin.readline())"
"""Argument of `python -c`."""
