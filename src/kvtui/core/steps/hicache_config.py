"""The storage back end's own configuration: JSON text, or a file that HiCache reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kvtui.core.findings import Fix, Value, drop, set_to

CONFIG = "hicache_storage_backend_extra_config"
OBJECT_FIX: tuple[Fix, ...] = (
    drop(CONFIG, title="drop the store's configuration (its defaults apply)"),
)
FILE_SUFFIXES = (".json", ".toml", ".yaml", ".yml")
"""Files that HiCache reads after `@`. Source: hybrid_cache_controller.py:386-399."""
CONTROL_KEYS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "prefetch_threshold": ((int,), "a whole number of tokens"),
    "prefetch_timeout_base": ((int, float), "a number of seconds"),
    "prefetch_timeout_per_ki_token": ((int, float), "a number of seconds"),
    "hicache_storage_pass_prefix_keys": ((bool,), "true or false"),
}
"""Keys that HiCache takes out for itself. Source: hybrid_cache_controller.py:404-432."""
DYNAMIC_KEYS = ("backend_name", "module_path", "class_name")
"""Keys that back end `dynamic` can't do without. Source: storage/backend_factory.py:126."""


@lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[Any, str | None]:
    try:
        return json.loads(text), None
    except ValueError as error:
        return None, str(error)


def read_json(text: Value) -> tuple[Any, str | None]:
    """(value, None) of JSON text, or (None, complaint)."""
    if not isinstance(text, str):
        return None, f"it is {text!r}, not text"
    return _parsed(text)


def names_file(text: Value) -> bool:
    """True where the configuration is a file that the engine opens at start."""
    return isinstance(text, str) and text.startswith("@")


def file_complaint(text: str) -> str | None:
    """What is wrong with the file's name; its content is known on the launch machine only."""
    name = text[1:]
    if not name.strip():
        return "no file is named after @"
    if not name.lower().endswith(FILE_SUFFIXES):
        return f"{name} is none of {', '.join(FILE_SUFFIXES)}"
    return None


def control_complaints(config: Any) -> Iterator[str]:
    """Values of a wrong type among the keys that HiCache takes for itself."""
    if not isinstance(config, dict):
        yield f"it must be a JSON object, not {type(config).__name__}"
        return
    for key, (types, wanted) in CONTROL_KEYS.items():
        if key in config and not isinstance(config[key], types):
            yield f"{key} is {config[key]!r}; it must be {wanted}"


def store_complaints(backend: Value, config: Any, tp_size: Value) -> Iterator[str]:
    """What the store named `backend` refuses about its configuration object."""
    if not isinstance(config, dict):
        yield f"it must be a JSON object, not {type(config).__name__}"
        return
    lcm = config.get("tp_lcm_size")
    if lcm and isinstance(lcm, int) and isinstance(tp_size, int) and tp_size and lcm % tp_size:
        yield f"tp_lcm_size {lcm} is no multiple of --tp-size {tp_size}"
    if backend == "dynamic":
        missing = [key for key in DYNAMIC_KEYS if key not in config]
        if missing:
            yield f"its configuration lacks {', '.join(missing)}"
    if backend == "nixl" and not isinstance(config.get("l3_cleaner_enabled", True), bool):
        yield "l3_cleaner_enabled must be true or false"


def dynamic_example() -> Fix:
    """The fix that shows what back end `dynamic` is told."""
    text = json.dumps(
        {"backend_name": "mine", "module_path": "package.module", "class_name": "MyStorage"}
    )
    return set_to("name the class that implements the store", **{CONFIG: text})
