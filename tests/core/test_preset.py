"""Presets: read strictly, written minimally, proof that notices edits, codes that survive chat."""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.draft import Draft
from kvtui.core.evaluate import evaluate
from kvtui.core.findings import Change, Outcome
from kvtui.core.preset import (
    Meta,
    Preset,
    PresetError,
    Proof,
    dump_preset,
    is_preset_name,
    load_preset,
    with_proof,
)
from kvtui.core.preset_cautions import MODEL_FOLDERS, cautions_of, forbidden_path
from kvtui.core.preset_schema import preset_schema
from kvtui.core.secrets import secrets_of
from kvtui.core.share import decode, encode, is_code
from tests.core.strategies import drafts
from tests.support import facts_for

TEXT = '''# how we run it
schema = 1

[meta]
title = "Demo"   # short
notes = """
first
second"""

[hardware]
gpu = "h200"
count = 8

[launch]
# the model
model_path = "Qwen/Qwen3-8B"
tp_size = 2      # both cards
cuda_graph_bs_decode = [
  1,
  2,
]

[env]
SGLANG_X = "1"
'''

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "presets").glob("*.toml"))


def test_reads_what_is_there() -> None:
    preset = load_preset(TEXT)
    assert preset.draft.options == {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
        "cuda_graph_bs_decode": [1, 2],
    }
    assert (preset.draft.gpu, preset.draft.gpu_count) == ("h200", 8)
    assert preset.draft.env == {"SGLANG_X": "1"}
    assert preset.meta == Meta(title="Demo", notes="first\nsecond")


def test_saving_unchanged_keeps_every_character() -> None:
    assert dump_preset(load_preset(TEXT), TEXT) == TEXT


def test_saving_an_edit_keeps_comments_and_order() -> None:
    preset = load_preset(TEXT)
    edits = [Change("tp_size", 4), Change("page_size", 64), Change("env:SGLANG_X")]
    saved = dump_preset(replace(preset, draft=preset.draft.with_changes(edits)), TEXT)
    assert "tp_size = 4  # both cards\n" in saved
    assert saved.startswith("# how we run it\nschema = 1\n")
    assert "# the model\n" in saved
    assert "page_size = 64\n" in saved
    assert "SGLANG_X" not in saved
    again = load_preset(saved)
    assert again.draft.options["page_size"] == 64
    assert again.draft.env == {}


def test_an_edit_that_can_not_be_made_in_place_writes_fresh_text() -> None:
    odd = "schema = 1\nlaunch.model_path = 'm'\n"
    preset = load_preset(odd)
    saved = dump_preset(Preset(preset.draft.with_changes([Change("tp_size", 2)])), odd)
    assert load_preset(saved).draft.options == {"model_path": "m", "tp_size": 2}


@settings(max_examples=80, deadline=None)
@given(draft=drafts(), title=st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_round_trip(draft: Draft, title: str) -> None:
    gone = [k for k, v in draft.options.items() if k not in MODEL_FOLDERS and forbidden_path(v)]
    options = {k: v for k, v in draft.options.items() if k not in gone}
    preset = Preset(replace(draft, options=options, gpu="h100"), Meta(title=title))
    again = load_preset(dump_preset(preset))
    assert (again.draft, again.meta) == (preset.draft, preset.meta)
    code = encode(preset)
    assert decode(code).draft == preset.draft
    assert code.isascii()
    assert not set(code) & set(" \n\"'`$\\&|;<>()")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = [", "no valid TOML"),
        ("schema = 2", "newer kvtui"),
        ("schema = true", "schema: expected"),
        ("launch = 3", "expected a table"),
        ("[lunch]", "did you mean launch"),
        ("[launch]\nmem_fraction = 0.9", "did you mean mem_fraction_static"),
        ("[launch]\nmamba_scheduler_strategy = 'x'", "today it is mamba_radix_cache_strategy"),
        ("[launch]\npage_size = '64'", "page_size: expected a whole number"),
        ("[launch]\npage_size = true", "page_size: expected a whole number"),
        ("[launch]\ndisable_radix_cache = 1", "expected true or false"),
        ("[launch]\nconfig = 'x.yaml'", "config can't stand here"),
        ("[launch]\napi_key = 'x'", "holds a secret"),
        ("[launch]\nuses_mamba_radix_cache = true", "no option"),
        ("[launch]\nlmcache_config_file = '../../etc/passwd'", "leaves the preset's folder"),
        ("[launch]\nserved_model_name = 'a\\u0000b'", "NUL"),
        ("[env]\nHF_TOKEN = 'x'", "holds a secret"),
        ("[env]\n'a b' = 'x'", "no name of a variable"),
        ("[env]\nA = 1", "expected text"),
        ("[hardware]\ncount = 0", "expected 1 to 4096"),
        ("[hardware]\ngpu = 8", "gpu: expected text"),
        ("[meta]\ntitel = 'x'", "did you mean title"),
        ("[meta]\ntags = [1]", "expected a list of text"),
        ("[proof]\nverdict = 'starts'", "digest is missing"),
        ("[proof]\ndigest = 1", "digest: expected text"),
    ],
)
def test_bad_input_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(PresetError) as raised:
        load_preset(text, "mine.toml")
    line = str(raised.value)
    assert words in line
    assert line.startswith("mine.toml: ")
    assert "\n" not in line


def test_a_choice_of_another_release_is_left_to_the_rules() -> None:
    text = "[launch]\nmodel_path = 'm'\nkv_cache_dtype = 'fp4_e2m1'"
    assert load_preset(text).draft.options["kv_cache_dtype"] == "fp4_e2m1"


def test_proof_goes_stale_with_the_launch() -> None:
    preset = with_proof(load_preset(TEXT), Proof("", verdict="starts", tokens_built=4096))
    assert not preset.is_stale
    saved = dump_preset(preset, TEXT)
    assert not load_preset(saved).is_stale
    edited = saved.replace("tp_size = 2", "tp_size = 4")
    assert load_preset(edited).is_stale
    assert load_preset(saved).proof == preset.proof


def test_secrets_never_leave() -> None:
    draft = Draft(
        {
            "model_path": "m",
            "api_key": "abc123",
            "hicache_storage_backend_extra_config": '{"access_key": "abc123"}',
            "otlp_traces_endpoint": "https://user:abc123@host",
        },
        {"HF_TOKEN": "abc123", "SGLANG_X": "1"},
    )
    assert len(secrets_of(draft)) == 4
    preset = with_proof(Preset(draft), Proof(""))
    assert "abc123" not in dump_preset(preset)
    assert decode(encode(preset)).draft.options == {"model_path": "m"}


def test_cautions_name_what_deserves_a_look() -> None:
    draft = Draft(
        {
            "model_path": "/models/x",
            "trust_remote_code": True,
            "host": "0.0.0.0",
            "custom_weight_loader": ["a.b"],
        },
        {"LD_PRELOAD": "x.so"},
    )
    text = "\n".join(cautions_of(draft))
    for word in ("--trust-remote-code", "/models/x", "--host", "--custom-weight-loader"):
        assert word in text
    assert "LD_PRELOAD" in text
    assert cautions_of(Draft({"model_path": "Qwen/Qwen3-8B"})) == ()


def test_drafts_with_unknown_words_are_not_saved() -> None:
    with pytest.raises(PresetError, match="--nope is no option"):
        dump_preset(Preset(Draft({"model_path": "m"}, unknown=("--nope",))))


def test_codes_survive_chat_and_notice_damage() -> None:
    code = encode(load_preset(TEXT))
    wrapped = f"here you go:\n> `{code[:40]}\n> {code[40:]}`"
    assert is_code(wrapped)
    assert decode(wrapped).draft == load_preset(TEXT).draft
    with pytest.raises(PresetError, match="damaged"):
        decode(code.replace(code[20], "A" if code[20] != "A" else "B", 1))
    with pytest.raises(PresetError, match="no share code"):
        decode("hello")
    with pytest.raises(PresetError, match="format 9"):
        decode("kvtui9.AAAA.AAAAAAAA")


def test_a_code_can_not_grow_without_bound() -> None:
    huge = Preset(Draft({"model_path": "m", "served_model_name": "x" * (1 << 19)}))
    with pytest.raises(PresetError, match="larger than"):
        encode(huge)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (load_preset, decode):
        with contextlib.suppress(PresetError):
            read(text)


@pytest.mark.parametrize(
    ("name", "good"),
    [("qwen3-8b", True), ("a.b_c", True), ("../x", False), ("a/b", False), ("", False),
     (".hidden", False), ("a..b", False), ("x" * 81, False), ("a\nb", False)],
)  # fmt: skip
def test_names(name: str, good: bool) -> None:
    assert is_preset_name(name) is good


def test_schema_knows_every_table() -> None:
    schema = preset_schema()
    launch = schema["properties"]["launch"]["properties"]
    assert len(launch) > 500
    assert launch["kv_cache_dtype"]["enum"][0] == "auto"
    assert "api_key" not in launch
    assert set(tomllib.loads(TEXT)) <= set(schema["properties"])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_presets_start(path: Path) -> None:
    """The rules accept each one for its GPU, with nothing rewritten behind its back."""
    draft = load_preset(path.read_text(encoding="utf-8"), path.name).draft
    report = evaluate(draft, facts_for(draft))
    assert report.outcome is Outcome.STARTS, [f.message for f in report.errors] or report.unknowns
    assert "KV090" not in {f.rule for f in report.findings}


def test_shipped_presets_cover_the_field() -> None:
    assert len(SHIPPED) >= 24
    tags = {t for p in SHIPPED for t in load_preset(p.read_text(encoding="utf-8")).meta.tags}
    wanted = {
        "dense", "MoE", "MLA", "DSA", "sliding window", "hybrid", "FP4", "multimodal",
        "embedding", "file storage", "mooncake", "prefill", "decode", "long context", "24 GB",
    }  # fmt: skip
    assert wanted <= tags


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_presets_read(path: Path) -> None:
    preset = load_preset(path.read_text(encoding="utf-8"), path.name)
    assert is_preset_name(path.stem)
    assert preset.meta.title
    assert preset.meta.goal
    assert preset.draft.gpu
    assert not any("trust-remote" in line for line in preset.cautions)
    assert dump_preset(preset, path.read_text(encoding="utf-8")) == path.read_text("utf-8")
