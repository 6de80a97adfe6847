"""CUDA graph settings that the engine refuses or replaces.

Mirrors the checks of `srt/arg_groups/cuda_graph_hook.py` (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvtui.core.derived import whole
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.graphs import (
    BACKENDS,
    BREAKABLE,
    DECODE,
    DISABLED,
    FULL,
    PHASE_KEYS,
    PHASES,
    PREFILL,
    GraphConfig,
)
from kvtui.core.resolution import Example, Hit, Resolution, hit, rule

SPELLINGS: tuple[tuple[str, str, str], ...] = (
    ("cuda_graph_backend_decode", DECODE, "backend"),
    ("cuda_graph_backend_prefill", PREFILL, "backend"),
    ("cuda_graph_max_bs_decode", DECODE, "max_bs"),
    ("cuda_graph_max_bs_prefill", PREFILL, "max_bs"),
    ("cuda_graph_max_seq_len_prefill", PREFILL, "max_seq_len"),
    ("cuda_graph_bs_decode", DECODE, "bs"),
    ("cuda_graph_bs_prefill", PREFILL, "bs"),
    ("cuda_graph_prefill_max_context", PREFILL, "max_context_size"),
)
"""Options that set one key of one phase; JSON beats them, they beat the off switches."""


def asked_json(r: Resolution) -> Mapping[str, Mapping[str, Any]]:
    given = r.raw.cuda_graph_config
    if not isinstance(given, Mapping):
        return {}
    return {phase: given[phase] for phase in PHASES if isinstance(given.get(phase), Mapping)}


def usable_value(key: str, value: Any) -> Any:
    """`value` in the type that later steps count on; None where it has another one."""
    if key == "backend":
        return value
    if key == "bs":
        listed = isinstance(value, list | tuple) and all(_is_size(size) for size in value)
        return tuple(value) if listed else None
    return value if _is_size(value) else None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@rule(
    "KV400",
    stage=Stage.RESOLVE,
    option="cuda_graph_config",
    source="arg_groups/cuda_graph_hook.py:451",
    example=Example("""--cuda-graph-config '{"decode":{"backend":"eager"}}'"""),
    fragments=(".backend=", "not allowed; allowed"),
)
def graph_backend_exists(r: Resolution) -> Iterator[Hit]:
    """A capture backend in --cuda-graph-config is one the engine has.

    Why: the JSON is only checked for its keys while it is read; the backend's name is
    checked after all graph options were merged.

    Fix: name full, breakable or disabled.
    """
    for phase, settings in asked_json(r).items():
        backend = settings.get("backend", DISABLED)
        if backend not in BACKENDS and backend != "tc_piecewise":
            good = {p: dict(s) for p, s in asked_json(r).items()}
            good[phase]["backend"] = FULL if phase == DECODE else BREAKABLE
            yield hit(
                f"{phase} graphs can be {', '.join(BACKENDS)}; found {backend!r}",
                set_to(f"capture {phase} graphs the default way", cuda_graph_config=good),
            )


@rule(
    "KV401",
    stage=Stage.RESOLVE,
    option="cuda_graph_config",
    source="arg_groups/memory_hook.py:186",
    example=Example("""--cuda-graph-config '{"decode":{"max_bs":"64"}}'"""),
)
def graph_sizes_are_numbers(r: Resolution) -> Iterator[Hit]:
    """Sizes in --cuda-graph-config are whole numbers, lists of them for bs.

    Why: the JSON's values are not checked while it is read; the lists of captured sizes are
    made from them and fail on text, fractions and empty lists.

    Fix: write plain numbers, or leave the key out for the automatic size.
    """
    for phase, settings in asked_json(r).items():
        for key, value in settings.items():
            if key == "backend" or key not in PHASE_KEYS[phase] or value is None:
                continue
            usable = usable_value(key, value)
            if usable is None or (phase == DECODE and usable == ()):
                good = {p: dict(s) for p, s in asked_json(r).items()}
                del good[phase][key]
                expected = "a list of whole numbers" if key == "bs" else "a whole number"
                yield hit(
                    f"{phase}.{key} must be {expected}; found {value!r}",
                    set_to(f"leave {phase}.{key} to the engine", cuda_graph_config=good),
                )


@rule(
    "KV402",
    stage=Stage.RESOLVE,
    option="cuda_graph_prefill_max_context",
    source="arg_groups/cuda_graph_hook.py:461",
    example=Example("--cuda-graph-prefill-max-context 1000000"),
    fragments=(
        "cuda-graph-prefill-max-context must be a positive",
        "cuda-graph-prefill-max-context exceeds the model context length",
    ),
)
def graph_context_fits_the_model(r: Resolution) -> Iterator[Hit]:
    """--cuda-graph-prefill-max-context lies between one token and the context length.

    Why: captured prefill metadata is shaped for that many tokens, rounded up to whole pages,
    and no sequence gets longer than the model's context.

    Fix: lower it, or leave it out so that capture is not bound to a context size.
    """
    wanted = r.cuda_graph_config.prefill.max_context_size
    if wanted is None:
        return
    back = drop("cuda_graph_prefill_max_context")
    if wanted <= 0:
        yield hit(f"needs at least one token; found {wanted}", back)
        return
    page = max(1, whole(r.page_size, 1))
    aligned = -(-wanted // page) * page
    context = r.model.context_len
    if context is not None and 0 < context < aligned:
        fits = context // page * page
        fix = set_to(f"capture up to {fits} tokens", cuda_graph_prefill_max_context=fits)
        yield hit(
            f"{aligned} tokens (whole pages of {page}) exceed the context length of {context}",
            *((fix, back) if fits else (back,)),
        )


@rule(
    "KV403",
    stage=Stage.RESOLVE,
    option="cuda_graph_config",
    source="arg_groups/attention_hook.py:131",
    severity=Severity.WARNING,
    example=Example("--attention-backend torch_native --cuda-graph-backend-decode full"),
)
def graph_choice_overridden(r: Resolution) -> Iterator[Hit]:
    """A chosen CUDA graph setting is replaced by the engine.

    Why: some back ends, roles and features run without graphs or with other sizes, and the
    engine changes the setting without stopping.

    Fix: leave the option out, or change what overrules it.
    """
    asked, final = r.scratch.get("graphs_asked"), r.cuda_graph_config
    if asked is None or not isinstance(final, GraphConfig):
        return
    options = {(phase, key): option for option, phase, key in SPELLINGS}
    for phase, key in sorted(asked.locked):
        before, after = getattr(asked.phase(phase), key), getattr(final.phase(phase), key)
        if before is not None and before != after:
            option = options.get((phase, key), "cuda_graph_config")
            named = option if r.chose(option) else "cuda_graph_config"
            yield hit(
                f"asked {phase} {key} {_shown(before)}, engine runs {_shown(after)}, "
                f"because {r.origin('cuda_graph_config').why}",
                *((drop(named),) if r.chose(named) else ()),
                option=named,
            )


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
