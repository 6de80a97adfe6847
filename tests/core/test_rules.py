"""Every rule is well formed, its example fires it, and its fix takes it away."""

from __future__ import annotations

import re
import shlex

import pytest

from kvtui.core.evaluate import Report
from kvtui.core.findings import Severity
from kvtui.core.options import catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.resolution import Rule
from kvtui.core.rulebook import page_of, rules
from tests.support import draft_of, facts_for, judge

RULES = rules()
BACKEND_NAMES = {
    str(choice)
    for name in ("attention_backend", "moe_runner_backend", "linear_attn_backend")
    for choice in catalogue().options[name].choices or ()
}
"""Names that are written small, also where they begin a sentence."""
WITH_EXAMPLE = [rule for rule in RULES if rule.example is not None]


def example_report(rule: Rule) -> Report:
    """The report on a rule's own example."""
    assert rule.example is not None
    argv = shlex.split(rule.example.argv)
    if not any(word.split("=")[0] in ("--model-path", "--model") for word in argv):
        argv = ["--model-path", rule.example.model, *argv]
    return judge(argv, rule.example.gpu, env=rule.example.env)


def test_there_are_rules() -> None:
    assert len(RULES) > 100


def test_ids_are_unique_to_one_declaration() -> None:
    by_id: dict[str, Rule] = {}
    for part in PIPELINE:
        if isinstance(part, Rule):
            assert by_id.setdefault(part.id, part) is part, part.id


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_form(rule: Rule) -> None:
    page = page_of(rule)
    assert re.fullmatch(r"(KV|ADV)\d{3,4}", rule.id)
    assert page.title.endswith(".")
    first = page.title.split()[0]
    assert first[0].isupper() or first[0] in "`-" or first in BACKEND_NAMES, page.title
    assert len(page.title) <= 110
    assert page.why, "the page says why"
    assert re.search(r"\.py(:\d+)?", rule.source) or rule.id.startswith("ADV"), rule.source
    if rule.option is not None and ":" not in rule.option:
        assert rule.option in catalogue().options
    if rule.severity is Severity.ERROR:
        assert rule.example is not None, "an error shows a launch on which it fires"


@pytest.mark.parametrize("rule", WITH_EXAMPLE, ids=lambda rule: rule.id)
def test_example_fires_and_fixes_lead_out(rule: Rule) -> None:
    report = example_report(rule)
    found = [f for f in report.findings if f.rule == rule.id]
    assert found, f"{rule.id} does not fire on its example: {[f.rule for f in report.findings]}"
    for finding in found:
        assert finding.message.strip()
        assert "\n" not in finding.message
        assert not finding.message.endswith("!")
        for fix in finding.fixes:
            draft = report.draft.with_changes(fix.changes)
            again = judge_draft(draft)
            left = [f for f in again.findings if f.rule == rule.id and f.message == finding.message]
            assert not left, f"{fix.title}: {rule.id} still fires"


def judge_draft(draft: object) -> Report:
    from kvtui.core.draft import Draft
    from kvtui.core.evaluate import evaluate

    assert isinstance(draft, Draft)
    return evaluate(draft, facts_for(draft))


@pytest.mark.parametrize("rule", WITH_EXAMPLE, ids=lambda rule: rule.id)
def test_no_other_rule_breaks_on_the_example(rule: Rule) -> None:
    broken = [u for u in example_report(rule).unknowns if "could not be evaluated" in u]
    assert broken == []


def test_a_plain_launch_fires_no_error() -> None:
    for gpu in ("h100", "b200", "a100-80", "rtx4090"):
        assert judge("--model-path Qwen/Qwen3-8B", gpu).errors == ()
    assert draft_of("--model-path x").model_path == "x"
