"""Write the list of architectures that an unpacked engine release implements.

Usage: python scripts/engine_facts_models.py SITE_PACKAGES/sglang 0.5.23
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

TABLE = Path(__file__).parent.parent / "src/kvtui/core/tables/models-architectures.json"


def entry_classes(source: str) -> set[str]:
    """Class names that a model module offers through `EntryClass`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, (ast.AnnAssign, ast.AugAssign))
            else []
        )
        if any(isinstance(t, ast.Name) and t.id == "EntryClass" for t in targets):
            value = node.value  # type: ignore[attr-defined]
            found |= {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "EntryClass"
        ):
            found |= {n.id for a in node.args for n in ast.walk(a) if isinstance(n, ast.Name)}
    return found


def main() -> None:
    """Read the release named on the command line and write the table."""
    root, version = Path(sys.argv[1]) / "srt", sys.argv[2]
    names: set[str] = set()
    for path in sorted((root / "models").rglob("*.py")):
        names |= entry_classes(path.read_text(encoding="utf-8"))
    table = {"engine_version": version, "source": "srt/models", "architectures": sorted(names)}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(f"{len(names)} architectures -> {TABLE}")


if __name__ == "__main__":
    main()
