"""A small world for screen tests: a few models and rules that never change under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from kvtui.core.capacity.figures import Figure
from kvtui.core.capacity.result import Capacity
from kvtui.core.draft import Draft
from kvtui.core.evaluate import Plan, Report
from kvtui.core.facts import Checkpoint, EngineFact, Facts, GpuFacts, HostFacts, PoolFact
from kvtui.core.findings import Finding, Outcome, Severity, Stage, drop, set_to
from kvtui.core.gpus import find_gpu
from kvtui.core.options import catalogue
from kvtui.core.pools.spec import BufferSpec, PoolPlan, SubPool
from kvtui.core.request import request_key
from kvtui.core.resolution import Origin
from kvtui.tui.prober import LocalModel, Machine, PoolEvent, PoolStep, ProbeError

GIB = 1 << 30

QWEN = Checkpoint(
    name="Qwen/Qwen3-8B",
    key="canned:qwen3-8b",
    config=MappingProxyType(
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "num_hidden_layers": 36,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40960,
            "torch_dtype": "bfloat16",
        }
    ),
    weight_bytes=16_381_470_720,
    origin="catalogue",
)
HYBRID = Checkpoint(
    name="Qwen/Qwen3.5-27B",
    key="canned:qwen3.5-27b",
    config=MappingProxyType(
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "text_config": {"num_hidden_layers": 64, "hidden_size": 5120, "head_dim": 256},
        }
    ),
    weight_bytes=54 * GIB,
    origin="hf-cache",
)
CHECKPOINTS = {checkpoint.name: checkpoint for checkpoint in (QWEN, HYBRID)}

HOST = HostFacts(total_bytes=1900 * GIB, available_bytes=1700 * GIB, cpus=96)


def local_gpu(key: str = "h200") -> GpuFacts:
    """A catalogue GPU as if it were in this machine."""
    gpu = find_gpu(key)
    assert gpu is not None
    return replace(gpu, local=True, free_mib=gpu.memory_mib - 512)


CELL = {"auto": 147456, "bfloat16": 147456, "fp8_e4m3": 73728, "fp8_e5m2": 73728, "nvfp4": 41472}


def judge(draft: Draft, facts: Facts) -> Report:
    """A handful of rules with the shape of the real ones."""
    key = request_key(draft, facts)
    values: dict[str, Any] = {**catalogue().defaults, **draft.options}
    origins: dict[str, Origin] = {}
    findings = list(_findings(draft, facts))
    unknowns = tuple(
        f"model: {path}: {facts.missing.get(f'model:{path}', 'its config.json was not found')}"
        for path in (draft.model_path,)
        if path and path not in facts.checkpoints
    )
    if draft.model_path is None:
        unknowns = ("model: none was chosen",)
    if facts.gpu is None:
        unknowns = (*unknowns, f"gpu: {facts.missing.get('gpu', 'no GPU was named or found')}")
    backend = draft.options.get("attention_backend") or "fa3"
    if draft.options.get("kv_cache_dtype") == "fp8_e5m2":
        backend = "triton"
    values["attention_backend"] = backend
    origins["attention_backend"] = Origin("default", "the GPU is a Hopper", "x.py:1")
    values["page_size"] = draft.options.get("page_size") or 1
    values["mem_fraction_static"] = draft.options.get("mem_fraction_static") or 0.835
    if facts.engine and facts.engine.request_key == key and not facts.engine.accepted:
        message = f"SGLang {facts.engine.version} refuses: {facts.engine.error}"
        findings.append(Finding("ENGINE", Severity.ERROR, Stage.OFFLOAD, None, message))
    failed = any(f.severity is Severity.ERROR for f in findings)
    outcome = Outcome.FAILS if failed else Outcome.UNKNOWN if unknowns else Outcome.STARTS
    pool = None if unknowns else _pool(draft)
    return Report(
        draft=draft,
        facts=facts,
        key=key,
        outcome=outcome,
        rules_outcome=outcome,
        findings=tuple(findings),
        plan=Plan(values, origins, (backend, backend), {}),
        pool=pool,
        capacity=None if pool is None else _capacity(draft, facts, pool),
        unknowns=unknowns,
        pool_fact=facts.pool if facts.pool and facts.pool.request_key == key else None,
        engine_fact=facts.engine if facts.engine and facts.engine.request_key == key else None,
    )


def _findings(draft: Draft, facts: Facts) -> Iterator[Finding]:
    chosen = draft.options
    if chosen.get("kv_cache_dtype") == "nvfp4" and facts.gpu and facts.gpu.sm < 100:
        yield Finding(
            "CN226", Severity.ERROR, Stage.CHECK, "kv_cache_dtype",
            f"KV dtype nvfp4 needs SM100 or SM120; {facts.gpu.name} is SM{facts.gpu.sm}.",
            (
                set_to("use fp8_e4m3 (twice the size of nvfp4)", kv_cache_dtype="fp8_e4m3"),
                drop("kv_cache_dtype"),
            ),
        )  # fmt: skip
    if chosen.get("disaggregation_decode_enable_offload_kvcache"):
        if chosen.get("disaggregation_mode") != "decode":
            yield Finding(
                "CN510", Severity.ERROR, Stage.CHECK,
                "disaggregation_decode_enable_offload_kvcache",
                "Decode KV offload runs only on a decode server.",
                (set_to("make this a decode server", disaggregation_mode="decode"),),
            )  # fmt: skip
        if draft.model_path == HYBRID.name:
            yield Finding(
                "CN512", Severity.ERROR, Stage.OFFLOAD,
                "disaggregation_decode_enable_offload_kvcache",
                "Decode offload knows MHA and MLA pools only; this model gets HybridLinearKVPool.",
                (drop("disaggregation_decode_enable_offload_kvcache"),),
            )  # fmt: skip
    if chosen.get("kv_cache_dtype") == "fp8_e5m2":
        yield Finding(
            "CN231", Severity.WARNING, Stage.RESOLVE, "kv_cache_dtype",
            "KV dtype fp8_e5m2 makes the engine run triton instead of fa3.",
            (set_to("use fp8_e4m3 (keeps fa3, same size)", kv_cache_dtype="fp8_e4m3"),),
        )  # fmt: skip
    if chosen.get("page_size") == 7:
        yield Finding("CN101", Severity.NOTE, Stage.RESOLVE, "page_size", "Page size 7 is unusual.")


def _pool(draft: Draft) -> PoolPlan:
    dtype = draft.options.get("kv_cache_dtype") or "auto"
    hybrid = draft.model_path == HYBRID.name
    name = "HybridLinearKVPool" if hybrid else "MHATokenToKVPool"
    cell = CELL.get(str(dtype), 147456)
    stored = "bfloat16" if dtype in ("auto", "bfloat16", "bf16") else "float8_e4m3fn"
    buffer = BufferSpec("k_buffer", stored, (4097, 8, 128), 36)
    sub = SubPool("full", name, 4096, 1, 1, (buffer,), layers=36)
    return PoolPlan(
        name, stored, cell, int(draft.options.get("page_size") or 1), 4096, (sub,),
        "TokenToKVPoolAllocator", state_bytes_per_request=50_000_000 if hybrid else 0,
    )  # fmt: skip


def _capacity(draft: Draft, facts: Facts, pool: PoolPlan) -> Capacity:
    assert facts.gpu is not None
    fraction = draft.options.get("mem_fraction_static") or 0.835
    weights = facts.checkpoints[draft.model_path or ""].weight_bytes or 0
    total = facts.gpu.memory_mib << 20
    kv = max(0, int(total * fraction) - weights)
    tokens = kv // pool.bytes_per_token
    fits = {size: min(64, tokens // size) for size in (8192, 32768, 131072)}
    left = Figure(total - weights - kv - 3 * GIB)
    return Capacity(
        total=Figure(total, "exact"), baseline=Figure(total), weights=Figure(weights, "exact"),
        draft_weights=Figure(0), free_after_load=Figure(total - weights), fraction=fraction,
        budget=Figure(kv), bytes_per_token=Figure(pool.bytes_per_token), tokens=Figure(tokens),
        full_tokens=None, swa_tokens=None, state_slots=0, state_bytes=0, requests=Figure(64),
        limited_by="default", slots_per_request=1, request_table=Figure(0), reserve=Figure(0),
        working=Figure(3 * GIB, "estimated", 0.2), free_after=left, host=None, fits=fits,
        pool_bytes=kv,
    )  # fmt: skip


@dataclass
class FakeProber:
    """A machine that is whatever the test says."""

    gpu: GpuFacts | None = field(default_factory=local_gpu)
    count: int = 2
    engine_version: str | None = "0.5.23"
    engine_error: str | None = None
    local: tuple[LocalModel, ...] = (
        LocalModel("Qwen/Qwen3-8B", "hub cache", "Qwen3ForCausalLM"),
        LocalModel("Qwen/Qwen3.5-27B", "hub cache", "Qwen3_5ForConditionalGeneration"),
    )
    pool_ok: bool = True
    hold: asyncio.Event | None = None
    """A pool check waits for it after its second step."""
    cancelled: bool = False
    closed: bool = False
    asked: list[str] = field(default_factory=list)

    async def machine(self) -> Machine:
        """The machine of the test."""
        missing = {} if self.gpu else {"gpu": "no NVIDIA driver on this machine"}
        if self.engine_version is None:
            missing["engine"] = "no SGLang in this Python or its neighbours"
        return Machine(
            self.gpu, self.count if self.gpu else 0, HOST, "2.13.0+cu130",
            self.engine_version, "~/venv" if self.engine_version else "", missing,
        )  # fmt: skip

    async def models(self) -> Sequence[LocalModel]:
        """The models of the test."""
        return self.local

    async def checkpoint(self, path: str) -> Checkpoint:
        """One of the canned models."""
        self.asked.append(path)
        if path not in CHECKPOINTS:
            raise ProbeError(f"{path}: not a folder, not in the local hub cache")
        return CHECKPOINTS[path]

    async def fetch(self, hub_id: str) -> Checkpoint:
        """The hub has one model."""
        if hub_id != "far/away":
            raise ProbeError(f"{hub_id}: could not be fetched from the hub (not found)")
        return replace(QWEN, name=hub_id, key="canned:far", origin="hub")

    async def pool(self, report: Report) -> AsyncGenerator[PoolEvent, None]:
        """Five steps and a result."""
        try:
            for number, text in enumerate(
                ("allocating", "writing 4,096 slots", "reading back", "host copy", "freeing"), 1
            ):
                yield PoolStep(number, 5, text)
                if number == 2 and self.hold is not None:
                    await self.hold.wait()
            result = {"class": "MHATokenToKVPool", "device": "cuda:0"}
            if not self.pool_ok:
                result["error"] = "out of memory at 40.1 GiB"
            yield PoolFact(report.key, self.pool_ok, result)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled = True
            raise

    async def close(self) -> None:
        """Nothing to end."""
        self.closed = True

    async def engine(self, report: Report, on_progress: Callable[[str], None]) -> EngineFact:
        """Accepts, or refuses with the test's error."""
        if self.engine_version is None:
            raise ProbeError("no SGLang was found")
        return EngineFact(
            report.key, self.engine_error is None, self.engine_version, "~/venv",
            error=self.engine_error, stage="offload" if self.engine_error else None,
        )  # fmt: skip


def facts_for(gpu: str | None = "h200", count: int = 2) -> Facts:
    """Facts as the command line would hand them over, with all canned models read."""
    return Facts(
        checkpoints=CHECKPOINTS,
        gpu=local_gpu(gpu) if gpu else None,
        gpu_count=count,
        host=HOST,
        engine_version="0.5.23",
    )


def draft_of(model: str | None = "Qwen/Qwen3-8B", **options: Any) -> Draft:
    """A draft of a model and options."""
    chosen = {} if model is None else {"model_path": model}
    return Draft(options={**chosen, **options})
