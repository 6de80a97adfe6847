"""The engine's options as pages: what each takes, its default, its help, the rules about it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from kvtui.core.options import NEWEST, Option, catalogue


def find_options(text: str) -> Iterator[Option]:
    """Options by name first, then by alias, then by help; an exact name comes first."""
    wanted = text.strip().lstrip("-").replace("_", "-").lower()
    options = [o for o in catalogue().options.values() if o.flags]
    seen: set[str] = set()
    for test in (_exactly, _named, _helped):
        for option in options:
            if option.name not in seen and test(option, wanted):
                seen.add(option.name)
                yield option


def _exactly(option: Option, wanted: str) -> bool:
    return any(flag.lstrip("-") == wanted for flag in option.flags)


def _named(option: Option, wanted: str) -> bool:
    return any(wanted in flag for flag in option.flags)


def _helped(option: Option, wanted: str) -> bool:
    return wanted in option.help.lower()


def option_lines(option: Option) -> Iterator[str]:
    """One option's page as plain lines."""
    yield f"{option.flag}" + (f"  ({', '.join(option.flags[1:])})" if option.flags[1:] else "")
    yield f"  takes    {option.expected}"
    yield f"  default  {'none' if option.default is None else option.default}"
    if option.new_flag:
        yield f"  old      use {option.new_flag}"
    yield from textwrap.wrap(option.help, 88, initial_indent="  ", subsequent_indent="  ")
    found = rules_about(option.name)
    if found:
        yield "  rules"
        for id, title in found:
            yield f"    {id}  {title}"


def rules_about(name: str) -> list[tuple[str, str]]:
    """(id, title) of the rules that are about an option."""
    from kvtui.core.rulebook import page_of, rules

    return [(rule.id, page_of(rule).title) for rule in rules() if rule.option == name]


def as_markdown() -> str:
    """docs/options.md."""
    groups: dict[str, list[Option]] = {}
    for option in catalogue().options.values():
        if option.flags:
            groups.setdefault(option.group or "other", []).append(option)
    lines = [
        "# Options",
        "",
        f"Every option of SGLang {NEWEST}, made by `kvtui options --markdown`; do not edit. Names,",
        "choices, defaults and help texts are SGLang's (Apache License 2.0).",
        "",
    ]
    for group in sorted(groups):
        lines += [f"## {group}", ""]
        for option in groups[group]:
            aliases = "".join(f", `{flag}`" for flag in option.flags[1:])
            lines += [f"### `{option.flag}`{aliases}", ""]
            default = "none" if option.default is None else f"`{option.default}`"
            lines += [f"Takes {option.expected}. Default: {default}.", "", option.help, ""]
            found = rules_about(option.name)
            if found:
                links = ", ".join(f"[{id}](rules.md#{anchor(id, title)})" for id, title in found)
                lines += [f"Rules: {links}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def anchor(id: str, title: str) -> str:
    """The anchor that Markdown viewers give to a rule's heading."""
    text = f"{id}: {title}".lower()
    kept = "".join(c for c in text if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
