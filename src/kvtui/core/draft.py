"""The draft: only what the user set, never what it works out to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kvtui.core.findings import Change, Value

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

    @property
    def model_path(self) -> str | None:
        """The model as the user named it: folder, file or hub id."""
        value = self.options.get("model_path")
        return value if isinstance(value, str) else None

    def with_changes(self, changes: Iterable[Change]) -> Draft:
        """The draft after edits; setting an option to None takes it out."""
        options, env = dict(self.options), dict(self.env)
        spelled = dict(self.spelled)
        for change in changes:
            if change.option.startswith("env:"):
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
        return replace(self, options=options, env=env, spelled=spelled)
