"""Parallel widths: what the engine makes of them, refuses, and what model loading refuses."""

from __future__ import annotations

import pytest

from kvtui.core.evaluate import Report
from kvtui.core.facts import Checkpoint
from kvtui.core.findings import Stage
from tests.support import errors_of, judge

DENSE = "Qwen/Qwen3-8B"
MOE = "Qwen/Qwen3-30B-A3B"
MLA = "deepseek-ai/DeepSeek-V3"


def launch(model: str, argv: str, gpu: str = "h200", **more: object) -> Report:
    return judge(f"--model-path {model} {argv}", gpu, **more)  # type: ignore[arg-type]


def test_old_dp_attention_counts_groups() -> None:
    values = launch(MLA, "--tp-size 8 --dp-size 8 --enable-dp-attention").plan.values
    assert (values["attn_dp_size"], values["dp_size"]) == (8, 1)
    assert values["enable_dp_attention"] is False


def test_old_flag_beside_the_new_option_adds_nothing() -> None:
    values = launch(MLA, "--tp-size 8 --attn-dp-size 4 --enable-dp-attention").plan.values
    assert (values["attn_dp_size"], values["dp_size"]) == (4, 1)


def test_attention_dp_splits_the_chunk_and_admits_more() -> None:
    report = launch(MLA, "--tp-size 8 --attn-dp-size 8 --chunked-prefill-size 16384")
    assert report.plan.values["chunked_prefill_size"] == 2048
    assert report.plan.values["schedule_conservativeness"] == pytest.approx(0.3)
    assert "split between 8" in report.plan.origins["chunked_prefill_size"].why


def test_whole_prompts_stay_whole_under_attention_dp() -> None:
    values = launch(MLA, "--tp-size 2 --attn-dp-size 2 --chunked-prefill-size -1").plan.values
    assert values["chunked_prefill_size"] == -1


def test_prefill_graphs_follow_the_split_chunk() -> None:
    graphs = launch(DENSE, "--tp-size 4 --attn-dp-size 4").plan.values["cuda_graph_config"]
    assert graphs.prefill.max_bs == 2048
    assert max(graphs.prefill.bs) <= 2048


def test_a_chosen_prefill_graph_limit_is_left_alone() -> None:
    report = launch(DENSE, "--tp-size 4 --attn-dp-size 4 --cuda-graph-max-bs-prefill 4096")
    assert report.plan.values["cuda_graph_config"].prefill.max_bs == 4096


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        ("--attn-dp-size 0", "KV450"),
        ("--tp-size 4 --dp-size 2 --attn-dp-size 2", "KV451"),
        ("--tp-size 4 --attn-dp-size 3", "KV452"),
        ("--tp-size 4 --attn-dp-size 8", "KV452"),
        ("--dp-size 2 --enable-dp-lm-head", "KV453"),
        ("--tp-size 4 --attn-dp-size 2 --enable-tp-lm-head-all-to-all", "KV454"),
        ("--dcp-size 0", "KV455"),
        ("--tp-size 4 --dcp-size 2 --enable-prefill-cp --cp-strategy zigzag", "KV456"),
        ("--dcp-comm-backend a2a", "KV457"),
        ("--tp-size 4 --dcp-size 2 --dcp-comm-backend ag_rs --dcp-replicate-q-proj", "KV459"),
        ("--enable-prefill-cp", "KV464"),
        ("--tp-size 4 --attn-cp-size 3", "KV465"),
        ("--tp-size 4 --moe-dp-size 3", "KV467"),
        ("--tp-size 4 --moe-dp-size 0", "KV468"),
        ("--tp-size 4 --attn-cp-size 2 --moe-dp-size 2 --ep-size 4", "KV467"),
    ],
)
def test_refused_widths(argv: str, rule: str) -> None:
    assert rule in errors_of(launch(DENSE, argv))


@pytest.mark.parametrize(
    "argv",
    [
        "--tp-size 4 --attn-dp-size 2",
        "--tp-size 4 --attn-cp-size 2 --moe-dp-size 2 --ep-size 2",
        "--tp-size 2 --attn-cp-size 2 --enable-prefill-cp --cp-strategy zigzag",
        "--tp-size 2 --attn-dp-size 2 --enable-tp-lm-head-all-to-all",
        "--enable-dp-lm-head",
    ],
)
def test_accepted_widths(argv: str) -> None:
    assert not {rule for rule in errors_of(launch(DENSE, argv)) if rule.startswith("KV4")}


@pytest.mark.parametrize(
    ("gpu", "backend"), [("h200", "a2a"), ("b200", "fi_a2a"), ("mi300x", "a2a")]
)
def test_decode_context_exchange_follows_the_gpu(gpu: str, backend: str) -> None:
    values = launch(MLA, "--tp-size 8 --dcp-size 2", gpu).plan.values
    assert values["dcp_comm_backend"] == backend


def test_a_pure_decode_server_shards_its_lm_head() -> None:
    argv = "--tp-size 2 --attn-dp-size 2 --disaggregation-mode decode"
    assert launch(DENSE, argv).plan.values["enable_tp_lm_head_all_to_all"] is True
    assert launch(DENSE, "--tp-size 2").plan.values["enable_tp_lm_head_all_to_all"] is False


def test_pipeline_stages_run_without_overlap() -> None:
    assert launch(DENSE, "--pp-size 2").plan.values["disable_overlap_schedule"] is True


def test_balancing_experts_brings_recorder_and_dispatch() -> None:
    values = launch(MOE, "--tp-size 8 --ep-size 8 --enable-eplb").plan.values
    assert values["expert_distribution_recorder_mode"] == "stat"
    assert values["expert_distribution_recorder_buffer_size"] == 1000
    assert values["ep_dispatch_algorithm"] == "dynamic"
    values = launch(MOE, "--tp-size 8 --enable-eplb --moe-a2a-backend deepep").plan.values
    assert values["ep_dispatch_algorithm"] == "static"


def test_dwdp_sets_the_layout() -> None:
    values = launch(MOE, "--tp-size 4 --dwdp-size 4").plan.values
    assert values["attn_dp_size"] == values["ep_size"] == 4
    assert values["moe_dense_tp_size"] == 1
    assert values["enable_dp_lm_head"] is True


def test_a_growing_expert_group_names_everything_it_fixes() -> None:
    argv = "--tp-size 4 --elastic-ep-backend mooncake --max-ep-size 8"
    messages = " ".join(f.message for f in launch(MOE, argv).errors if f.rule == "KV478")
    for part in ("--moe-a2a-backend", "attention-DP", "--enable-dp-lm-head", "prefill graph"):
        assert part in messages


def test_a_complete_growing_group_starts() -> None:
    argv = (
        "--tp-size 4 --elastic-ep-backend mooncake --max-ep-size 8 --attn-dp-size 4 "
        "--enable-dp-lm-head --ep-size 4 --moe-a2a-backend nixl "
        "--cuda-graph-backend-prefill disabled"
    )
    report = launch(MOE, argv)
    assert "KV478" not in errors_of(report)
    assert report.plan.values["elastic_ep_initial_size"] == 4


@pytest.mark.parametrize(
    ("model", "argv", "rule"),
    [
        (DENSE, "--tp-size 16", "KV930"),
        (DENSE, "--tp-size 4 --base-gpu-id 6", "KV930"),
        (DENSE, "--dp-size 3 --tp-size 4", "KV930"),
        (DENSE, "--tp-size 0", "KV931"),
        (DENSE, "--tp-size 4 --attn-dp-size 2 --nnodes 2", "KV932"),
        (DENSE, "--tp-size 3", "KV933"),
        ("Qwen/Qwen3.5-27B", "--tp-size 6", "KV934"),
        ("Qwen/Qwen3-32B-FP8", "--tp-size 16 --nnodes 2 --dist-init-addr a:1", "KV936"),
        (MOE, "--tp-size 4 --ep-size 3", "KV937"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "--pp-size 2", "KV938"),
        (DENSE, "--pp-size 64", "KV938"),
        (DENSE, "--tp-size 4 --dcp-size 3", "KV939"),
        (MOE, "--tp-size 8 --ep-size 8 --ep-num-redundant-experts 3", "KV940"),
        ("Qwen/Qwen3-30B-A3B-FP8", "--tp-size 8", "KV941"),
        ("mistralai/Mixtral-8x7B-v0.1", "--speculative-algorithm EAGLE", "KV943"),
        (DENSE, "--speculative-algorithm EAGLE3", "KV945"),
        (DENSE, "--decoupled-spec-role verifier", "KV942"),
    ],
)
def test_what_model_loading_refuses(model: str, argv: str, rule: str) -> None:
    found = [f for f in launch(model, argv).errors if f.rule == rule]
    assert found
    assert all(f.stage is Stage.LOAD for f in found)


@pytest.mark.parametrize(
    ("model", "argv"),
    [
        ("Qwen/Qwen3-30B-A3B-FP8", "--tp-size 2"),
        ("Qwen/Qwen3-30B-A3B-FP8", "--tp-size 8 --ep-size 8"),
        ("Qwen/Qwen3-30B-A3B-FP8", "--tp-size 8 --moe-a2a-backend deepep"),
        ("Qwen/Qwen3-32B-FP8", "--tp-size 8"),
        (DENSE, "--tp-size 16 --nnodes 2 --dist-init-addr node0:5000"),
        (MLA, "--tp-size 16 --nnodes 2 --dist-init-addr node0:5000"),
        (MOE, "--tp-size 8 --ep-size 8 --ep-num-redundant-experts 16"),
        (MOE, "--tp-size 4 --pp-size 2"),
    ],
)
def test_what_model_loading_takes(model: str, argv: str) -> None:
    assert not {r for r in errors_of(launch(model, argv)) if r in LATE}


LATE = {f"KV{number}" for number in range(930, 950)}


def test_fewer_gpus_on_the_machine_are_noticed() -> None:
    assert "KV930" in errors_of(launch(DENSE, "--tp-size 2", gpu_count=1))
    assert "KV930" not in errors_of(launch(DENSE, "--tp-size 1", gpu_count=1))


def test_a_target_without_a_draft_layer_is_warned_about() -> None:
    report = launch(DENSE, "--speculative-algorithm EAGLE")
    assert "KV947" in {f.rule for f in report.findings}
    assert "KV947" not in errors_of(report)
    ships = launch(MLA, "--tp-size 8 --speculative-algorithm EAGLE")
    assert "KV947" not in {f.rule for f in ships.findings}


@pytest.mark.parametrize(
    ("draft", "algorithm", "rule"),
    [
        ({"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 12}, "STANDALONE", "KV946"),
        ({"architectures": ["LlamaForCausalLM"], "num_attention_heads": 16}, "EAGLE3", "KV945"),
        ({"dflash_config": {"target_layer_ids": [2, 99]}, "num_hidden_layers": 2}, "DFLASH",
         "KV948"),
        ({"num_hidden_layers": 2, "num_attention_heads": 16}, "DSPARK", "KV948"),
    ],
)  # fmt: skip
def test_drafts_that_do_not_fit(draft: dict[str, object], algorithm: str, rule: str) -> None:
    words = f"--tp-size 8 --speculative-algorithm {algorithm} --speculative-draft-model-path d"
    checkpoints = {"d": Checkpoint("d", f"d-{draft}", draft)}
    assert rule in errors_of(launch(DENSE, words, checkpoints=checkpoints))


def test_a_trained_head_fits() -> None:
    head = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 1,
    }
    words = "--tp-size 8 --speculative-algorithm EAGLE3 --speculative-draft-model-path d"
    report = launch(DENSE, words, checkpoints={"d": Checkpoint("d", "eagle3-head", head)})
    assert not errors_of(report) & LATE
