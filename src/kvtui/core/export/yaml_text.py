"""Data as YAML text, in the order given, with no line folded."""

from __future__ import annotations

from typing import Any


def dump(data: Any) -> str:
    """YAML of plain data; every text that could be read as something else is quoted."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes equal parts out again instead of referring back."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = None if text.isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, represent_text)
    return yaml.dump(
        data,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1 << 30,
        default_flow_style=False,
    )
