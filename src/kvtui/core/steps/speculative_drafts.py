"""What draft checkpoints say of themselves (`srt/speculative/dflash_utils.py`, 0.5.23)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvtui.core.resolution import Resolution

GEMMA4_DRAFTS = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})
BUNDLED_DSPARK = (
    "dspark_block_size", "dspark_markov_rank", "dspark_noise_token_id", "dspark_target_layer_ids",
)  # fmt: skip
"""Keys by which a target's config.json announces a DSpark draft inside the checkpoint."""
MARKOV_HEADS = ("vanilla", "gated", "rnn")


class UnreadableDraft(ValueError):
    """A draft configuration whose values the engine's own reader refuses."""


def draft_config(r: Resolution) -> Mapping[str, Any]:
    """The draft's config.json with the launch's overrides; raises MissingFact."""
    config = r.facts.checkpoint(r.speculative_draft_model_path).config
    overrides = r.json_model_override_args
    if overrides and overrides != "{}":
        try:
            config = {**config, **json.loads(overrides)}
        except (TypeError, ValueError):
            return config
    return config


def is_gemma4_draft(r: Resolution) -> bool:
    """True for an assistant of Gemma 4, which reads the target's KV cache."""
    names = r.facts.checkpoint(r.speculative_draft_model_path).config.get("architectures") or ()
    return any(name in GEMMA4_DRAFTS for name in names)


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def _dictionary(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    nested = config.get(key)
    return nested if isinstance(nested, Mapping) else {}


def _count(value: Any, least: int, what: str) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise UnreadableDraft(f"{what} is {value!r}") from None
    if number < least:
        raise UnreadableDraft(f"{what} is {number}")
    return number


def _check_dflash(config: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    _count(_text(config).get("num_hidden_layers"), 1, "num_hidden_layers")
    _count(own.get("num_target_layers", config.get("num_target_layers")), 1, "num_target_layers")
    for one, other in (
        ("conv_kernel_size", "conv_group_size"),
        ("selector_rank", "selector_top_k"),
    ):
        pair = (_count(own.get(one, 0), 0, one), _count(own.get(other, 0), 0, other))
        if bool(pair[0]) != bool(pair[1]):
            raise UnreadableDraft(f"{one} and {other} go together")
    layers = own.get("target_layer_ids", config.get("target_layer_ids"))
    if layers is not None and not (isinstance(layers, list) and layers):
        raise UnreadableDraft("target_layer_ids is no list of layers")


def dflash_block_size(config: Mapping[str, Any]) -> int | None:
    """Tokens of one DFlash block, None where the draft does not say; raises UnreadableDraft."""
    own = _dictionary(config, "dflash_config")
    _check_dflash(config, own)
    return _count(own.get("block_size", config.get("block_size")), 1, "block_size")


def layer_types(config: Mapping[str, Any]) -> Sequence[str] | None:
    """Attention kind of each draft layer, where the draft lists them."""
    kinds = _text(config).get("layer_types", config.get("layer_types"))
    return kinds if isinstance(kinds, (list, tuple)) else None


def draft_is_causal_or_sliding(config: Mapping[str, Any]) -> bool:
    """True for a draft that TRT-LLM attention can run: all windows, or plainly causal."""
    text, kinds = _text(config), layer_types(config)
    all_sliding = (
        bool(kinds)
        and len(kinds or ()) == text.get("num_hidden_layers")
        and set(kinds or ()) == {"sliding_attention"}
    )
    return all_sliding or text.get("is_causal", False) is True


def bundles_dspark(config: Any) -> bool:
    """True for a target that carries its DSpark draft (dspark_config.py:143)."""
    return any(config.get(key) is not None for key in BUNDLED_DSPARK)


@dataclass(frozen=True, slots=True)
class Markov:
    """The head that a DSpark draft samples its block with."""

    rank: int
    kind: str | None


def _markov(config: Mapping[str, Any], own: Mapping[str, Any]) -> Markov:
    text = _text(config)

    def pick(name: str, default: Any) -> Any:
        prefixed = config.get(f"dspark_{name}")
        if prefixed is not None:
            return prefixed
        return own.get(name, text.get(name, config.get(name, default)))

    kind = pick("markov_head_type", None)
    rank = _count(pick("markov_rank", 0), 0, "markov_rank") or 0
    return Markov(rank, None if kind is None else str(kind).lower())


def markov_rank(config: Mapping[str, Any]) -> int:
    """Rank of a DSpark draft's Markov head, 0 where it has none or says nonsense."""
    own = {**_dictionary(config, "dflash_config"), **_dictionary(config, "dspark_config")}
    try:
        return _markov(config, own).rank
    except UnreadableDraft:
        return 0


def target_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Target layers whose hidden states a block draft reads, empty where it leaves the choice."""
    own = _dictionary(config, "dflash_config")
    layers = config.get("dspark_target_layer_ids")
    if layers is None:
        layers = own.get("target_layer_ids", config.get("target_layer_ids"))
    if not isinstance(layers, list):
        return ()
    return tuple(layer for layer in layers if isinstance(layer, int))


def dspark_gamma(config: Mapping[str, Any]) -> int | None:
    """Draft tokens of one DSpark step, None where the draft does not say.

    Raises UnreadableDraft where the engine's reader would refuse the file.
    """
    block = dflash_block_size(config)
    own = {**_dictionary(config, "dflash_config"), **_dictionary(config, "dspark_config")}
    markov = _markov(config, own)
    if markov.rank > 0 and markov.kind is None and not bundles_dspark(config):
        raise UnreadableDraft("markov_head_type is missing")
    if markov.kind is not None and markov.kind not in MARKOV_HEADS:
        raise UnreadableDraft(f"markov_head_type is {markov.kind!r}")
    prefixed = config.get("dspark_block_size")
    return _count(prefixed, -(1 << 31), "dspark_block_size") if prefixed is not None else block
