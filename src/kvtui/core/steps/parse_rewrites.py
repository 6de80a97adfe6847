"""The one rule that names every silent rewrite: asked X, the engine runs Y, because why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtui.core.findings import Severity, Stage, set_to
from kvtui.core.options import catalogue
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.values import shown


@rule(
    "KV090",
    stage=Stage.RESOLVE,
    option=None,
    severity=Severity.WARNING,
    source="arg_groups/pipeline.py:22",
    example=Example("--attention-backend fa3 --kv-cache-dtype fp8_e5m2"),
)
def silent_rewrite(r: Resolution) -> Iterator[Hit]:
    """The engine replaces a value that was asked for.

    Why: hooks of the resolution set what a model, a GPU or another option needs; the launch
    goes on with that value, and at most a line of the log says so.
    Fix: write the value that runs, or leave the option out.
    """
    known = catalogue().options
    for name, asked in r.draft.options.items():
        origin = r.origins.get(name)
        option = known.get(name)
        if origin is None or option is None or origin.kind not in ("forced", "respelled"):
            continue
        runs = r.values[name]
        if _same(asked, runs) or option.problem(asked) is not None:
            continue
        if origin.kind == "respelled":
            told = f"{option.flag} {shown(asked)} runs as {_shown_run(runs)}: {origin.why}"
            yield hit(told, option=name, severity=Severity.NOTE)
            continue
        because = f", because {origin.why}" if origin.why else ""
        fixes = () if runs is None else (set_to(f"write {shown(runs)}", **{name: runs}),)
        yield hit(
            f"{option.flag} {shown(asked)} was asked, the engine runs {_shown_run(runs)}{because}",
            *fixes,
            set_to(f"leave {option.flag} to the engine", **{name: None}),
            option=name,
        )


def _same(asked: Any, runs: Any) -> bool:
    return bool(asked == runs) or (isinstance(asked, str) and str(runs).lower() == asked.lower())


def _shown_run(value: Any) -> str:
    return "without it" if value is None else shown(value)


SILENT_REWRITES: tuple[Part, ...] = (silent_rewrite,)
