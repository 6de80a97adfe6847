"""Our allocators against the engine's own, slot by slot, through the same random histories."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from kvtui.probe.pool.child.allocator_swa import SwaAllocator
from kvtui.probe.pool.child.allocators import plain_allocator

ENGINE = os.environ.get("KVTUI_ENGINE", "")
CPU = torch.device("cpu")
CASES = 150

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not ENGINE, reason="KVTUI_ENGINE names no Python with SGLang"),
]


class History:
    """A random life of requests on our allocator, written down for the engine."""

    def __init__(self, dice: random.Random) -> None:
        self.page = dice.choice([1, 4, 16])
        self.size = 96 // self.page * self.page
        self.size_swa = dice.choice([0, 0, 64])
        self.need_sort = dice.random() < 0.5
        self.allocator: Any = (
            SwaAllocator(self.size, self.size_swa, self.page, CPU, self.need_sort)
            if self.size_swa
            else plain_allocator(self.size, self.page, CPU, self.need_sort)
        )
        self.held: list[list[int]] = []
        self.ops: list[list[Any]] = []
        self.told: list[list[Any]] = []
        self.left: dict[int, int] = {}
        for _ in range(60):
            self.act(dice)

    def case(self) -> dict[str, Any]:
        return {"page": self.page, "size": self.size, "size_swa": self.size_swa,
                "need_sort": self.need_sort, "ops": self.ops}  # fmt: skip

    def tell(self, op: list[Any], got: torch.Tensor | None) -> list[int] | None:
        self.ops.append(op)
        answer = None if got is None else got.tolist()
        self.told.append([answer, self.allocator.available_size()])
        return answer

    def front(self, dice: random.Random) -> list[int]:
        """Tokens of one request that leave the window now: whole pages, none of them before."""
        at = dice.randrange(len(self.held))
        start = self.left.setdefault(id(self.held[at]), 0)
        end = max(start, (len(self.held[at]) // 2) // self.page * self.page)
        self.left[id(self.held[at])] = end
        return self.held[at][start:end]

    def act(self, dice: random.Random) -> None:
        action = dice.choice(["new", "new", "grow", "decode", "free", "window"])
        if action == "window" and not self.size_swa:
            return
        if action == "new":
            # The engine extends one request at a time where both sides move in step.
            lengths = [dice.randint(1, 20) for _ in range(1 if self.size_swa else 3)]
            op = ["extend", [0] * len(lengths), lengths, [-1] * len(lengths)]
            answer = self.tell(op, self.allocator.alloc_extend(*op[1:]))
            for length in lengths if answer else ():
                self.held.append(answer[:length])  # type: ignore[index]
                answer = answer[length:]  # type: ignore[index]
        elif not self.held:
            return
        elif action == "grow":
            own = dice.choice(self.held)
            op = ["extend", [len(own)], [len(own) + dice.randint(1, 20)], [own[-1]]]
            own += self.tell(op, self.allocator.alloc_extend(*op[1:])) or []
        elif action == "decode":
            op = ["decode", [len(own) + 1 for own in self.held], [own[-1] for own in self.held]]
            got = self.allocator.alloc_decode(*op[1:])
            # Where one side alone is short the engine loses the other's slots: it relies on a
            # check of both before the call, so such a call is not replayed.
            if got is None and self.size_swa:
                return
            answer = self.tell(op, got)
            for own, slot in zip(self.held, answer or (), strict=False):
                own.append(slot)
        elif action == "window":
            gone = self.front(dice)
            if gone:
                self.allocator.free_swa(torch.tensor(gone))
                self.tell(["window", gone], None)
        elif action == "free":
            own = self.held.pop(dice.randrange(len(self.held)))
            left = self.left.get(id(own), 0)
            # The engine frees both sides of what is in the window, the full side of the rest.
            if left and self.page == 1:
                self.held.append(own)
                return
            self.left.pop(id(own), None)
            self.allocator.free(torch.tensor(own))
            self.tell(["free", own], None)


def test_histories_agree_slot_by_slot() -> None:
    dice = random.Random(7)
    histories = [History(dice) for _ in range(CASES)]
    script = Path(__file__).with_name("engine_replay.py")
    stub = Path(ENGINE).parents[1] / "stub"
    done = subprocess.run(
        [ENGINE, str(script)], input=json.dumps([one.case() for one in histories]), text=True,
        capture_output=True, check=False, timeout=300,
        env={**os.environ, "LD_LIBRARY_PATH": str(stub)},
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS")]
    assert found, done.stderr[-2000:]
    answers = json.loads(found[0].removeprefix("ANSWERS"))
    for history, answer in zip(histories, answers, strict=True):
        for op, ours, theirs in zip(history.ops, history.told, answer, strict=True):
            kind = (history.page, history.need_sort, history.size_swa)
            assert ours == theirs, (kind, op)
