"""A report as JSON and as plain lines. No colours, no terminal, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvtui.core.command import argv_of
from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report
from kvtui.core.findings import Finding, Fix, Outcome, Severity
from kvtui.core.options import catalogue
from kvtui.core.pools.spec import PoolPlan
from kvtui.core.scope import unjudged
from kvtui.core.secrets import holds_secret, secrets_of, without_secrets

JSON_SCHEMA = 1
HIDDEN = "***"
"""Stands where a secret would."""

EFFECTIVE = (
    "kv_cache_dtype", "page_size", "mem_fraction_static", "chunked_prefill_size",
    "max_prefill_tokens", "max_running_requests", "max_total_tokens", "disable_radix_cache",
    "disable_overlap_schedule", "dtype", "quantization", "hicache_ratio", "hicache_size",
    "hicache_mem_layout", "hicache_io_backend", "hicache_write_policy", "swa_full_tokens_ratio",
    "disable_hybrid_swa_memory", "mamba_full_memory_ratio", "max_mamba_cache_size",
    "mamba_radix_cache_strategy", "enable_unified_memory", "enable_page_major_kv_layout",
    "disaggregation_decode_retraction_backup", "speculative_algorithm",
    "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
    "linear_attn_backend", "mamba_backend", "moe_runner_backend", "sampling_backend",
    "tp_size", "dp_size", "attn_dp_size", "pp_size", "ep_size",
)  # fmt: skip
"""Resolved values that every answer names; others appear where they differ from the default."""

MARK = {Outcome.STARTS: "✓", Outcome.FAILS: "✗", Outcome.UNKNOWN: "?"}
SEVERITY_MARK = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "·"}


def flag_of(option: str | None) -> str | None:
    """SGLang's spelling of an option's field name (`env:NAME` stays as it is)."""
    if option is None or ":" in option:
        return option
    known = catalogue().options.get(option)
    return known.flag if known else "--" + option.replace("_", "-")


def to_json(report: Report) -> dict[str, Any]:
    """The object of `kvtui check --json`."""
    return {
        "schema": JSON_SCHEMA,
        "verdict": report.outcome.value,
        "engine_version": report.engine_version,
        "findings": [finding_json(f) for f in report.findings],
        "unknown": list(report.unknowns),
        "not_judged": [flag_of(name) for name in unjudged(report.draft)],
        "effective": effective(report),
        "pool": pool_json(report.pool) if report.pool else None,
        "capacity": _capacity(report),
        "checked": checked(report),
        "command": command_words(report.draft),
    }


def command_words(draft: Draft) -> list[str]:
    """The command's words; a secret stands as the environment variable that is to hold it."""
    words = list(argv_of(without_secrets(draft)))
    for name in secrets_of(draft):
        if not name.startswith("env:"):
            words += [flag_of(name) or name, f"${{SGLANG_{name.upper()}}}"]
    return words


def checked(report: Report) -> dict[str, Any]:
    """Layer by layer what was checked for this very launch; None where a layer did not run."""
    pool, engine = report.pool_fact, report.engine_fact
    return {
        "rules": report.rules_outcome is not Outcome.UNKNOWN,
        "pool": {"ok": pool.ok, **pool.report} if pool else None,
        "engine": {
            "accepted": engine.accepted,
            "version": engine.version,
            "place": engine.place,
            "at": engine.asked_at,
            "stage": engine.stage,
            "error": engine.error,
            "error_type": engine.error_type,
            "error_at": engine.at,
            "disagrees": report.disagrees,
        }
        if engine
        else None,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """One finding as plain data."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "stage": finding.stage.value,
        "option": flag_of(finding.option),
        "message": finding.message,
        "fix": _fix(finding.fixes[0]) if finding.fixes else [],
        "fixes": [{"title": fix.title, "changes": _fix(fix)} for fix in finding.fixes],
    }


def _fix(fix: Fix) -> list[dict[str, Any]]:
    return [{"option": flag_of(c.option), "value": c.value} for c in fix.changes]


def effective(report: Report) -> dict[str, Any]:
    """Resolved values: the backend pair, the graph limit, and every option that matters."""
    plan = report.plan
    prefill, decode = plan.backends
    shown: dict[str, Any] = {
        "attention_backend": plan.values["attention_backend"],
        "prefill_attention_backend": prefill,
        "decode_attention_backend": decode,
        **{name: plan.values[name] for name in EFFECTIVE},
        **plan.extra,
    }
    graph = plan.values["cuda_graph_config"]
    decode_graph = getattr(graph, "decode", None)
    if decode_graph is not None:
        shown["cuda_graph_max_bs_decode"] = decode_graph.max_bs
        shown["cuda_graph_backend_decode"] = decode_graph.backend
        shown["cuda_graph_backend_prefill"] = graph.prefill.backend
    defaults = catalogue().defaults
    for name, value in plan.values.items():
        if name in shown or name == "cuda_graph_config" or value == defaults.get(name):
            continue
        if value is not None and holds_secret(name, value):
            shown[name] = HIDDEN
        else:
            shown[name] = value if _is_json(value) else str(value)
    return shown


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool | list | dict)


def pool_json(pool: PoolPlan) -> dict[str, Any]:
    """The pool as plain data."""
    return {
        "class": pool.class_name,
        "kv_dtype": pool.kv_dtype,
        "bytes_per_token": pool.bytes_per_token,
        "page_size": pool.page_size,
        "tokens": pool.tokens,
        "allocator": pool.allocator,
        "buffers": [
            {"name": b.name, "dtype": b.dtype, "shape": list(b.shape), "count": b.count}
            for b in pool.buffers
        ],
        "bytes": pool.nbytes,
        "decode_offload": pool.decode_offload,
        "notes": list(pool.notes),
    }


def _capacity(report: Report) -> dict[str, Any] | None:
    return report.capacity.to_json() if report.capacity is not None else None


def _pool_word(report: Report) -> str:
    if report.pool_fact is None:
        return "pool not run"
    return "pool built" if report.pool_fact.ok else "pool not built"


def verdict_words(report: Report) -> str:
    """The verdict in words, with where the launch would stop."""
    if report.outcome is Outcome.UNKNOWN:
        return f"NOT KNOWN: {report.unknowns[0] if report.unknowns else 'no reason recorded'}"
    if report.outcome is Outcome.STARTS:
        layers = [
            _pool_word(report),
            "engine agrees" if report.engine_fact else "engine not asked",
        ]
        by = "" if report.engine_fact and report.pool_fact else f" by rules · {' · '.join(layers)}"
        count = len(report.warnings)
        warned = f", with {count} warning{'s' if count > 1 else ''}" if count else ""
        return f"STARTS{warned}{by}"
    return "WILL FAIL " + WHEN[report.errors[0].stage.value]


WHEN: Mapping[str, str] = {
    "parse": "while the command line is read",
    "resolve": "at start, while arguments are resolved",
    "check": "at start, while arguments are checked",
    "pool": "when the KV pools are built, after the weights load",
    "offload": "when decode offload starts, after the weights load",
    "load": "after the weights load",
    "serve": "at graph capture or at the first request",
}


def lines(report: Report) -> Iterator[str]:
    """The report for people: verdict, findings with fixes, pool, capacity, what was not checked."""
    yield f"{MARK[report.outcome]} {verdict_words(report)}"
    for finding in report.findings:
        yield from finding_lines(finding)
    for reason in report.unknowns:
        yield f"  ? {reason}"
    passed = unjudged(report.draft)
    if passed:
        yield f"  · passed on without being judged: {', '.join(map(str, map(flag_of, passed)))}"
    yield from _facts_lines(report)


def finding_lines(finding: Finding) -> Iterator[str]:
    """One finding with its fixes."""
    option = flag_of(finding.option)
    place = f"  [{option}]" if option else ""
    yield f"  {SEVERITY_MARK[finding.severity]} {finding.rule}  {finding.message}{place}"
    yield from (f"      fix: {fix.title}" for fix in finding.fixes)


def _facts_lines(report: Report) -> Iterator[str]:
    prefill, decode = report.plan.backends
    if prefill:
        pair = prefill if prefill == decode else f"{prefill} (prefill), {decode} (decode)"
        yield f"  attention  {pair}"
    pool = report.pool
    if pool is not None:
        yield (
            f"  pool       {pool.class_name}, {pool.kv_dtype}, {pool.bytes_per_token:,} bytes per "
            f"token and rank, page {pool.page_size}"
        )
    if report.capacity is not None:
        yield from (f"  {line}" for line in report.capacity.summary())
    fact = report.pool_fact
    if fact is not None and fact.ok:
        yield f"  checked    pool built on {fact.report.get('place', 'this machine')}"
    elif fact is not None:
        yield f"  checked    pool not built: {fact.report.get('error') or 'no reason given'}"
    engine = report.engine_fact
    if engine is not None:
        word = "accepts" if engine.accepted else "refuses"
        yield f"  engine     SGLang {engine.version} ({engine.place}) {word}"
        if report.disagrees:
            yield "  ≠ rules and engine disagree: the engine decides; this is a fault of kvtui"
