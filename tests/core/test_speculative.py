"""Speculative decoding: shapes, refusals and drafts of every algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.evaluate import Report
from kvtui.core.facts import Checkpoint
from kvtui.core.steps.speculative_drafts import (
    UnreadableDraft,
    dflash_block_size,
    draft_is_causal_or_sliding,
    dspark_gamma,
)
from tests.support import errors_of, judge

DENSE = "Qwen/Qwen3-8B"
V3 = "deepseek-ai/DeepSeek-V3"
SMALL = "--speculative-draft-model-path Qwen/Qwen3-0.6B"
TREE = "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"


def launch(
    argv: str,
    model: str = DENSE,
    gpu: str = "h200",
    env: Mapping[str, str] | None = None,
    draft: Mapping[str, Any] | None = None,
) -> Report:
    checkpoints = {"draft": Checkpoint("draft", f"draft-{draft}", draft)} if draft else None
    words = f"--model-path {model} {argv}"
    if draft:
        words += " --speculative-draft-model-path draft"
    return judge(words, gpu, env=env, checkpoints=checkpoints)


def shape(report: Report) -> tuple[Any, Any, Any]:
    values = report.plan.values
    return (
        values["speculative_num_steps"],
        values["speculative_eagle_topk"],
        values["speculative_num_draft_tokens"],
    )


@pytest.mark.parametrize(
    ("model", "algorithm", "wanted"),
    [
        (DENSE, "EAGLE", (3, 1, 4)),
        (V3, "EAGLE", (3, 1, 4)),
        ("meta-llama/Meta-Llama-3.1-70B", "EAGLE", (5, 4, 8)),
        ("meta-llama/Meta-Llama-3.1-70B", "STANDALONE", (3, 1, 4)),
        (DENSE, "NGRAM", (1, 10, 12)),
        (DENSE, "DFLASH", (1, 1, 16)),
        (DENSE, "DSPARK", (1, 1, 8)),
    ],
)
def test_shapes_that_the_engine_chooses(
    model: str, algorithm: str, wanted: tuple[int, int, int]
) -> None:
    report = launch(f"--tp-size 8 --speculative-algorithm {algorithm} {SMALL}", model)
    assert shape(report) == wanted
    assert report.plan.values["max_running_requests"] == 48


def test_a_chain_is_verified_with_its_anchor() -> None:
    report = launch(
        "--speculative-algorithm EAGLE --speculative-num-steps 5 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 9"
    )
    assert shape(report) == (5, 1, 6)
    assert report.plan.origins["speculative_num_draft_tokens"].kind == "forced"


@pytest.mark.parametrize("word", ["NEXTN", "EAGLE", "eagle", "nextn"])
def test_words_for_eagle(word: str) -> None:
    report = launch(f"--speculative-algorithm {word}")
    assert report.plan.values["speculative_algorithm"] == "EAGLE"


def test_a_gemma4_assistant_reads_the_targets_cache() -> None:
    draft = {"architectures": ["Gemma4AssistantForCausalLM"]}
    report = launch("--speculative-algorithm NEXTN", draft=draft)
    assert report.plan.values["speculative_algorithm"] == "FROZEN_KV_MTP"
    assert "KV800" in errors_of(launch("--speculative-algorithm EAGLE3", draft=draft))


def test_targets_that_bring_their_draft() -> None:
    report = launch("--tp-size 8 --speculative-algorithm EAGLE", V3)
    assert report.plan.values["speculative_draft_model_path"] == V3
    assert (
        launch("--speculative-algorithm EAGLE").plan.values["speculative_draft_model_path"] is None
    )


def test_an_unknown_draft_leaves_the_verdict_open() -> None:
    report = launch("--speculative-algorithm EAGLE3 --speculative-draft-model-path no/where")
    assert report.outcome == "unknown"
    assert "no/where" in " ".join(report.unknowns)


@pytest.mark.parametrize(
    ("argv", "gpu", "rule"),
    [
        ("--speculative-algorithm MEDUSA", "h200", "KV800"),
        ("--speculative-use-block-verification", "h200", "KV803"),
        ("--speculative-draft-sink-size 4", "h200", "KV804"),
        ("--speculative-draft-window-size 0", "h200", "KV804"),
        ("--speculative-algorithm EAGLE --speculative-adaptive --speculative-num-steps 4",
         "h200", "KV806"),
        (f"--tp-size 2 --attn-dp-size 2 --speculative-algorithm STANDALONE {SMALL}", "h200",
         "KV810"),
        ("--speculative-algorithm EAGLE --speculative-eagle-topk 4", "h200", "KV812"),
        ("--speculative-algorithm EAGLE --speculative-num-steps 3", "h200", "KV812"),
        (f"--speculative-algorithm EAGLE --attention-backend trtllm_mha {TREE}", "b200", "KV813"),
        (f"--speculative-algorithm EAGLE --speculative-use-rejection-sampling {TREE}", "h200",
         "KV814"),
        (f"--speculative-algorithm STANDALONE --speculative-use-rejection-sampling {SMALL}",
         "h200", "KV814"),
        (f"--speculative-algorithm EAGLE --page-size 16 --attention-backend fa4 {TREE}", "h200",
         "KV815"),
        (f"--pp-size 2 --speculative-algorithm DFLASH {SMALL}", "h200", "KV820"),
        ("--speculative-algorithm DFLASH", "h200", "KV820"),
        (f"--tp-size 2 --attn-dp-size 2 --speculative-algorithm DSPARK {SMALL}", "h200", "KV823"),
        ("--speculative-algorithm DSPARK", "h200", "KV824"),
        (f"--speculative-algorithm DSPARK --speculative-num-draft-tokens 1 {SMALL}", "h200",
         "KV825"),
        ("--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 0", "h200", "KV830"),
        ("--speculative-algorithm NGRAM --page-size 16", "h200", "KV832"),
        ("--tp-size 2 --attn-dp-size 2 --speculative-algorithm NGRAM", "h200", "KV833"),
        ("--speculative-algorithm UNO --uno-lora-path a", "h200", "KV840"),
        ("--tp-size 2 --speculative-algorithm UNO --uno-lora-path a "
         "--speculative-num-draft-tokens 4", "h200", "KV841"),
        ("--speculative-algorithm UNO --uno-lora-path a --speculative-num-draft-tokens 4", "b200",
         "KV842"),
    ],
)  # fmt: skip
def test_refused(argv: str, gpu: str, rule: str) -> None:
    assert rule in errors_of(launch(argv, gpu=gpu))


@pytest.mark.parametrize(
    "argv",
    [
        f"--speculative-algorithm EAGLE --page-size 16 --attention-backend triton {TREE}",
        "--speculative-algorithm NGRAM --page-size 16 --speculative-ngram-max-bfs-breadth 1",
        "--speculative-algorithm NGRAM --page-size 16 --attention-backend flashinfer",
        "--speculative-algorithm UNO --uno-lora-path a --speculative-num-draft-tokens 4",
        "--speculative-algorithm EAGLE --speculative-adaptive",
        f"--speculative-algorithm DFLASH --speculative-dflash-block-size 8 {SMALL}",
    ],
)
def test_accepted(argv: str) -> None:
    assert not {rule for rule in errors_of(launch(argv)) if rule.startswith("KV8")}


def test_adaptive_speculation_starts_in_the_middle_of_its_table() -> None:
    assert shape(launch("--speculative-algorithm EAGLE --speculative-adaptive")) == (3, 1, 4)


def test_adaptive_speculation_gives_way_to_what_it_can_not_adapt() -> None:
    report = launch(f"--speculative-algorithm EAGLE --speculative-adaptive {TREE}")
    assert report.plan.values["speculative_adaptive"] is False
    assert "branches" in report.plan.origins["speculative_adaptive"].why


def test_mixed_chunks_stay_where_drafts_can_resume() -> None:
    mixed = "--enable-mixed-chunk --speculative-algorithm"
    assert launch(f"{mixed} EAGLE").plan.values["enable_mixed_chunk"] is True
    assert launch(f"{mixed} STANDALONE {SMALL}").plan.values["enable_mixed_chunk"] is False
    assert launch(f"{mixed} NGRAM").plan.values["enable_mixed_chunk"] is False


def test_block_verification_samples_eagle_drafts() -> None:
    report = launch("--speculative-algorithm EAGLE --speculative-use-block-verification")
    assert report.plan.values["speculative_use_rejection_sampling"] is True


def test_rocm_samples_chains() -> None:
    argv = "--speculative-algorithm EAGLE"
    sampled = "speculative_use_rejection_sampling"
    assert launch(argv, gpu="mi300x").plan.values[sampled] is True
    assert launch(argv).plan.values[sampled] is False


def test_a_draft_runs_where_its_attention_can() -> None:
    def backend(draft: Mapping[str, Any], argv: str, gpu: str) -> object:
        report = launch(f"--speculative-algorithm DFLASH {argv}", gpu=gpu, draft=draft)
        return report.plan.values["speculative_draft_attention_backend"]

    causal = {"is_causal": True, "num_hidden_layers": 2}
    plain = {"num_hidden_layers": 2}
    asked = "--speculative-draft-attention-backend trtllm_mha"
    assert backend(causal, asked, "b200") == "trtllm_mha"
    assert backend(plain, asked, "b200") == "fa4"
    assert backend(plain, "--attention-backend triton", "h200") == "triton"
    assert backend(plain, "--speculative-draft-attention-backend flashmla", "h200") == "flashinfer"


def test_the_drafts_block_sets_the_width() -> None:
    block = {"num_hidden_layers": 2, "dflash_config": {"block_size": 10}}
    assert shape(launch("--speculative-algorithm DFLASH", draft=block))[2] == 10
    spark = {"num_hidden_layers": 2, "block_size": 5, "markov_rank": 4, "markov_head_type": "rnn"}
    assert shape(launch("--speculative-algorithm DSPARK", draft=spark))[2] == 6
    odd = {**spark, "markov_head_type": "odd"}
    assert shape(launch("--speculative-algorithm DSPARK", draft=odd))[2] == 8


def test_readers_of_draft_configurations() -> None:
    assert dflash_block_size({"block_size": 7, "dflash_config": {"block_size": 9}}) == 9
    assert dspark_gamma({"dspark_block_size": 6, "dspark_markov_rank": 2}) == 6
    with pytest.raises(UnreadableDraft):
        dflash_block_size({"block_size": 0})
    with pytest.raises(UnreadableDraft):
        dspark_gamma({"block_size": 4, "markov_rank": 3})
    sliding = {"num_hidden_layers": 2, "layer_types": ["sliding_attention"] * 2}
    assert draft_is_causal_or_sliding(sliding)
    assert not draft_is_causal_or_sliding({**sliding, "num_hidden_layers": 3})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
KEYS = st.sampled_from(
    ["block_size", "dflash_config", "dspark_config", "markov_rank", "markov_head_type",
     "dspark_block_size", "num_hidden_layers", "text_config", "target_layer_ids"]
)  # fmt: skip


@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_hostile_draft_configurations_only_raise_their_own_error(config: dict[str, Any]) -> None:
    for read in (dflash_block_size, dspark_gamma):
        try:
            result = read(config)
        except UnreadableDraft:
            continue
        assert result is None or isinstance(result, int)
