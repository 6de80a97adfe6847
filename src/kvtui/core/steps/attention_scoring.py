"""Multi-item scoring: one sequence of a query and many items.

Mirrors `handle_multi_item_scoring` of `srt/arg_groups/attention_hook.py` (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Change, Fix, Stage, drop
from kvtui.core.graphs import DECODE, PREFILL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.attention_default import BACKEND_OPTIONS
from kvtui.core.steps.graphs import graphs_off


@step("arg_groups/attention_hook.py:541")
def scoring_runs_plain(r: Resolution) -> None:
    """Scoring needs whole prompts in one eager forward, without cached prefixes."""
    if not r.enable_mis:
        return
    why = "--enable-mis scores whole prompts in one eager forward"
    graphs_off(r, why, DECODE, PREFILL)
    if not r.disable_radix_cache:
        r.declare(why, disable_radix_cache=True)
    if r.chunked_prefill_size != -1:
        r.declare(why, chunked_prefill_size=-1)


@rule(
    "KV255",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:576",
    example=Example("--enable-mis"),
    fragments=("Multi-item scoring requires flashinfer",),
)
def scoring_needs_flashinfer(r: Resolution) -> Iterator[Hit]:
    """Multi-item scoring runs on flashinfer in both phases.

    Why: items must not see each other, and only FlashInfer takes such a mask.

    Fix: set --attention-backend flashinfer, or drop --enable-mis.
    """
    if r.enable_mis and set(r.backends) != {"flashinfer"}:
        changes = [Change(BACKEND_OPTIONS[0], "flashinfer")]
        changes += [Change(option) for option in BACKEND_OPTIONS[1:] if r.chose(option)]
        prefill, decode = r.backends
        yield hit(
            f"scoring needs flashinfer in both phases; found {prefill} and {decode}",
            Fix("use flashinfer in both phases", tuple(changes)),
            drop("enable_mis"),
        )


HANDLE_MULTI_ITEM_SCORING: tuple[Part, ...] = (scoring_runs_plain, scoring_needs_flashinfer)
