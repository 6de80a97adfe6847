"""The same checks on a CUDA device; skipped with a reason where there is none."""

from __future__ import annotations

import pytest
import torch

from kvtui.probe.pool.child.request import HostTier, Offload
from kvtui.probe.pool.child.wire import Refused
from kvtui.probe.pool.client import run_check
from kvtui.probe.pool.protocol import PoolRequest

from . import plans
from .runs import figures, run
from .test_host import WAYS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this torch finds no CUDA device"),
]


@pytest.mark.parametrize("kind", plans.EVERY)
def test_every_kind_passes(kind: str) -> None:
    report = run(plans.EVERY[kind](), device="cuda")
    assert figures(report, "release")["left_over_bytes"] == 0
    assert "every slot came back" in figures(report, "exercise")["checks"]


@pytest.mark.parametrize(("kind", "layout", "backend"), WAYS)
def test_round_trips_through_pinned_memory(kind: str, layout: str, backend: str) -> None:
    tier = HostTier(layout, backend)
    done = figures(run(plans.EVERY[kind](), device="cuda", host=tier), "host")
    assert done["pinned"] is True


def test_offload_on_a_stream_of_its_own() -> None:
    report = run(plans.mha(1024, 16), device="cuda", host=HostTier("page_first"),
                 offload=Offload(stride=40, storage="file"))  # fmt: skip
    checks = figures(report, "offload")["checks"]
    assert checks[-1] == "every stored page reads back bit for bit"


def test_the_driver_gets_everything_back() -> None:
    plan = plans.mha(1 << 16, 16, layers=16, heads=8, dims=(128, 128))
    outcome = run_check(PoolRequest(plan, device="cuda", full=True))
    assert outcome.ok, outcome.error
    assert outcome.report.get("device_left_over_bytes") in (0, None)


def test_more_than_there_is_is_refused() -> None:
    plan = plans.mha(1 << 24, 16, layers=64, heads=8, dims=(128, 128))
    with pytest.raises(Refused, match="may be taken on cuda"):
        run(plan, device="cuda", full=True)
