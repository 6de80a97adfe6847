"""A launch command inside pasted text."""

from __future__ import annotations

import re
import shlex

from kvtui.core.argv import parse
from kvtui.core.draft import Draft
from kvtui.errors import InputError

_STARTS = re.compile(r"(?:^|[\s;&|])((?:\S+=\S+\s+)*\S*(?:sglang\s+serve|sglang\.launch_server)\b)")


def command_in(text: str) -> Draft | None:
    """The draft of the first SGLang command in `text`, or None where there is none."""
    joined = text.replace("\\\n", " ").replace("\\\r\n", " ")
    for line in joined.splitlines():
        if _STARTS.search(line) is None:
            continue
        try:
            draft = parse(shlex.split(line, comments=True))
        except (InputError, ValueError):
            continue
        if draft.model_path:
            return draft
    return None
