"""Asynchronous work in order: one thread that runs actions and marks each one done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch


class Completion:
    """Tells when one action is done; `wait` raises what the action raised."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Called by the copier once."""
        self._error = error
        self._done.set()

    def done(self) -> bool:
        """Whether the action has ended, well or not."""
        return self._done.is_set()

    def wait(self) -> None:
        """Block until the action has ended; raises its error."""
        self._done.wait()
        if self._error is not None:
            raise self._error


class Copier:
    """Runs actions one behind the other in a thread, on a CUDA stream of its own where there is
    CUDA; each starts after the work that was queued before it on the caller's stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._queue: queue.Queue[tuple[Callable[[], None], Completion, object] | None]
        self._queue = queue.Queue()
        self._open = threading.Event()
        self._open.set()
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, action: Callable[[], None]) -> Completion:
        """Queue an action."""
        completion = Completion()
        event = None
        if self._stream is not None:
            event = torch.cuda.current_stream(self._device).record_event()
        self._queue.put((action, completion, event))
        return completion

    def hold(self) -> None:
        """Start no further action until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        """Go on after `hold`."""
        self._open.set()

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        self.resume()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            self._open.wait()
            action, completion, event = entry
            try:
                if self._stream is None:
                    action()
                else:
                    with torch.cuda.stream(self._stream):
                        if isinstance(event, torch.cuda.Event):
                            self._stream.wait_event(event)
                        action()
                        self._stream.synchronize()
            except BaseException as error:  # handed to whoever waits
                completion.finish(error)
            else:
                completion.finish()
