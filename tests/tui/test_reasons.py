"""The terms of a rule are the values that it really read on this launch."""

from __future__ import annotations

from kvtui.core.argv import parse
from kvtui.core.evaluate import evaluate
from kvtui.core.findings import Change
from kvtui.core.model.catalogue import find
from kvtui.core.pipeline import PIPELINE
from kvtui.core.resolution import Rule
from kvtui.tui.reasons import terms_of
from kvtui.tui.session import World, change_draft


def world_with(model: str) -> World:
    checkpoint = find(model)
    assert checkpoint is not None
    return World().with_checkpoint(model, checkpoint)


def test_terms_name_options_model_gpu_and_pool_with_present_values() -> None:
    model = "Qwen/Qwen3.5-27B"
    draft = parse(
        f"--model-path {model} --disaggregation-mode decode "
        "--disaggregation-decode-enable-offload-kvcache --hicache-storage-backend file".split()
    )
    draft = change_draft(draft, (Change("@gpu", "h200"),))
    facts = world_with(model).facts(draft)
    terms = {term.name: term for term in terms_of("KV780", draft, facts) or ()}
    assert terms["disaggregation_mode"].value == "decode"
    assert terms["disaggregation_mode"].origin == "chosen"
    assert terms["pool.class_name"].value == "HybridLinearKVPool"


def test_a_rule_that_does_not_fire_has_no_terms() -> None:
    draft = change_draft(parse(["--model-path", "Qwen/Qwen3-8B"]), (Change("@gpu", "h200"),))
    facts = world_with("Qwen/Qwen3-8B").facts(draft)
    assert terms_of("KV780", draft, facts) is None
    assert terms_of("no such rule", draft, facts) is None


def test_watching_changes_no_verdict() -> None:
    """Every rule with an example gives its finding under watch, too."""
    checked = 0
    for rule in [part for part in PIPELINE if isinstance(part, Rule) and part.example][::5]:
        assert rule.example is not None
        words = ["--model-path", rule.example.model, *rule.example.argv.split()]
        draft = change_draft(parse(words), (Change("@gpu", rule.example.gpu),))
        for name, value in rule.example.env.items():
            draft = change_draft(draft, (Change(f"env:{name}", value),))
        path = draft.model_path or rule.example.model
        if find(path) is None:
            continue
        facts = world_with(path).facts(draft)
        fires = any(f.rule == rule.id for f in evaluate(draft, facts).findings)
        if fires:
            checked += 1
            assert terms_of(rule.id, draft, facts) is not None, rule.id
    assert checked > 5
