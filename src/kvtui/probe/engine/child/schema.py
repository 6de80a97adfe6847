"""The question `schema`: every option as this engine's own parser declares it."""

from __future__ import annotations

import argparse
import json
from typing import Any

KINDS = {
    "_StoreAction": "value", "_StoreTrueAction": "flag", "_StoreFalseAction": "flag",
    "BooleanOptionalAction": "switch", "DeprecatedStoreTrueAction": "deprecated_flag",
    "DeprecatedStoreConstAction": "deprecated_const", "DeprecatedAction": "deprecated_flag",
    "DeprecatedAliasStoreAction": "value", "LoRAPathAction": "lora_paths",
    "_AppendAction": "value", "_StoreConstAction": "flag",
}  # fmt: skip
"""Our word for each argparse action of the releases that we know."""


def schema(_: dict[str, Any]) -> dict[str, Any]:
    """`engine_version` and `options`, the latter as the stored tables hold them."""
    import sglang
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    groups = _groups(ServerArgs)
    rows = [_option(action, groups) for action in parser._actions if action.dest != "help"]
    named = {row["name"] for row in rows}
    for name, default in fields_of(ServerArgs):
        if name not in named:
            rows.append(
                {
                    "name": name,
                    "flags": [],
                    "kind": "internal",
                    "group": groups.get(name, ""),
                    "help": "",
                    "default": plain(default),
                }
            )
    return {"engine_version": sglang.__version__, "options": rows}


def _option(action: Any, groups: dict[str, str]) -> dict[str, Any]:
    """One option; fields at their usual value are left out."""
    word = type(action).__name__
    kind = KINDS.get(word, "value")
    row: dict[str, Any] = {
        "name": action.dest,
        "flags": list(action.option_strings),
        "kind": kind,
        "group": groups.get(action.dest, ""),
        "help": " ".join((action.help or "").replace("%%", "%").split()),
    }
    if kind in ("value", "lora_paths"):
        row["type"] = getattr(action.type, "__name__", None) or "str"
    if action.nargs not in (None, 0):
        row["nargs"] = action.nargs
    if action.choices is not None:
        ordered = sorted(action.choices) if isinstance(action.choices, set) else action.choices
        row["choices"] = [plain(choice) for choice in ordered]
    const = getattr(action, "const_value", None) if kind == "deprecated_const" else action.const
    if const is not None and kind in ("value", "deprecated_const"):
        row["const"] = plain(const)
    if action.default is not None and action.default is not argparse.SUPPRESS:
        row["default"] = plain(action.default)
    if action.required:
        row["required"] = True
    if getattr(action, "new_flag", None):
        row["new_flag"] = action.new_flag
    if word not in KINDS:
        row["action"] = word
    return row


def _groups(record: Any) -> dict[str, str]:
    try:
        from sglang.srt.arg_groups.arg_utils import namespace_of

        return dict(namespace_of(record))
    except ImportError:
        return {}


def fields_of(record: Any) -> list[tuple[str, Any]]:
    """(name, default) of every field that the engine's arguments have."""
    import dataclasses

    try:
        from sglang.srt.arg_groups.arg_utils import record_fields

        fields = record_fields(record)
    except ImportError:
        fields = dataclasses.fields(record)
    rows = []
    for field in fields:
        default = getattr(field, "default", None)
        known = isinstance(default, str | int | float | bool | list | dict)
        rows.append((field.name, default if known else None))
    return rows


def plain(value: Any) -> Any:
    """The value where JSON can hold it, else its text."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return sorted(value) if isinstance(value, set | frozenset) else str(value)
    return value
