"""The probe's main loop: import once, then answer each question in a forked child."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import time
from typing import Any

from .wire import Wire

DEFAULT_LIMIT_S = 60.0
PR_SET_PDEATHSIG = 1


class Asked:
    """A question under way in a forked child."""

    def __init__(self, number: Any, pid: int, pipe: int, limit_s: float) -> None:
        self.number = number
        self.pid = pid
        self.pipe = pipe
        self.ends_at = time.monotonic() + limit_s
        self.data = b""


def main() -> None:
    """Take the settings from the first message, import the engine, serve until input ends."""
    wire = Wire()
    wire.send({"event": "booted", "pid": os.getpid()})
    waiting: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    while not settings:
        messages, alive = wire.receive()
        if not alive:
            return
        if messages:
            settings, waiting = messages[0], messages[1:]
    try:
        warm_up(wire, settings.get("claim"))
    except BaseException as error:
        from .questions import describe

        wire.send({"event": "broken", **describe(error)})
        return
    Server(wire, settings.get("claim")).run(waiting)


def warm_up(wire: Wire, claim: dict[str, Any] | None) -> None:
    """Import what every question needs, with a line of progress for each part."""
    wire.send({"event": "progress", "text": "importing torch"})
    import torch  # noqa: F401

    if claim:
        from .claim import claim_gpu

        claim_gpu(claim)
    wire.send({"event": "progress", "text": "importing SGLang"})
    import sglang
    import sglang.srt.server_args

    if claim:
        from .claim import claim_in_sglang

        claim_in_sglang(claim)
    wire.send({"event": "ready", "version": sglang.__version__})
    for module in resolution_modules():
        try:
            __import__(module)
        except Exception:  # not on this machine, or kept elsewhere by this release
            continue


def resolution_modules() -> list[str]:
    """What a resolution imports on its way: each later one then finds it there."""
    import pkgutil

    import sglang.srt

    found = ["sglang.srt.arg_groups.pipeline", "sglang.srt.configs.model_config"]
    for folder in sglang.srt.__path__:
        groups = pkgutil.iter_modules([os.path.join(folder, "arg_groups")])
        found += [f"sglang.srt.arg_groups.{module.name}" for module in groups]
    return [*found, "sglang.srt.model_loader.remote_instance_weight_loader_utils"]


class Server:
    """Forks a child for each question, so that neither state nor memory stays behind."""

    def __init__(self, wire: Wire, claim: dict[str, Any] | None) -> None:
        self.wire = wire
        self.claim = claim
        self.asked: dict[int, Asked] = {}

    def run(self, waiting: list[dict[str, Any]]) -> None:
        """Serve until the other side goes away."""
        for message in waiting:
            self.take(message)
        while True:
            timeout = min((a.ends_at - time.monotonic() for a in self.asked.values()), default=None)
            ready, _, _ = select.select(
                [0, *self.asked], [], [], None if timeout is None else max(0.0, timeout)
            )
            for pipe in ready:
                if pipe == 0:
                    messages, alive = self.wire.receive()
                    for message in messages:
                        self.take(message)
                    if not alive:
                        self.stop_all()
                        return
                else:
                    self.read(self.asked[pipe])
            self.expire()

    def take(self, message: dict[str, Any]) -> None:
        """Start a question, or stop one."""
        if message.get("ask") == "cancel":
            for asked in list(self.asked.values()):
                if asked.number == message.get("id"):
                    self.finish(asked, {"error_type": "Cancelled", "error": "cancelled"})
            return
        inlet, outlet = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(inlet)
            for asked in self.asked.values():
                os.close(asked.pipe)
            work(self.wire, message, outlet, self.claim)
        os.close(outlet)
        limit = float(message.get("limit_s") or DEFAULT_LIMIT_S)
        self.asked[inlet] = Asked(message.get("id"), pid, inlet, limit)

    def read(self, asked: Asked) -> None:
        """Take what a child wrote; its end of file is the answer's end."""
        chunk = os.read(asked.pipe, 1 << 16)
        if chunk:
            asked.data += chunk
            return
        try:
            answer = json.loads(asked.data)
        except ValueError:
            answer = None
        self.finish(asked, answer)

    def finish(self, asked: Asked, answer: dict[str, Any] | None) -> None:
        """Reap the child and hand its answer over, or say how it died."""
        self.asked.pop(asked.pipe, None)
        os.close(asked.pipe)
        if answer is None or answer.get("error_type") in ("Cancelled", "Timeout"):
            kill(asked.pid)
        _, status = os.waitpid(asked.pid, 0)
        if answer is None:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no answer"
            answer = {"error_type": "Crash", "error": f"the engine's process died ({how})"}
        self.wire.send({"id": asked.number, "answer": answer})

    def expire(self) -> None:
        """Answer for children that took too long."""
        now = time.monotonic()
        for asked in [a for a in self.asked.values() if a.ends_at <= now]:
            self.finish(asked, {"error_type": "Timeout", "error": "no answer within its time"})

    def stop_all(self) -> None:
        """Nobody listens any more: end every child."""
        for asked in list(self.asked.values()):
            kill(asked.pid)


def kill(pid: int) -> None:
    """End a child and what it started (it leads a process group of its own)."""
    for target in (-pid, pid):
        try:
            os.kill(target, signal.SIGKILL)
        except OSError:
            continue


def work(wire: Wire, message: dict[str, Any], outlet: int, claim: dict[str, Any] | None) -> None:
    """Answer one question in a forked child; never returns.

    `took_s` and `cpu_s` say what it cost over there.
    """
    began = time.monotonic()
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        wire.close_in_fork()
        answer = answer_to(message, claim)
    except BaseException as error:
        from .questions import describe

        answer = describe(error)
    answer["took_s"] = round(time.monotonic() - began, 3)
    answer["cpu_s"] = round(time.process_time(), 3)
    data = json.dumps(answer, default=str).encode()
    while data:
        data = data[os.write(outlet, data) :]
    os._exit(0)


def answer_to(message: dict[str, Any], claim: dict[str, Any] | None) -> dict[str, Any]:
    """Run the question that `ask` names."""
    from . import pools, questions, schema

    ask = message.get("ask")
    if ask == "pool":
        return pools.pool(message, claim)
    known = {"hello": questions.hello, "schema": schema.schema, "resolve": questions.resolve}
    if ask not in known:
        return {"error_type": "Question", "error": f"unknown question {ask!r}"}
    return known[ask](message)
