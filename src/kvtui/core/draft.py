"""The draft: only what the user set, never what it works out to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kvtui.core.findings import Change, Value
from kvtui.core.values import is_flag_like

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MODEL_OPTIONS = ("model_path", "speculative_draft_model_path")
"""Options that name a checkpoint whose configuration the rules need."""

EMPTY: Mapping[str, Value] = MappingProxyType({})
EMPTY_TEXT: Mapping[str, str] = MappingProxyType({})


def _nothing() -> Mapping[str, Value]:
    return EMPTY


def _no_text() -> Mapping[str, str]:
    return EMPTY_TEXT


@dataclass(frozen=True, slots=True)
class Draft:
    """A launch as chosen: SGLang options by field name, environment, and the hardware meant.

    `options` holds raw choices, illegal ones included: the rules judge them.
    `unknown` keeps command-line words that no option of the engine takes, in order.
    """

    options: Mapping[str, Value] = field(default_factory=_nothing)
    env: Mapping[str, str] = field(default_factory=_no_text)
    gpu: str | None = None
    """Catalogue key of the GPU meant (`h200`), or None for the local one."""
    gpu_count: int | None = None
    """GPUs of that kind on the machine, or None for as many as are known."""
    unknown: tuple[str, ...] = ()
    spelled: Mapping[str, str] = field(default_factory=_no_text)
    """The flag that the user wrote for an option, where it was not the main one."""
    misread: Mapping[str, str] = field(default_factory=_no_text)
    """Why the file or text that an option names could not be read at all (`config`)."""

    @property
    def model_path(self) -> str | None:
        """The model as the user named it: folder, file or hub id."""
        value = self.options.get("model_path")
        return value if isinstance(value, str) else None

    def with_changes(self, changes: Iterable[Change]) -> Draft:
        """The draft after edits; setting an option to None takes it out.

        A change of `unknown:WORD` takes that word and the values behind it out of `unknown`.
        """
        options, env = dict(self.options), dict(self.env)
        spelled, misread = dict(self.spelled), dict(self.misread)
        unknown = self.unknown
        for change in changes:
            misread.pop(change.option, None)
            if change.option.startswith("unknown:"):
                unknown = _without(unknown, change.option.removeprefix("unknown:"))
            elif change.option.startswith("env:"):
                name = change.option.removeprefix("env:")
                if change.value is None:
                    env.pop(name, None)
                else:
                    env[name] = str(change.value)
            elif change.value is None:
                options.pop(change.option, None)
                spelled.pop(change.option, None)
            else:
                options[change.option] = change.value
                spelled.pop(change.option, None)
        return replace(
            self, options=options, env=env, spelled=spelled, unknown=unknown, misread=misread
        )

    @property
    def unknown_groups(self) -> tuple[tuple[str, ...], ...]:
        """The unknown words with the values that belong to each."""
        return unknown_groups(self.unknown)


def unknown_groups(words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Each word that looks like an option with the words behind it; stray words stand alone."""
    groups: list[list[str]] = []
    for word in words:
        if is_flag_like(word) or not groups or not is_flag_like(groups[-1][0]):
            groups.append([word])
        else:
            groups[-1].append(word)
    return tuple(map(tuple, groups))


def _without(words: tuple[str, ...], word: str) -> tuple[str, ...]:
    kept = list(unknown_groups(words))
    for group in kept:
        if group[0] == word:
            kept.remove(group)
            break
    return tuple(word for group in kept for word in group)
