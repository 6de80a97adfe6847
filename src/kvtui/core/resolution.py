"""Working state of one evaluation: raw input, values resolved so far, and their origins.

The engine keeps what the user asked for apart from what its hooks declare, in order, last one
wins (`srt/arg_groups/pipeline.py`, `model_override_base.py` of 0.5.23). This mirrors that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts, MissingFact
from kvtui.core.findings import Finding, Fix, Severity, Stage, Value

if TYPE_CHECKING:
    from kvtui.core.model.config import ModelConfig
    from kvtui.core.platform import Platform
    from kvtui.core.pools.spec import PoolPlan


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a resolved value comes from."""

    kind: str
    """chosen | default | forced | respelled."""
    why: str = ""
    source: str = ""
    """file:line in the engine's `srt` folder."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Token and request budget that the described buffers are sized for."""

    tokens: int | None = None
    mamba_slots: int | None = None
    max_running_requests: int | None = None


class Resolution:
    """One launch being resolved. Read an option as an attribute (`r.page_size`): the value
    that the engine would see at this point. `r.raw` is what the user gave, over defaults.

    Steps change values only through `declare`, which records why.
    """

    def __init__(
        self,
        draft: Draft,
        facts: Facts,
        raw: Mapping[str, Value],
        sizing: Sizing | None = None,
    ) -> None:
        self.draft = draft
        self.facts = facts
        self.raw = SimpleNamespace(**raw)
        self.values: dict[str, Value] = dict(raw)
        self.origins: dict[str, Origin] = {}
        self.sizing = sizing or Sizing()
        self.findings: list[Finding] = []
        self.unknowns: list[str] = []
        self.missing: dict[str, str] = {}
        self.scratch: dict[str, Any] = {}
        """What one step leaves for a later one, where the engine keeps it outside its options
        (environment switches that a hook sets, graph settings, pool geometry)."""
        self.pool: PoolPlan | None = None
        self.env: dict[str, str] = dict(draft.env)
        self._source = ""
        self.__dict__.update(raw)  # plain attributes: rules read thousands of them

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no option named {name}")

    def chose(self, name: str) -> bool:
        """True where the user set the option."""
        return name in self.draft.options

    def declare(self, why: str, /, **values: Value) -> None:
        """Set resolved values; `why` reads after "because" and is shown to the user."""
        self._set("forced", why, values)

    def default(self, why: str, /, **values: Value) -> None:
        """Like `declare`, for a value that the engine fills in where the user gave none."""
        self._set("default", why, values)

    def respell(self, why: str, /, **values: Value) -> None:
        """Like `declare`, where the engine writes the same choice in other words."""
        self._set("respelled", why, values)

    def _set(self, kind: str, why: str, values: Mapping[str, Value]) -> None:
        origin = Origin(kind, why, self._source)
        for name, value in values.items():
            if name not in self.values:
                raise AttributeError(f"no option named {name}")
            self.values[name] = self.__dict__[name] = value
            self.origins[name] = origin

    def origin(self, name: str) -> Origin:
        """The origin of an option's present value."""
        found = self.origins.get(name)
        if found is not None:
            return found
        return Origin("chosen") if self.chose(name) else Origin("default")

    def doubt(self, reason: str) -> None:
        """Record that the rules can't know the outcome (a plug-in, an unknown architecture)."""
        if reason not in self.unknowns:
            self.unknowns.append(reason)

    @property
    def backends(self) -> tuple[str | None, str | None]:
        """(prefill, decode) attention backend; each falls back to the common one."""
        common = self.values["attention_backend"]
        return (
            self.values["prefill_attention_backend"] or common,
            self.values["decode_attention_backend"] or common,
        )

    @property
    def model(self) -> ModelConfig:
        """The model's resolved configuration; raises MissingFact."""
        held = self.scratch.get("model_config")
        if held is not None and held[0] == self.model_path:  # rules ask for it a hundred times
            found: ModelConfig = held[1]
            return found
        from kvtui.core.model.config import model_of

        return model_of(self)

    @property
    def platform(self) -> Platform:
        """What the GPU is, in the engine's terms; raises MissingFact."""
        cached = self.scratch.get("platform")
        if cached is None:
            from kvtui.core.platform import Platform

            gpu = self.facts.gpu
            if gpu is None:
                raise MissingFact("gpu", self.facts.missing.get("gpu", "no GPU was named or found"))
            cached = self.scratch["platform"] = Platform(gpu, self.facts.gpu_count)
        return cached

    def env_flag(self, name: str, default: bool = False) -> bool:
        """An environment switch as the engine reads booleans."""
        text = self.env.get(name)
        return default if text is None else text.strip().lower() in ("1", "true", "yes", "y", "on")

    def env_int(self, name: str, default: int) -> int:
        """An integer environment value; text that is no integer counts as the default."""
        try:
            return int(self.env.get(name, default))
        except ValueError:
            return default


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule yields: a message, fixes, and where it deviates from the rule's own frame."""

    message: str
    fixes: tuple[Fix, ...] = ()
    severity: Severity | None = None
    option: str | None = None
    stage: Stage | None = None


def hit(
    message: str,
    *fixes: Fix,
    option: str | None = None,
    stage: Stage | None = None,
    severity: Severity | None = None,
) -> Hit:
    """A violated condition of the rule at hand."""
    return Hit(message, fixes, severity, option, stage)


RuleBody = Callable[[Resolution], Iterator[Hit]]
StepBody = Callable[[Resolution], None]


@dataclass(frozen=True, slots=True)
class Example:
    """A launch on which a rule fires: arguments, a catalogue model and GPU, environment."""

    argv: str
    model: str = "Qwen/Qwen3-8B"
    gpu: str = "h100"
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that the engine (or the GPU) refuses, with everything its page says."""

    id: str
    name: str
    body: RuleBody
    stage: Stage
    option: str | None
    severity: Severity
    source: str
    example: Example | None
    doc: str
    fragments: tuple[str, ...] = ()
    """Short distinctive fragments of the engine's message, for `kvtui explain`."""
    since: str | None = None
    until: str | None = None

    def run(self, r: Resolution) -> None:
        """Evaluate on `r` and append findings there."""
        for found in self.body(r):
            r.findings.append(
                Finding(
                    self.id,
                    found.severity or self.severity,
                    found.stage or self.stage,
                    found.option or self.option,
                    found.message,
                    found.fixes,
                )
            )


@dataclass(frozen=True, slots=True)
class Step:
    """A named part of the engine's resolution that fills in or rewrites values."""

    name: str
    body: StepBody
    source: str

    def run(self, r: Resolution) -> None:
        """Resolve on `r`."""
        r._source = self.source
        self.body(r)


Part = Rule | Step


def rule(
    id: str,
    *,
    stage: Stage,
    option: str | None,
    source: str,
    example: Example | None = None,
    severity: Severity = Severity.ERROR,
    fragments: tuple[str, ...] = (),
    since: str | None = None,
    until: str | None = None,
) -> Callable[[RuleBody], Rule]:
    """Declare a rule: a generator over `Resolution` that yields a `hit` per violation.

    The docstring's first sentence is the title; `Why:` and `Fix:` paragraphs make the page.
    `source` is file:line in the engine's `srt` folder.
    """

    def wrap(body: RuleBody) -> Rule:
        return Rule(
            id, body.__name__, body, stage, option, severity, source, example,
            body.__doc__ or "", fragments, since, until,
        )  # fmt: skip

    return wrap


def step(source: str) -> Callable[[StepBody], Step]:
    """Declare a resolution step; `source` is file:line in the engine's `srt` folder."""

    def wrap(body: StepBody) -> Step:
        return Step(body.__name__, body, source)

    return wrap
