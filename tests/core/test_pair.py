"""Prefill/decode pairs: read as one, judged together, exported so that they find each other."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.export.pair import PAIR_EXPORTERS, on_one_machine
from kvtui.core.findings import Outcome
from kvtui.core.imports import find_launches
from kvtui.core.pair import Pair, is_pair, load_pair, pair_findings, pair_outcome, router_words
from kvtui.core.preset import PresetError
from tests.support import draft_of, facts_for

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "presets" / "pairs").glob("*.toml"))
TEXT = """schema = 1
[hardware]
gpu = "h200"
[launch]
model_path = "Qwen/Qwen3-32B"
page_size = 64
[prefill]
tp_size = 2
[decode]
tp_size = 2
disaggregation_decode_enable_radix_cache = true
[router]
port = 9000
"""


def judge(draft: Draft) -> Report:
    return evaluate(draft, facts_for(draft))


def rules(prefill: str, decode: str, model: str = "Qwen/Qwen3-32B") -> set[str]:
    base = f"--model-path {model} --disaggregation-mode"
    reports = (
        judge(draft_of(f"{base} prefill {prefill}", gpu="h200")),
        judge(draft_of(f"{base} decode --port 30001 {decode}", gpu="h200")),
    )
    return {finding.rule for finding in pair_findings(*reports)}


def test_reads_both_halves() -> None:
    assert is_pair(TEXT)
    pair = load_pair(TEXT)
    assert pair.prefill.options == {
        "model_path": "Qwen/Qwen3-32B",
        "page_size": 64,
        "tp_size": 2,
        "disaggregation_mode": "prefill",
    }
    assert pair.decode.options["port"] == 30001
    assert pair.decode.options["disaggregation_decode_enable_radix_cache"] is True
    assert pair.router.port == 9000
    assert pair.prefill.gpu == pair.decode.gpu == "h200"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = [", "no valid TOML"),
        ("[launch]", "a pair has the tables"),
        ("[prefill]\n[decode]\nnope = 1", "no option nope"),
        ("[prefill]\n[decode]\n[router]\nports = 1", "[router] has no ports"),
        ("[prefill]\n[decode]\n[router]\nport = 'x'", "[router] port: expected int"),
    ],
)
def test_bad_input_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(PresetError) as raised:
        load_pair(text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("prefill", "decode", "rule"),
    [
        ("--page-size 64", "--page-size 32", "KV082"),
        ("--kv-cache-dtype fp8_e4m3", "", "KV083"),
        ("--disaggregation-transfer-backend nixl", "", "KV084"),
        ("--tp 4", "--tp 2", "KV085"),
        ("--pp-size 2", "--pp-size 4", "KV086"),
        ("", "--port 30000", "KV088"),
        ("--enable-hierarchical-cache --hicache-storage-backend file --hicache-mem-layout "
         "page_first", "--disaggregation-decode-enable-offload-kvcache --hicache-storage-backend "
         "file --hicache-mem-layout layer_first", "KV089"),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_found(prefill: str, decode: str, rule: str) -> None:
    assert rule in rules(prefill, decode)


def test_what_agrees_is_left_alone() -> None:
    assert rules("--tp 2 --page-size 64", "--tp 2 --page-size 64") == set()


def test_roles_and_models_are_compared() -> None:
    alone = judge(draft_of("--model-path Qwen/Qwen3-8B", gpu="h200"))
    other = judge(draft_of("--model-path Qwen/Qwen3-32B --disaggregation-mode decode", gpu="h200"))
    found = {finding.rule for finding in pair_findings(alone, other)}
    assert {"KV080", "KV081"} <= found
    assert pair_outcome(alone, other, pair_findings(alone, other)) is Outcome.FAILS


def test_latent_pools_may_be_split_differently() -> None:
    found = rules("--tp 8", "--tp 8 --attn-dp-size 8", "deepseek-ai/DeepSeek-V3")
    assert "KV085" not in found


def test_router_knows_both_servers() -> None:
    words = router_words(load_pair(TEXT), "a", "b")
    assert words[4:9] == ("--prefill", "http://a:30000", "8998", "--decode", "http://b:30001")


@pytest.mark.parametrize("format", PAIR_EXPORTERS)
def test_exports_hold_two_launches_that_agree(format: str) -> None:
    pair = load_pair(TEXT)
    found = find_launches(PAIR_EXPORTERS[format](pair, "demo", None))
    halves = pair if format == "k8s" else on_one_machine(pair)
    assert [f.draft.options for f in found] == [halves.prefill.options, halves.decode.options]


def test_halves_on_one_machine_have_their_own_gpus() -> None:
    pair = on_one_machine(load_pair(TEXT))
    assert pair.decode.options["base_gpu_id"] == 2
    fixed = replace(pair, decode=Draft({**pair.decode.options, "base_gpu_id": 4}))
    assert on_one_machine(fixed).decode.options["base_gpu_id"] == 4


def test_compose_waits_for_both() -> None:
    services = yaml.safe_load(PAIR_EXPORTERS["compose"](load_pair(TEXT), "demo", None))["services"]
    assert set(services) == {"demo-prefill", "demo-decode", "demo-router"}
    assert set(services["demo-router"]["depends_on"]) == {"demo-prefill", "demo-decode"}


def test_manifests_expose_the_bootstrap_port() -> None:
    documents = list(yaml.safe_load_all(PAIR_EXPORTERS["k8s"](load_pair(TEXT), "demo", None)))
    assert [d["kind"] for d in documents] == ["Deployment", "Service"] * 3
    ports = {p["name"]: p["port"] for p in documents[1]["spec"]["ports"]}
    assert ports == {"http": 30000, "bootstrap": 8998}


def test_bash_takes_the_script() -> None:
    text = PAIR_EXPORTERS["bash"](load_pair(TEXT), "a\nb", None)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_pairs_start(path: Path) -> None:
    pair: Pair = load_pair(path.read_text(encoding="utf-8"), path.name)
    reports = judge(pair.prefill), judge(pair.decode)
    found = pair_findings(*reports)
    assert found == ()
    assert pair_outcome(*reports, found) is Outcome.STARTS
