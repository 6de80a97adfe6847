"""From a report to the proof that a preset or an export header carries."""

from __future__ import annotations

from kvtui import __version__
from kvtui.core.evaluate import Report
from kvtui.core.options import NEWEST
from kvtui.core.preset import Proof, proof_digest


def proof_of(report: Report, time: str) -> Proof:
    """What was checked for the report's launch, and when (`time`: UTC, ISO 8601)."""
    pool, engine = report.pool_fact, report.engine_fact
    built = pool.report if pool is not None and pool.ok else {}
    gpu = report.facts.gpu
    tokens = getattr(report.capacity, "max_total_num_tokens", None)
    predicted = getattr(tokens, "value", tokens)
    return Proof(
        digest=proof_digest(report.draft),
        verdict=report.outcome.value,
        time=time,
        kvtui_version=__version__,
        rules_version=NEWEST,
        engine_version=engine.version if engine else "",
        engine_place=engine.place if engine else "",
        pool_class=report.pool.class_name if report.pool else "",
        pool_bytes=int(built.get("allocated_bytes") or 0),
        gpu=gpu.name if gpu else "",
        driver=gpu.driver if gpu else "",
        tokens_predicted=int(predicted or 0),
        tokens_built=int(built.get("tokens") or 0),
    )
