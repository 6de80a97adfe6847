"""Prefill/decode disaggregation as one thing: a pair of launches that must agree, and a router."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report
from kvtui.core.findings import Finding, Fix, Outcome, Severity, Stage, set_to
from kvtui.core.options import catalogue
from kvtui.core.preset import Meta, PresetError, preset_of

ROLES = ("prefill", "decode")
DECODE_PORT, ROUTER_PORT = 30001, 8000


@dataclass(frozen=True, slots=True)
class Router:
    """Where clients connect: it sends each request to both servers."""

    host: str = "127.0.0.1"
    port: int = ROUTER_PORT
    policy: str = "cache_aware"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two launches of one model with a router in front."""

    prefill: Draft
    decode: Draft
    router: Router = field(default_factory=Router)
    meta: Meta = field(default_factory=Meta)

    def half(self, role: str) -> Draft:
        """The launch of one role."""
        return self.prefill if role == "prefill" else self.decode


def is_pair(text: str) -> bool:
    """True for a preset that holds both halves."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    return all(isinstance(data.get(role), dict) for role in ROLES)


def load_pair(text: str, where: str = "pair") -> Pair:
    """A pair preset: `[launch]` for both, `[prefill]` and `[decode]` for what differs.

    Raises PresetError. The roles, and another port for decode, need not be written.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PresetError(f"{where}: no valid TOML: {error}") from None
    common = {key: value for key, value in data.items() if key not in (*ROLES, "router")}
    halves = {role: preset_of(_half(common, data.get(role), role, where), where) for role in ROLES}
    return Pair(
        halves["prefill"].draft,
        halves["decode"].draft,
        _router(data.get("router", {}), where),
        halves["prefill"].meta,
    )


def _half(common: Mapping[str, Any], own: Any, role: str, where: str) -> dict[str, Any]:
    launch = common.get("launch", {})
    if not isinstance(own, dict) or not isinstance(launch, dict):
        raise PresetError(f"{where}: a pair has the tables [launch], [prefill] and [decode]")
    role_of = {"disaggregation_mode": role}
    port = {"port": DECODE_PORT} if role == "decode" and "port" not in launch else {}
    return {**common, "launch": {**launch, **role_of, **port, **own}}


def _router(data: Any, where: str) -> Router:
    known = {"host": str, "port": int, "policy": str}
    if not isinstance(data, dict):
        raise PresetError(f"{where}: router: expected a table, [router]")
    for key, value in data.items():
        if key not in known:
            raise PresetError(f"{where}: [router] has no {key}", f"there are {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise PresetError(f"{where}: [router] {key}: expected {known[key].__name__}")
    return Router(**data)


def pair_outcome(prefill: Report, decode: Report, findings: tuple[Finding, ...]) -> Outcome:
    """The verdict on both together."""
    outcomes = (prefill.outcome, decode.outcome)
    if Outcome.FAILS in outcomes or any(f.severity is Severity.ERROR for f in findings):
        return Outcome.FAILS
    return Outcome.UNKNOWN if Outcome.UNKNOWN in outcomes else Outcome.STARTS


def pair_findings(prefill: Report, decode: Report) -> tuple[Finding, ...]:
    """What the two halves do not agree on; both reports are about their own launch."""
    found = (finding for check in CHECKS for finding in check(prefill, decode))
    return tuple(found)


def _finding(
    rule: str, option: str, message: str, *fixes: Fix, severity: Severity = Severity.ERROR
) -> Finding:
    return Finding(rule, severity, Stage.SERVE, option, message, fixes)


def _both(prefill: Report, decode: Report, option: str) -> tuple[Any, Any]:
    return prefill.plan.values.get(option), decode.plan.values.get(option)


def _roles(prefill: Report, decode: Report) -> Iterator[Finding]:
    """disaggregation/common/conn.py: one side sends, the other receives."""
    for report, role in ((prefill, "prefill"), (decode, "decode")):
        found = report.plan.values["disaggregation_mode"]
        if found != role:
            yield _finding(
                "KV080", "disaggregation_mode", f"the {role} half runs in mode {found}",
                set_to(f"use --disaggregation-mode {role}", disaggregation_mode=role),
            )  # fmt: skip


def _models(prefill: Report, decode: Report) -> Iterator[Finding]:
    """Pages of one model mean nothing to another."""
    ours = prefill.facts.checkpoints.get(prefill.draft.model_path or "")
    theirs = decode.facts.checkpoints.get(decode.draft.model_path or "")
    if ours is not None and theirs is not None and ours != theirs:
        yield _finding(
            "KV081", "model_path", f"prefill runs {ours.name} and decode {theirs.name}",
            set_to(f"use {ours.name} on both", model_path=prefill.draft.model_path),
        )  # fmt: skip


def _pages(prefill: Report, decode: Report) -> Iterator[Finding]:
    """disaggregation/common/conn.py:1321: pages are copied as they are."""
    ours, theirs = _both(prefill, decode, "page_size")
    if ours != theirs:
        yield _finding(
            "KV082", "page_size", f"prefill has pages of {ours} tokens and decode of {theirs}",
            *(set_to(f"use --page-size {n} on both", page_size=n) for n in {ours, theirs}),
        )  # fmt: skip


def _dtypes(prefill: Report, decode: Report) -> Iterator[Finding]:
    """disaggregation/common/conn.py:1331."""
    ours, theirs = _both(prefill, decode, "kv_cache_dtype")
    if ours != theirs:
        yield _finding(
            "KV083", "kv_cache_dtype", f"prefill stores {ours} and decode {theirs}",
            set_to(f"use --kv-cache-dtype {ours} on both", kv_cache_dtype=ours),
        )  # fmt: skip


def _transfer(prefill: Report, decode: Report) -> Iterator[Finding]:
    """Each side opens connections of its own transfer back end."""
    ours, theirs = _both(prefill, decode, "disaggregation_transfer_backend")
    if ours != theirs:
        yield _finding(
            "KV084", "disaggregation_transfer_backend",
            f"prefill sends by {ours} and decode receives by {theirs}",
            set_to(f"use {ours} on both", disaggregation_transfer_backend=ours),
        )  # fmt: skip


def attention_ranks(report: Report) -> int:
    """Ranks that share the heads of one request."""
    values = report.plan.values
    parts = max(1, values["attn_dp_size"] or 1) * max(1, values["attn_cp_size"] or 1)
    return max(1, (values["tp_size"] or 1) // parts)


def _layout(prefill: Report, decode: Report) -> Iterator[Finding]:
    """disaggregation/common/conn.py:1438: ranks of one side map onto those of the other."""
    ours, theirs = attention_ranks(prefill), attention_ranks(decode)
    if max(ours, theirs) % min(ours, theirs):
        yield _finding(
            "KV085", "tp_size",
            f"prefill splits heads over {ours} ranks and decode over {theirs}, and neither "
            "divides the other",
        )  # fmt: skip
    elif ours != theirs and not _is_latent(decode):
        severity = Severity.WARNING
        if decode.plan.values["kv_cache_dtype"] == "mxfp8":
            severity = Severity.ERROR
        yield _finding(
            "KV085", "tp_size",
            f"prefill splits heads over {ours} ranks and decode over {theirs}: heads are "
            "rearranged in each transfer",
            severity=severity,
        )  # fmt: skip
    stages = _both(prefill, decode, "pp_size")
    if stages[1] not in (1, stages[0]):
        yield _finding(
            "KV086", "pp_size",
            f"decode has {stages[1]} pipeline stages and prefill {stages[0]}: decode must have "
            "as many, or one",
            set_to("use one stage for decode", pp_size=1),
        )  # fmt: skip


def _is_latent(report: Report) -> bool:
    """True where the KV of a token is not split by heads."""
    name = report.pool.class_name if report.pool is not None else ""
    return any(word in name for word in ("MLA", "DSA", "DeepSeekV4"))


def _context_parallel(prefill: Report, decode: Report) -> Iterator[Finding]:
    """disaggregation/common/conn.py:1493."""
    ranks = decode.plan.values["attn_cp_size"] or 1
    if ranks > 1:
        yield _finding(
            "KV087", "attn_cp_size", f"decode runs attention context parallelism over {ranks}",
            set_to("leave it to prefill", attn_cp_size=None),
        )  # fmt: skip


def _ports(prefill: Report, decode: Report) -> Iterator[Finding]:
    """Both servers on one machine need a port each."""
    ours, theirs = _both(prefill, decode, "port")
    if ours == theirs:
        yield _finding(
            "KV088", "port", f"both halves listen on port {ours}: fine only on two machines",
            set_to(f"use {DECODE_PORT} for decode", port=DECODE_PORT),
            severity=Severity.WARNING,
        )  # fmt: skip


def _store(prefill: Report, decode: Report) -> Iterator[Finding]:
    """A store that both sides use holds pages of one layout."""
    ours, theirs = _both(prefill, decode, "hicache_storage_backend")
    layouts = _both(prefill, decode, "hicache_mem_layout")
    if ours is not None and ours == theirs and layouts[0] != layouts[1]:
        yield _finding(
            "KV089", "hicache_mem_layout",
            f"both use the {ours} store, prefill in layout {layouts[0]} and decode in "
            f"{layouts[1]}: neither finds the other's pages",
            set_to(f"use {layouts[0]} on both", hicache_mem_layout=layouts[0]),
            severity=Severity.WARNING,
        )  # fmt: skip


CHECKS = (
    _roles, _models, _pages, _dtypes, _transfer, _layout, _context_parallel, _ports, _store,
)  # fmt: skip
"""What a pair must agree on, in the order in which the decode side would find out."""


def router_words(pair: Pair, prefill_host: str = "", decode_host: str = "") -> tuple[str, ...]:
    """The router's command; hosts default to this machine."""
    default = catalogue().defaults

    def port(draft: Draft, name: str) -> str:
        return str(draft.options.get(name, default[name]))

    ours = f"http://{prefill_host or '127.0.0.1'}:{port(pair.prefill, 'port')}"
    theirs = f"http://{decode_host or '127.0.0.1'}:{port(pair.decode, 'port')}"
    bootstrap = port(pair.prefill, "disaggregation_bootstrap_port")
    return (
        "python3", "-m", "sglang_router.launch_router", "--pd-disaggregation",
        "--prefill", ours, bootstrap, "--decode", theirs,
        "--policy", pair.router.policy,
        "--host", pair.router.host, "--port", str(pair.router.port),
    )  # fmt: skip
