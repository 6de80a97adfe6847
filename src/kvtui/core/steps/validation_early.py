"""Checks before any model is read (`srt/arg_groups/validation_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

AUX_METHODS = ("EAGLE3", "DFLASH", "DSPARK")


@rule(
    "KV1060", stage=Stage.RESOLVE, option="prefill_decode_interval",
    source="arg_groups/validation_hook.py:637", example=Example("--prefill-decode-interval -1"),
    fragments=("--prefill-decode-interval",),
)  # fmt: skip
def prefill_interval_counts(r: Resolution) -> Iterator[Hit]:
    """Steps between prefills are counted from zero.

    Why: the scheduler decodes that many steps before it prefills again.

    Fix: leave the option out.
    """
    for name in ("prefill_decode_interval", "prefill_decode_interval_min_bs"):
        value = getattr(r, name)
        if value is not None and whole(value) < 0:
            yield hit(f"--{name.replace('_', '-')} is {value}", drop(name), option=name)


VALIDATE_PREFILL_DECODE_INTERVAL: tuple[Part, ...] = (prefill_interval_counts,)


@rule(
    "KV1061", stage=Stage.RESOLVE, option="enable_response_store",
    source="arg_groups/validation_hook.py:120",
    example=Example("--enable-response-store --disaggregation-mode prefill"),
    fragments=("--enable-response-store is not supported",),
)  # fmt: skip
def response_store_on_one_server(r: Resolution) -> Iterator[Hit]:
    """Responses are stored by a server that both prefills and decodes.

    Why: neither half of a disaggregated pair sees a whole response.

    Fix: drop the store.
    """
    if r.enable_response_store and r.disaggregation_mode != "null":
        yield hit(
            f"--enable-response-store with --disaggregation-mode {r.disaggregation_mode}",
            drop("enable_response_store"),
        )


VALIDATE_RESPONSE_STORE: tuple[Part, ...] = (response_store_on_one_server,)


@rule(
    "KV1062", stage=Stage.RESOLVE, option="sampling_mask_max_tokens",
    source="arg_groups/validation_hook.py:657", example=Example("--sampling-mask-max-tokens 0"),
    fragments=("SAMPLING_MASK_MAX_TOKENS", "--sampling-mask-max-tokens must be positive"),
)  # fmt: skip
def sampling_mask_size(r: Resolution) -> Iterator[Hit]:
    """Sampling masks hold a positive number of tokens, set by option only.

    Why: the old environment variable is refused so that both servers of a pair agree.

    Fix: unset the variable; give a positive number.
    """
    old = "SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS"
    if old in r.env:
        yield hit(f"{old} is set", set_to(f"unset {old}", **{f"env:{old}": None}))
    if whole(r.sampling_mask_max_tokens, 1) <= 0:
        yield hit(
            f"--sampling-mask-max-tokens is {r.sampling_mask_max_tokens}",
            drop("sampling_mask_max_tokens"),
        )


VALIDATE_SAMPLING_MASK_MAX_TOKENS: tuple[Part, ...] = (sampling_mask_size,)


def _layers_problem(layers: object) -> str | None:
    if not isinstance(layers, list):
        return None
    if not layers:
        return "is empty"
    if any(whole(layer) < 0 for layer in layers):
        return "has a negative layer"
    return "repeats a layer" if len(set(layers)) != len(layers) else None


@rule(
    "KV1063", stage=Stage.RESOLVE, option="enable_return_aux_hidden_states",
    source="arg_groups/validation_hook.py:683",
    example=Example("--enable-return-aux-hidden-states"),
    fragments=("--enable-return-aux-hidden-states", "--return-aux-hidden-state-layer-ids"),
)  # fmt: skip
def aux_states_need(r: Resolution) -> Iterator[Hit]:
    """Auxiliary hidden states are captured as one of three drafts would read them.

    Why: `--speculative-algorithm` names the convention only; no draft is loaded, and hooks see
    the layers of one pipeline stage.

    Fix: name EAGLE3, or DFLASH or DSPARK with the layers wanted.
    """
    layers = r.return_aux_hidden_state_layer_ids
    if not r.enable_return_aux_hidden_states:
        if layers is not None:
            name = "return_aux_hidden_state_layer_ids"
            yield hit("--return-aux-hidden-state-layer-ids without its switch", drop(name),
                      option=name)  # fmt: skip
        return
    method = str(r.raw.speculative_algorithm or "").upper()
    problem = _layers_problem(layers)
    stop = drop("enable_return_aux_hidden_states", "return_aux_hidden_state_layer_ids")
    for broken, found in (
        (method not in AUX_METHODS, f"--speculative-algorithm is {method or 'not set'}"),
        (r.speculative_draft_model_path is not None, "--speculative-draft-model-path is set"),
        (r.pp_size != 1, f"--pp-size is {r.pp_size}"),
        (method in ("DFLASH", "DSPARK") and layers is None,
         f"{method} needs --return-aux-hidden-state-layer-ids"),
        (problem, f"--return-aux-hidden-state-layer-ids {problem}"),
    ):  # fmt: skip
        if broken:
            yield hit(f"--enable-return-aux-hidden-states: {found}", stop)


@step("arg_groups/validation_hook.py:730")
def aux_states_take_the_algorithm(r: Resolution) -> None:
    """The algorithm names a convention then, nothing is drafted."""
    if r.enable_return_aux_hidden_states and r.speculative_algorithm is not None:
        r.declare(
            "--enable-return-aux-hidden-states takes it as the capture convention",
            aux_hidden_state_capture=str(r.speculative_algorithm).lower(),
            speculative_algorithm=None,
        )


HANDLE_AUX_HIDDEN_STATE_CAPTURE: tuple[Part, ...] = (
    aux_states_need,
    aux_states_take_the_algorithm,
)


@step("arg_groups/validation_hook.py:644")
def no_prefill_interval(r: Resolution) -> None:
    """Prefills are not spaced unless a model asks for it."""
    if r.prefill_decode_interval is None:
        r.default("prefills are not spaced", prefill_decode_interval=0)


DEFAULT_UNSET_PREFILL_DECODE_INTERVAL: tuple[Part, ...] = (no_prefill_interval,)
