"""Bytes of weights on one rank: from tensor headers where read, else from the architecture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvtui.core.capacity.figures import Figure, estimated
from kvtui.core.capacity.inventory import Inventory, inventory
from kvtui.core.capacity.parts import Part
from kvtui.core.capacity.quantized import Scheme, scheme_of
from kvtui.core.derived import whole
from kvtui.core.model.config import ModelConfig, checkpoint_config

if TYPE_CHECKING:
    from kvtui.core.facts import Checkpoint
    from kvtui.core.model.request import ModelRequest
    from kvtui.core.resolution import Resolution

TYPICAL_ERROR = 0.015
"""Likely relative error of an estimate from the architecture (docs/accuracy.md)."""
INDEXED_ERROR = 0.008
"""The same where the checkpoint's size is known and only its split over ranks is modelled."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes by the way that ranks share them."""

    whole_ranks: float = 0.0
    """Split over all tensor-parallel ranks."""
    attn: float = 0.0
    expert: float = 0.0
    shared: float = 0.0
    vocab: float = 0.0
    head: float = 0.0
    vision: float = 0.0
    every: float = 0.0
    """Held by every rank."""
    kv: tuple[tuple[int, float], ...] = ()
    """(heads, bytes) of projections that split down to one head."""

    @property
    def total(self) -> float:
        """Bytes of the unsplit model."""
        plain = (self.whole_ranks, self.attn, self.expert, self.shared, self.vocab, self.head)
        return sum(plain) + self.vision + self.every + sum(size for _, size in self.kv)


FIELDS = {
    "tp": "whole_ranks", "attn": "attn", "expert": "expert", "shared": "shared",
    "vocab": "vocab", "head": "head", "vision": "vision", "all": "every",
}  # fmt: skip


def _shares(rows: list[tuple[Part, float]]) -> Shares:
    sums = dict.fromkeys(FIELDS.values(), 0.0)
    kv: dict[int, float] = {}
    for part, size in rows:
        if part.split == "kv":
            kv[part.units] = kv.get(part.units, 0.0) + size
        else:
            sums[FIELDS[part.split]] += size
    return Shares(**sums, kv=tuple(kv.items()))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint's bytes, per layer and outside, with the draft layer apart."""

    layers: tuple[Shares, ...]
    inside: Shares
    """All layers together."""
    outside: Shares
    draft: Shares
    params: int
    guessed: tuple[str, ...]

    @property
    def total(self) -> float:
        """Bytes without the draft layer."""
        return self.inside.total + self.outside.total


def _sized(parts: tuple[Part, ...], path: str, scheme: Scheme) -> list[tuple[Part, float]]:
    return [
        (part, part.params * scheme.bytes_for(path, part.name, part.linear, part.split == "expert"))
        for part in parts
    ]


@lru_cache(maxsize=1024)
def _loaded(checkpoint: Checkpoint, request: ModelRequest) -> Loaded:
    model = checkpoint_config(checkpoint, request)
    listed, scheme = inventory(model), scheme_of(model)
    prefix = scheme.prefix or listed.prefix
    sized = [_sized(parts, f"{prefix}.{i}.", scheme) for i, parts in enumerate(listed.layers)]
    outside = _outside(listed, scheme, prefix)
    draft_path = f"{prefix}.{len(listed.layers)}."
    guessed = listed.guessed
    if not scheme.known:
        guessed += (f"the format of {model.quantization} weights",)
    return Loaded(
        layers=tuple(_shares(rows) for rows in sized),
        inside=_shares([row for rows in sized for row in rows]),
        outside=_shares(outside),
        draft=_shares(_sized(listed.draft, draft_path, scheme)),
        params=listed.params,
        guessed=guessed,
    )


def _outside(listed: Inventory, scheme: Scheme, prefix: str) -> list[tuple[Part, float]]:
    rows = []
    base = prefix.removesuffix("layers")
    for part in listed.outside:
        if part.split == "vision":
            size = scheme.bytes_for("", f"{part.name}_tower", False, False)
        elif part.name == "lm_head":
            size = (scheme.table or {}).get("lm_head", scheme.plain)
        else:
            size = scheme.bytes_for(base, part.name, part.linear, False)
        rows.append((part, part.params * size))
    return rows


def loaded(model: ModelConfig) -> Loaded:
    """The model's bytes, cached by what they depend on; raises on odd configurations."""
    request = replace(model.request, **BESIDE_WEIGHTS)
    return _loaded(model.checkpoint, request)


BESIDE_WEIGHTS: dict[str, Any] = {
    "context_length": None,
    "disable_hybrid_swa_memory": False,
    "is_embedding": False,
    "longer_context_allowed": False,
}
"""Parts of a request that leave the weights alone, at their usual values."""


@dataclass(frozen=True, slots=True)
class Widths:
    """How many ways each kind of weight is split."""

    tp: int
    attn: int
    expert: int
    shared: int
    vocab: int
    head: int
    vision: int
    expert_extra: float = 1.0
    """Redundant experts, as a factor on expert bytes."""


REPLICATED_SHARED = frozenset(
    {"deepep", "mooncake", "nixl", "ascend_fuseep", "megamoe", "mori", "flashinfer"}
)
"""Expert exchanges under which every rank holds the shared experts (models/deepseek_v2.py)."""


def widths(r: Resolution, attn_tp: int, experts: int, times: int = 1) -> Widths:
    """Splits of the launch, or of the same one over `times` as many ranks."""
    tp, attn_tp = max(1, whole(r.tp_size, 1)) * times, attn_tp * times
    moe_dp = max(1, whole(r.moe_dp_size, 1))
    spread = r.moe_a2a_backend in REPLICATED_SHARED
    redundant = whole(r.ep_num_redundant_experts)
    return Widths(
        tp=tp,
        attn=attn_tp,
        expert=max(1, tp // moe_dp),
        shared=1 if spread else tp,
        vocab=attn_tp,
        head=attn_tp if r.enable_dp_lm_head else tp,
        vision=1 if r.mm_enable_dp_encoder else tp,
        expert_extra=1 + redundant / experts if experts and redundant else 1.0,
    )


def rank_bytes(shares: Shares, w: Widths) -> float:
    """Bytes of one rank."""
    kv = sum(size * max(1, heads // w.attn) / heads for heads, size in shares.kv if heads)
    return (
        shares.whole_ranks / w.tp
        + shares.attn / w.attn
        + shares.expert * w.expert_extra / w.expert
        + shares.shared / w.shared
        + shares.vocab / w.vocab
        + shares.head / w.head
        + shares.vision / w.vision
        + shares.every
        + kv
    )


def stage_bytes(model: Loaded, w: Widths, start: int, end: int, stages: int) -> float:
    """Bytes of one rank of a pipeline stage with layers `start` to `end`."""
    if stages <= 1:
        return rank_bytes(model.inside, w) + rank_bytes(model.outside, w)
    inside = sum(rank_bytes(one, w) for one in model.layers[start:end])
    first, last = start == 0, end >= len(model.layers)
    out = model.outside
    edges = out.vocab / w.vocab * (first or (last and not out.head))
    edges += out.head / w.head * last + (out.vision / w.vision + out.every) * first
    return inside + edges


def _stored(model: ModelConfig, bytes_model: Loaded) -> list[float]:
    """Sizes that a checkpoint can have: with its draft layer, with a head that is tied anyway."""
    found = [bytes_model.total]
    if model.num_nextn_predict_layers:
        found.append(bytes_model.total + bytes_model.draft.total)
    if not bytes_model.outside.head:
        found += [one + bytes_model.outside.vocab for one in found]
    return found


def scaled(model: ModelConfig, bytes_model: Loaded, rank: float) -> Figure:
    """A rank's share as a figure, scaled to the checkpoint's stated size where it is known."""
    stated = model.checkpoint.weight_bytes
    if stated and bytes_model.total:
        nearest = min(_stored(model, bytes_model), key=lambda one: abs(one - stated))
        factor = stated / nearest
        if 0.9 < factor < 1.1:
            return estimated(rank * factor, rank * INDEXED_ERROR)
    return estimated(rank, rank * TYPICAL_ERROR)
