"""What changed between two releases' options, and what that does to a launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvtui.core.draft import Draft


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


def touching(changes: Iterable[SchemaChange], draft: Draft, old: Schema, new: Schema) -> list[str]:
    """What the changes do to one launch: one line for each option of it that is concerned."""
    before, after = rows_by_name(old), rows_by_name(new)
    lines: list[str] = []
    for change in changes:
        value = draft.options.get(change.option)
        if change.kind == "default":
            if change.option not in draft.options:
                lines.append(change.text)
        elif change.option not in draft.options or change.kind == "came":
            continue
        elif change.kind == "choices":
            choices = after[change.option].get("choices")
            if choices and value not in choices and change.option in before:
                lines.append(f"{change.flag} {value}: no longer a choice")
        else:
            lines.append(change.text)
    return lines
