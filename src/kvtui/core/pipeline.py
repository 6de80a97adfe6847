"""The order in which a launch is resolved and judged: the engine's own, then what it finds late.

Mirrors `srt/arg_groups/pipeline.py` of 0.5.23. Each hook is a tuple of steps and rules that
its module exports; this list is the only place that knows the order between hooks.
"""

from __future__ import annotations

from kvtui.core.resolution import Part

PIPELINE: tuple[Part, ...] = ()
