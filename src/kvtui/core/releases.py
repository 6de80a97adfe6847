"""What earlier releases do otherwise, from tables made by asking them (`make engine-facts`)."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from kvtui.core.options import NEWEST, stored_versions


def earlier_release(version: str | None) -> str | None:
    """`version` where it is a stored release before the one that the rules describe."""
    if version is None or version == NEWEST:
        return None
    return version if version in stored_versions() else None


@cache
def lacking(version: str) -> frozenset[str]:
    """Ids of the rules whose example this release lets pass and the newest does not.

    Examples that a probe sees the newest accept are refused there at a later moment, so they say
    nothing of a release.
    """
    return _accepted(version) - _accepted(NEWEST)


def _accepted(version: str) -> frozenset[str]:
    path = resources.files("kvtui.core.tables") / f"lacks-{version}.json"
    try:
        return frozenset(json.loads(path.read_text(encoding="utf-8"))["rules"])
    except FileNotFoundError:
        return frozenset()


@cache
def since_of(rule_id: str) -> str | None:
    """The first stored release that refuses a rule's example, where an earlier one does not."""
    releases = stored_versions()
    without = [version for version in releases if rule_id in lacking(version)]
    if not without:
        return None
    later = releases[releases.index(without[-1]) + 1 :]
    return later[0] if later else None


def number(version: str) -> tuple[int, ...]:
    """A release as numbers, to compare; words such as rc1 are left out."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())
