"""Numbers and values as short text, and the tone that goes with each state."""

from __future__ import annotations

import json
import re
from enum import StrEnum

from kvtui.core.facts import GIB, GpuFacts
from kvtui.core.findings import Change, Outcome, Severity, Value
from kvtui.core.options import catalogue
from kvtui.tui.session import GPU, GPU_COUNT

KIB = 1 << 10


class Tone(StrEnum):
    """What a colour says; each is a theme variable, so that every theme stays readable."""

    GOOD = "$text-success"
    WARN = "$text-warning"
    BAD = "$text-error"
    ASK = "$text-accent"
    KEY = "$text-primary"
    QUIET = "$kv-quiet"
    PLAIN = "$foreground"


OUTCOME_TONE = {Outcome.STARTS: Tone.GOOD, Outcome.FAILS: Tone.BAD, Outcome.UNKNOWN: Tone.ASK}
SEVERITY_TONE = {
    Severity.ERROR: Tone.BAD,
    Severity.WARNING: Tone.WARN,
    Severity.NOTE: Tone.QUIET,
}

HARDWARE_FLAGS = {GPU: "GPU", GPU_COUNT: "GPUs on the machine"}


def flag_of(option: str) -> str:
    """The name under which an option is shown: SGLang's flag, a variable, or our own word."""
    if option in HARDWARE_FLAGS:
        return HARDWARE_FLAGS[option]
    if option.startswith("env:"):
        return option.removeprefix("env:")
    known = catalogue().options.get(option)
    return known.flag if known else "--" + option.replace("_", "-")


def name_of(option: str) -> str:
    """Like `flag_of` without dashes, for narrow lists."""
    return flag_of(option).removeprefix("--")


def value_text(value: Value) -> str:
    """An option's value as one would type it; a bare word for switches."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value if value else '""'
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple) and all(isinstance(v, str | int | float) for v in value):
        return " ".join(str(v) for v in value)
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, default=str)
    return str(value)


def change_text(change: Change) -> str:
    """One edit of a fix in the spelling of the command line."""
    flag = flag_of(change.option)
    if change.value is None or change.value is False:
        return f"drop {flag}"
    if change.value is True:
        return flag
    joint = "=" if change.option.startswith("env:") else " "
    return f"{flag}{joint}{value_text(change.value)}"


def gib_text(size: float) -> str:
    """Bytes in GiB, one decimal below ten; host memories in TiB."""
    gib = size / GIB
    if abs(gib) >= 1024:
        return f"{gib / 1024:.1f} TiB"
    return f"{gib:.1f} GiB" if abs(gib) < 9.95 else f"{gib:,.0f} GiB"


def cell_text(size: int) -> str:
    """Bytes of one token: KiB from 10 KiB up, else bytes."""
    if size >= 10 * KIB:
        kib = size / KIB
        return f"{kib:,.0f} KiB" if kib == int(kib) or kib >= 100 else f"{kib:,.1f} KiB"
    return f"{size:,} B"


def count_text(number: int) -> str:
    """A count for a narrow column: thousands and millions shortened."""
    if number >= 10_000_000:
        return f"{number / 1e6:,.0f}M"
    if number >= 1_000_000:
        return f"{number / 1e6:.1f}M"
    if number >= 10_000:
        return f"{number / 1e3:.0f}k"
    return f"{number:,}"


def age_text(seconds: float) -> str:
    """How long ago something was."""
    if seconds < 5:
        return "just now"
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min ago"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.0f} h ago"
    return f"{seconds / 86400:.0f} d ago"


def gpu_text(gpu: GpuFacts, count: int = 1, times: str = "×") -> str:
    """A GPU with its count and memory as data sheets round it."""
    short = gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("AMD ")
    short = re.sub(r" \d+GB\b.*", "", short)
    return f"{count}{times} {short} · {memory_text(gpu)}"


def memory_text(gpu: GpuFacts) -> str:
    """A GPU's memory in whole GiB."""
    return f"{gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else "memory not known"


def plural(count: int, noun: str) -> str:
    """`1 warning`, `2 warnings`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
