"""The decode offload manager: strides, order, hashes, refusals, faults."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from struct import pack

import pytest
import torch

from kvtui.probe.pool.child.build import build
from kvtui.probe.pool.child.copier import Completion, Copier
from kvtui.probe.pool.child.host_step import HostCheck
from kvtui.probe.pool.child.offload import (
    OffloadManager,
    OffloadRequest,
    RetractionRefused,
    effective_stride,
)
from kvtui.probe.pool.child.pagehash import chain, namespace_seed, page_hash
from kvtui.probe.pool.child.request import HostTier, Offload
from kvtui.probe.pool.child.slots import make_slots
from kvtui.probe.pool.child.storage import FileStorage, StorageFault
from kvtui.probe.pool.child.wire import Refused

from . import plans
from .runs import figures, run

CPU = torch.device("cpu")


class ByHand(Copier):
    """A copier whose actions run when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Completion]] = []

    def submit(self, action: Callable[[], None]) -> Completion:
        completion = Completion()
        self.waiting.append((action, completion))
        return completion

    def step(self, at: int = 0) -> None:
        action, completion = self.waiting.pop(at)
        try:
            action()
        except Exception as error:
            completion.finish(error)
        else:
            completion.finish()

    def drain(self) -> None:
        while self.waiting:
            self.step()


class World:
    """A paged MHA pool with a host tier, a file store and copiers driven by hand."""

    def __init__(self, folder: Path, stride: int | None = None, page: int = 4,
                 pages: int = 1 << 20) -> None:  # fmt: skip
        plan = plans.mha(128, page)
        self.pool = build(plan, CPU)
        self.slots = make_slots(self.pool)
        self.host = HostCheck(self.pool, self.slots, HostTier("page_first"), 1 << 24, 1)
        pool = self.host.pools["full"]
        if pages < pool.slots.pages:
            pool.slots.alloc(pool.slots.pages - pages)
        self.pages = pool.slots.available()
        self.copier, self.writer = ByHand(), ByHand()
        self.storage = FileStorage(folder)
        self.released: list[str] = []
        self.manager = OffloadManager(
            self.slots, {"full": pool}, stride, self.storage, self.copier, self.writer, self.release
        )

    def release(self, request: OffloadRequest) -> None:
        self.released.append(request.rid)
        self.slots.tokens.free(request.slots)

    def admit(self, rid: str, prompt: int, output: int) -> OffloadRequest:
        total = prompt + max(0, output - 1)
        slots = self.slots.tokens.alloc_extend([0], [total], [-1])
        assert slots is not None
        number = sum(map(ord, rid))
        for stamp in self.host.stamps["full"]:
            stamp.write(number, slots, torch.arange(total))
        return OffloadRequest(rid, list(range(prompt)), slots, list(range(900, 900 + output)))

    def grow(self, request: OffloadRequest, count: int) -> None:
        old = len(request.slots)
        new = self.slots.tokens.alloc_extend([old], [old + count], [int(request.slots[-1])])
        assert new is not None
        request.slots = torch.cat((request.slots, new))
        request.output += range(2000, 2000 + count)

    def settle(self) -> None:
        self.copier.drain()
        self.manager.check_progress()
        self.writer.drain()
        self.manager.check_progress()

    def host_free(self) -> int:
        return self.host.pools["full"].slots.available()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def world(folder: Path) -> World:
    return World(folder)


@pytest.mark.parametrize(
    ("asked", "page", "stride"),
    [(None, 64, 64), (0, 64, 64), (-5, 1, 1), (63, 64, 64), (64, 64, 64), (200, 64, 192),
     (100, 1, 100)],
)  # fmt: skip
def test_strides_are_cut_to_whole_pages(asked: int | None, page: int, stride: int) -> None:
    assert effective_stride(asked, page) == stride


def test_the_aligned_prompt_stays_and_its_tail_goes(world: World) -> None:
    request = world.admit("a", prompt=10, output=8)  # 17 tokens with KV; 8 of the prompt aligned
    assert world.manager.offload(request)
    world.settle()
    names = chain(request.prompt + request.output[:-1], 4, None)
    assert [world.storage.exists(name) for name in names[:4]] == [False, False, True, True]
    assert len(list(world.storage.folder.iterdir())) == 2


def test_the_last_token_has_no_kv_yet(world: World) -> None:
    request = world.admit("a", prompt=8, output=4)
    assert not world.manager.offload(request)
    world.grow(request, 1)
    assert world.manager.offload(request)


def test_nothing_goes_out_before_the_first_token(world: World) -> None:
    assert not world.manager.offload(world.admit("a", prompt=16, output=0))


def test_only_whole_strides_go_out(folder: Path) -> None:
    world = World(folder, stride=11)  # cut to 8
    request = world.admit("a", prompt=4, output=16)
    assert world.manager.offload(request)
    assert world.pages - world.host_free() == 2  # 8 of 15 new tokens
    assert not world.manager.offload(request)
    world.grow(request, 1)
    assert world.manager.offload(request)
    assert world.pages - world.host_free() == 4


def test_copies_are_acknowledged_in_order(world: World) -> None:
    first, second = world.admit("a", 4, 5), world.admit("b", 4, 5)
    assert world.manager.offload(first)
    assert world.manager.offload(second)
    world.copier.step(1)
    world.manager.check_progress()
    assert world.manager.in_flight(first)
    assert world.manager.in_flight(second)
    assert world.writer.waiting == []
    world.copier.step()
    world.manager.check_progress()
    assert not world.manager.in_flight(second)
    assert len(world.writer.waiting) == 2


def test_hashes_go_on_where_the_last_copy_ended(world: World) -> None:
    request = world.admit("a", prompt=9, output=4)
    assert world.manager.offload(request)
    world.grow(request, 4)
    assert world.manager.offload(request)
    world.settle()
    names = chain(request.prompt + request.output[:-1], 4, None)
    assert all(world.storage.exists(name) for name in names[2:4])
    assert set(world.manager.stored) == set(names[2:4])


def test_salted_requests_have_chains_of_their_own(world: World) -> None:
    plain, salted = world.admit("a", 8, 5), world.admit("b", 8, 5)
    salted.cache_salt = "team"
    for request in (plain, salted):
        assert world.manager.offload(request)
    world.settle()
    assert len(list(world.storage.folder.iterdir())) == 2
    seeded = chain([*salted.prompt, *salted.output[:-1]], 4, namespace_seed(None, "team"))
    assert world.storage.exists(seeded[2])


def test_host_pages_come_back_after_the_write_only(world: World) -> None:
    request = world.admit("a", 4, 5)
    assert world.manager.offload(request)
    world.copier.drain()
    world.manager.check_progress()
    assert world.host_free() == world.pages - 1
    world.writer.drain()
    world.manager.check_progress()
    assert world.host_free() == world.pages


def test_device_slots_are_kept_until_the_request_ends(world: World) -> None:
    before = world.slots.tokens.available_size()
    request = world.admit("a", 4, 9)
    held = before - world.slots.tokens.available_size()
    assert world.manager.offload(request)
    world.settle()
    assert before - world.slots.tokens.available_size() == held
    assert world.released == []
    world.manager.finish(request)
    assert world.released == ["a"]
    assert world.slots.tokens.available_size() == before


def test_a_finished_request_waits_for_its_copy(world: World) -> None:
    request = world.admit("a", 4, 9)
    world.manager.finish(request)
    assert world.released == []
    world.manager.check_progress()
    assert world.released == []
    world.copier.drain()
    world.manager.check_progress()
    assert world.released == ["a"]
    world.manager.finish(request)
    assert world.released == ["a"], "released twice"


def test_two_copies_in_flight_both_have_to_land(world: World) -> None:
    request = world.admit("a", 4, 5)
    assert world.manager.offload(request)
    world.grow(request, 4)
    world.manager.finish(request)
    world.copier.step()
    world.manager.check_progress()
    assert world.released == []
    world.copier.step()
    world.manager.check_progress()
    assert world.released == ["a"]


def test_a_full_host_pool_refuses_says_so_and_loses_nothing(folder: Path) -> None:
    world = World(folder, pages=1)
    first, second = world.admit("a", 4, 5), world.admit("b", 4, 9)
    assert world.manager.offload(first)
    assert not world.manager.offload(second)
    assert world.manager.refusals == ["not enough host memory for request b"]
    assert not world.manager.in_flight(second)
    world.settle()
    assert not world.manager.offload(second), "two pages do not fit into one"
    world.manager.finish(second)
    assert world.released == ["b"]
    assert world.host_free() == 1


def test_a_refused_stride_goes_out_later(folder: Path) -> None:
    world = World(folder, pages=1)
    first, second = world.admit("a", 4, 5), world.admit("b", 4, 5)
    assert world.manager.offload(first)
    assert not world.manager.offload(second)
    world.settle()
    assert world.manager.offload(second)
    world.settle()
    names = chain([*second.prompt, *second.output[:-1]], 4, None)
    assert world.storage.exists(names[1])


def test_retraction_is_refused_while_a_copy_reads(world: World) -> None:
    request = world.admit("a", 4, 5)
    assert world.manager.offload(request)
    with pytest.raises(RetractionRefused, match="1 copies of 1 requests"):
        world.manager.drain_before_retraction()
    world.copier.drain()
    world.manager.drain_before_retraction()
    assert len(world.writer.waiting) == 1, "a write reads host memory only"


def test_a_copy_that_fails_is_not_swallowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr(world.host.pools["full"], "backup", broken)
    request = world.admit("a", 4, 5)
    assert world.manager.offload(request)
    world.copier.drain()
    with pytest.raises(RuntimeError, match="device lost"):
        world.manager.check_progress()


def test_a_full_disk_is_answered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    request = world.admit("a", 4, 9)
    world.manager.finish(request)
    world.settle()
    assert world.storage.failures[0].endswith("No space left on device")
    assert len(world.storage.failures) == 2
    assert list(world.storage.folder.iterdir()) == []
    assert world.manager.stored == {}
    assert world.released == ["a"]
    assert world.host_free() == world.pages


def test_stored_pages_are_checked_when_read(folder: Path) -> None:
    storage = FileStorage(folder, model="org/model", rank=1, ranks=8)
    page = torch.arange(64, dtype=torch.uint8)
    assert storage.set("abc", page)
    assert [path.name for path in folder.iterdir()] == ["abc_org-model_1_8.bin"]
    assert torch.equal(storage.get("abc", 64), page)
    with pytest.raises(StorageFault, match="64 bytes, 65 were expected"):
        storage.get("abc", 65)
    storage.path("abc").write_bytes(bytes(64))
    with pytest.raises(StorageFault, match="not those that were written"):
        storage.get("abc", 64)
    with pytest.raises(StorageFault, match="No such file"):
        storage.get("other", 64)


def test_a_page_that_is_there_is_not_written_again(folder: Path) -> None:
    storage = FileStorage(folder)
    assert storage.set("k", torch.zeros(8, dtype=torch.uint8))
    assert storage.set("k", torch.ones(8, dtype=torch.uint8))
    assert storage.path("k").read_bytes() == bytes(8)


def test_a_folder_that_goes_away_is_answered(folder: Path) -> None:
    storage = FileStorage(folder)
    folder.rmdir()
    assert not storage.set("k", torch.zeros(8, dtype=torch.uint8))
    assert storage.failures == ["page k: No such file or directory"]


def test_hashes_are_those_of_the_engine() -> None:
    first = sha256(pack("<3I", 1, 2, 3)).hexdigest()
    second = sha256(bytes.fromhex(first) + pack("<2I", 4, 5)).hexdigest()
    assert chain([1, 2, 3, 4, 5], 3, None) == [first, second]
    wide = sha256(b"\xff" + pack("<2Q", 1, 1 << 33)).hexdigest()
    assert page_hash([1, 1 << 33], None) == wide
    # Answers of the engine's native hash (0.5.23).
    assert chain(list(range(10)), 4, None)[2] == (
        "c0f85cffd6659bcc560977f93231dd7f03b52d5d8ca09e20f2745161f0e299ce"
    )
    assert wide == "5a70c92f9fb3c8ae74332afb9d2798ced9d2a494397f98bc237f19856758eca1"
    assert namespace_seed("a", None) == (
        "ad5aea43603f2a5d7b3cb72eb67799416dc43601e325d412f7afecb939b9046f"
    )
    assert namespace_seed(None, None) is None
    assert namespace_seed("", None) != namespace_seed(None, "")


@pytest.fixture
def copier() -> Iterator[Copier]:
    copier = Copier(CPU)
    yield copier
    copier.close()


def test_the_copier_runs_in_order_and_hands_errors_on(copier: Copier) -> None:
    done: list[int] = []
    copier.hold()
    first = copier.submit(lambda: done.append(1))
    bad = copier.submit(lambda: done.append(1 // 0))
    last = copier.submit(lambda: done.append(2))
    assert not first.done()
    copier.resume()
    last.wait()
    assert done == [1, 2]
    with pytest.raises(ZeroDivisionError):
        bad.wait()


@pytest.mark.parametrize("kind", ["mha", "mha paged", "mla paged", "dsa", "unified swa paged"])
def test_the_step_on_a_built_pool(kind: str) -> None:
    plan = plans.EVERY[kind]()
    if kind == "dsa":
        plan = plans.dsa(1024)
    if kind == "mla paged":
        plan = plans.mla(1024, 64)
    done = figures(
        run(plan, host=HostTier("page_first"), offload=Offload(stride=10, storage="file"),
            steps=("build", "offload")),
        "offload",
    )  # fmt: skip
    assert done["checks"][-1] == "every stored page reads back bit for bit"
    assert done["stride"] % plan.page_size == 0
    assert done["pages_stored"] > 0


def test_a_folder_of_the_user_keeps_its_pages(folder: Path) -> None:
    offload = Offload(stride=4, storage="file", folder=str(folder))
    run(plans.mha(page=4), host=HostTier("page_first"), offload=offload,
        steps=("build", "offload"))  # fmt: skip
    assert list(folder.glob("*.bin"))


@pytest.mark.parametrize("kind", ["swa", "hybrid", "minimax", "dsv4", "unified hybrid"])
def test_pools_that_offload_does_not_know_are_refused(kind: str) -> None:
    plan = plans.EVERY[kind]()
    with pytest.raises(
        Refused,
        match=f"Unsupported KV cache type for decode offload: the pool is {plan.class_name}",
    ) as refusal:
        run(plan, host=HostTier("page_first"), offload=Offload(), steps=("build", "offload"))
    assert refusal.value.kind == "refused"


def test_another_storage_backend_is_not_touched_and_that_is_said() -> None:
    report = run(plans.mha(page=4), host=HostTier("page_first"),
                 offload=Offload(storage="mooncake"), steps=("build", "offload"))  # fmt: skip
    assert "storage backend mooncake was not touched" in report["notes"][0]
    assert figures(report, "offload")["pages_stored"] == 0


def test_a_stride_beyond_the_pool_is_skipped_with_a_reason() -> None:
    plan = replace(plans.mha(256, 16))
    done = figures(
        run(plan, host=HostTier("page_first"), offload=Offload(stride=4096),
            steps=("build", "offload")),
        "offload",
    )  # fmt: skip
    assert done == {"skipped": "a stride of 4096 tokens needs 16448 slots here"}
