"""Printed figures of a boot beside predicted ones, and the GPU that a log gives away."""

from __future__ import annotations

import pytest

from kvtui.core.boot_compare import boot_rows, guess_gpu
from kvtui.core.explain_bootlog import BootLog, read_boot_log
from tests.support import judge

LOG = """\
[2026-10-31 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1, \
kv_cache_dtype='fp8_e4m3')
a line of noise \x00\x1b[31m
[2026-10-31 10:00:10 TP0] Load weight begin. avail mem=78.50 GB
[2026-10-31 10:00:20 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, \
avail mem=63.12 GB, mem usage=15.38 GB.
[2026-10-31 10:00:21 TP0] KV Cache is allocated. #tokens: 730000, K size: 25.06 GB, V size: 25.06 GB
"""


@pytest.mark.parametrize(
    ("free_gib", "key"),
    [(78.5, "h100"), (138.4, "h200"), (176.28, "b200"), (31.2, "rtx5090"), (14.6, "t4"),
     (22.2, None), (500.0, None), (None, None)],
)  # fmt: skip
def test_the_gpu_of_a_log(free_gib: float | None, key: str | None) -> None:
    found = guess_gpu(BootLog(weights_begin_free_gib=free_gib))
    assert (found.key if found else None) == key


def test_printed_beside_predicted() -> None:
    log = read_boot_log(LOG)
    assert log is not None
    report = judge("--model-path Qwen/Qwen3-8B --kv-cache-dtype fp8_e4m3", "h100")
    rows = {row.name: row for row in boot_rows(log, report)}
    assert set(rows) == {"weights", "free after loading", "K and V", "tokens"}
    for row in rows.values():
        assert abs(row.error) < 0.02, row


def test_nothing_printed_is_nothing_compared() -> None:
    report = judge("--model-path Qwen/Qwen3-8B", "h100")
    assert list(boot_rows(BootLog(), report)) == []
