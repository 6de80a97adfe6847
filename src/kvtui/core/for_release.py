"""A draft judged for an earlier release: what its parser lacks, and what its engine lets pass.

The rules describe one release. For an earlier one its option table decides what the parser takes,
and a refusal that it was seen not to make becomes a doubt, never a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from kvtui.core.argv import classify
from kvtui.core.findings import Change, Finding, Fix, Severity, Stage, drop
from kvtui.core.options import NEWEST, catalogue, stored_versions
from kvtui.core.releases import lacking, number
from kvtui.core.resolution import Resolution, Rule
from kvtui.core.values import shown

RELEASE_RULE = "RELEASE"
"""Stands where a rule's id stands in a finding that comes of a release's option table."""
UNKNOWN_WORD = frozenset(("KV001", "KV002", "KV003", "KV004"))
NO_CHOICE = "KV006"


def judge_for(r: Resolution, version: str) -> None:
    """Turn findings on the newest release into findings on `version`, an earlier stored one."""
    r.findings[:] = [*_missing_there(r, version), *_kept(r, version)]


def _missing_there(r: Resolution, version: str) -> Iterator[Finding]:
    """Options, spellings and values of the draft that came after `version`."""
    known, there = catalogue().options, catalogue(version)
    for name, value in r.draft.options.items():
        option = known.get(name)
        if option is None or not option.flags:
            continue
        written = r.draft.spelled.get(name, option.flag)
        earlier = classify(written.partition("=")[0], version).option
        fix = drop(name)
        if earlier is None:
            message = f"SGLang {version} has no option {written}{_came(written, version)}"
            if name in there.options and option.flag in there.by_flag:
                fix = Fix(f"write {option.flag}", (Change(name, value),))
        elif (problem := earlier.problem(value)) and option.problem(value) is None:
            message = f"SGLang {version} does not take {shown(value)} for {written}: {problem}"
        else:
            continue
        yield Finding(RELEASE_RULE, Severity.ERROR, Stage.PARSE, name, message, (fix,))


def _came(written: str, version: str) -> str:
    """Which stored release brought a spelling, as the end of a sentence."""
    releases = stored_versions()
    for later in releases[releases.index(version) + 1 :]:
        if classify(written.partition("=")[0], later).option is not None:
            return f"; {later} has it"
    return ""


def _kept(r: Resolution, version: str) -> Iterator[Finding]:
    words, lacks = _words_known(r, version), lacking(version)
    for finding in r.findings:
        name = finding.option or ""
        if finding.rule in _not_of(version):
            continue
        if finding.rule in UNKNOWN_WORD and name in words:
            r.doubt(f"{words[name]} is an option of SGLang {version} that the rules don't know")
        elif finding.rule == NO_CHOICE and _takes(r, name, version):
            r.doubt(f"SGLang {version} has a value of {name} that the rules don't know")
        elif finding.severity is Severity.ERROR and finding.rule in lacks:
            r.doubt(f"SGLang {version} was seen not to refuse by {finding.rule}, {NEWEST} does")
            yield replace(finding, severity=Severity.NOTE)
        else:
            yield finding


@cache
def _not_of(version: str) -> frozenset[str]:
    """Ids of the rules that say themselves that they hold for other releases."""
    from kvtui.core.pipeline import PIPELINE

    there = number(version)
    return frozenset(
        part.id
        for part in PIPELINE
        if isinstance(part, Rule)
        and (
            (part.since is not None and number(part.since) > there)
            or (part.until is not None and number(part.until) < there)
        )
    )


def _words_known(r: Resolution, version: str) -> dict[str, str]:
    """Words that the newest release does not have and `version` does, by field-like name."""
    found = {}
    for group in r.draft.unknown_groups:
        word = group[0].partition("=")[0]
        if classify(word, version).option is not None:
            found[word.lstrip("-").replace("-", "_")] = word
    return found


def _takes(r: Resolution, name: str, version: str) -> bool:
    option = catalogue(version).options.get(name)
    return option is not None and option.problem(r.draft.options.get(name)) is None
