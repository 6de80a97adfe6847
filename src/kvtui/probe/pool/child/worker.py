"""Main of the child: reads one request, runs it, answers with one result or one error."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any

from .request import BadRequest, Request, read_request
from .wire import PROTOCOL, Channel, Refused, die_with_parent, watch_parent

MOST_THREADS = 8
"""Threads of torch on the CPU, at most."""


def main() -> None:
    """Serve one request from standard input; always ends the process."""
    stdin = sys.stdin
    die_with_parent()
    channel = Channel()
    line = stdin.readline()
    if not line:
        os._exit(1)
    code = 0
    report: dict[str, Any] = {}
    try:
        request = read_request(json.loads(line))
        watch_parent(stdin, request.time_limit_s + 5)
        channel.emit("hello", protocol=PROTOCOL, pid=os.getpid(), python=sys.version.split()[0])
        channel.emit("result", report=_serve(request, channel, report))
    except BaseException as error:  # the last line of defence: every end is one event
        channel.emit("error", **describe(error), report=report)
        code = 1
    # Not a plain exit: threads and CUDA teardown may hang, and there is nothing left to save.
    sys.stderr.flush()
    os._exit(code)


def _serve(request: Request, channel: Channel, report: dict[str, Any]) -> dict[str, Any]:
    """Run the request; `report` fills up as it goes, for an end before the last step."""
    channel.emit("step", step="torch", state="started", title="Load torch")
    # Threads that spin while they wait make small copies crawl on a machine that is busy.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(min(MOST_THREADS, os.cpu_count() or 1)))
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    try:
        import torch  # noqa: F401
    except Exception as error:
        raise Refused("torch", f"torch can't be loaded in {sys.executable}: {error}") from error
    from .device import pick
    from .steps import Run

    device = pick(request.device)
    channel.emit(
        "step", step="torch", state="passed", title="Load torch", figures=device.describe()
    )
    return Run(request, device, channel, report).run()


def describe(error: BaseException) -> dict[str, str]:
    """Kind and one-line message of whatever ended the run; the traceback goes to stderr."""
    if isinstance(error, Refused):
        return {"kind": error.kind, "message": str(error)}
    if isinstance(error, (BadRequest, json.JSONDecodeError)):
        return {"kind": "request", "message": f"the request is not usable: {error}"}
    traceback.print_exception(type(error), error, error.__traceback__)
    text = " ".join(str(error).split())[:400]
    name = type(error).__name__
    if isinstance(error, MemoryError) or name == "OutOfMemoryError" or _cpu_oom(text):
        return {"kind": "oom", "message": f"out of memory: {text or name}"}
    if "CUDA error" in text or name == "AcceleratorError":
        return {"kind": "device", "message": f"the device failed: {text}"}
    return {"kind": "internal", "message": f"{name}: {text}"}


def _cpu_oom(text: str) -> bool:
    return "DefaultCPUAllocator" in text or "not enough memory" in text
