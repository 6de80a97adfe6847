"""Offloaded per-layer embeddings beside weight offload (`arg_groups/memory_hook.py:28`)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule


@rule(
    "KV410",
    stage=Stage.RESOLVE,
    option="ple_offload_embedding",
    source="arg_groups/memory_hook.py:31",
    example=Example("--ple-offload-embedding --cpu-offload-gb 4"),
    fragments=("--ple-offload-embedding cannot be combined",),
)
def ple_offload_is_the_only_offload(r: Resolution) -> Iterator[Hit]:
    """Offloaded per-layer embeddings exclude generic weight offload.

    Why: generic offload would stage the pinned embedding table back onto the GPU.

    Fix: keep one of the two.
    """
    others = [name for name in ("cpu_offload_gb", "offload_group_size") if getattr(r, name) > 0]
    if r.ple_offload_embedding and others:
        flags = " and ".join("--" + name.replace("_", "-") for name in others)
        yield hit(
            f"the per-layer embedding table can't be offloaded beside {flags}",
            drop(*others),
            set_to("keep the table on the GPU", ple_offload_embedding=False),
        )


@rule(
    "KV411",
    stage=Stage.RESOLVE,
    option="ple_offload_backend",
    source="arg_groups/memory_hook.py:40",
    example=Example("--ple-offload-backend file --no-ple-offload-embedding"),
    fragments=("--ple-offload-backend file requires",),
)
def ple_file_needs_offload(r: Resolution) -> Iterator[Hit]:
    """A file-backed embedding table is an offloaded one.

    Why: the file takes the place of the table in host memory, so there is nothing to back
    while the table stays on the GPU.

    Fix: offload the table, or drop the file backend.
    """
    if r.ple_offload_backend == "file" and r.ple_offload_embedding is False:
        yield hit(
            "file backs an offloaded table, and offloading is off",
            set_to("offload the table to the file", ple_offload_embedding=True),
            drop("ple_offload_backend"),
        )


HANDLE_OFFLOAD_COMPATIBILITY: tuple[Part, ...] = (
    ple_offload_is_the_only_offload,
    ple_file_needs_offload,
)
