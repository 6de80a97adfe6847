"""How one option's text is read and what values it takes: the single validation.

Mirrors the converters that the engine hands to argparse (`srt/utils/common.py` and
`srt/model_executor/cuda_graph_config.py` of 0.5.23).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kvtui.core.graphs import GraphConfigError, check_graph_config, parse_graph_config

SUFFIXES = {
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
"""Suffixes of human-readable integers; case counts, and only SI ones go with a decimal point."""

_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")


def read_int(text: str) -> int:
    """An integer as Python reads it; raises ValueError."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def read_float(text: str) -> float:
    """A number as Python reads it; raises ValueError."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def read_human_int(text: str) -> int:
    """An integer with an optional suffix (`25.6k`, `1Mi`); raises ValueError."""
    text = text.strip()
    match = _SUFFIXED.fullmatch(text)
    if match is None:
        try:
            return int(text)
        except ValueError:
            raise ValueError(
                "expected a whole number, also with a suffix k, M, G, T, Ki, Mi, Gi or Ti"
            ) from None
    number, suffix = match.groups()
    if "." in number and suffix.endswith("i"):
        raise ValueError(f"a decimal point does not go with {suffix}, only with {suffix[0]}")
    return int(Decimal(number) * SUFFIXES[suffix])


def read_json(text: str) -> Any:
    """Any JSON value; raises ValueError with the place of the fault."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON, found a fault: {_fault(error)}") from None


def _fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at character {error.pos + 1}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_nullable(text: str) -> str | None:
    """Text, where an empty one or `None` stands for nothing."""
    return None if text in ("", "None") else text


def read_lora(text: str) -> Any:
    """A LoRA adapter: a path, `NAME=PATH`, or JSON with lora_name and lora_path."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return text
    found = read_json(text)
    if not {"lora_path", "lora_name"} <= set(found):
        raise ValueError("expected JSON with the keys lora_name and lora_path")
    return found


def read_graph_config(text: str) -> Any:
    """The JSON of `--cuda-graph-config`; raises ValueError."""
    try:
        return parse_graph_config(text)
    except GraphConfigError as error:
        raise ValueError(str(error)) from None


def read_graph_backend(text: str) -> str:
    """A graph backend; raises ValueError for the one that was removed."""
    if text == "tc_piecewise":
        raise ValueError("tc_piecewise was removed; full, breakable and disabled remain")
    return text


READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": read_int,
    "float": read_float,
    "human_readable_int": read_human_int,
    "loads": read_json,
    "json_list_type": read_json,
    "nullable_str": read_nullable,
    "parse_cuda_graph_config_arg": read_graph_config,
    "parse_cuda_graph_backend_arg": read_graph_backend,
    "lora": read_lora,
}
"""Reader of one word by the engine's converter name."""

JSON_TYPES = frozenset(("loads", "json_list_type", "parse_cuda_graph_config_arg"))
"""Converters whose values are JSON, not words."""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value as short text for a message."""
    text = json.dumps(value, default=str) if not isinstance(value, str) else value
    return text if len(text) <= 60 else text[:57] + "..."


def _int_problem(value: Any) -> str | None:
    return None if _is_int(value) else f"{shown(value)} is not a whole number"


def _human_problem(value: Any) -> str | None:
    if _is_int(value):
        return None
    if isinstance(value, str):
        try:
            read_human_int(value)
        except ValueError as error:
            return f"{shown(value)} is no size: {error}"
    return f"{shown(value)} is not a whole number"


def _float_problem(value: Any) -> str | None:
    return None if _is_number(value) else f"{shown(value)} is not a number"


def _str_problem(value: Any) -> str | None:
    return None if isinstance(value, str) else f"{shown(value)} is not text"


def _json_problem(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        read_json(value)
    except ValueError as error:
        return f"{shown(value)}: {error}"
    return f"{shown(value)} is text, not a JSON object or list"


def _graph_problem(value: Any) -> str | None:
    try:
        parse_graph_config(value) if isinstance(value, str) else check_graph_config(value)
    except GraphConfigError as error:
        return str(error)
    return None


def _lora_problem(value: Any) -> str | None:
    if isinstance(value, str):
        try:
            read_lora(value)
        except ValueError as error:
            return f"{shown(value)}: {error}"
        return None
    if isinstance(value, dict) and {"lora_path", "lora_name"} <= set(value):
        return None
    return f"{shown(value)} is neither a path nor an object with lora_name and lora_path"


PROBLEMS: dict[str, Callable[[Any], str | None]] = {
    "int": _int_problem,
    "float": _float_problem,
    "human_readable_int": _human_problem,
    "loads": _json_problem,
    "json_list_type": _json_problem,
    "parse_cuda_graph_config_arg": _graph_problem,
    "lora": _lora_problem,
}
"""What is wrong with one value, by converter name; text is the rule for all others."""


def word_problem(type_name: str, value: Any) -> str | None:
    """What is wrong with one value of that converter, or None."""
    return PROBLEMS.get(type_name, _str_problem)(value)


_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


def is_flag_like(word: str) -> bool:
    """True where argparse takes a word that is no known option for an option, not a value."""
    return (
        len(word) > 1
        and word[0] == "-"
        and " " not in word
        and not _NEGATIVE_NUMBER.fullmatch(word)
    )
