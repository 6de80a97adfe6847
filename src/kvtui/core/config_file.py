"""The YAML file of `--config`, merged into the command line as the engine does it.

Mirrors `srt/utils/server_args_config_parser.py` of 0.5.23: the file's entries become words before
all others, so that the command line wins; keys are written out as they stand, without a check.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvtui.core.options import Catalogue, Option


class ConfigFileError(ValueError):
    """The engine would stop on this configuration file; the message says why."""


def merge_config_file(
    words: tuple[str, ...], known: Catalogue, read_file: Callable[[str], str]
) -> tuple[str, ...]:
    """The words with those of the file in front; raises ConfigFileError."""
    path = config_path(words)
    index = words.index("--config")
    return (
        *config_words(read_config(path, read_file), known),
        *words[:index],
        *words[index + 2 :],
    )


def config_path(words: tuple[str, ...]) -> str:
    """The file that `--config` names; raises ConfigFileError where the engine would not open it."""
    if words.count("--config") > 1:
        raise ConfigFileError("--config is given more than once; the engine takes one file")
    index = words.index("--config")
    if index == len(words) - 1:
        raise ConfigFileError("--config needs a file behind it")
    path = words[index + 1]
    if not path.lower().endswith((".yaml", ".yml")):
        raise ConfigFileError(f"{path}: the name of a configuration ends in .yaml or .yml")
    return path


def read_config(path: str, read_file: Callable[[str], str]) -> Mapping[Any, Any]:
    """The mapping in a configuration file; raises ConfigFileError."""
    try:
        text = read_file(path)
    except Exception as error:  # whatever the caller's reader raises, the file can't be read
        reason = getattr(error, "strerror", None) or str(error) or "it can't be read as text"
        raise ConfigFileError(reason if path in reason else f"{path}: {reason}") from None
    return parse_config(text, path)


def parse_config(text: str, path: str) -> Mapping[Any, Any]:
    """The mapping in the text of a configuration file; raises ConfigFileError."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        raise ConfigFileError(f"{path}: no valid YAML{place}") from None
    except (RecursionError, ValueError):
        raise ConfigFileError(f"{path}: no valid YAML") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigFileError(f"{path}: expected options and values at the top level")
    return found


def config_words(config: Mapping[Any, Any], known: Catalogue) -> Iterator[str]:
    """The words that the entries of a configuration file become; raises ConfigFileError."""
    readable = _by_key(known)
    for key, value in config.items():
        if not isinstance(key, str):
            raise ConfigFileError(f"the key {key!r} is not text")
        option = readable.get(key.replace("-", "_"))
        if option is not None and not _can_stand_in_file(option):
            raise ConfigFileError(f"{key} can't stand in a configuration file, only in the command")
        if isinstance(value, bool):
            if option is not None and option.kind == "flag":
                yield from (f"--{key}",) if value else ()
            else:
                yield from (f"--{key}", str(value).lower())
        elif isinstance(value, list):
            yield from (f"--{key}", *map(str, value)) if value else ()
        elif isinstance(value, dict):
            yield from (f"--{key}", json.dumps(value, default=str))
        else:
            yield from (f"--{key}", str(value))


def _by_key(known: Catalogue) -> dict[str, Option]:
    keys: dict[str, Option] = {}
    for flag, option in known.by_flag.items():
        if option.name != "config":
            keys.setdefault(flag[2:].replace("-", "_"), option)
    for option in known.options.values():
        if option.flags and option.name != "config":
            keys.setdefault(option.name, option)
    return keys


def _can_stand_in_file(option: Option) -> bool:
    """The engine's merger knows plain flags and options with a value only."""
    return option.kind in ("flag", "value", "deprecated_const")
