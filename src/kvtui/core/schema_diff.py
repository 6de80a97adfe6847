"""What changed between two releases' options, and what that does to a launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.options import catalogue


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference: kind is came | went | choices | default | deprecated | spelling."""

    kind: str
    option: str
    """Field name."""
    flag: str
    text: str


Schema = Mapping[str, Any]
"""What an engine answers to `schema`: engine_version, options (a list of rows)."""


def rows_by_name(schema: Schema) -> dict[str, Mapping[str, Any]]:
    """The options that a command line can name; the first row of a name is the main one."""
    rows: dict[str, Mapping[str, Any]] = {}
    for row in schema["options"]:
        if row.get("flags"):
            rows.setdefault(row["name"], row)
    return rows


def diff_schemas(old: Schema, new: Schema) -> tuple[SchemaChange, ...]:
    """Changes from `old` to `new`, by option name."""
    before, after = rows_by_name(old), rows_by_name(new)
    changes: list[SchemaChange] = []
    for name in sorted(set(before) | set(after)):
        if name not in after:
            flag = before[name]["flags"][0]
            changes.append(SchemaChange("went", name, flag, f"{flag} is gone"))
        elif name not in before:
            flag = after[name]["flags"][0]
            changes.append(SchemaChange("came", name, flag, f"{flag} is new"))
        else:
            changes.extend(_row_changes(name, before[name], after[name]))
    return tuple(changes)


def _row_changes(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[SchemaChange]:
    flag = new["flags"][0]
    for gone in [f for f in old["flags"] if f not in new["flags"]]:
        yield SchemaChange("spelling", name, gone, f"the spelling {gone} is gone, use {flag}")
    for fresh in [f for f in new["flags"] if f not in old["flags"]]:
        yield SchemaChange("spelling", name, fresh, f"{fresh} is a new spelling of {flag}")
    choices = [row.get("choices") for row in (old, new)]
    if choices[0] != choices[1]:
        lost = [c for c in choices[0] or () if c not in (choices[1] or ())]
        won = [c for c in choices[1] or () if c not in (choices[0] or ())]
        parts = [f"without {_join(lost)}"] if lost and choices[1] else []
        parts += [f"with {_join(won)}"] if won and choices[0] else []
        if parts:
            yield SchemaChange("choices", name, flag, f"{flag} now {', '.join(parts)}")
        elif not choices[1]:
            yield SchemaChange("choices", name, flag, f"{flag} takes any value now")
        elif not choices[0]:
            yield SchemaChange("choices", name, flag, f"{flag} takes only {_join(won)} now")
    if old.get("default") != new.get("default"):
        text = f"{flag} defaults to {new.get('default')!r}, was {old.get('default')!r}"
        yield SchemaChange("default", name, flag, text)
    if _deprecated(new) and not _deprecated(old):
        instead = f", use {new['new_flag']}" if new.get("new_flag") else ""
        yield SchemaChange("deprecated", name, flag, f"{flag} is deprecated{instead}")


def _deprecated(row: Mapping[str, Any]) -> bool:
    return str(row.get("kind", "")).startswith("deprecated") or str(
        row.get("help", "")
    ).lower().startswith(("deprecated", "[deprecated"))


def _join(values: Iterable[Any]) -> str:
    return ", ".join(str(value) for value in values)


def touching(
    changes: Iterable[SchemaChange], draft: Draft, old: Schema, new: Schema
) -> tuple[SchemaChange, ...]:
    """The changes that concern one launch, worded for it.

    A changed default concerns a launch that leaves the option alone, every other change one that
    names it, also where the newest release no longer knows the word.
    """
    before, after = rows_by_name(old), rows_by_name(new)
    named = {*draft.options, *_old_names(draft, before)}
    found: list[SchemaChange] = []
    for change in changes:
        value = draft.options.get(change.option)
        if change.kind == "default":
            if change.option not in named:
                found.append(change)
        elif change.option not in named or change.kind == "came":
            continue
        elif change.kind == "choices":
            choices = after[change.option].get("choices")
            if choices and value not in choices and change.option in before:
                found.append(replace(change, text=f"{change.flag} {value}: no longer a choice"))
        elif change.kind != "spelling" or _written(draft, change) == change.flag:
            found.append(change)
    return tuple(found)


def _written(draft: Draft, change: SchemaChange) -> str:
    """How the launch spells the option that a change is about."""
    known = catalogue().options.get(change.option)
    return draft.spelled.get(change.option, known.flag if known is not None else change.flag)


def _old_names(draft: Draft, before: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Options of the old release among the words that the newest does not know."""
    words = {group[0].partition("=")[0] for group in draft.unknown_groups}
    return {name for name, row in before.items() if words & set(row["flags"])} if words else set()
