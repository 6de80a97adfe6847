"""The child's program stands on its own: standard library and torch, Python 3.10 and up."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from kvtui.probe.pool.child.request import BadRequest, HostTier, read_request
from kvtui.probe.pool.client import child_command, program
from kvtui.probe.pool.protocol import Offload, PoolRequest, summary

from . import plans
from .runs import as_child_reads

CHILD = Path(str(files("kvtui.probe.pool.child")))
SPEC = Path(str(files("kvtui.core.pools"))) / "spec.py"
MODULES = [*sorted(CHILD.glob("*.py")), SPEC]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_need_torch_and_the_standard_library_only(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [str(node.module)]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1
            assert (CHILD / f"{node.module}.py").exists()
        for name in names:
            known = name.split(".")[0] in {*sys.stdlib_module_names, "torch"}
            assert known or name == "kvtui.core.pools.spec", name


def test_the_program_is_one_line_and_brings_its_modules_along(tmp_path: Path) -> None:
    text = program()
    assert "\n" not in text
    assert text.isascii()
    torch = tmp_path / "torch.py"
    torch.write_text(
        "import sys, kvtui, kvtui.core.pools.spec as spec\n"
        "assert not getattr(spec, '__file__', None), spec.__file__\n"
        "assert not getattr(kvtui, '__file__', None)\n"
        "raise ImportError('as wanted')\n"
    )
    feed = text.encode() + b"\n" + PoolRequest(plans.mha()).to_line()
    with subprocess.Popen(
        [sys.executable, "-c", "exec(input())"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(tmp_path)},
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(feed)
        child.stdin.flush()
        last = json.loads(child.stdout.read().splitlines()[-1])
    assert last["kind"] == "torch"
    assert last["message"].endswith("as wanted")


def test_ssh_gets_a_quoted_bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert child_command(("ssh", "gpu7", "python3"))[-1].startswith("'")
    assert child_command((sys.executable,))[1:] == ["-u", "-c", "exec(input())"]


@pytest.mark.parametrize("kind", plans.EVERY)
def test_requests_survive_the_wire(kind: str) -> None:
    request = PoolRequest(
        plans.EVERY[kind](), host=HostTier("page_first"), offload=Offload(stride=3), full=True
    )
    there = as_child_reads(request)
    assert there.plan == request.plan
    assert (there.host, there.offload, there.full) == (request.host, request.offload, True)
    assert there.plan.key == request.key


def broken(**changes: object) -> dict[str, object]:
    data = json.loads(PoolRequest(plans.mha()).to_line())
    buffer = data["plan"]["sub_pools"][0]["buffers"][0]
    for path, value in changes.items():
        target = {"plan": data["plan"], "buffer": buffer}.get(path.split("__")[0], data)
        name = path.split("__")[-1]
        if value is ...:
            del target[name]
        else:
            target[name] = value
    return data  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"colour": 1}, "request.colour: unknown key"),
        ({"plan__tokens": ...}, "request.plan.tokens: missing"),
        ({"plan__tokens": "many"}, "request.plan.tokens: expected int, got 'many'"),
        ({"plan__tokens": True}, "request.plan.tokens: expected int, got True"),
        ({"plan__sub_pools": 5}, "request.plan.sub_pools: expected a list, got int"),
        ({"plan__page_size": 0}, "expected page_size >= 1"),
        ({"buffer__dtype": "int9"}, "unknown dtype 'int9'"),
        ({"buffer__shape": [4, -1]}, "expected a shape and a count of 0 or more"),
        ({"buffer__rows": "bag"}, "expected slot, page, request or flat"),
        ({"buffer__row_axis": 2}, "expected 0 or 1, got 2"),
        ({"buffer__compress": 0}, "tokens_per_row and compress of 1 or more"),
        ({"time_limit_s": 0}, "request.time_limit_s: expected more than 0"),
        ({"host": []}, "request.host: expected an object, got list"),
    ],
)
def test_bad_requests_name_the_key(changes: dict[str, object], why: str) -> None:
    with pytest.raises(BadRequest, match=why.replace("[", r"\[")):
        read_request(broken(**changes))


def test_a_request_that_is_no_object_is_refused() -> None:
    with pytest.raises(BadRequest, match="request: expected an object, got list"):
        read_request([1])


def test_the_place_names_device_and_size() -> None:
    device = {"device": "cuda:1", "name": "NVIDIA H200"}
    built = {"tokens": 5, "allocated_bytes": 7, "reduced": "1.00% of the slots"}
    report = {"pool_class": "MLATokenToKVPool", "device": device, "built": built}
    told = summary(report)
    assert told["place"] == "NVIDIA H200 (cuda:1) at 1.00% of the slots"
    assert (told["class"], told["tokens"], told["allocated_bytes"]) == ("MLATokenToKVPool", 5, 7)
    assert summary({}) == {"class": ""}
