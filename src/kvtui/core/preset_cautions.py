"""What a preset or a share code from somebody else asks for that deserves a second look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.options import catalogue

RUNS_CODE = {
    "trust_remote_code": "Python files that lie with the model run on this machine",
    "custom_weight_loader": "a Python function of its choice loads the weights",
    "forward_hooks": "Python functions of its choice run in each forward pass",
    "sidecar": "another program is started beside the server",
    "tool_server": "a tool server is connected",
    "enable_custom_logit_processor": "requests may bring Python code along",
    "warmups": "warm-up functions of its choice run at start",
}
"""Options that let code run that the launch or its model brings along."""

MODEL_FOLDERS = frozenset(("model_path", "speculative_draft_model_path", "tokenizer_path"))
"""Options that name a folder of the user's own, wherever it lies."""

LISTENS = ("0.0.0.0", "::")
"""Hosts that open the server to the network."""

_UP = re.compile(r"(?:^|[/\\@])\.\.(?:[/\\]|$)")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def forbidden_path(value: Any) -> str | None:
    """A path inside a value that climbs out of the folder it starts in, or None."""
    return next((text for text in _texts(value) if _UP.search(text)), None)


def cautions_of(draft: Draft) -> tuple[str, ...]:
    """One line for each thing worth a look before the launch runs."""
    return tuple(_cautions(draft))


def _cautions(draft: Draft) -> Iterator[str]:
    known = catalogue().options
    for name, what in RUNS_CODE.items():
        if draft.options.get(name):
            yield f"{known[name].flag}: {what}"
    if draft.options.get("host") in LISTENS:
        yield "--host: the server listens on every network of this machine"
    for name, value in draft.options.items():
        for text in _texts(value):
            if text.removeprefix("@").startswith(("/", "~")) or _UP.search(text):
                flag = known[name].flag if name in known else name
                yield f"{flag}: names a path outside the preset, {text[:120]}"
    for name in draft.env:
        if name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PATH"):
            yield f"{name}: changes which code is loaded"
