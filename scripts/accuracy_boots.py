"""Boot logs as data: what was launched, what it printed, and what kvtui predicts for it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kvtui.core.argv import parse
from kvtui.core.capacity.predict import predict
from kvtui.core.capacity.result import Capacity, Printed
from kvtui.core.capacity.versions import parse_version, version_at
from kvtui.core.draft import Draft
from kvtui.core.facts import GIB, Checkpoint, Facts, GpuFacts, MissingFact
from kvtui.core.gpus import find_gpu
from kvtui.core.options import catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.resolution import Resolution
from kvtui.core.translate import changes_for, translations

MODEL = "model"
DRAFT = "draft"
UNIFIED = ("gb10", "jetson", "orin", "thor")
"""GPUs that share their memory with the system."""
FOREIGN = ("ascend", "dcu", "xpu", "tpu")
"""Devices whose pools and overheads are not modelled."""
FORMATS = ("fp8", "fp4", "awq", "gptq", "int4", "int8", "gguf", "w4a", "w8a", "quantised", "-bnb")
"""Words in a model's name that change its weights."""
STATED = ("explicit", "printed", "default")
"""Sources of a memory fraction that is known, not solved from the token count."""
STAND_IN = GpuFacts("h100", "stand-in", "nvidia", (9, 0), 81559)
"""Decides kernels where a log names no GPU; its memory is not used."""


@dataclass(frozen=True, slots=True)
class Boot:
    """One row of a file of boot logs."""

    row: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Where the log comes from."""
        return str(self.row["source"])

    @property
    def extra(self) -> Mapping[str, Any]:
        """Figures that not every log prints."""
        found: Mapping[str, Any] = self.row.get("extra") or {}
        return found

    @property
    def version(self) -> tuple[int, int, int]:
        """The engine's version, the newest release of that day where the log names none."""
        return parse_version(self.row.get("version")) or version_at(self.row.get("date"))

    @property
    def gpu_name(self) -> str:
        """The GPU as the log's reader wrote it down."""
        return str(self.row.get("gpu") or "")

    @property
    def is_unified(self) -> bool:
        """True where GPU and system share memory."""
        return any(word in self.gpu_name.lower() for word in UNIFIED)

    @property
    def is_modelled(self) -> bool:
        """True for a GPU of a kind that kvtui models, used by this boot alone."""
        name = self.gpu_name.lower()
        return bool(name) and not any(word in name for word in (*FOREIGN, "shared"))

    @property
    def is_discrete(self) -> bool:
        """True for such a GPU with memory of its own."""
        return self.is_modelled and bool(self.row.get("gpu_mem_gib")) and not self.is_unified

    @property
    def is_capped(self) -> bool:
        """True where an option, not memory, sets the token count."""
        return bool(self.extra.get("capped"))

    @property
    def is_patched(self) -> bool:
        """True for an engine with pools that no release had."""
        version, model = str(self.row.get("version")), str(self.row["model"])
        return "patch" in version or "through the Transformers" in model

    @property
    def begin(self) -> float | None:
        """Printed free GiB before weights are loaded."""
        return self._number("load_weight_begin_avail")

    @property
    def end(self) -> float | None:
        """Printed free GiB after."""
        return self._number("load_weight_end_avail")

    @property
    def weights(self) -> float | None:
        """Printed GiB of weights on one rank."""
        stated = self._number("weight_mem_usage")
        if stated is None and self.begin is not None and self.end is not None:
            return self.begin - self.end
        return stated

    @property
    def tokens(self) -> int | None:
        """Printed tokens of the pool."""
        found = self.row.get("tokens")
        return None if found is None else int(found)

    @property
    def requests(self) -> int | None:
        """Printed limit of running requests."""
        found = self.row.get("max_running_requests")
        return None if found is None else int(found)

    @property
    def fraction(self) -> float | None:
        """The memory fraction where flags or log state it."""
        formula = self.extra.get("formula") or {}
        if formula.get("fraction_source") in STATED:
            return float(formula["mem_fraction_static"])
        return None

    @property
    def died(self) -> bool:
        """True where the boot ended for want of memory before it printed a pool."""
        words = ("refused to", "out of memory", "oom", "died", "did not start")
        note = str(self.row.get("note") or "").lower()
        return self.tokens is None and any(word in note for word in words)

    def _number(self, field: str) -> float | None:
        found = self.row.get(field)
        return None if found is None else float(found)


def read_boots(path: Path) -> list[Boot]:
    """The rows of a file with a JSON object a line."""
    return [Boot(json.loads(line)) for line in path.read_text().splitlines() if line.strip()]


# Models -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """A model's configuration, and whether it was derived rather than read."""

    checkpoint: Checkpoint
    derived: bool


class Models:
    """Finds configurations: the table beside this script, the catalogue, a folder of models."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._found: dict[str, Known | None] = {}

    def find(self, name: str) -> Known | None:
        """The model that a log's name means, or None."""
        if name not in self._found:
            self._found[name] = self._look(name)
        return self._found[name]

    def _look(self, name: str) -> Known | None:
        exact = self._checkpoint(name)
        if exact is not None:
            return Known(exact, False)
        for row in _table():
            if any(word in name.lower() for word in row["match"]):
                return self._patched(name, row)
        return _loosely(name)

    def _patched(self, name: str, row: Mapping[str, Any]) -> Known | None:
        base = self._checkpoint(row["base"]) if "base" in row else None
        if "base" in row and base is None:
            return None
        config = _merged(base.config if base else {}, row.get("config", {}))
        keeps = base is not None and "quantization_config" not in row.get("config", {})
        found = Checkpoint(
            name=name,
            key=f"bootlog:{name}",
            config=_with_layer_types(config),
            quant_config=base.quant_config if base is not None and keeps else None,
        )
        return Known(found, bool(row.get("derived")))

    def _checkpoint(self, name: str) -> Checkpoint | None:
        from kvtui.core.model.catalogue import find

        return find(name) or self._from_folder(name)

    def _from_folder(self, name: str) -> Checkpoint | None:
        if self._folder is None:
            return None
        folder = self._folder / name.replace("/", "--")
        if not (folder / "config.json").is_file():
            return None
        quant = folder / "hf_quant_config.json"
        return Checkpoint(
            name=name,
            key=str(folder),
            config=json.loads((folder / "config.json").read_text()),
            quant_config=json.loads(quant.read_text()) if quant.is_file() else None,
        )


def _loosely(name: str) -> Known | None:
    """The catalogue model whose name a longer one contains, in the same number format."""
    from kvtui.core.model.catalogue import models

    lowered = name.lower()
    found = [one for one in models() if one.name.rpartition("/")[2].lower() in lowered]
    if not found:
        return None
    best = max(found, key=lambda one: len(one.name.rpartition("/")[2]))
    rest = lowered.replace(best.name.rpartition("/")[2].lower(), "")
    if any(word in rest for word in FORMATS) or re.match(r"[\w.]", rest.rpartition("/")[2]):
        return None
    return Known(best.checkpoint, False)


@cache
def _table() -> tuple[Mapping[str, Any], ...]:
    path = Path(__file__).with_name("bootlog_models.toml")
    return tuple(tomllib.loads(path.read_text())["model"])


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in changes.items():
        old = found.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        found[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return found


def _with_layer_types(config: dict[str, Any]) -> dict[str, Any]:
    """Write the layer pattern out that the table abbreviates."""
    text = config.get("text_config", {})
    layers = text.pop("every_sixth_layer_is_full", None) if text else None
    if layers:
        text["layer_types"] = [
            "full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)
        ]
    return config


# Predictions ------------------------------------------------------------------------------------


def _draft(boot: Boot) -> Draft:
    """Today's options for the words of the log's day."""
    draft = parse(list(boot.row.get("argv") or ()))
    for group in draft.unknown:
        old = translations().option(group[0])
        if old is not None:
            draft = draft.with_changes(changes_for(old, group, draft))
    options = dict(draft.options)
    for option, value in list(options.items()):
        today = translations().value(option, value if isinstance(value, str) else None)
        if today is not None and today.to:
            options[option] = today.to[0]
    options["model_path"] = MODEL
    drafts = options.get("speculative_algorithm") in ("DFLASH", "DSPARK", "EAGLE3")
    if "speculative_draft_model_path" in options or drafts:
        options["speculative_draft_model_path"] = DRAFT
    if boot.extra.get("page_size"):
        options.setdefault("page_size", int(boot.extra["page_size"]))
    return replace(draft, options=options, unknown=())


def _gpu(boot: Boot) -> GpuFacts:
    name = boot.gpu_name
    memory = boot.row.get("gpu_mem_gib")
    first = re.sub(r"\(.*|shared.*|class.*|card.*", "", name).strip()
    found = find_gpu(first) or STAND_IN
    if not memory:
        return found
    return replace(
        found,
        name=name or "a card",
        memory_mib=round(float(memory) * 1024),
        unified_memory=boot.is_unified,
    )


def resolved(boot: Boot, known: Known, draft_known: Known | None = None) -> Resolution:
    """The launch of the log, resolved by today's rules for its engine version."""
    checkpoints = {MODEL: known.checkpoint}
    if draft_known is not None:
        checkpoints[DRAFT] = draft_known.checkpoint
    facts = Facts(
        checkpoints=checkpoints,
        gpu=_gpu(boot),
        gpu_count=int(boot.row.get("num_gpus") or 8),
        engine_version=".".join(map(str, boot.version)),
    )
    draft = _draft(boot)
    raw = {**catalogue().defaults, **draft.options}
    r = Resolution(draft, facts, raw, None)
    for part in PIPELINE:
        try:
            part.run(r)
        except Exception:  # a rule about something else must not hide the capacity
            continue
    return r


def printed_capacity(boot: Boot, r: Resolution) -> Capacity:
    """The capacity from the free memory that the log prints."""
    begin = boot.begin * GIB if boot.begin is not None else None
    end = boot.end * GIB if boot.end is not None else None
    return predict(r, Printed(begin, end, boot.fraction))


def own_capacity(r: Resolution) -> Capacity:
    """The capacity from configuration, flags and GPU alone."""
    return predict(r)


def guarded(run: Any, *arguments: Any) -> Capacity | None:
    """A prediction, or None where something it needs is not known."""
    try:
        found: Capacity = run(*arguments)
    except (MissingFact, ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return found


def printed_prices(boot: Boot) -> Iterator[tuple[str, float]]:
    """(name, bytes) of one token on one rank as the printed pool sizes give them."""
    sizes = boot.extra.get("bytes_per_token") or {}
    plain = sum(float(sizes[key]) for key in ("k", "v", "kv") if key in sizes)
    if plain:
        yield "token", plain
    for kind in ("full", "swa"):
        parts = [float(sizes[f"{kind}_{key}"]) for key in ("k", "v") if f"{kind}_{key}" in sizes]
        if parts:
            yield kind, sum(parts)
