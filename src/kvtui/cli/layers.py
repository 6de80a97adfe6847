"""The layers beyond the rules: build the pool, ask an engine."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from dataclasses import replace

from kvtui.cli.engine import add_engine_argument, say
from kvtui.core.evaluate import Report, evaluate
from kvtui.errors import InputError

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def add_layer_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that ask for the pool check and the engine's own verdict."""
    group = parser.add_argument_group("layers")
    group.add_argument("--pool", action="store_true", help="build the pool for real")
    group.add_argument(
        "--pool-python", metavar="PYTHON", help="a Python (or command) whose torch builds it"
    )
    group.add_argument("--pool-limit", metavar="SIZE", help="at most this much memory, such as 8G")
    group.add_argument("--full", action="store_true", help="build the planned size")
    add_engine_argument(parser)


def ask_layers(args: argparse.Namespace, report: Report) -> tuple[Report, bool]:
    """(report with the asked layers' facts, whether a probe broke)."""
    broke = False
    if args.pool or args.require == "pool":
        report, failed = _build_pool(args, report)
        broke = broke or failed
    wanted = args.engine or ("auto" if args.require == "engine" else "off")
    if wanted != "off":
        report, failed = _ask_engine(wanted, report)
        broke = broke or failed
    return report, broke


def _build_pool(args: argparse.Namespace, report: Report) -> tuple[Report, bool]:
    from kvtui.probe.pool.client import run_check
    from kvtui.probe.pool.plan_request import request_for

    if report.pool is None:
        say("pool: no pool is planned for this launch, so none was built")
        return report, False
    request = request_for(
        report,
        python=tuple(shlex.split(args.pool_python)) if args.pool_python else (),
        limit_bytes=size_of(args.pool_limit) if args.pool_limit else None,
        full=args.full,
    )
    outcome = run_check(request, lambda event: _tell(event.title, event.state))
    if outcome.error:
        say(f"pool: {outcome.error}")
    facts = replace(report.facts, pool=outcome.fact())
    return evaluate(report.draft, facts), not outcome.ok and outcome.kind != "refused"


def _tell(title: str, state: str) -> None:
    if title and state == "started" and sys.stderr.isatty():
        say(f"pool: {title}")


def _ask_engine(wanted: str, report: Report) -> tuple[Report, bool]:
    from kvtui.probe.engine.client import EngineError, EngineProbe
    from kvtui.probe.engine.discover import find_engine
    from kvtui.probe.engine.facts import ask_engine, claim_of

    engine = find_engine(wanted)
    if engine is None:
        say("engine: no SGLang was found here; name one with --engine PYTHON")
        return report, False

    async def ask() -> Report:
        probe = EngineProbe(engine, claim_of(report.facts))
        try:
            fact = await ask_engine(probe, report, pool=True, on_progress=say)
        finally:
            await probe.close()
        facts = replace(report.facts, engine=fact, engine_version=fact.version)
        return evaluate(report.draft, facts)

    try:
        return asyncio.run(ask()), False
    except EngineError as error:
        say(f"engine: {error}")
        return report, True


def size_of(text: str) -> int:
    """Bytes of a size such as 512M, 8G or 8GiB; raises InputError."""
    number = text.strip().lower().removesuffix("ib").removesuffix("b")
    unit = number[-1:] if number[-1:].isalpha() else ""
    try:
        size = int(float(number.removesuffix(unit)) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise InputError(f"{text}: a size such as 512M or 8G was expected") from None
    if size < 1:
        raise InputError(f"{text}: a size above zero was expected")
    return size
