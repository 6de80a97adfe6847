"""A Python program with `sglang.Engine(...)`."""

from __future__ import annotations

from typing import Any

from kvtui.core.command import ordered_names
from kvtui.core.export.job import (
    ExportJob,
    Secret,
    commented,
    env_of,
    header,
    parts_of,
    refuse_unknown,
    secret_variable,
)
from kvtui.core.options import catalogue
from kvtui.core.secrets import secrets_of


def python_engine(job: ExportJob) -> str:
    """A program that starts the engine in this process, with the environment set before."""
    refuse_unknown(job)
    parts_of(job)
    lines = [commented(header(job)).rstrip("\n"), "import os", ""]
    env = env_of(job)
    lines += [
        f"os.environ[{name!r}] = {value!r}"
        for name, value in env.items()
        if not isinstance(value, Secret)
    ]
    lines += [
        *([""] if env else []),
        "import sglang  # reads the environment when it is imported",
        "",
        "",
        "def start() -> sglang.Engine:",
        '    """Start the engine; the weights are loaded here."""',
        "    return sglang.Engine(",
        *(f"        {name}={text}," for name, text in _keywords(job)),
        "    )",
        "",
        "",
        'if __name__ == "__main__":',
        "    engine = start()",
        '    print(engine.generate("The capital of France is", {"max_new_tokens": 16}))',
        "    engine.shutdown()",
    ]
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    """A value as Python source; `1e999` is infinity, which has no literal of its own."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def _keywords(job: ExportJob) -> list[tuple[str, str]]:
    secrets = set(secrets_of(job.draft))
    defaults = catalogue().defaults
    rows = []
    for name in ordered_names(job.draft.options):
        value: Any = job.draft.options[name]
        if name in secrets:
            rows.append((name, f"os.environ[{secret_variable(name)!r}]"))
        elif value != defaults.get(name) or name == "model_path":
            rows.append((name, _literal(value)))
    return rows
