"""Role switching: what can't be rebuilt when a prefill server becomes a decode server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvtui.core.derived import attn_dp_enabled
from kvtui.core.findings import Fix, Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one

HOOK = "arg_groups/pd_disaggregation_hook.py"

FEATURES: tuple[tuple[Callable[[Resolution], bool], str, str], ...] = (
    (lambda r: above_one(r.ep_size), "ep_size", "expert parallelism"),
    (lambda r: r.moe_a2a_backend != "none", "moe_a2a_backend", "an expert all-to-all back end"),
    (lambda r: above_one(r.pp_size), "pp_size", "pipeline parallelism"),
    (
        lambda r: attn_dp_enabled(r) and bool(r.enable_dp_attention_local_control_broadcast),
        "enable_dp_attention_local_control_broadcast",
        "local control broadcast",
    ),
    (lambda r: above_one(r.dcp_size), "dcp_size", "decode context parallelism"),
    (
        lambda r: r.speculative_algorithm is not None,
        "speculative_algorithm",
        "speculative decoding",
    ),
)
"""Features with state of one role, and their options. Source: pd_disaggregation_hook.py:165-187."""


@rule(
    "KV511",
    stage=Stage.RESOLVE,
    option="enable_pd_role_switch",
    source=f"{HOOK}:189",
    example=Example("--disaggregation-mode prefill --enable-pd-role-switch --pp-size 2"),
    fragments=("--enable-pd-role-switch does not rebuild role-specific",),
)
def role_switch_limits(r: Resolution) -> Iterator[Hit]:
    """Role switching excludes features whose state belongs to one role.

    Why: on a switch the engine rebuilds queues and pools, not the state of these features.
    Fix: drop them, or --enable-pd-role-switch.
    """
    if not r.enable_pd_role_switch or r.disaggregation_mode not in ("prefill", "decode"):
        return
    found = [(option, words) for applies, option, words in FEATURES if applies(r)]
    if not found:
        return
    chosen = [option for option, _ in found if r.chose(option)]
    fixes: list[Fix] = [drop("enable_pd_role_switch")]
    if len(chosen) == len(found):
        fixes.append(drop(*chosen))
    yield hit(
        f"a switched role would need {', '.join(words for _, words in found)} rebuilt", *fixes
    )


ROLE_SWITCH_GATES: tuple[Part, ...] = (role_switch_limits,)
