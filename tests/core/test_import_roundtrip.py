"""import(export(draft)) is the draft, in every format, whatever the values hold."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings

from kvtui.core.draft import Draft
from kvtui.core.export import EXPORTERS, ExportJob, export
from kvtui.core.imports import find_launches
from kvtui.core.preset_cautions import MODEL_FOLDERS, forbidden_path
from tests.core.strategies import drafts

CHECK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def plain(draft: Draft) -> tuple[dict[str, object], dict[str, str], tuple[str, ...]]:
    return dict(draft.options), dict(draft.env), draft.unknown


@pytest.mark.parametrize("format", EXPORTERS)
@CHECK
@given(draft=drafts())
def test_round_trip(format: str, draft: Draft) -> None:
    if format == "k8s":
        gone = ("nnodes", "node_rank", "dist_init_addr", "host")
        kept = {k: v for k, v in draft.options.items() if k not in gone}
        draft = replace(draft, options=kept)
    if format == "preset":
        assume(
            not any(forbidden_path(v) for k, v in draft.options.items() if k not in MODEL_FOLDERS)
        )
    text = export(format, ExportJob(draft, name="demo", preflight=True))
    found = find_launches(text)
    assert [plain(f.draft) for f in found] == [plain(draft)]
    assert found[0].blanks == ()


@CHECK
@given(draft=drafts())
def test_bash_reads_exactly_the_words(draft: Draft) -> None:
    """A real shell expands the script's arguments to the very words of the command."""
    from kvtui.core.command import argv_of

    text = export("bash", ExportJob(draft, preflight=True))
    checked = text.replace("exec sglang serve", "printf '%s\\0' sglang serve")
    script = checked.replace("command -v kvtui", "false")
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert tuple(done.stdout.decode().split("\0")[:-1]) == argv_of(draft)


@CHECK
@given(draft=drafts())
def test_manifests_hold_the_words(draft: Draft) -> None:
    """A YAML parser reads compose and Kubernetes files as the structure that was meant."""
    service = yaml.safe_load(export("compose", ExportJob(draft)))["services"]["sglang"]
    assert service["command"][:2] == ["sglang", "serve"]
    assert all(isinstance(word, str) for word in service["command"])
    documents = list(yaml.safe_load_all(export("k8s", ExportJob(replace(draft, options={
        k: v for k, v in draft.options.items() if k != "nnodes"
    })))))  # fmt: skip
    assert [d["kind"] for d in documents] == ["Deployment", "Service"]
