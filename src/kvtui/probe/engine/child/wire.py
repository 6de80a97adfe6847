"""Lines between kvtui and the probe: JSON behind a mark, so that noise on stdout does no harm."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MARK = "\x1e"
"""ASCII record separator: starts every line that is meant for kvtui."""


class Wire:
    """The protocol's end in the probe: owns the real stdout, everything else goes to stderr."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._buffer = b""

    def send(self, message: dict[str, Any]) -> None:
        """Write one message; a reader that has gone away ends the probe."""
        data = (MARK + json.dumps(message, default=str) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            os._exit(0)

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """(messages that arrived, whether the other side is still there); blocks for one read."""
        chunk = os.read(0, 1 << 16)
        self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = []
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                messages.append(message)
        return messages, bool(chunk)

    def close_in_fork(self) -> None:
        """A forked worker must not hold the protocol's ends."""
        os.close(self._out)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
