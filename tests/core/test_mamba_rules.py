"""Recurrent states: rounding, limits and checkpoints."""

from __future__ import annotations

import pytest

from tests.support import judge

MODEL = "--model-path nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
ROUND = f"{MODEL} --enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype float16"


@pytest.mark.parametrize(
    ("launch", "gpu", "rules"),
    [
        (ROUND, "b200", set()),
        (ROUND, "h100", {"KV703"}),
        (f"{ROUND} --mamba-backend flashinfer", "h100", set()),
        (ROUND.replace("float16", "bfloat16"), "b200", {"KV702"}),
        (f"{MODEL} --mamba-max-states-per-path -1", "h100", set()),
        (f"{MODEL} --mamba-max-states-per-path -2", "h100", {"KV701"}),
        (f"{MODEL} --enable-int8-mamba-checkpoint", "h100", set()),
        (f"{MODEL} --enable-int8-mamba-checkpoint --enable-hierarchical-cache", "h100", {"KV706"}),
    ],
)
def test_state_options(launch: str, gpu: str, rules: set[str]) -> None:
    found = {f.rule for f in judge(launch, gpu).errors}
    assert {rule for rule in found if rule.startswith("KV70")} == rules
