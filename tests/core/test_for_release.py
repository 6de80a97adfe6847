"""A draft judged for an earlier release: by its option table, and never wrongly refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.core import for_release, releases
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.findings import Outcome
from kvtui.core.options import NEWEST, stored_versions
from kvtui.core.rulebook import rules
from tests.support import draft_of, facts_for

MODEL = "--model-path Qwen/Qwen3-8B "


def judged(argv: str, version: str | None) -> Report:
    """The report for a release's engine."""
    draft = draft_of(MODEL + argv, gpu="h100")
    return evaluate(draft, replace(facts_for(draft), engine_version=version))


@pytest.mark.parametrize("version", [None, NEWEST, "0.5.24.dev3", "9.9.9", "words"])
def test_other_releases_are_judged_as_the_newest(version: str | None) -> None:
    assert judged("--enable-paged-experts", version).findings == (
        judged("--enable-paged-experts", None).findings
    )


@pytest.mark.parametrize("version", [v for v in stored_versions() if v != NEWEST])
def test_a_plain_launch_starts_on_every_release(version: str) -> None:
    report = judged("--page-size 64 --tp 1", version)
    assert (report.outcome, report.unknowns) == (Outcome.STARTS, ())


def test_an_option_that_came_later() -> None:
    report = judged("--enable-paged-experts", "0.5.22")
    found = [f for f in report.errors if f.rule == for_release.RELEASE_RULE]
    assert [f.message for f in found] == [
        "SGLang 0.5.22 has no option --enable-paged-experts; 0.5.23 has it"
    ]
    assert found[0].fixes[0].changes[0].option == "enable_paged_experts"
    assert report.outcome is Outcome.FAILS


def test_a_spelling_that_came_later() -> None:
    assert judged("--enable-hicache", "0.5.23").outcome is Outcome.STARTS
    report = judged("--enable-hicache", "0.5.22")
    assert [f.message for f in report.errors] == [
        "SGLang 0.5.22 has no option --enable-hicache; 0.5.23 has it"
    ]
    fixed = report.draft.with_changes(report.errors[0].fixes[0].changes)
    facts = replace(facts_for(fixed), engine_version="0.5.22")
    assert evaluate(fixed, facts).outcome is Outcome.STARTS
    assert judged("--enable-hierarchical-cache", "0.5.22").outcome is Outcome.STARTS


def test_a_choice_that_came_later() -> None:
    report = judged("--reasoning-parser beam", "0.5.22")
    assert "SGLang 0.5.22 does not take beam for --reasoning-parser" in report.errors[0].message


@pytest.mark.parametrize(
    ("argv", "version"),
    [("--dsa-prefill-cp-mode in-seq-split", "0.5.18"), ("--kv-cache-dtype fp4_e2m1", "0.5.20")],
)
def test_what_is_gone_today_is_a_doubt_there(argv: str, version: str) -> None:
    assert judged(argv, None).outcome is Outcome.FAILS
    report = judged(argv, version)
    assert report.outcome is Outcome.UNKNOWN
    assert version in report.unknowns[0]


def test_a_refusal_that_a_release_lacks_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = "--kv-cache-dtype mxfp8"
    rule = judged(argv, None).errors[0].rule
    assert judged(argv, "0.5.22").outcome is Outcome.FAILS
    monkeypatch.setattr(for_release, "lacking", lambda version: frozenset((rule,)))
    report = judged(argv, "0.5.22")
    assert report.outcome is Outcome.UNKNOWN
    assert rule in [f.rule for f in report.findings]


def test_tables_name_rules_that_exist() -> None:
    known = {rule.id for rule in rules()}
    for version in stored_versions():
        assert releases.lacking(version) <= known, version
    assert not releases.lacking(NEWEST)
