"""Host mirrors of device buffers, page by page, in the layouts of the engine's host pools.

A region mirrors one buffer (K, V, latent rows, index pages, states). Its `logical` tensor is
(pages, layers, tokens, heads, words) whatever the memory order; rows of packed pages stand for
tokens there.
"""

from __future__ import annotations

import torch

from .build import Built, row_words
from .wire import Refused

LATENT_ROPE_ITEMS = 64
"""Rope items behind the latent row, split off by page_first_kv_split (qk_rope_head_dim)."""
KERNEL_LAYOUTS = {"mha": ("layer_first", "page_first", "page_head"),
                  "latent": ("layer_first", "page_first")}  # fmt: skip
DIRECT_LAYOUTS = ("layer_first", "page_first_direct")
ASCEND_LAYOUTS = ("page_first_direct", "page_first_kv_split")
STATE_LAYOUTS = ("page_first", "page_first_direct")


def memory_order(layout: str, kind: str) -> tuple[str, ...]:
    """Axes of a region in memory order."""
    if kind != "slot":
        whole = ("layers", "pages") if layout == "layer_first" else ("pages", "layers")
        return (*whole, "tokens", "heads", "words")
    return {
        "layer_first": ("layers", "pages", "tokens", "heads", "words"),
        "page_first": ("pages", "tokens", "layers", "heads", "words"),
        "page_first_direct": ("pages", "layers", "tokens", "heads", "words"),
        "page_first_kv_split": ("pages", "layers", "tokens", "heads", "words"),
        "page_head": ("pages", "heads", "tokens", "layers", "words"),
    }[layout]


class Region:
    """Host memory for `pages` pages of one buffer, in the widest words that its rows allow."""

    LOGICAL = ("pages", "layers", "tokens", "heads", "words")

    def __init__(
        self, built: Built, layout: str, pages: int, page: int, pin: bool,
        columns: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.built = built
        spec = built.spec
        kind = spec.rows
        self.rows_per_page = 1 if kind == "request" else page // spec.tokens_per_row
        start, end = columns or (0, built.rows[0][0].numel())
        heads = spec.shape[1] if layout == "page_head" and kind == "slot" else 1
        width = (end - start) // heads
        words = [row_words(tensor, start, (heads,), width) for tensor in built.rows]
        self.layers = [layer for layer, _ in words]
        dtype = words[0][1]
        self.order = memory_order(layout, kind)
        sizes = {
            "pages": pages, "layers": len(words), "tokens": self.rows_per_page, "heads": heads,
            "words": width // dtype.itemsize,
        }  # fmt: skip
        self.memory = torch.empty([sizes[axis] for axis in self.order], dtype=dtype, pin_memory=pin)
        self.logical = self.memory.permute([self.order.index(axis) for axis in self.LOGICAL])
        self.pages_axis = self.order.index("pages")
        self.page_bytes = len(words) * self.rows_per_page * (end - start)

    @property
    def nbytes(self) -> int:
        """Bytes of host memory."""
        return self.memory.numel() * self.memory.itemsize

    def device_rows(self, pages: torch.Tensor) -> torch.Tensor:
        """Rows of the device buffer that hold device `pages`."""
        inside = torch.arange(self.rows_per_page, device=pages.device)
        return (pages[:, None] * self.rows_per_page + inside).reshape(-1)

    def gather(self, pages: torch.Tensor) -> torch.Tensor:
        """Device pages as one tensor in this region's memory order."""
        rows = self.device_rows(pages)
        stacked = torch.stack([layer.index_select(0, rows) for layer in self.layers])
        split = stacked.view(len(self.layers), len(pages), self.rows_per_page, *stacked.shape[2:])
        logical = split.transpose(0, 1)
        return logical.permute([self.LOGICAL.index(axis) for axis in self.order]).contiguous()

    def scatter(self, data: torch.Tensor, pages: torch.Tensor) -> None:
        """Write `data` (memory order, on the device) to device pages."""
        logical = data.permute([self.order.index(axis) for axis in self.LOGICAL])
        rows = self.device_rows(pages)
        for number, layer in enumerate(self.layers):
            layer.index_copy_(0, rows, logical[:, number].reshape(len(rows), *layer.shape[1:]))

    def device_page(self, layer: int, page: int) -> torch.Tensor:
        """One page of one layer on the device: (tokens, heads, words)."""
        return self.layers[layer][page * self.rows_per_page : (page + 1) * self.rows_per_page]

    def page_data(self, page: int) -> torch.Tensor:
        """A copy of one host page as flat bytes, layers in front of tokens."""
        return self.logical[page].reshape(-1).view(torch.uint8)

    def set_page_data(self, page: int, data: torch.Tensor) -> None:
        """Fill one host page from `page_data` bytes."""
        words = data.contiguous().view(self.memory.dtype)
        self.logical[page] = words.view(self.logical.shape[1:])


def _name(built: Built) -> str:
    return built.spec.name.rsplit(".", 1)[-1]


def _family(built: list[Built]) -> str:
    return "mha" if any(_name(one) == "k_buffer" for one in built) else "latent"


def check_layout(buffers: list[Built], layout: str, backend: str, page: int) -> None:
    """Raises Refused where the engine's host pools take no such layout or transfer.

    Facts: mem_cache/pool_host/{mha,mha_mxfp8,mla,mamba}.py of 0.5.23.
    """
    names = {_name(one) for one in buffers}
    family = _family(buffers)
    states = [one for one in buffers if one.spec.rows == "request"]
    where = f"host pool, layout {layout}, io backend {backend}"
    scales = [one for one in buffers if "scale" in _name(one)]
    mxfp8 = any(one.spec.dtype == "float8_e8m0fnu" for one in scales)
    if scales and not mxfp8 and not names & {"index_k_with_scale_buffer"}:
        raise Refused("refused", f"{where}: K and V with FP4 block scales can't be transferred")
    if mxfp8 and (layout != "page_first" or page != 128 or backend != "kernel"):
        raise Refused(
            "refused", f"{where}: MXFP8 needs page_first, page size 128 and the kernel backend"
        )
    if states and layout not in STATE_LAYOUTS:
        raise Refused("refused", f"{where}: state pools take {' or '.join(STATE_LAYOUTS)}")
    known = {
        "kernel": KERNEL_LAYOUTS[family], "direct": DIRECT_LAYOUTS, "kernel_ascend": ASCEND_LAYOUTS
    }.get(backend)  # fmt: skip
    if known is None:
        raise Refused("refused", f"{where}: expected io backend kernel or direct")
    if layout not in known:
        raise Refused("refused", f"{where}: this backend takes {', '.join(known)}")
    if layout == "page_first_kv_split" and family == "mha":
        raise Refused("refused", f"{where}: only latent (MLA) rows can be split")
    unequal = _unequal(buffers)
    if unequal and layout not in ("page_first", "page_first_direct"):
        raise Refused("refused", f"{where}: {unequal}; that takes page_first or page_first_direct")


def _unequal(buffers: list[Built]) -> str:
    """Says so when K and V of one sub-pool have different head dims; empty otherwise."""
    for role in dict.fromkeys(one.sub.role for one in buffers):
        own = {_name(one): one.spec.shape[-1] for one in buffers if one.sub.role == role}
        if "k_buffer" in own and own.get("v_buffer", own["k_buffer"]) != own["k_buffer"]:
            return f"K and V have head dims {own['k_buffer']} and {own['v_buffer']}"
    return ""


def make_regions(
    buffers: list[Built], layout: str, pages: int, page: int, pin: bool
) -> list[Region]:
    """One region a buffer; a latent row makes two with page_first_kv_split."""
    regions = []
    for built in buffers:
        kind = built.spec.rows
        if layout == "page_first_kv_split" and kind == "slot" and _name(built) == "kv_buffer":
            width = built.rows[0][0].numel()
            cut = width - LATENT_ROPE_ITEMS * (width // built.spec.shape[-1])
            for columns in ((0, cut), (cut, width)):
                regions.append(Region(built, layout, pages, page, pin, columns))
        else:
            regions.append(Region(built, layout, pages, page, pin))
    return regions
