"""The child's end of the protocol: one JSON object a line, out on a private copy of stdout."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from typing import Any, TextIO

PROTOCOL = 1
PR_SET_PDEATHSIG = 1


class Refused(Exception):
    """The check can't go on for a reason that the user can act on; `kind` groups the reasons."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Channel:
    """Writes events. Standard output proper is pointed at stderr so that no library's print
    can reach the parent as a protocol line."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Any) -> None:
        """Send one event; a parent that is gone ends the process."""
        line = json.dumps({"event": event, **fields}, default=str) + "\n"
        with self._lock:
            view = memoryview(line.encode())
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                os._exit(1)


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, even by SIGKILL."""
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return


def watch_parent(stdin: TextIO, time_limit_s: float) -> None:
    """Start the threads that end the process with its parent, or past its time limit.

    The end of standard input is how a parent cancels, and covers what the death signal can't:
    wrappers such as ssh and `docker exec`, and systems other than Linux.
    """

    def follow() -> None:
        while stdin.readline():
            pass
        os._exit(1)

    def expire() -> None:
        time.sleep(time_limit_s)
        os._exit(3)

    threading.Thread(target=follow, daemon=True).start()
    threading.Thread(target=expire, daemon=True).start()
