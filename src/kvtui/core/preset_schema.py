"""The JSON Schema of presets, so that editors complete and check them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kvtui.core.options import NEWEST, Option, catalogue
from kvtui.core.preset import SCHEMA, Meta, Proof
from kvtui.core.secrets import SECRET_OPTIONS

_TYPES: dict[str, dict[str, Any]] = {
    "int": {"type": "integer"},
    "human_readable_int": {"type": "integer"},
    "float": {"type": "number"},
    "loads": {"type": ["object", "string"]},
    "json_list_type": {"type": ["array", "string"]},
    "parse_cuda_graph_config_arg": {"type": ["object", "string"]},
    "lora": {"type": ["string", "object"]},
}
_TEXT: dict[str, Any] = {"type": "string"}


def option_schema(option: Option) -> dict[str, Any]:
    """The schema of one option's value."""
    schema: dict[str, Any]
    if option.is_bool:
        schema = {"type": "boolean"}
    else:
        schema = dict(_TYPES.get(option.reader, _TEXT))
        if option.choices is not None:
            schema = {"enum": list(option.choices)}
        if option.many:
            schema = {"type": "array", "items": schema}
            if option.nargs == "+":
                schema["minItems"] = 1
    if option.help:
        schema["description"] = option.help
    if option.deprecated:
        schema["deprecated"] = True
    return schema


def _record(kind: type[Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field in fields(kind):
        annotation = str(field.type)
        if annotation.startswith("tuple"):
            properties[field.name] = {"type": "array", "items": _TEXT}
        else:
            properties[field.name] = {"type": "integer"} if annotation == "int" else _TEXT
    return _object(properties, required)


def _object(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def preset_schema(version: str = NEWEST) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a preset for one engine release."""
    launch = {
        option.name: option_schema(option)
        for option in catalogue(version).options.values()
        if option.flags and option.name != "config" and option.name not in SECRET_OPTIONS
    }
    count = {"type": "integer", "minimum": 1, "maximum": 4096}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kvtui preset for SGLang {version}",
        **_object(
            {
                "schema": {"const": SCHEMA},
                "meta": _record(Meta),
                "hardware": _object({"gpu": _TEXT, "count": count}),
                "launch": _object(launch),
                "env": {"type": "object", "additionalProperties": _TEXT},
                "proof": _record(Proof, ("digest",)),
            }
        ),
    }
