"""Known bytes for every (request, position, buffer, layer), written through slots and read back."""

from __future__ import annotations

import torch

from .build import Built, row_words
from .wire import Refused

TILE_BYTES = 2048
"""Longest stretch of a row that is computed; longer rows repeat it."""


def keys(request: int, positions: torch.Tensor, buffer: int, seed: int) -> torch.Tensor:
    """One 64-bit key a position."""
    salt = (request * 0x9E3779B1 + buffer * 0x85EBCA77 + seed * 0xC2B2AE3D) & 0x7FFFFFFF
    return positions * 0x27D4EB2F + salt


def tiles(row_keys: torch.Tensor, width: int) -> torch.Tensor:
    """Bytes (rows, width) that differ from key to key and along the row."""
    tile = min(width, TILE_BYTES)
    steps = torch.arange(tile, dtype=torch.int64, device=row_keys.device)
    mixed = (row_keys[:, None] ^ (row_keys[:, None] >> 15)) + steps * 0x165667B1
    mixed = (mixed ^ (mixed >> 13)) * 0x5BD1E995
    data = ((mixed >> 19) & 0xFF).to(torch.uint8)
    return data if tile == width else data.repeat(1, -(-width // tile))[:, :width].contiguous()


def layer_mask(layer: int, word_bytes: int) -> int:
    """Mask that tells layers apart (any two of 256), the same byte all through the word."""
    mask = int.from_bytes(bytes([(layer * 37 + 11) & 0xFF]) * word_bytes, "little", signed=False)
    limit = 1 << (8 * word_bytes)
    return mask if word_bytes == 1 or mask < limit // 2 else mask - limit


class Section:
    """One stretch of every row of a buffer: the row itself, or the entries of a packed page."""

    def __init__(self, built: Built, start: int, entries: int, width: int) -> None:
        spec = built.spec
        counts = (entries,) if entries else ()
        self.packed = bool(entries)
        self.width = width
        self.tokens_per_row = spec.tokens_per_row
        self.compress = spec.compress
        words = [row_words(tensor, start, counts, width) for tensor in built.rows]
        self.layers = [layer for layer, _ in words]
        self.dtype = words[0][1]
        self.masks = [layer_mask(layer, self.dtype.itemsize) for layer in range(len(words))]

    def owned(self, slots: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(row, entry, position) of the entries that these tokens complete."""
        if not self.packed:
            return slots, slots, positions
        closes = (slots + 1) % self.compress == 0
        slots, positions = slots[closes], positions[closes]
        entry = slots % self.tokens_per_row // self.compress
        return slots // self.tokens_per_row, entry, positions

    def write(self, row_keys: torch.Tensor, row: torch.Tensor, entry: torch.Tensor) -> None:
        """Write the pattern of `row_keys` in every layer."""
        base = tiles(row_keys, self.width).view(self.dtype)
        for layer, mask in zip(self.layers, self.masks, strict=True):
            if self.packed:
                layer[row, entry] = base ^ mask
            else:
                layer.index_copy_(0, row, base ^ mask)

    def mismatch(
        self, row_keys: torch.Tensor, row: torch.Tensor, entry: torch.Tensor
    ) -> tuple[int, int] | None:
        """(layer, index into `row`) of the first difference from the pattern, or None."""
        base = tiles(row_keys, self.width).view(self.dtype)
        for number, (layer, mask) in enumerate(zip(self.layers, self.masks, strict=True)):
            found = layer[row, entry] if self.packed else layer.index_select(0, row)
            if not torch.equal(found, base ^ mask):
                bad = (found != base ^ mask).any(dim=1).nonzero()
                return number, int(bad[0])
        return None


class Stamp:
    """Writes and checks patterns in one buffer of a pool."""

    def __init__(self, built: Built, number: int, seed: int) -> None:
        self.built = built
        self.number = number
        self.seed = seed
        spec = built.spec
        row_bytes = built.rows[0][0].numel()
        widths: tuple[int, ...] = spec.sections
        entries = spec.tokens_per_row // spec.compress
        if spec.rows == "page" and not widths:
            widths = (row_bytes // spec.tokens_per_row,)
        if sum(widths) * entries > row_bytes:
            raise Refused(
                "plan",
                f"{spec.name}: {entries} entries of {sum(widths)} bytes do not fit in a row of "
                f"{row_bytes}",
            )
        self.sections = []
        start = 0
        for width in widths:
            self.sections.append(Section(built, start, entries, width))
            start += entries * width
        if not widths:
            self.sections.append(Section(built, 0, 0, row_bytes))

    def bytes_per_token(self) -> int:
        """Bytes that one row or entry takes in all layers."""
        return sum(section.width for section in self.sections) * len(self.built.rows)

    def write(self, request: int, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """Write the pattern of `positions` where `slots` of this index space point."""
        for number, section in enumerate(self.sections):
            row, entry, own = section.owned(slots, positions)
            if len(own):
                section.write(self._keys(request, own, number), row, entry)

    def mismatch(self, request: int, slots: torch.Tensor, positions: torch.Tensor) -> str:
        """Where the bytes differ from the pattern; empty when none does."""
        for number, section in enumerate(self.sections):
            row, entry, own = section.owned(slots, positions)
            if not len(own):
                continue
            bad = section.mismatch(self._keys(request, own, number), row, entry)
            if bad:
                layer, index = bad
                return (
                    f"{self.built.label} layer {layer}: position {int(own[index])} of request "
                    f"{request} (row {int(row[index])}) does not read back as written"
                )
        return ""

    def _keys(self, request: int, positions: torch.Tensor, section: int) -> torch.Tensor:
        return keys(request, positions, self.number * 16 + section, self.seed)
