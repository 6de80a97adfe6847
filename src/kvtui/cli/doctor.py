"""`kvtui doctor`: what was found on this machine, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from kvtui import __version__
from kvtui.cli.common import Parser
from kvtui.exit_codes import ExitCode

TORCH_LIMIT_S = 30
TORCH_PROGRAM = (
    "import json,torch;print(json.dumps([torch.__version__,torch.version.cuda,"
    "torch.cuda.is_available()]))"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing looked for: ok, or a reason and a way out."""

    name: str
    ok: bool
    text: str
    way_out: str = ""


def run(words: list[str], _word: str) -> int:
    """Print every line; 0 even where something is missing, since the rules need none of it."""
    parser = Parser("doctor", "[--json]", "What was found on this machine, what is missing.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    found = list(look())
    if args.json:
        print(json.dumps([asdict(line) for line in found]))
        return ExitCode.STARTS
    width = max(len(line.name) for line in found)
    for line in found:
        mark = "✓" if line.ok else "–"
        tail = f"; {line.way_out}" if line.way_out else ""
        print(f"{mark} {line.name:<{width}}  {line.text}{tail}")
    return ExitCode.STARTS


def look() -> Iterator[Line]:
    """Look for everything that kvtui can use, one after the other."""
    yield Line("kvtui", True, f"{__version__}, Python {sys.version.split()[0]} ({sys.executable})")
    yield from _gpus()
    yield _host()
    yield _torch()
    yield _engine()
    yield _models()
    yield _terminal()
    yield _folders()


def _gpus() -> Iterator[Line]:
    from kvtui.probe.gpu import read_gpus

    found = read_gpus()
    for index, gpu in enumerate(found.gpus):
        free = f", {gpu.free_mib / 1024:.1f} GiB free" if gpu.free_mib is not None else ""
        text = f"{gpu.name}, {gpu.memory_mib / 1024:.1f} GiB{free}, SM{gpu.sm}"
        yield Line(f"GPU {index}", True, f"{text}, driver {gpu.driver or '?'}")
    if not found.gpus:
        yield Line("GPU", False, found.reason, "judge for any GPU with --gpu NAME (kvtui gpus)")


def _host() -> Line:
    from kvtui.probe.host import read_host

    host = read_host()
    if host is None:
        return Line("host", False, "/proc/meminfo is not readable here")
    limit = host.cgroup_limit_bytes
    tail = f", container limit {limit / 2**30:.1f} GiB" if limit else ""
    text = f"{host.available_bytes / 2**30:.1f} of {host.total_bytes / 2**30:.1f} GiB free{tail}"
    return Line("host", True, f"{text}, {host.cpus} cores")


def _torch() -> Line:
    try:
        done = subprocess.run(
            [sys.executable, "-c", TORCH_PROGRAM], capture_output=True, text=True,
            timeout=TORCH_LIMIT_S, check=True,
        )  # fmt: skip
        version, cuda, there = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Line("torch", False, f"did not import within {TORCH_LIMIT_S} s")
    except (subprocess.CalledProcessError, OSError, ValueError, IndexError):
        way_out = "pip install torch, or name a Python that has it with --pool-python"
        return Line("torch", False, "can't be imported, so no pool can be built", way_out)
    device = "sees a GPU" if there else "no GPU: pools are built on the CPU, at reduced size"
    return Line("torch", True, f"{version}, CUDA {cuda or 'none'}, {device}")


def _engine() -> Line:
    from kvtui.probe.engine.discover import find_engine

    engine = find_engine()
    if engine is None:
        return Line("SGLang", False, "not found", "name one with --engine PYTHON or a command")
    return Line("SGLang", True, f"in {engine.place}", "kvtui engine hello asks it")


def _models() -> Line:
    from kvtui.probe.model import cached_models, hub_cache

    names = cached_models()
    return Line("models", bool(names), f"{len(names)} in the hub cache {hub_cache()}",
                "" if names else "kvtui models lists the offline catalogue")  # fmt: skip


def _terminal() -> Line:
    encoding = (sys.stdout.encoding or "?").lower()
    utf8 = encoding.replace("-", "") == "utf8"
    text = f"TERM={os.environ.get('TERM', '')}, {encoding}"
    return Line("terminal", utf8, text, "" if utf8 else "shown in ASCII; set a UTF-8 locale")


def _folders() -> Line:
    from kvtui.probe.presets import preset_folders

    parts = [str(folder) for folder in preset_folders()]
    packages = ("textual", "pydantic", "huggingface_hub")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return Line("presets", True, f"{', '.join(parts)} · {', '.join(versions)}")
