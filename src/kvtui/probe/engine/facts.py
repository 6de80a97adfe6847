"""From a report to an engine's question, and from its answer to a fact."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kvtui.core.command import argv_of
from kvtui.core.evaluate import Report
from kvtui.core.facts import EngineFact, Facts
from kvtui.probe.engine.client import ASK_LIMIT_S, EngineError, EngineProbe, Progress

POOL_LIMIT_S = 120.0
POOL_BYTES = 1 << 30
"""Memory that a pool on the engine's side may take for a question."""
MIN_TOKENS = 8192
"""Sliding-window and compressed pools refuse to be built for much less."""
MAX_TOKENS = 65536
CANT_SEE_MODEL = (
    "LocalEntryNotFoundError", "OfflineModeIsEnabled", "RepositoryNotFoundError",
    "GatedRepoError", "HFValidationError", "ConnectError", "MaxRetryError",
)  # fmt: skip
"""Error types that mean the engine's side has no such model, not that it refuses the launch."""
CANT_LOAD = (
    "Can't load the configuration", "couldn't connect to", "is not a local folder",
    "does not appear to have a file named",
)  # fmt: skip
NOT_AN_ANSWER = ("Crash", "Timeout", "Cancelled", "Question")


def claim_of(facts: Facts) -> dict[str, Any] | None:
    """The GPU to claim over there: None where the launch is meant for the engine's own."""
    gpu = facts.gpu
    if gpu is None or gpu.local or gpu.vendor != "nvidia":
        return None
    return {
        "name": gpu.name,
        "capability": list(gpu.capability),
        "memory_mib": gpu.memory_mib,
        "count": facts.gpu_count,
    }


def question_of(report: Report, ask: str = "resolve") -> dict[str, Any]:
    """The question about a report's launch, with the model's small files for a far engine."""
    files: dict[str, Any] = {}
    for path, checkpoint in report.facts.checkpoints.items():
        files[path] = {"config.json": dict(checkpoint.config)}
        if checkpoint.quant_config is not None:
            files[path]["hf_quant_config.json"] = dict(checkpoint.quant_config)
        if checkpoint.generation_config is not None:
            files[path]["generation_config.json"] = dict(checkpoint.generation_config)
    return {
        "ask": ask,
        "argv": list(argv_of(report.draft)[2:]),
        "env": dict(report.draft.env),
        "files": files,
        "tokens": pool_tokens(report),
    }


def pool_tokens(report: Report) -> int:
    """Slots of the pool that the engine builds: few enough for a host, enough for every floor."""
    cell = report.pool.bytes_per_token if report.pool else 0
    affordable = POOL_BYTES // cell if cell else MIN_TOKENS
    planned = getattr(report.capacity, "max_total_num_tokens", 0) or MAX_TOKENS
    return int(max(MIN_TOKENS, min(planned, affordable, MAX_TOKENS)))


async def ask_engine(
    probe: EngineProbe, report: Report, *, pool: bool = False, on_progress: Progress | None = None
) -> EngineFact:
    """What the engine says to the report's launch. Raises EngineError where it can't be asked."""
    question = question_of(report, "pool" if pool else "resolve")
    answer = await probe.ask(
        question, limit_s=POOL_LIMIT_S if pool else ASK_LIMIT_S, on_progress=on_progress
    )
    return fact_of(answer, report.key, probe, abridged=is_abridged(report.facts))


def is_abridged(facts: Facts) -> bool:
    """Whether a model's configuration is the catalogue's, which holds what decides its memory."""
    return any(checkpoint.origin == "catalogue" for checkpoint in facts.checkpoints.values())


def fact_of(
    answer: Mapping[str, Any], request_key: str, probe: EngineProbe, *, abridged: bool = False
) -> EngineFact:
    """An answer as a fact; raises EngineError for an answer that is no verdict."""
    resolved = answer.get("resolved")
    pool = answer.get("pool")
    return EngineFact(
        request_key=request_key,
        accepted=verdict_of(answer, probe.engine.place, abridged=abridged),
        version=probe.version,
        place=probe.engine.place,
        error=_text(answer.get("error")),
        error_type=_text(answer.get("error_type")),
        stage=_text(answer.get("stage")),
        at=_text(answer.get("at")),
        resolved=resolved if isinstance(resolved, dict) else {},
        pool=pool if isinstance(pool, dict) else None,
        asked_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def verdict_of(answer: Mapping[str, Any], place: str, *, abridged: bool = False) -> bool:
    """Whether the engine accepts; raises EngineError where its answer does not tell.

    What a library past SGLang makes of an `abridged` configuration tells nothing.
    """
    accepted = answer.get("accepted")
    error_type, error = _text(answer.get("error_type")), _text(answer.get("error"))
    if error_type in NOT_AN_ANSWER or not isinstance(accepted, bool):
        raise EngineError(f"{place}: {error or 'an answer without a verdict'}")
    if not accepted and _model_not_there(error_type, error):
        raise EngineError(f"{place}: the engine can't see the model there")
    if not accepted and abridged and answer.get("foreign"):
        raise EngineError(
            f"{place}: the catalogue's configuration is too short for it ({error})",
            "name a folder that holds the model's config.json",
        )
    return accepted


def _model_not_there(error_type: str | None, error: str | None) -> bool:
    if error_type in CANT_SEE_MODEL:
        return True
    return error_type == "OSError" and any(text in (error or "") for text in CANT_LOAD)


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:2000]
