"""Drafts that argument checks let pass and that do not fit their target once both are loaded."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from kvtui.core.derived import attn_tp_size, is_dummy, whole
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.model.archs import DRAFT_HEADS
from kvtui.core.model.known import is_known
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.speculative_drafts import (
    bundles_dspark,
    draft_config,
    markov_rank,
    target_layers,
)

DRAFT = "--speculative-draft-model-path Qwen/Qwen3-0.6B "


@cache
def _table() -> dict[str, frozenset[str]]:
    path = resources.files("kvtui.core.tables") / "drafts.toml"
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        name: frozenset(row["architectures"]) for name, row in rows.items() if isinstance(row, dict)
    }


def offers(architecture: str, what: str) -> bool:
    """Whether an architecture of the release offers `what` (a heading of drafts.toml)."""
    return architecture in _table()[what]


def _speculates(r: Resolution, *algorithms: str) -> bool:
    return r.speculative_algorithm in algorithms and not is_dummy(r) and r.model.is_known


def _draft(r: Resolution) -> Mapping[str, Any]:
    """The draft's configuration; the target's own where no draft is named."""
    own = r.speculative_draft_model_path in (None, r.model_path)
    return r.model.hf_config.values if own else draft_config(r)


def draft_architecture(r: Resolution) -> str:
    """The class that is built for the draft."""
    names = _draft(r).get("architectures") or ("",)
    name = str(names[0])
    if name == "DeepseekV4ForCausalLM":
        spark = bundles_dspark(_draft(r)) and r.speculative_algorithm == "DSPARK"
        return "DeepseekV4ForCausalLMDSpark" if spark else "DeepseekV4ForCausalLMNextN"
    return DRAFT_HEADS.get(name, name)


@rule(
    "KV943", stage=Stage.LOAD, option="speculative_algorithm",
    source="speculative/pp_draft_embedding.py:79",
    example=Example("--speculative-algorithm EAGLE", model="mistralai/Mixtral-8x7B-v0.1"),
    fragments=("has no attribute 'get_embed_and_head'",),
)  # fmt: skip
def target_lends_its_embedding(r: Resolution) -> Iterator[Hit]:
    """EAGLE drafts share the target's embedding and LM head.

    Why: a target whose code does not hand them out stops the draft right after loading.

    Fix: draft with a small model of its own (STANDALONE) or without one (NGRAM).
    """
    if _speculates(r, "EAGLE", "EAGLE3") and not offers(r.model.arch, "lends_embedding"):
        yield hit(
            f"{r.model.arch} does not share its embedding with a draft",
            set_to("draft from the text itself", speculative_algorithm="NGRAM",
                   speculative_ngram_max_bfs_breadth=1),
            drop("speculative_algorithm"),
        )  # fmt: skip


def _captures(r: Resolution) -> bool:
    name, algorithm = r.model.arch, r.speculative_algorithm
    if algorithm == "EAGLE3":
        own = _draft(r).get("eagle_config")
        reads = own.get("use_aux_hidden_state", True) if isinstance(own, Mapping) else True
        return not reads or offers(name, "captures_eagle3")
    return offers(name, "captures_dflash") or (
        algorithm == "DSPARK" and offers(name, "captures_dspark")
    )


@rule(
    "KV944", stage=Stage.LOAD, option="speculative_algorithm",
    source="model_executor/model_runner_components/attention_backend_setup.py:55",
    example=Example(f"--speculative-algorithm DFLASH {DRAFT}", model="mistralai/Mixtral-8x7B-v0.1"),
    fragments=("does not implement set_eagle3_layers_to_capture",
               "implements neither set_dspark_layers_to_capture"),
)  # fmt: skip
def target_captures_hidden_states(r: Resolution) -> Iterator[Hit]:
    """EAGLE3, DFLASH and DSPARK read hidden states from inside the target.

    Why: the target's code has to record the layers that the draft was trained on.

    Fix: use an algorithm that needs none, such as STANDALONE or NGRAM.
    """
    if _speculates(r, "EAGLE3", "DFLASH", "DSPARK") and not _captures(r):
        yield hit(
            f"{r.model.arch} records no hidden states for {r.speculative_algorithm}",
            set_to("draft from the text itself", speculative_algorithm="NGRAM",
                   speculative_ngram_max_bfs_breadth=1),
            drop("speculative_algorithm"),
        )  # fmt: skip


@rule(
    "KV945", stage=Stage.LOAD, option="speculative_draft_model_path",
    source="speculative/eagle_worker_v2.py:366",
    example=Example(f"--speculative-algorithm EAGLE3 {DRAFT}"),
    fragments=("has no attribute 'hot_token_id'", "has no attribute 'set_embed_and_head'",
               "has no attribute 'set_embed'"),
)  # fmt: skip
def draft_is_a_head_for_it(r: Resolution) -> Iterator[Hit]:
    """An EAGLE draft is a head that continues the target, not a model of its own.

    Why: EAGLE drafts take over the target's embedding, EAGLE3 drafts bring their own short
    vocabulary; an ordinary model has neither place.

    Fix: name a checkpoint trained for it, or use STANDALONE for a small model.
    """
    if not _speculates(r, "EAGLE", "EAGLE3"):
        return
    name = draft_architecture(r)
    wanted = "eagle3_drafts" if r.speculative_algorithm == "EAGLE3" else "takes_embedding"
    if is_known((name,)) and not offers(name, wanted):
        fixes = [drop("speculative_algorithm")]
        if r.speculative_draft_model_path not in (None, r.model_path):
            fixes.insert(0, set_to("draft with it as a model of its own",
                                   speculative_algorithm="STANDALONE"))  # fmt: skip
        yield hit(f"{name} is no {r.speculative_algorithm} draft", *fixes)


@rule(
    "KV946", stage=Stage.LOAD, option="speculative_draft_model_path", source="models/qwen3.py",
    example=Example(f"--tp-size 32 --nnodes 4 --dist-init-addr a:1 "
                    f"--speculative-algorithm STANDALONE {DRAFT}", model="Qwen/Qwen3-235B-A22B"),
)  # fmt: skip
def draft_heads_divide(r: Resolution) -> Iterator[Hit]:
    """A draft's heads are split between the same ranks as the target's.

    Why: the draft runs in the target's tensor-parallel group, and its layers assert it.

    Fix: use fewer ranks, or a draft with more heads.
    """
    path = r.speculative_draft_model_path
    if not _speculates(r, "EAGLE", "EAGLE3", "STANDALONE", "DFLASH", "DSPARK"):
        return
    if path in (None, r.model_path):
        return
    config, ranks = draft_config(r), attn_tp_size(r)
    nested = config.get("text_config")
    text = nested if isinstance(nested, Mapping) else config
    heads = whole(text.get("num_attention_heads"))
    kv_heads = whole(text.get("num_key_value_heads"), heads)
    mla = text.get("kv_lora_rank") is not None
    uneven = kv_heads and (kv_heads % ranks if kv_heads >= ranks else ranks % kv_heads)
    if heads % ranks or (uneven and not mla):
        yield hit(
            f"{path} has {heads} heads and {kv_heads} KV heads for {ranks} ranks",
            drop("speculative_algorithm", "speculative_draft_model_path",
                 title="run without speculation"),
        )  # fmt: skip


@rule(
    "KV947", stage=Stage.LOAD, option="speculative_draft_model_path", severity=Severity.WARNING,
    source="configs/model_config.py:956", example=Example("--speculative-algorithm EAGLE"),
)  # fmt: skip
def target_drafts_for_itself(r: Resolution) -> Iterator[Hit]:
    """Without a draft path the target's own checkpoint is loaded as the draft.

    Why: models that ship a draft layer mean just that; any other is loaded a second time, whole,
    and drafts no faster than it verifies.

    Fix: name a draft checkpoint.
    """
    own = r.speculative_draft_model_path in (None, r.model_path)
    if not own or not _speculates(r, "EAGLE", "STANDALONE"):
        return
    if r.model.arch not in (*DRAFT_HEADS, "DeepseekV4ForCausalLM"):
        yield hit(
            f"{r.model.arch} brings no draft layer: the whole model is loaded twice",
            drop("speculative_algorithm", title="run without speculation"),
        )


@rule(
    "KV948", stage=Stage.LOAD, option="speculative_draft_model_path",
    source="model_executor/model_runner_components/spec_aux_hidden_state.py:269",
    example=Example(f"--speculative-algorithm DSPARK {DRAFT}"),
    fragments=("DSPARK requires markov_rank > 0", "DSpark draft requires markov_rank",
               "contains an out-of-range layer id", "out of range for a target with"),
)  # fmt: skip
def draft_was_made_for_this_target(r: Resolution) -> Iterator[Hit]:
    """A block draft names layers that the target has, and DSPARK's a Markov head.

    Why: both are read from the draft's config.json when the runner starts.

    Fix: name a draft that was trained for this target.
    """
    fix = drop("speculative_algorithm", "speculative_draft_model_path",
               title="run without speculation")  # fmt: skip
    layers = r.model.num_hidden_layers * whole(r.model.hf_text_config.get("num_loops"), 1)
    ids = r.return_aux_hidden_state_layer_ids or ()
    if any(whole(layer) >= layers for layer in ids):
        name = "return_aux_hidden_state_layer_ids"
        yield hit(f"--return-aux-hidden-state-layer-ids: the target has {layers} layers",
                  drop(name, "enable_return_aux_hidden_states"), option=name)  # fmt: skip
    if not _speculates(r, "DFLASH", "DSPARK"):
        return
    config = _draft(r)
    wrong = [layer for layer in target_layers(config) if not 0 <= layer < layers]
    if wrong:
        yield hit(f"the draft reads layers {wrong}, the target has {layers}", fix)
    if r.speculative_algorithm == "DSPARK" and markov_rank(config) <= 0:
        yield hit("the draft's config.json has no Markov head (markov_rank)", fix)


LATE_DRAFTS: tuple[Part, ...] = (
    target_lends_its_embedding,
    target_captures_hidden_states,
    draft_is_a_head_for_it,
    draft_heads_divide,
    target_drafts_for_itself,
    draft_was_made_for_this_target,
)
