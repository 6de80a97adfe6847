"""Starts the pool child, follows it, and takes it down whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvtui.probe.pack import bootstrap_command, pack

from .device_memory import has_nvidia_device, left_over, used_bytes
from .protocol import (
    PROTOCOL,
    HostTier,
    Offload,
    PoolEvent,
    PoolOutcome,
    PoolRequest,
    ProtocolError,
    parse_event,
)

__all__ = [
    "HostTier",
    "Offload",
    "PoolEvent",
    "PoolOutcome",
    "PoolRequest",
    "check_pool",
    "run_check",
]

OnEvent = Callable[[PoolEvent], None]

LINE_LIMIT_BYTES = 1 << 20
BANNER_LINES = 50
"""Lines that are not protocol, tolerated before the first event (ssh and shell greetings)."""
STDERR_KEPT_BYTES = 8192
GRACE_S = 0.3
"""Time for the child to leave by itself once its standard input is closed."""


class _Ended(Exception):
    """The check ended early: kind and one line for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def child_command(python: Sequence[str]) -> list[str]:
    """argv that starts the child; raises _Ended when the Python (or ssh, docker …) is not there."""
    words = list(python) or [sys.executable]
    found = shutil.which(words[0])
    if found is None:
        raise _Ended("python", f"{words[0]}: no such program to run the pool check with")
    return bootstrap_command([os.path.abspath(found), *words[1:]])


def program() -> str:
    """The child's program: one line that its Python executes first."""
    return pack("kvtui.probe.pool.child", "worker", ("kvtui.core.pools.spec",))


async def check_pool(request: PoolRequest, on_event: OnEvent | None = None) -> PoolOutcome:
    """Run one pool check in a child process.

    Never raises for what happens in the child; cancelling the task kills it. When this returns
    or raises, the child is dead and its memory given back.
    """
    start = time.monotonic()
    follower = _Follower(on_event or (lambda event: None))
    used = await asyncio.to_thread(used_bytes) if has_nvidia_device() else {}
    try:
        async with asyncio.timeout(request.time_limit_s):
            report = await _converse(request, follower)
    except TimeoutError:
        place = f" in step {follower.step!r}" if follower.step else ""
        message = f"the pool check took longer than {request.time_limit_s:g} s{place}; it was ended"
        return PoolOutcome(request.key, False, follower.partial(start), message, "timeout")
    except _Ended as end:
        return PoolOutcome(request.key, False, follower.partial(start), str(end), end.kind)
    report["wall_seconds"] = round(time.monotonic() - start, 3)
    device = report.get("device")
    if used and isinstance(device, dict):
        report["device_left_over_bytes"] = await left_over(used, str(device.get("uuid", "")))
    return PoolOutcome(request.key, True, report)


def run_check(request: PoolRequest, on_event: OnEvent | None = None) -> PoolOutcome:
    """`check_pool` for callers without an event loop; an interrupt kills the child."""
    return asyncio.run(check_pool(request, on_event))


class _Follower:
    """Turns the child's lines into events and remembers what a failed run got done."""

    def __init__(self, on_event: OnEvent) -> None:
        self.on_event = on_event
        self.step = ""
        self.passed: list[dict[str, Any]] = []
        self.greeted = False
        self.banner: list[str] = []
        self.report: dict[str, Any] = {}

    def take(self, line: bytes) -> PoolEvent | None:
        """The event in `line`; None for a greeting before the first event."""
        try:
            event = parse_event(line)
        except ProtocolError as error:
            if not self.greeted and len(self.banner) < BANNER_LINES:
                self.banner.append(str(error))
                return None
            raise _Ended(
                "protocol", f"the pool child sent a line that is not an event: {error}"
            ) from None
        if event.event == "hello":
            self._greet(event)
        elif not self.greeted and event.event != "error":
            raise _Ended("protocol", "the pool child spoke before its greeting")
        if event.event == "step":
            self.step = event.step
            if event.state == "passed":
                self.passed.append(dict(event.body))
        self.on_event(event)
        return event

    def _greet(self, event: PoolEvent) -> None:
        if event.body.get("protocol") != PROTOCOL:
            raise _Ended(
                "protocol",
                f"the pool child speaks protocol {event.body.get('protocol')!r}, not {PROTOCOL}",
            )
        self.greeted = True

    def keep(self, report: Any) -> None:
        """Remember what the child itself reports of a run that it could not finish."""
        if isinstance(report, dict):
            self.report = report

    def partial(self, start: float) -> dict[str, Any]:
        """What is known of a run that did not finish."""
        return {
            "schema": 1,
            **self.report,
            "steps": self.passed,
            "stopped_in": self.step,
            "wall_seconds": round(time.monotonic() - start, 3),
        }


async def _converse(request: PoolRequest, follower: _Follower) -> dict[str, Any]:
    command = child_command(request.python)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LINE_LIMIT_BYTES,
        )
    except OSError as error:
        raise _Ended("python", f"{command[0]}: {error.strerror or error}") from error
    assert process.stdin is not None
    assert process.stderr is not None
    kept = asyncio.create_task(_keep_tail(process.stderr))
    try:
        # Not drained: a child that reads nothing must still be heard.
        process.stdin.write(program().encode("ascii") + b"\n" + request.to_line())
        return await _follow(process, follower, kept)
    finally:
        await _take_down(process, kept)


async def _follow(
    process: asyncio.subprocess.Process, follower: _Follower, kept: asyncio.Task[bytes]
) -> dict[str, Any]:
    """Read events until the result; raises _Ended for every other end."""
    assert process.stdout
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:
            raise _Ended(
                "protocol", f"the pool child sent a line longer than {LINE_LIMIT_BYTES} bytes"
            ) from None
        if not line:
            code = await process.wait()
            raise _Ended("died", _epitaph(code, await kept, follower))
        event = follower.take(line)
        if event is None:
            continue
        if event.event == "result":
            report = event.body.get("report")
            if not isinstance(report, dict):
                raise _Ended("protocol", "the pool child sent a result without a report")
            return report
        if event.event == "error":
            kind, message = event.body.get("kind"), event.body.get("message")
            follower.keep(event.body.get("report"))
            raise _Ended(str(kind or "internal"), str(message or "the pool child failed"))


async def _keep_tail(stream: asyncio.StreamReader) -> bytes:
    """Drain stderr, so that the child never blocks on it, and keep its end."""
    tail = b""
    while chunk := await stream.read(4096):
        tail = (tail + chunk)[-STDERR_KEPT_BYTES:]
    return tail


def _epitaph(code: int, stderr: bytes, follower: _Follower) -> str:
    """One line for a child that ended without an answer."""
    place = f" in step {follower.step!r}" if follower.step else " before it could start"
    if code == -signal.SIGKILL:
        how = "was killed (signal 9), as the kernel does when memory runs out"
    elif code < 0:
        how = f"died of signal {-code} ({signal.strsignal(-code)})"
    else:
        how = f"ended with exit code {code}"
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    last = last or (follower.banner[-1] if follower.banner else "")
    return f"the pool child {how}{place}" + (f": {last[:200]}" if last else "")


async def _take_down(process: asyncio.subprocess.Process, kept: asyncio.Task[bytes]) -> None:
    """End the child and its whole session; holds even if this task is cancelled meanwhile."""
    assert process.stdin
    process.stdin.close()
    try:
        if process.returncode is None:
            # A wrapper such as ssh passes the end of input on; a local child needs no grace.
            async with asyncio.timeout(GRACE_S):
                await process.wait()
    except TimeoutError:
        pass
    finally:
        _kill_session(process)
        await asyncio.shield(_reap(process, kept))


def _kill_session(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _reap(process: asyncio.subprocess.Process, kept: asyncio.Task[bytes]) -> None:
    """Let go of the dead child's pipes and wait for it.

    asyncio reports the end only when all pipes are closed, and a full one stays open until it is
    read. A grandchild that left the session may hold one; it is not waited for.
    """
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            while await process.stdout.read(LINE_LIMIT_BYTES):
                pass
            await asyncio.shield(kept)
    kept.cancel()
    # The one way to close all pipes at once; left to the collector it warns on a closed loop.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
    await process.wait()
