"""What differs between releases in reading resolved arguments, found by looking, not by number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


def reader_of(arguments: Any) -> Callable[[str], Any]:
    """Reads one resolved value by its name."""
    try:
        from sglang.srt.arg_groups.overrides import resolution_result
    except ImportError:  # resolution wrote into the record itself
        return lambda name: getattr(arguments, name, None)
    return lambda name: resolution_result(arguments, name)


def model_of(arguments: Any) -> Any:
    """The model's configuration as resolution built it."""
    try:
        from sglang.srt.arg_groups.overrides import model_config_of
    except ImportError:
        return arguments.get_model_config()
    return model_config_of(arguments)


def is_mla(arguments: Any) -> bool:
    """Whether the pools hold compressed latents."""
    try:
        from sglang.srt.arg_groups.overrides import use_mla_backend
    except ImportError:
        return bool(arguments.use_mla_backend())
    return bool(use_mla_backend(arguments))


def lone_rank() -> Any:
    """The record of a rank that is alone, where the release has one; None elsewhere."""
    try:
        from sglang.srt.distributed.parallel_state_wrapper import ParallelState
    except ImportError:
        return None
    return ParallelState.trivial()


def parallel_widths(arguments: Any) -> contextlib.AbstractContextManager[Any]:
    """Lets a lone process read the widths that the launch asks for.

    Later releases work them out of the arguments; earlier ones ask process groups, which only a
    running server has.
    """
    from sglang.srt.runtime_context import get_parallel

    read = reader_of(arguments)
    ranks = int(read("tp_size") or 1)
    groups = int(read("dp_size") or 1) if read("enable_dp_attention") else 1
    contexts = int(read("attn_cp_size") or 1)
    spread = int(read("dcp_size") or 1)
    wanted = {
        "world_size": ranks, "world_rank": 0, "tp_size": ranks, "tp_rank": 0,
        "pp_size": 1, "pp_rank": 0, "attn_dp_size": groups, "attn_dp_rank": 0,
        "attn_cp_size": contexts, "attn_cp_rank": 0,
        "attn_tp_size": max(1, ranks // groups // contexts), "attn_tp_rank": 0,
        "dcp_size": spread, "dcp_rank": 0, "dcp_enabled": spread > 1,
        "attn_dcp_size": spread, "attn_dcp_rank": 0,
    }  # fmt: skip
    context: Any = get_parallel()
    if _readable(context, "attn_tp_size"):
        return contextlib.nullcontext()
    unread = {}
    for name, value in wanted.items():
        if hasattr(type(context), name) and not _readable(context, name):
            unread[name] = value
    override: contextlib.AbstractContextManager[Any] = context.override(**unread)
    return override


def _readable(context: Any, name: str) -> bool:
    try:
        getattr(context, name)
    except Exception:
        return False
    return True
