"""Every kind of pool is built and exercised; every kind of fault in one is noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kvtui.core.pools.spec import BufferSpec, PoolPlan
from kvtui.probe.pool.child.build import Pool, build
from kvtui.probe.pool.child.exercise import Exercise
from kvtui.probe.pool.child.pattern import Section, layer_mask, tiles
from kvtui.probe.pool.child.refusals import set_kv, try_refusals
from kvtui.probe.pool.child.sweep import sweep
from kvtui.probe.pool.child.wire import Refused

from . import plans
from .runs import figures, never, run

CPU = torch.device("cpu")


def exercise(plan: PoolPlan) -> Exercise:
    return Exercise(build(plan, CPU), 1, never)


@pytest.mark.parametrize("kind", plans.EVERY)
def test_every_kind_passes(kind: str) -> None:
    plan = plans.EVERY[kind]()
    report = run(plan)
    built = figures(report, "build")
    assert built["allocated_bytes"] == built["predicted_bytes"] == plan.nbytes
    done = figures(report, "exercise")
    assert done["requests"] >= 2
    assert done["bytes_compared"] > done["bytes_written"] > 0
    assert "every slot came back" in done["checks"]
    assert figures(report, "sweep")["share"] > 0.99
    assert figures(report, "release")["left_over_bytes"] == 0


@pytest.mark.parametrize("kind", ["swa", "swa paged", "dsv4", "unified swa", "unified three"])
def test_windows_let_go_of_sliding_slots_only(kind: str) -> None:
    assert "full side intact after the window moved on" in exercise(plans.EVERY[kind]()).run()[
        "checks"
    ]  # fmt: skip


def test_the_no_op_pool_refuses_writes_and_keeps_its_placeholders() -> None:
    report = run(plans.noop())
    refused = figures(report, "exercise")["refused"]
    assert refused == ["NoOpMHATokenToKVPool.set_kv_buffer: a write to the no-op pool is refused"]
    assert [entry["step"] for entry in report["steps"]] == ["build", "exercise", "release"]


def test_a_key_only_pool_refuses_values() -> None:
    pool = build(plans.minimax(), CPU)
    assert try_refusals(pool) == ["MHATokenToKOnlyPool does not allocate V"]
    rows = torch.tensor([1, 2])
    set_kv(pool, "index", rows, 7, None)
    assert bool((pool.buffers[2].rows[0][rows] == 7).all())


def test_a_missing_v_cache_is_answered() -> None:
    plan = plans.mha()
    full = plan.sub_pools[0]
    keys_only = replace(plan, sub_pools=(replace(full, buffers=full.buffers[:1]),))
    with pytest.raises(Refused, match="K cache without a V cache") as refusal:
        run(keys_only)
    assert refusal.value.kind == "missing_v"


def test_a_pool_that_forgets_to_refuse_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvtui.probe.pool.child.refusals.set_kv", lambda *_: None)
    with pytest.raises(Refused, match="accepted a write that it must refuse"):
        try_refusals(build(plans.noop(), CPU))


def aliased(pool: Pool) -> Pool:
    """The same pool with layer 1 of every buffer lying where layer 0 lies."""
    buffers = tuple(
        replace(built, rows=(built.rows[0], built.rows[0], *built.rows[2:]))
        for built in pool.buffers
    )
    return replace(pool, buffers=buffers)


def overlapping(pool: Pool) -> Pool:
    """The same pool with layer 1 of its first buffer starting one row into layer 0."""
    first = pool.buffers[0]
    moved = torch.cat((first.rows[0], first.rows[0][:1]))
    rows = (moved[:-1], moved[1:], *first.rows[2:])
    return replace(pool, buffers=(replace(first, rows=rows), *pool.buffers[1:]))


@pytest.mark.parametrize("fault", [aliased, overlapping])
@pytest.mark.parametrize("kind", ["mha paged", "mla", "swa"])
def test_memory_that_is_shared_by_mistake_is_noticed(kind: str, fault: object) -> None:
    pool = build(plans.EVERY[kind](), CPU)
    with pytest.raises(Refused, match="does not read back as written") as refusal:
        Exercise(fault(pool), 1, never).run()  # type: ignore[operator]
    assert refusal.value.kind == "corrupt"


def test_a_bit_that_flips_is_noticed_with_its_place() -> None:
    run = exercise(plans.mla(page=64))
    run._prefill([70])
    slot = int(run.live[0].slots[65])
    run.pool.buffers[0].rows[2][slot, 0, 5] ^= 1
    with pytest.raises(Refused, match=f"layer 2: position 65 of request 1 \\(row {slot}\\)"):
        run._verify("flipped")


def test_packed_pages_keep_every_section_apart() -> None:
    pool = build(plans.dsa(), CPU)
    run = Exercise(pool, 1, never)
    run._prefill([64])
    page = int(run.live[0].slots[0]) // 64
    row = pool.buffers[1].rows[0][page]
    scales = row[64 * 128 :].clone()
    row[64 * 128 :] = 0
    assert bool(scales.any())
    with pytest.raises(Refused, match="index_key_cache"):
        run._verify("scales gone")


def test_an_allocator_that_repeats_a_slot_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = exercise(plans.mha(page=16))
    taken = run.slots.tokens.alloc_extend([0], [16], [-1])
    assert taken is not None
    monkeypatch.setattr(run.slots.tokens, "alloc_extend", lambda *_: taken)
    with pytest.raises(Refused, match=r"handed out twice|not page-aligned"):
        run.run()


def test_lost_slots_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = exercise(plans.mha())
    monkeypatch.setattr(run.slots.tokens, "free", lambda slots: None)
    with pytest.raises(Refused, match="slots lost"):
        run.run()


def test_too_few_rows_for_the_slots_are_named_before_anything_is_written() -> None:
    plan = plans.mha()
    full = plan.sub_pools[0]
    short = replace(full.buffers[1], shape=(257 - 1, *full.buffers[1].shape[1:]))
    with pytest.raises(Refused, match=r"v_buffer: 256 rows .* its slots need 257"):
        exercise(replace(plan, sub_pools=(replace(full, buffers=(full.buffers[0], short)),))).run()


def test_sections_that_do_not_fit_are_named() -> None:
    index = BufferSpec("packed", "uint8", (5, 100), 1, "page", tokens_per_row=64, sections=(128,))
    with pytest.raises(Refused, match="64 entries of 128 bytes do not fit in a row of 100"):
        exercise(plans.plan("X", 256, 64, plans.sub("full", 256, 64, index)))


def test_the_sweep_notices_memory_that_is_not_there() -> None:
    pool = build(plans.mla(), CPU)
    twice = replace(pool, storages=(pool.storages[0], pool.storages[0]))
    with pytest.raises(Refused, match="reads back differently"):
        sweep(twice, 1, never, whole=True)


def test_patterns_tell_rows_layers_and_bytes_apart() -> None:
    data = tiles(torch.arange(64), 512)
    assert len({bytes(row.tolist()) for row in data}) == 64
    assert len(set(data[0].tolist())) > 100
    assert len({layer_mask(layer, 8) for layer in range(256)}) == 256
    assert all(-(1 << 63) <= layer_mask(layer, 8) < 1 << 63 for layer in range(256))


def test_words_are_as_wide_as_rows_allow() -> None:
    pool = build(plans.mha(dims=(3, 16), heads=1), CPU)  # rows of 6 and of 32 bytes
    widths = [Section(built, 0, 0, built.rows[0][0].numel()).dtype for built in pool.buffers]
    assert widths == [torch.int16, torch.int64]


def test_memory_that_stays_held_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    plain = Exercise.run

    def hoarding(self: Exercise) -> dict[str, object]:
        kept.append(self.pool.buffers[0].rows[0])
        return plain(self)

    monkeypatch.setattr(Exercise, "run", hoarding)
    with pytest.raises(Refused, match="bytes stayed allocated") as refusal:
        run(plans.mla())
    assert refusal.value.kind == "left_over"
