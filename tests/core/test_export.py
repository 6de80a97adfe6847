"""Exports byte for byte, and as the tools that read them see them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvtui.core.argv import parse
from kvtui.core.command import LAUNCH_SERVER, argv_of
from kvtui.core.draft import Draft
from kvtui.core.export import EXPORTERS, Evidence, ExportError, ExportJob, export
from kvtui.core.export.job import comment
from tests.core.installed import engine_home

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
GOLDEN = Path(__file__).parent / "golden" / "export"
EVIDENCE = Evidence(
    kvtui_version="1.0.0",
    time="2026-11-30T12:00:00Z",
    checked=("rules of SGLang 0.5.23 for 8 x H200: starts, 1 warnings",),
    not_checked=("the pool was not built", "kernels, graph capture and the weights themselves"),
    host_bytes=96 << 30,
)
DRAFT = replace(
    parse(
        [
            "SGLANG_NOTE=it's $HOME\n100%",
            *("--model-path", "/models/DeepSeek V3", "--tp", "8", "--page-size", "64"),
            *("--trust-remote-code", "--no-enable-tf32-matmul", "--api-key", "abc"),
            *("--cuda-graph-bs-decode", "1", "2", "4", "--enable-hierarchical-cache"),
            *("--default-chat-template-kwargs", '{"thinking": false}', "--port", "31000"),
        ]
    ),
    gpu="h200",
    gpu_count=8,
)
SUFFIX = {
    "command": "txt", "bash": "sh", "yaml": "yaml", "docker": "docker.sh",
    "compose": "compose.yaml", "k8s": "k8s.yaml", "systemd": "service", "python": "py",
    "json": "json", "preset": "toml",
}  # fmt: skip


def job(draft: Draft = DRAFT, **changes: Any) -> ExportJob:
    return replace(ExportJob(draft, EVIDENCE, name="deepseek-v3", preflight=True), **changes)


def same_as_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("KVTUI_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("format", EXPORTERS)
def test_golden(format: str) -> None:
    """KVTUI_UPDATE_GOLDEN=1 writes the files anew."""
    same_as_golden(f"launch.{SUFFIX[format]}", export(format, job()))


def test_golden_of_several_nodes() -> None:
    options = {**DRAFT.options, "nnodes": 2, "tp_size": 16, "dist_init_addr": "10.0.0.1:5000"}
    several = job(replace(DRAFT, options=options), preflight=False)
    same_as_golden("nodes.k8s.yaml", export("k8s", several))


def test_golden_of_another_vendor_and_program() -> None:
    other = job(vendor="amd", program=LAUNCH_SERVER, engine_version="0.5.20")
    same_as_golden("amd.docker.sh", export("docker", other))


def test_every_format_is_covered() -> None:
    assert set(SUFFIX) == set(EXPORTERS)
    assert len({e.file_name for e in EXPORTERS.values()}) == len(EXPORTERS)


@pytest.mark.parametrize("format", EXPORTERS)
def test_no_secret_is_written(format: str) -> None:
    draft = replace(DRAFT, env={**DRAFT.env, "HF_TOKEN": "hush"})
    draft = replace(draft, options={**draft.options, "api_key": "hush-too"})
    assert "hush" not in export(format, job(draft))


@pytest.mark.parametrize("format", EXPORTERS)
def test_nul_is_refused(format: str) -> None:
    draft = replace(DRAFT, options={**DRAFT.options, "served_model_name": "a\0b"})
    with pytest.raises(Exception, match="NUL"):
        export(format, job(draft))


@pytest.mark.parametrize("format", ["yaml", "python", "preset"])
def test_named_options_can_not_hold_unknown_words(format: str) -> None:
    with pytest.raises(Exception, match="--nope is no option"):
        export(format, job(replace(DRAFT, unknown=("--nope",))))


def test_header_can_not_be_broken_out_of() -> None:
    evil = replace(EVIDENCE, checked=("x\nrm -rf /\r\u2028exec",))
    text = export("bash", job(evidence=evil, name="a\nb; rm"))
    comments = [line for line in text.splitlines() if line.startswith("# ")]
    assert any("x rm -rf" in line for line in comments)
    assert not any(line.startswith(("rm", "exec /")) for line in text.splitlines())
    assert "\n" not in comment("a\nb\x00c\x1b[0m")


def test_one_megabyte_of_text_passes() -> None:
    draft = Draft({"model_path": "m", "served_model_name": "é'\n$" * (1 << 18)})
    for format in EXPORTERS:
        if format != "preset":
            assert len(export(format, ExportJob(draft))) > 1 << 19


@pytest.mark.parametrize("format", ["bash", "docker", "command"])
def test_bash_takes_the_script(format: str, tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text(export(format, job()), encoding="utf-8")
    subprocess.run(["bash", "-n", script], check=True)
    if format == "command":
        subprocess.run(["sh", "-n", script], check=True)


def test_bash_asks_for_the_secret(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", "-c", export("bash", job())],
        capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode != 0
    assert "SGLANG_API_KEY: set it in the environment" in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("format", ["bash", "docker"])
def test_shellcheck_has_no_complaint(format: str, tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text(export(format, job()), encoding="utf-8")
    subprocess.run(["shellcheck", "--severity=warning", script], check=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "demo.service"
    unit.write_text(export("systemd", job(preflight=False)), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "demo.service" in line]
    assert complaints == []


def test_python_compiles() -> None:
    compile(export("python", job()), "launch.py", "exec")


def test_json_is_whole() -> None:
    data = json.loads(export("json", job()))
    assert data["command"][:2] == ["sglang", "serve"]
    assert data["secrets"] == ["api_key"]
    assert data["hardware"] == {"gpu": "h200", "count": 8}


def test_compose_reserves_what_the_launch_takes() -> None:
    service = yaml.safe_load(export("compose", job()))["services"]["deepseek-v3"]
    devices = service["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": 8, "capabilities": ["gpu"]}]
    assert service["image"] == "lmsysorg/sglang:v0.5.23"
    assert service["environment"]["SGLANG_NOTE"] == "it's $$HOME\n100%"
    assert service["healthcheck"]["test"][-1] == "http://127.0.0.1:31000/health"


def test_kubernetes_asks_for_the_host_memory_of_the_caches() -> None:
    deployment, service = yaml.safe_load_all(export("k8s", job()))
    pod = deployment["spec"]["template"]["spec"]
    resources = pod["containers"][0]["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": 8}
    assert resources["requests"] == {"memory": f"{32 + 96 * 8}Gi"}
    assert pod["initContainers"][0]["name"] == "preflight"
    assert service["spec"]["ports"][0]["port"] == 31000
    assert {v["name"] for v in pod["volumes"]} == {
        m["name"] for m in pod["containers"][0]["volumeMounts"]
    }


def test_names_are_made_safe() -> None:
    odd = job(name="../My Model: 8B!")
    assert odd.slug == "My-Model-8B"
    assert EXPORTERS["bash"].name_for(odd) == "My-Model-8B.sh"
    assert yaml.safe_load_all(export("k8s", odd)).__next__()["metadata"]["name"] == "my-model-8b"


def test_command_is_argv() -> None:
    plain = replace(DRAFT, options={k: v for k, v in DRAFT.options.items() if k != "api_key"})
    done = subprocess.run(
        ["bash", "-c", "f() { printf '%s\\0' \"$@\"; }; " + _as_function(plain)],
        capture_output=True, check=True,
    )  # fmt: skip
    assert tuple(done.stdout.decode().split("\0")[:-1]) == argv_of(plain)


def _as_function(draft: Draft) -> str:
    text = export("command", ExportJob(replace(draft, env={})))
    return text.replace("sglang serve", "f sglang serve", 1)


@pytest.mark.engine
def test_the_engine_reads_its_configuration_file(tmp_path: Path) -> None:
    """SGLang's own reader turns the exported file back into the launch."""
    engine = engine_home()
    gone = ("api_key", "enable_tf32_matmul")
    draft = replace(DRAFT, options={k: v for k, v in DRAFT.options.items() if k not in gone})
    (tmp_path / "x.yaml").write_text(export("yaml", job(draft)), encoding="utf-8")
    done = subprocess.run(
        [engine / "bin" / "python", SCRIPTS / "record_parse.py"],
        input=json.dumps(["--config", "x.yaml"]), text=True, capture_output=True, check=True,
        cwd=tmp_path, env={**os.environ, "LD_LIBRARY_PATH": str(engine / "stub")},
    )  # fmt: skip
    assert json.loads(done.stdout)["ok"] == draft.options


def test_export_error_is_one_line() -> None:
    with pytest.raises(ExportError) as raised:
        export("yaml", job(replace(DRAFT, unknown=("--nope",))))
    assert "\n" not in str(raised.value)
