"""The child process from outside: every end is one clear line, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvtui.probe.pool.child.wire import Refused
from kvtui.probe.pool.child.worker import describe
from kvtui.probe.pool.client import check_pool, run_check
from kvtui.probe.pool.protocol import PoolEvent, PoolOutcome, PoolRequest, parse_event

from . import plans

HELLO = '{"event": "hello", "protocol": 1, "pid": 1}'


def script(folder: Path, body: str, name: str = "python") -> tuple[str, ...]:
    """A program that stands in for Python."""
    path = folder / name
    path.write_text(f"#!{sys.executable} -u\nimport os, signal, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return (str(path),)


def fake_torch(folder: Path, body: str) -> None:
    (folder / "torch.py").write_text(body + "\n")


def dead(pid: int, within_s: float = 5.0) -> bool:
    """Whether the process is gone, or becomes so in time (a zombie counts as gone)."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def request(python: tuple[str, ...] = (), **more: object) -> PoolRequest:
    return PoolRequest(plans.mha(), python=python, device="cpu", **more)  # type: ignore[arg-type]


def ask(python: tuple[str, ...], **more: object) -> PoolOutcome:
    return run_check(request(python, **more))


def pid_of(path: Path, within_s: float = 20.0) -> int:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} never appeared")


def test_a_whole_check() -> None:
    events: list[PoolEvent] = []
    outcome = run_check(request(), events.append)
    assert outcome.error is None
    assert outcome.ok
    assert outcome.request_key == plans.mha().key == outcome.fact().request_key
    assert outcome.report["built"]["allocated_bytes"] == plans.mha().nbytes
    assert outcome.report["device"]["device"] == "cpu"
    told = outcome.fact().report
    assert (told["class"], told["tokens"]) == ("MHATokenToKVPool", 256)
    assert told["allocated_bytes"] == plans.mha().nbytes
    assert told["place"]
    assert [(event.step, event.state) for event in events if event.event == "step"] == [
        (name, state)
        for name in ("torch", "build", "exercise", "sweep", "release")
        for state in ("started", "passed")
    ]
    assert dead(int(events[0].body["pid"]))


def test_greetings_before_the_first_event_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\necho Welcome to host 7\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    assert ask((str(path),), steps=("build",)).ok


def test_a_line_of_garbage_ends_the_check(tmp_path: Path) -> None:
    outcome = ask(script(tmp_path, f"print({HELLO!r}); print('\\x1b[31mBoom'); time.sleep(60)"))
    assert outcome.kind == "protocol"
    assert outcome.error == "the pool child sent a line that is not an event: ?[31mBoom"


def test_a_line_without_end_ends_the_check(tmp_path: Path) -> None:
    body = f"print({HELLO!r})\nwhile True: sys.stdout.write('x' * 65536)"
    outcome = ask(script(tmp_path, body))
    assert outcome.error == "the pool child sent a line longer than 1048576 bytes"


def test_another_protocol_is_named(tmp_path: Path) -> None:
    body = 'print(\'{"event": "hello", "protocol": 9}\'); time.sleep(60)'
    outcome = ask(script(tmp_path, body))
    assert outcome.error == "the pool child speaks protocol 9, not 1"


def test_a_result_without_a_report_is_not_a_pass(tmp_path: Path) -> None:
    body = f'print({HELLO!r}); print(\'{{"event": "result", "report": 5}}\'); time.sleep(60)'
    outcome = ask(script(tmp_path, body))
    assert not outcome.ok
    assert outcome.error == "the pool child sent a result without a report"


def test_a_crash_is_told_with_its_last_words(tmp_path: Path) -> None:
    outcome = ask(script(tmp_path, "print('bad luck', file=sys.stderr); sys.exit(7)"))
    assert outcome.kind == "died"
    assert outcome.error == (
        "the pool child ended with exit code 7 before it could start: bad luck"
    )


def test_a_killed_child_is_told(tmp_path: Path) -> None:
    step = '{"event": "step", "step": "build", "state": "started"}'
    body = f"print({HELLO!r}); print({step!r}, flush=True); os.kill(os.getpid(), 9)"
    outcome = ask(script(tmp_path, body))
    assert outcome.error is not None
    assert outcome.error.startswith("the pool child was killed (signal 9)")
    assert outcome.error.endswith("in step 'build'")
    assert outcome.report["stopped_in"] == "build"


def test_a_hanging_child_and_its_own_children_are_ended(tmp_path: Path) -> None:
    body = f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    time.sleep(60)
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{pid}}")
print({HELLO!r}, flush=True)
time.sleep(60)"""
    start = time.monotonic()
    outcome = ask(script(tmp_path, body), time_limit_s=2.0)
    assert time.monotonic() - start < 10
    assert outcome.kind == "timeout"
    assert outcome.error == "the pool check took longer than 2 s; it was ended"
    assert all(dead(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_a_python_that_is_not_there_is_named() -> None:
    outcome = ask(("/no/such/python",))
    assert outcome.kind == "python"
    assert outcome.error == "/no/such/python: no such program to run the pool check with"


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_bytes(b"\x00\x01not a program")
    path.chmod(0o755)
    outcome = ask((str(path),))
    assert outcome.kind == "python"
    assert outcome.error is not None
    assert "Exec format error" in outcome.error


def test_a_python_without_torch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(tmp_path, "raise ImportError('libcudart.so.13 is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = ask(())
    assert outcome.kind == "torch"
    assert outcome.error is not None
    assert "torch can't be loaded in" in outcome.error
    assert outcome.error.endswith("libcudart.so.13 is missing")


def test_a_module_in_the_current_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(tmp_path, "raise SystemExit('hostile')")
    (tmp_path / "json.py").write_text("raise SystemExit('hostile')")
    monkeypatch.chdir(tmp_path)
    assert ask((), steps=("build",)).ok


def test_a_request_out_of_range_is_named() -> None:
    outcome = ask((), share=7.0)
    assert outcome.kind == "request"
    assert outcome.error == "the request is not usable: request.share: expected 0 to 1, got 7.0"


def test_a_device_that_is_not_there_is_named() -> None:
    outcome = run_check(PoolRequest(plans.mha(), device="cuda:63"))
    assert outcome.kind == "device"
    assert outcome.error is not None
    assert outcome.error.startswith("cuda:63: ")


def test_prints_of_libraries_do_not_reach_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(
        tmp_path,
        "import os, sys\nprint('noise')\nos.write(1, b'more noise\\n')\nraise ImportError('done')",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert ask(()).kind == "torch"


def test_an_internal_error_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(tmp_path, "__version__ = '0'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = ask(())
    assert outcome.kind == "internal"
    assert outcome.error is not None
    assert "\n" not in outcome.error


async def test_cancelling_kills_the_child_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(tmp_path, "import time\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pids: list[int] = []
    started = asyncio.Event()

    def follow(event: PoolEvent) -> None:
        if event.event == "hello":
            pids.append(int(event.body["pid"]))
        started.set()

    task = asyncio.create_task(check_pool(request(), follow))
    await started.wait()
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 2
    assert dead(pids[0])


async def test_cancelling_twice_still_kills(tmp_path: Path) -> None:
    body = (
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        f"print({HELLO!r}, flush=True)\ntime.sleep(60)"
    )
    task = asyncio.create_task(check_pool(request(script(tmp_path, body))))
    pid = await asyncio.to_thread(pid_of, tmp_path / "pid")
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert dead(pid)


PARENT = """
import signal, sys
# A test run in the background ignores interrupts, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {tests!r})
from kvtui.probe.pool.client import run_check
from kvtui.probe.pool.protocol import PoolRequest
from tests.probe.pool import plans
def follow(event):
    if event.event == "hello":
        open({pid!r}, "w").write(str(event.body["pid"]))
run_check(PoolRequest(plans.mha(), python=tuple({python!r}), device="cpu"), follow)
"""


def parent(tmp_path: Path, python: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """A process that runs a check whose torch never finishes loading."""
    fake_torch(tmp_path, "import time\ntime.sleep(60)")
    root = str(Path(__file__).resolve().parents[3])
    code = PARENT.format(tests=root, pid=str(tmp_path / "pid"), python=python)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)


def wrapper(tmp_path: Path) -> tuple[str, ...]:
    """A shell between us and Python, as docker exec or ssh would stand there."""
    path = tmp_path / "wrapped"
    path.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\nexit $?\n')
    path.chmod(0o755)
    return (str(path),)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_parent_that_is_killed_takes_the_child_along(tmp_path: Path, wrapped: bool) -> None:
    process = parent(tmp_path, wrapper(tmp_path) if wrapped else ())
    try:
        pid = pid_of(tmp_path / "pid")
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert dead(pid)
    finally:
        process.kill()
        process.wait()


def test_an_interrupt_takes_the_child_along(tmp_path: Path) -> None:
    process = parent(tmp_path, ())
    try:
        pid = pid_of(tmp_path / "pid")
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert dead(pid)
    finally:
        process.kill()
        process.wait()


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "oom"),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"), "oom"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't"), "oom"),
        (RuntimeError("CUDA error: unspecified launch failure"), "device"),
        (Refused("corrupt", "layer 3 differs"), "corrupt"),
        (ZeroDivisionError("x"), "internal"),
    ],
)
def test_ends_are_grouped(error: BaseException, kind: str) -> None:
    told = describe(error)
    assert told["kind"] == kind
    assert told["message"]
    assert "\n" not in told["message"]


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"5", b'{"event": "party"}', b'{"event": "step", "step": 5}', b"\xff\xfe",
     b'{"event": "step", "figures": []}', b"[" * 100_000],
)  # fmt: skip
def test_lines_that_are_no_events_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        parse_event(line)
