"""All rules as a book: one page a rule, made from the rule itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from kvtui.core.pipeline import PIPELINE
from kvtui.core.releases import since_of
from kvtui.core.render import flag_of
from kvtui.core.resolution import Rule

WHEN = {
    "parse": "while the command line is read",
    "resolve": "while arguments are resolved",
    "check": "while arguments are checked",
    "pool": "when the KV pools are built",
    "offload": "when decode offload starts",
    "load": "after the weights load",
    "serve": "at graph capture or at the first request",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A rule in words."""

    id: str
    title: str
    why: str
    fix: str
    option: str | None
    stage: str
    severity: str
    source: str
    example: str | None
    since: str | None
    until: str | None


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule once, by id."""
    found = {part.id: part for part in PIPELINE if isinstance(part, Rule)}
    return tuple(found[id] for id in sorted(found, key=_order))


def _order(id: str) -> tuple[str, int]:
    letters = id.rstrip("0123456789")
    return letters, int(id.removeprefix(letters) or 0)


def find_rule(id: str) -> Rule | None:
    """The rule of an id, case ignored."""
    return next((rule for rule in rules() if rule.id == id.strip().upper()), None)


def page_of(rule: Rule) -> Page:
    """A rule's page: title, why, fix from its docstring, the rest from its declaration."""
    paragraphs = [" ".join(p.split()) for p in inspect.cleandoc(rule.doc).split("\n\n")]
    parts = {"why": "", "fix": ""}
    title = paragraphs[0] if paragraphs else rule.name
    for paragraph in paragraphs[1:]:
        name, colon, text = paragraph.partition(":")
        if colon and name.lower() in parts:
            parts[name.lower()] = text.strip()
        else:
            parts["why"] = f"{parts['why']} {paragraph}".strip()
    example = None
    if rule.example is not None:
        env = "".join(f"--env {k}={v} " for k, v in rule.example.env.items())
        example = (
            f"kvtui check --gpu {rule.example.gpu} {env}-- --model-path {rule.example.model} "
            f"{rule.example.argv}".rstrip()
        )
    return Page(
        rule.id, title, parts["why"], parts["fix"], flag_of(rule.option), rule.stage.value,
        rule.severity.value, rule.source, example, rule.since or since_of(rule.id), rule.until,
    )  # fmt: skip


def page_lines(page: Page) -> Iterator[str]:
    """A page as plain lines."""
    yield f"{page.id}  {page.title}"
    yield f"  {page.severity}, {WHEN[page.stage]}" + (f", {page.option}" if page.option else "")
    for name in ("why", "fix"):
        text = getattr(page, name)
        if text:
            yield f"  {name}: {text}"
    yield f"  source: srt/{page.source} (SGLang 0.5.23)"
    if page.since or page.until:
        yield f"  releases: {page.since or 'any'} to {page.until or 'now'}"
    if page.example:
        yield f"  example: {page.example}"


def as_markdown() -> str:
    """docs/rules.md."""
    lines = [
        "# Rules",
        "",
        "Made by `kvtui rules --markdown`; do not edit. `source` is a place in SGLang 0.5.23.",
        "",
    ]
    for rule in rules():
        page = page_of(rule)
        lines += [f"## {page.id}: {page.title}", ""]
        option = f" · `{page.option}`" if page.option else ""
        lines += [f"{page.severity}, {WHEN[page.stage]}{option} · source `{page.source}`", ""]
        if page.why:
            lines += [f"**Why.** {page.why}", ""]
        if page.fix:
            lines += [f"**Fix.** {page.fix}", ""]
        if page.since or page.until:
            lines += [f"**Releases.** {page.since or 'any'} to {page.until or 'now'}", ""]
        if page.example:
            lines += ["```sh", page.example, "```", ""]
    return "\n".join(lines).rstrip() + "\n"
