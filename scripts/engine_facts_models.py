"""Write which architectures an engine release implements, and what Transformers adds.

Run with the engine's own Python: ENGINE_PYTHON scripts/engine_facts_models.py SITE_PACKAGES/sglang
0.5.23. Modules of the engine are read, not imported; Transformers' classes are asked.
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


SERVED = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "SequenceClassification")
"""Endings of classes that a launch may name."""


def transformers_classes() -> tuple[list[str], list[str]]:
    """(classes that can stand in for a missing engine class, those that can't)."""
    import transformers
    from transformers.models.auto import modeling_auto

    names: set[str] = set()
    for table in vars(modeling_auto):
        if table.endswith("_MAPPING_NAMES"):
            for found in getattr(modeling_auto, table).values():
                names.update([found] if isinstance(found, str) else found or ())
    usable: list[str] = []
    refused: list[str] = []
    for name in sorted(name for name in names if name.endswith(SERVED)):
        try:
            asked = getattr(getattr(transformers, name), "is_backend_compatible", None)
            (usable if asked is None or asked() else refused).append(name)
        except Exception as error:
            print(name, type(error).__name__, file=sys.stderr)
    return usable, refused


def main() -> None:
    """Read the release named on the command line and write the table."""
    root, version = Path(sys.argv[1]) / "srt", sys.argv[2]
    names: set[str] = set()
    for path in sorted((root / "models").rglob("*.py")):
        names |= entry_classes(path.read_text(encoding="utf-8"))
    usable, refused = transformers_classes()
    table = {
        "engine_version": version,
        "source": "srt/models",
        "architectures": sorted(names),
        "transformers": [name for name in usable if name not in names],
        "transformers_refused": [name for name in refused if name not in names],
    }
    rows = ",\n".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in table.items())
    TABLE.write_text("{\n" + rows + "\n}\n", encoding="utf-8")
    print(f"{len(names)} architectures -> {TABLE}")


if __name__ == "__main__":
    main()
