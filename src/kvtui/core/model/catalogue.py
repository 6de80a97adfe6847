"""The offline catalogue: released models by their public facts, without their weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kvtui.core.facts import Checkpoint


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One released model: its hub id, what kind it is, and the keys that decide its memory."""

    name: str
    """Hub id."""
    tags: tuple[str, ...]
    """dense | moe | mla | dsa | swa | hybrid | vlm | embedding | quantized."""
    config: Mapping[str, Any]
    """What the engine reads of its config.json."""
    quant_config: Mapping[str, Any] | None = None
    """hf_quant_config.json, where it has one."""
    weight_bytes: int | None = None
    """Bytes of all tensors, where they were stated."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The model as a checkpoint to judge launches of."""
        return Checkpoint(
            name=self.name,
            key=f"catalogue:{self.name}",
            config=self.config,
            quant_config=self.quant_config,
            weight_bytes=self.weight_bytes,
            origin="catalogue",
        )


@cache
def models() -> tuple[CatalogueModel, ...]:
    """All models, by name."""
    path = resources.files("kvtui.core.tables") / "models.json"
    found: dict[str, CatalogueModel] = {}
    for row in json.loads(path.read_text(encoding="utf-8"))["models"]:
        found[row["id"]] = _of_row(row, found)
    return tuple(sorted(found.values(), key=lambda one: one.name.lower()))


def _of_row(row: Mapping[str, Any], known: Mapping[str, CatalogueModel]) -> CatalogueModel:
    """A row as a model; one with a `base` is that model but for the keys that it names."""
    if "base" not in row:
        tags, config = tuple(row["tags"]), row["config"]
        return CatalogueModel(
            row["id"], tags, config, row.get("quant_config"), row.get("weight_bytes")
        )
    base = known[row["base"]]
    merged = {**base.config, **row.get("config", {})}
    same = "config" not in row
    return CatalogueModel(
        row["id"],
        tuple(row.get("tags", base.tags)),
        {key: value for key, value in merged.items() if value is not None},
        row.get("quant_config", base.quant_config),
        base.weight_bytes if same else None,
    )


@cache
def find(name: str) -> Checkpoint | None:
    """The model of that hub id, else of that id in other case, else the only one that ends so."""
    if not name:
        return None
    exact = next((one for one in models() if one.name == name), None)
    if exact is not None:
        return exact.checkpoint
    wanted = name.lower()
    same = [one for one in models() if one.name.lower() == wanted]
    ends = [one for one in models() if one.name.lower().split("/")[-1] == wanted]
    found = same or ends
    return found[0].checkpoint if len(found) == 1 else None
