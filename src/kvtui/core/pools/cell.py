"""Bytes that the engine's sizing charges for one token of capacity (its cell size).

Mirrors `DefaultPoolConfigurator` and `HybridSWAPoolConfigurator` of
srt/model_executor/pool_configurator.py (0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.core.pools.geometry import FP4, Geometry
from kvtui.core.pools.layouts import MXFP8_BLOCK
from kvtui.core.pools.recipes import BLOCK, fp4_cell_bytes
from kvtui.core.pools.sparse import (
    MSA_PAGE,
    index_layers,
    index_token_bytes,
    latent_dim,
    minimax_index_dtype,
    minimax_layers,
    minimax_native_nvfp4,
    msa_row_bytes,
    qsa_profile,
)

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution


def split_layers(g: Geometry, layers: int) -> int:
    """Layers that one rank pays for when a DSA cache is split over context-parallel ranks."""
    if g.layer_shard <= 1 or g.hisparse_ratio:
        return layers
    return max(1, -(-layers // g.layer_shard) + 1)


def priced_layers(g: Geometry) -> int:
    """Layers with keys and values on the stage."""
    return len(g.kv_layer_ids) if g.mambaish is not None else g.layers


def index_cell(r: Resolution, g: Geometry, layers: int, *, every_layer: bool = False) -> int:
    """Index keys of `layers` DSA layers (pool_configurator.py:558)."""
    ratio = max(1, g.hisparse_ratio)
    if every_layer or g.hisparse_ratio:
        active = layers
    else:
        skipped = index_layers(r, g)
        active = len(skipped) - sum(skipped) if len(skipped) == layers else layers
        if g.layer_shard > 1:
            active = _most_owned(skipped, g.layer_shard) + 1
    return index_token_bytes(g) * active * ratio


def _most_owned(skipped: tuple[bool, ...], ranks: int) -> int:
    base, extra = divmod(len(skipped), ranks)
    most, first = 0, 0
    for rank in range(ranks):
        last = first + base + (rank < extra)
        most = max(most, sum(not one for one in skipped[first:last]))
        first = last
    return most


def _mla_cell(r: Resolution, g: Geometry, layers: int) -> int:
    paid = split_layers(g, layers)
    cell = latent_dim(r, g) * paid * g.item_bytes
    if g.kv_dtype == FP4:
        cell = cell // 2 + g.latent // BLOCK * paid * g.item_bytes
    if g.dsa:
        cell += index_cell(r, g, layers) * g.dcp
    return cell


def _minimax_cell(r: Resolution, g: Geometry) -> int:
    kinds = minimax_layers(g)
    heads, dim = int(g.model.get_num_kv_heads(g.attn_tp)), int(g.model.head_dim)
    if minimax_native_nvfp4(r, g):
        return kinds.sparse * sum(msa_row_bytes(heads, dim, kinds.index_dim)) // MSA_PAGE
    ratio = max(1, g.hisparse_ratio)
    main = (kinds.dense * ratio + kinds.sparse) * 2 * heads * dim * g.item_bytes
    item = 1 if minimax_index_dtype(r, g).startswith("float8") else 2
    index = (kinds.index_kv * 2 + kinds.index_k) * kinds.index_dim * item
    return main + index * ratio


def target_cell(r: Resolution, g: Geometry) -> int:
    """The target model's share, drafts not counted (pool_configurator.py:339)."""
    layers = priced_layers(g)
    if g.mla:
        cell = _mla_cell(r, g, layers)
    elif g.minimax:
        return _minimax_cell(r, g)
    else:
        dims = int(g.model.head_dim) + int(g.model.v_head_dim)
        if g.fp4 is not None:
            cell = fp4_cell_bytes(g.fp4, g.heads, int(g.model.head_dim), split_layers(g, layers))
        else:
            cell = g.heads * dims * split_layers(g, layers) * g.item_bytes
        if g.mxfp8:
            cell += g.heads * dims * layers // MXFP8_BLOCK
    profile = qsa_profile(r, g) if layers else None
    return cell + (profile.token_bytes * layers if profile else 0)


def with_draft(r: Resolution, g: Geometry, cell: int) -> int:
    """`cell` plus what a draft model's cache costs a token (pool_configurator.py:253)."""
    draft, layers = g.draft, priced_layers(g)
    if draft is None or not draft.layers or layers <= 0:
        return cell
    if draft.eagle_like:
        ratio = max(1, g.hisparse_ratio)
        if g.dsa:
            index = index_cell(r, g, layers) * g.dcp
            latent = int((cell - index) * draft.layers / split_layers(g, layers)) * ratio
            return cell + (latent + index_cell(r, g, draft.layers, every_layer=True)) * g.dcp
        return cell + int(cell * draft.layers / layers) * ratio
    if draft.cell_bytes:
        return cell + draft.cell_bytes * g.dcp
    total = layers + draft.layers * g.dcp
    return (cell * total + layers - 1) // layers


def default_cell(r: Resolution, g: Geometry) -> int:
    """Cell size of plain, MLA, sparse and hybrid recurrent models."""
    return with_draft(r, g, target_cell(r, g))


@dataclass(frozen=True, slots=True)
class WindowCell:
    """Prices of a model with sliding-window layers."""

    full: int
    """Bytes of one token in one full-attention layer."""
    swa: int
    full_layers: int
    swa_layers: int
    draft_full: int
    draft_swa: int
    draft_swa_full: int
    """Sliding draft layers that are sized for the whole context."""
    draft_bytes: int

    @property
    def full_bytes(self) -> int:
        """Bytes of one token over all full layers, drafts counted."""
        return self.full * (self.full_layers + self.draft_full)

    @property
    def swa_bytes(self) -> int:
        """Bytes of one sliding token over all sliding layers, drafts counted."""
        return self.swa * (self.swa_layers + self.draft_swa)

    @property
    def fixed(self) -> int:
        """What a token costs besides the two pools."""
        return self.swa * self.draft_swa_full + self.draft_bytes

    def cell(self, ratio: float) -> float:
        """Budget bytes that one token of capacity costs at a sliding-to-full ratio."""
        if self.full_layers == 0:
            drafts = self.full * self.draft_full + self.swa * self.draft_swa
            return self.swa * self.swa_layers + drafts + self.fixed
        return self.full_bytes + self.fixed + ratio * self.swa_bytes


def window_cell(r: Resolution, g: Geometry) -> WindowCell:
    """Prices of the full and the sliding pool (pool_configurator.py:685)."""
    model, item = g.model, g.item_bytes
    if g.mla:
        full = latent_dim(r, g) * item + (index_token_bytes(g) if g.dsa else 0)
        swa = g.swa_latent * item
    else:
        full_items = int(model.get_num_kv_heads(g.attn_tp)) * (
            int(model.head_dim) + int(model.v_head_dim)
        )
        swa_items = int(model.get_swa_num_kv_heads(g.attn_tp)) * (
            int(model.swa_head_dim) + int(model.swa_v_head_dim)
        )
        scales = MXFP8_BLOCK if g.mxfp8 else 0
        full = full_items * item + (full_items // scales if scales else 0)
        swa = swa_items * item + (swa_items // scales if scales else 0)
    draft_full = draft_swa = draft_swa_full = draft_bytes = 0
    draft = g.draft
    if draft is not None and draft.eagle_like and draft.layers:
        local = model.hf_text_config.get("mtp_local_layer_ids")
        if local is not None:
            draft_swa_full = sum(i in set(local) for i in range(draft.layers))
        elif draft.swa_layers is not None:
            draft_swa = min(max(draft.swa_layers, 0), draft.layers)
        draft_full = draft.layers - draft_swa - draft_swa_full
    elif draft is not None and draft.cell_bytes:
        draft_bytes = draft.cell_bytes * g.dcp
    return WindowCell(
        full, swa, g.full_layers, g.swa_layers, draft_full, draft_swa, draft_swa_full, draft_bytes
    )
