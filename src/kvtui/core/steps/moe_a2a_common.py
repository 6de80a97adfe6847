"""Ways that rules of expert exchanges share."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Change, Fix, drop
from kvtui.core.graphs import DISABLED
from kvtui.core.resolution import Hit, Resolution, hit

Condition = tuple[object, str, Fix]

MUSE_LAYOUTS = ((4, 4), (8, 8))
"""(tp_size, ep_size) that Muse Spark's exchange was made for."""


def set_env(title: str, name: str, value: str | int | None) -> Fix:
    """A fix that sets an environment variable of the launch (None unsets it)."""
    return Fix(title, (Change(f"env:{name}", None if value is None else str(value)),))


def first_broken(what: str, conditions: tuple[Condition, ...]) -> Iterator[Hit]:
    """The first broken condition: later ones presuppose the earlier."""
    for broken, found, fix in conditions:
        if broken:
            yield hit(f"{what}: {found}", fix)
            return


OTHER_A2A = drop("moe_a2a_backend", title="exchange tokens the plain way")


def without_graphs(r: Resolution, why: str, *phases: str) -> None:
    graphs = r.cuda_graph_config
    for phase in phases:
        graphs = graphs.with_phase(phase, backend=DISABLED)
    r.declare(why, cuda_graph_config=graphs)
