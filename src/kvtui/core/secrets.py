"""What must never leave this machine inside a preset, a share code or a header."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvtui.core.draft import Draft

SECRET_OPTIONS = frozenset(
    ("api_key", "admin_api_key", "ssl_keyfile_password", "watermark_key", "watermark_key_b")
)
"""Options whose value is a secret by itself."""

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:token|tokens|secret|password|passwd|credential|credentials|apikey"
    r"|api[_-]key|access[_-]key|secret[_-]key|auth[_-]key)(?:$|[_-])",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"://[^/\s:@]+:[^/\s@]+@")


def is_secret_name(name: str) -> bool:
    """True where an environment variable or a JSON key by that name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """(key, text) of everything inside a value; JSON in text is looked into."""
    if isinstance(value, dict):
        for key, item in value.items():
            for inner, text in _texts(item):
                yield inner or str(key), text
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        if value[:1] in "{[":
            try:
                yield from _texts(json.loads(value))
            except (ValueError, RecursionError):
                yield "", value
        else:
            yield "", value


def holds_secret(option: str, value: Any) -> bool:
    """True where an option's value is a secret or has one inside."""
    if option in SECRET_OPTIONS:
        return True
    return any(
        (key and is_secret_name(key)) or _USER_INFO.search(text) for key, text in _texts(value)
    )


def secrets_of(draft: Draft) -> tuple[str, ...]:
    """Names of options and environment variables (`env:NAME`) that hold a secret."""
    options = (name for name, value in draft.options.items() if holds_secret(name, value))
    env = (
        f"env:{name}"
        for name, value in draft.env.items()
        if is_secret_name(name) or _USER_INFO.search(value)
    )
    return (*options, *env)


def without_secrets(draft: Draft) -> Draft:
    """The draft with every secret taken out."""
    names = set(secrets_of(draft))
    if not names:
        return draft
    return replace(
        draft,
        options={k: v for k, v in draft.options.items() if k not in names},
        env={k: v for k, v in draft.env.items() if f"env:{k}" not in names},
    )
