"""What the command palette finds besides keys: options to go to and rules to read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from kvtui.tui.finder import find

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp

MOST = 8
"""Hits of each kind."""


class Places(Provider):
    """Options by any of their names, rules by id or title."""

    @property
    def kv(self) -> KvtuiApp:
        """The app, typed."""
        return cast("KvtuiApp", self.app)

    async def discover(self) -> Hits:
        """What to type, before anything is typed."""
        yield DiscoveryHit("Go to an option …", self.kv.action_search, help="or type its name here")

    async def search(self, query: str) -> Hits:
        """Options first; rules where the text looks like one."""
        for rank, hit in enumerate(find(query)[:MOST]):
            if hit.rank < 4:
                flag = hit.option.flag
                yield Hit(
                    0.9 - hit.rank / 10 - rank / 100,
                    f"Go to {flag}",
                    partial(self.kv.goto, hit.option.name),
                    help=hit.through or hit.option.help.split(". ")[0][:100],
                )
        if len(query) >= 3:
            for score, id, title in rules_like(query)[:MOST]:
                yield Hit(
                    score, f"Rule {id}: {title}", partial(self.kv.show_rule, id),
                    help="its page: why, fix, source",
                )  # fmt: skip


def rules_like(text: str) -> list[tuple[float, str, str]]:
    """(score, id, title) of rules whose id begins like the text or whose title has its words."""
    from kvtui.core.rulebook import page_of, rules

    wanted = text.strip().upper()
    words = text.lower().split()
    found: list[tuple[float, str, str]] = []
    for rule in rules():
        page = page_of(rule)
        if rule.id.startswith(wanted):
            found.append((0.95, rule.id, page.title))
        elif all(word in page.title.lower() for word in words):
            found.append((0.4, rule.id, page.title))
    found.sort(key=lambda row: -row[0])
    return found
