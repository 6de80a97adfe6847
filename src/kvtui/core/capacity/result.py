"""What a prediction holds: figures of one rank, of its requests and of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvtui.core.capacity.figures import Figure
from kvtui.core.capacity.host import HostNeed
from kvtui.core.capacity.view import as_figures, as_json, as_lines
from kvtui.core.pools.sizes import Sizes

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Room:
    """What requests share on one data-parallel rank."""

    tokens: int
    swa_tokens: int | None
    window: int | None
    page_size: int
    limit: int
    """Running requests at most."""

    def at(self, context: int) -> int:
        """Requests of `context` tokens each that fit at once, whole pages each."""
        pages = -(-max(1, context) // self.page_size) * self.page_size
        count = self.tokens // pages
        if self.swa_tokens and self.window is not None:
            count = min(count, self.swa_tokens // min(pages, self.window + self.page_size))
        return min(count, self.limit)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Memory and capacity of one rank, and of the machine's host memory.

    Bytes are per rank unless said otherwise. `assumed` lists what the figures rest on besides
    the launch itself.
    """

    total: Figure
    """Memory of the GPU."""
    baseline: Figure
    """Free before weights are loaded."""
    weights: Figure
    draft_weights: Figure
    free_after_load: Figure
    fraction: float
    budget: Figure
    """What pools may take."""
    bytes_per_token: Figure
    """Budget bytes that a token costs, drafts counted."""
    tokens: Figure
    """`max_total_num_tokens`."""
    full_tokens: int | None
    swa_tokens: int | None
    state_slots: int
    state_bytes: float
    requests: Figure
    """`max_running_requests` of one data-parallel rank."""
    limited_by: str
    """What stops more requests: option | default | tokens | states."""
    slots_per_request: int
    request_table: Figure
    reserve: Figure
    """What the engine keeps back for activations and graphs by its own, cautious estimate."""
    working: Figure
    """What activations and graphs are likely to take."""
    free_after: Figure
    """Left on the GPU once pools, request table, graphs and activations are in place."""
    host: HostNeed | None
    room: Room = field(default_factory=lambda: Room(0, None, None, 1, 0))
    """What requests share."""
    fits: Mapping[int, int] = field(default_factory=dict)
    """Requests that fit at once, by tokens of context each, on one data-parallel rank."""
    replicas: int = 1
    """Ranks groups that serve requests side by side (data parallel)."""
    sizes: Sizes = field(default_factory=lambda: Sizes(0))
    pool_bytes: int = 0
    """Bytes of all pools on the GPU, request table left out."""
    assumed: tuple[str, ...] = ()

    def requests_at(self, context: int) -> int:
        """Requests of `context` tokens each that run at once on one data-parallel rank."""
        return self.room.at(context)

    @property
    def weights_bytes(self) -> int:
        """Weights of a rank, those of a draft left out."""
        return self.weights.whole

    @property
    def draft_bytes(self) -> int:
        """Weights of a draft on a rank."""
        return self.draft_weights.whole

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values, those of a draft included."""
        return max(0, self.pool_bytes - int(self.state_bytes))

    @property
    def graph_bytes(self) -> int:
        """What activations, graphs and the request table are likely to take."""
        return self.working.whole + self.request_table.whole

    @property
    def max_total_num_tokens(self) -> int:
        """Tokens as the boot log prints them."""
        return self.tokens.whole

    @property
    def max_running_requests(self) -> int:
        """Requests as the boot log prints them."""
        return self.requests.whole

    @property
    def host_bytes(self) -> int:
        """Host memory of all ranks on one machine."""
        return int(self.host.total) if self.host is not None else 0

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON types, with kind and likely error of each."""
        return as_json(self)

    def figures(self) -> dict[str, str]:
        """Short figures by name."""
        return as_figures(self)

    def summary(self) -> tuple[str, ...]:
        """Lines for people."""
        return as_lines(self)


@dataclass(frozen=True, slots=True)
class Printed:
    """Figures of a boot log that replace the estimates, in bytes."""

    baseline: float | None = None
    free_after_load: float | None = None
    fraction: float | None = None
