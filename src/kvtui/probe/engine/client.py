"""The near end of an engine probe: starts it, asks, restarts it, and never lets it hang the app."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvtui.errors import InputError
from kvtui.probe.engine.discover import EnginePython
from kvtui.probe.pack import bootstrap_command, pack

MARK = b"\x1e"
"""Starts every line of the protocol (`child/wire.py`); other lines are noise."""
LINE_LIMIT = 64 << 20
START_LIMIT_S = 180.0
ASK_LIMIT_S = 60.0
GRACE_S = 5.0
"""What the near end waits longer than the probe's own limit."""
CHILD = "kvtui.probe.engine.child"

Progress = Callable[[str], None]


class EngineError(InputError):
    """The engine could not be asked; the text is one clear line."""


class EngineProbe:
    """One warm SGLang. Questions may overlap; each is answered from a forked child over there."""

    def __init__(
        self,
        engine: EnginePython,
        claim: Mapping[str, Any] | None = None,
        *,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self.engine = engine
        self.claim = dict(claim) if claim else None
        self.version = ""
        self._start_limit_s = start_limit_s
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._last_words: deque[str] = deque(maxlen=20)
        self._number = 0
        self._starting = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """True while the probe's process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self, on_progress: Progress | None = None) -> str:
        """Start unless running; returns the engine's version. Raises EngineError."""
        async with self._starting:
            if self.alive and self.version:
                return self.version
            await self.close()
            try:
                async with asyncio.timeout(self._start_limit_s):
                    self.version = await self._boot(on_progress or (lambda _: None))
            except TimeoutError:
                await self.close()
                raise EngineError(
                    f"{self.engine.place}: SGLang was not imported within {self._start_limit_s:g} s"
                ) from None
            except ConnectionError:
                await self._ended()
                reason = self._why_gone()
                await self.close()
                raise EngineError(f"{self.engine.place}: {reason}") from None
            except BaseException:
                await self.close()
                raise
            return self.version

    async def _ended(self) -> None:
        """Wait a moment for a dying probe's status and last words."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 1.0)
            await asyncio.sleep(0)

    async def _boot(self, on_progress: Progress) -> str:
        command = bootstrap_command(self.engine.command)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"{self.engine.place}: {(error.strerror or '').lower()}") from None
        self._process = process
        self._events = asyncio.Queue()
        self._tasks = [
            asyncio.create_task(self._read_answers(process)),
            asyncio.create_task(self._read_talk(process)),
        ]
        on_progress(f"starting {self.engine.place}")
        await self._write(pack(CHILD, "serve"))
        await self._event("booted", on_progress)
        await self._write(json.dumps({"claim": self.claim, "settings": True}))
        ready = await self._event("ready", on_progress)
        return str(ready.get("version", "?"))

    async def _event(self, wanted: str, on_progress: Progress) -> dict[str, Any]:
        while True:
            message = await self._events.get()
            kind = message.get("event")
            if kind == wanted:
                return message
            if kind == "progress":
                on_progress(str(message.get("text", "")))
            elif kind == "broken":
                text = f"{message.get('error_type')}: {message.get('error')}"
                raise EngineError(f"{self.engine.place}: SGLang can't be imported ({_line(text)})")
            elif kind == "gone":
                raise EngineError(f"{self.engine.place}: {self._why_gone()}")

    async def ask(
        self,
        question: Mapping[str, Any],
        *,
        limit_s: float = ASK_LIMIT_S,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        """The probe's answer as it came. Raises EngineError where there is none."""
        for attempt in (1, 2):
            await self.start(on_progress)
            try:
                return await self._ask_once(question, limit_s)
            except ConnectionError as error:
                # Lost on the way: start it again once, then say so.
                await self.close()
                if attempt == 2:
                    raise EngineError(f"{self.engine.place}: {error}") from None
        raise AssertionError("unreachable")

    async def _ask_once(self, question: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        self._number += 1
        number = self._number
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self._write(json.dumps({**question, "id": number, "limit_s": limit_s}))
            async with asyncio.timeout(limit_s + GRACE_S):
                return await future
        except TimeoutError:
            await self.close()
            raise EngineError(f"{self.engine.place}: no answer within {limit_s:g} s") from None
        except asyncio.CancelledError:
            with contextlib.suppress(ConnectionError):
                await self._write(json.dumps({"ask": "cancel", "id": number}))
            raise
        finally:
            self._waiting.pop(number, None)

    async def _write(self, line: str) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise ConnectionError("not running")
        try:
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()
        except (ConnectionError, RuntimeError):
            raise ConnectionError(self._why_gone()) from None

    async def _read_answers(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                if line.startswith(MARK):
                    self._take(line[1:])
        except ValueError:
            self._last_words.append("a line longer than 64 MiB")
        await process.wait()
        self._events.put_nowait({"event": "gone"})
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(self._why_gone()))

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        if "event" in message:
            self._events.put_nowait(message)
            return
        future = self._waiting.get(message.get("id", -1))
        answer = message.get("answer")
        if future is not None and not future.done() and isinstance(answer, dict):
            future.set_result(answer)

    async def _read_talk(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        with contextlib.suppress(ValueError):
            while line := await process.stderr.readline():
                text = line.decode("utf-8", "replace").strip()
                if text:
                    self._last_words.append(text)

    def _why_gone(self) -> str:
        code = self._process.returncode if self._process else None
        last = _line(self._last_words[-1]) if self._last_words else ""
        how = f"ended with status {code}" if code is not None else "went away"
        return f"the probe {how}{f' ({last})' if last else ''}"

    async def close(self) -> None:
        """End the probe and everything that it started; safe at any moment."""
        process, self._process, self.version = self._process, None, ""
        tasks, self._tasks = self._tasks, []
        if process is not None and process.returncode is None:
            kill_group(process.pid)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the probe was closed"))


def kill_group(pid: int) -> None:
    """Kill a child's whole session (it was started as the leader of one)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _line(text: str, limit: int = 300) -> str:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first if len(first) <= limit else first[: limit - 1] + "…"


def ask_once(
    engine: EnginePython,
    questions: Sequence[Mapping[str, Any]],
    *,
    claim: Mapping[str, Any] | None = None,
    limit_s: float = ASK_LIMIT_S,
    on_progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Start a probe, ask all `questions`, close it: for the command line."""

    async def run() -> list[dict[str, Any]]:
        probe = EngineProbe(engine, claim)
        try:
            await probe.start(on_progress)
            return [await probe.ask(question, limit_s=limit_s) for question in questions]
        finally:
            await probe.close()

    return asyncio.run(run())
