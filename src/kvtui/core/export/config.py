"""SGLang's own `--config` file."""

from __future__ import annotations

import shlex
from typing import Any

from kvtui.core.command import option_words, ordered_names, word_of
from kvtui.core.export.job import ExportJob, commented, header, parts_of, refuse_unknown
from kvtui.core.export.yaml_text import dump
from kvtui.core.options import Option, catalogue
from kvtui.core.secrets import secrets_of
from kvtui.core.values import is_flag_like

ENV_MARK = "needs in the environment: "
ARGUMENT_MARK = "needs on the command line: "
"""Openings of the comments that carry what the file itself can't hold."""


def config_yaml(job: ExportJob) -> str:
    """The options as YAML; what the engine's reader refuses there is named in comments."""
    refuse_unknown(job)
    parts_of(job)
    known = catalogue().options
    secrets = set(secrets_of(job.draft))
    entries: dict[str, Any] = {}
    beside: list[str] = []
    for name in ordered_names(job.draft.options):
        option, value = known[name], job.draft.options[name]
        if name in secrets or not option.flags:
            beside.append(f"# {ARGUMENT_MARK}{option.flag} VALUE\n")
        elif not can_hold(option, value):
            words = " ".join(map(shlex.quote, option_words(option, value)))
            if words:
                beside.append(f"# {ARGUMENT_MARK}{_one_line(words)}\n")
        else:
            entries[option.flag.removeprefix("--")] = held(option, value)
    for name, text in sorted(job.draft.env.items()):
        shown = f"{name}=..." if f"env:{name}" in secrets else f"{name}={shlex.quote(text)}"
        beside.append(f"# {ENV_MARK}{_one_line(shown)}\n")
    use = f"Use: {' '.join(job.program)} --config {job.slug}.yaml"
    return commented([*header(job), use]) + "".join(beside) + dump(entries)


def _one_line(text: str) -> str:
    """Quoted words as one line of a comment: escaped where they hold what is not printable."""
    if text.isprintable():
        return text
    escaped = text.encode("unicode_escape").decode("ascii")
    return f"(escaped) {escaped}"


def can_hold(option: Option, value: Any) -> bool:
    """True where the engine's reader turns the file's entry into exactly this value."""
    if option.kind == "flag":
        return value is True
    if option.kind != "value":
        return False
    words = list(value) if isinstance(value, list | tuple) and option.many else [value]
    return bool(words) and not any(is_flag_like(word_of(word)) for word in words)


def held(option: Option, value: Any) -> Any:
    """The value as the file holds it: the reader turns it into text again."""
    if option.kind == "flag":
        return True
    if option.many:
        return [_scalar(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """Whole numbers as they are, the rest as text, which needs no second guess."""
    return value if isinstance(value, int) and not isinstance(value, bool) else word_of(value)
