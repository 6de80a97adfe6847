"""An error that no rule and no table knows, explained by the options and classes it mentions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvtui.core.options import NEWEST, catalogue

CLASSES = {
    "MHATokenToKVPool": "the pool of models with K and V for each head",
    "MLATokenToKVPool": "the pool of models with multi-head latent attention: one latent a token",
    "DSATokenToKVPool": "the latent pool with index keys for DeepSeek sparse attention",
    "SWAKVPool": "the pair of pools of sliding-window models: full layers and window layers",
    "UnifiedSWAKVPool": "the sliding-window pools inside one shared buffer",
    "HybridLinearKVPool": "the pool of models that mix full and linear attention",
    "NoOpMHATokenToKVPool": "the pool without a cache, for --prefill-only-disable-kv-cache",
    "MHATokenToKOnlyPool": "a pool that keeps K and no V",
    "DeepSeekV4TokenToKVPool": "the compressed pools of DeepSeek-V4",
    "MiniMaxSparseKVPool": "the pools of MiniMax sparse attention",
    "HybridReqToTokenPool": "the request table of hybrid models, with their state slots",
    "MambaPool": "the state slots of linear-attention layers",
    "ReqToTokenPool": "the table from requests to token slots",
    "UnifiedKVPool": "one shared buffer for all pools, --enable-unified-memory",
    "MHATokenToKVPoolHost": "the host copy of the pool, for HiCache",
    "MLATokenToKVPoolHost": "the host copy of the latent pool, for HiCache",
    "HiCacheFile": "the file storage of HiCache",
    "MooncakeStore": "the mooncake storage of HiCache",
    "HiCacheHF3FS": "the 3FS storage of HiCache",
    "DecodeKVCacheOffloadManager": "the offload of decode servers",
    "HiSparseCoordinator": "the hierarchical sparse attention",
}
"""Classes whose names stand in errors, in a few words."""

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_NAME = re.compile(r"(?<![\w.-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_ENV = re.compile(r"\bSGLANG_[A-Z0-9_]+")


@dataclass(frozen=True, slots=True)
class Mentions:
    """What a text names that a launch can change, in order of appearance."""

    options: tuple[str, ...] = ()
    """SGLang's field names."""
    env: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.options or self.env or self.classes)


def mentions_in(text: str, version: str = NEWEST) -> Mentions:
    """Options, environment variables and pool classes that a text names."""
    known = catalogue(version)
    options: dict[str, int] = {}
    for match in _FLAG.finditer(text):
        option = known.by_flag.get(match.group().replace("_", "-"))
        if option is not None:
            options.setdefault(option.name, match.start())
    for match in _NAME.finditer(text):
        option = known.options.get(match.group())
        if option is not None and option.flags:
            options.setdefault(option.name, match.start())
    return Mentions(
        tuple(sorted(options, key=options.__getitem__)),
        tuple(dict.fromkeys(_ENV.findall(text))),
        tuple(name for name in CLASSES if re.search(rf"\b{name}\b", text)),
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """A turn of phrase of error messages, with what it means for the options in it."""

    pattern: re.Pattern[str]
    meaning: str
    change: str


def _shape(pattern: str, meaning: str, change: str) -> Shape:
    return Shape(re.compile(pattern, re.IGNORECASE), meaning, change)


SHAPES = (
    _shape(
        r"mutually exclusive|cannot be (?:combined|used (?:together )?with|set together)"
        r"|incompatible|conflicts? with|only one of",
        "{options} exclude one another",
        "leave out one of them",
    ),
    _shape(
        r"(?:is|are) not (?:yet )?supported|does not (?:yet )?support|do not support|unsupported"
        r"|not implemented|cannot (?:serve|use|run|share|build)|can't (?:use|run)",
        "{options}: not supported in this combination",
        "leave out {first}, or change what it is combined with",
    ),
    _shape(
        r"must (?:be )?(?:evenly )?divi|divisible|multiple of|must divide|page-aligned|aligned",
        "{options}: the sizes do not divide evenly",
        "choose sizes that divide one another",
    ),
    _shape(
        r"must be (?:>|<|≥|≤|between|in |positive|at least|greater|less|non-negative|set to|one of"
        r"|either|a |an |either)|must not exceed|should be|out of range|invalid value|exceeds"
        r"|expected",
        "{options}: the value is outside of what is allowed",
        "give {first} a value that the message names",
    ),
    _shape(
        r"only (?:supports?|supported|works?|applies|available|takes? effect)|is only|are only"
        r"|limited to",
        "{options}: works only in the setting that the message names",
        "leave out {first}, or bring about that setting",
    ),
    _shape(
        r"requires?|needs?|must be (?:set|specified|provided|enabled)|must (?:set|specify|have)"
        r"|please (?:set|specify|use|provide)|missing",
        "{options}: something that belongs to it is missing",
        "add what the message asks for, or leave out {first}",
    ),
    _shape(
        r"increase|raise|reduce|decrease|lower|not enough|too (?:small|large)|exhausted|fits? only"
        r"|leaves no room|cannot hold",
        "{options}: the memory or the size at hand does not suffice",
        "move {first} in the direction that the message names",
    ),
)
"""Turns of phrase, the most telling first."""


def meaning_of(text: str, mentions: Mentions) -> tuple[str, str]:
    """(meaning, what to change) of an error by its turn of phrase and the options in it."""
    known = catalogue().options
    flags = [known[name].flag for name in mentions.options[:4]] or list(mentions.env[:4])
    if not flags:
        held = ", ".join(f"{name} is {CLASSES[name]}" for name in mentions.classes[:3])
        return held or "no option of the launch is named", "compare the launch with kvtui check"
    named = " and ".join(flags)
    for shape in SHAPES:
        if shape.pattern.search(text):
            return (
                shape.meaning.format(options=named),
                shape.change.format(first=flags[0]),
            )
    return f"the message is about {named}", f"look at {flags[0]} first"
