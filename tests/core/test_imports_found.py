"""Launches as people have them: found, filled in as far as the source tells, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtui.core.imports import Found, find_launches, kind_of
from kvtui.errors import InputError


def one(text: str) -> Found:
    found = find_launches(text)
    assert len(found) == 1, [f.title for f in found]
    return found[0]


def blanks(found: Found) -> dict[str, str]:
    return {b.option: b.text for b in found.blanks}


def test_pasted_command_with_prompt_and_environment() -> None:
    found = one("$ CUDA_VISIBLE_DEVICES=0,1 python3 -m sglang.launch_server --model x --tp 2 > log")
    assert found.draft.options == {"model_path": "x", "tp_size": 2}
    assert found.draft.env == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_pasted_arguments_alone() -> None:
    assert one("--model-path x --tp 2").draft.options == {"model_path": "x", "tp_size": 2}


def test_lost_backslashes() -> None:
    found = one("sglang serve --model-path x\n  --tp 2\n  --page-size 64\n")
    assert found.draft.options == {"model_path": "x", "tp_size": 2, "page_size": 64}


def test_script_with_variables_arrays_and_comments() -> None:
    found = one(
        """#!/bin/bash
# serve it
set -euo pipefail
MODEL=${MODEL:-Qwen/Qwen3-8B}   # the model
TP="${1:-2}"
EXTRA="--page-size 64 --kv-cache-dtype fp8_e4m3"
ARGS=(
  --model-path "$MODEL"   # quoted
  --tp "$TP"
)
ARGS+=(--disable-radix-cache)
export SGLANG_LOG=1
mkdir -p /tmp/x && echo "sglang is next"
exec nohup sglang serve "${ARGS[@]}" $EXTRA --served-model-name 'a b' 2>&1 | tee log &
"""
    )
    assert found.draft.options == {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
        "page_size": 64,
        "kv_cache_dtype": "fp8_e4m3",
        "disable_radix_cache": True,
        "served_model_name": "a b",
    }
    assert found.draft.env == {"SGLANG_LOG": "1"}
    assert found.blanks == ()


def test_what_is_not_known_is_a_named_blank() -> None:
    found = one(
        "sglang serve --model-path ${MODEL_PATH} --tp $(nvidia-smi -L | wc -l) --port $PORT"
        " --served-model-name pre-$NAME --page-size 64"
    )
    assert found.draft.options == {"page_size": 64}
    assert blanks(found) == {
        "model_path": "${MODEL_PATH}",
        "tp_size": "$(nvidia-smi -L | wc -l)",
        "port": "${PORT}",
        "served_model_name": "pre-${NAME}",
    }


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = one(f"sglang serve --model-path $(touch {mark}) --tp `touch {mark}`")
    assert not mark.exists()
    assert set(blanks(found)) == {"model_path", "tp_size"}


def test_docker_run() -> None:
    found = one(
        """docker run --gpus all --shm-size 32g -p 30000:30000 \\
    -v ~/.cache/huggingface:/root/.cache/huggingface \\
    -e NCCL_DEBUG=INFO --env "HF_TOKEN=$HF_TOKEN" --ipc=host \\
    lmsysorg/sglang:latest \\
    python3 -m sglang.launch_server --model-path x --host 0.0.0.0 --port 30000
"""
    )
    assert found.draft.options == {"model_path": "x", "host": "0.0.0.0", "port": 30000}
    assert found.draft.env == {"NCCL_DEBUG": "INFO"}
    assert blanks(found) == {"env:HF_TOKEN": "${HF_TOKEN}"}


def test_shell_inside_docker() -> None:
    found = one("docker run -e A=1 img bash -lc 'cd /x && exec sglang serve --model-path \"$M\"'")
    assert blanks(found) == {"model_path": "${M}"}
    assert found.draft.env == {"A": "1"}


def test_several_launches() -> None:
    text = """
sglang serve --model-path a --disaggregation-mode prefill &
sglang serve --model-path a --disaggregation-mode decode --port 30001 &
python3 -m sglang_router.launch_router --pd-disaggregation
"""
    modes = [f.draft.options["disaggregation_mode"] for f in find_launches(text)]
    assert modes == ["prefill", "decode"]


def test_here_documents_are_no_commands() -> None:
    assert find_launches("cat <<EOF\nsglang serve --model-path x\nEOF\necho done\n") == ()


def test_compose() -> None:
    text = """
services:
  a:
    image: lmsysorg/sglang:v0.5.23
    entrypoint: python3 -m sglang.launch_server
    command: >
      --model-path ${MODEL:-Qwen/Qwen3-8B}
      --tp ${TP} --served-model-name a$$b
    environment:
      - HF_TOKEN
      - SGLANG_X=1
  b:
    image: redis
    command: redis-server --port 1
"""
    found = one(text)
    assert found.draft.options == {"model_path": "Qwen/Qwen3-8B", "served_model_name": "a$b"}
    assert found.draft.env == {"SGLANG_X": "1"}
    assert blanks(found) == {"tp_size": "${TP}", "env:HF_TOKEN": "${HF_TOKEN}"}


def test_kubernetes() -> None:
    text = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
        - name: server
          image: lmsysorg/sglang
          command: [bash, -c]
          args:
            - |
              sglang serve --model-path $MODEL --tp 8 \\
                --host $POD_IP --page-size 64
          env:
            - {name: MODEL, value: deepseek-ai/DeepSeek-V3}
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
---
kind: Service
metadata: {name: llm}
"""
    found = one(text)
    assert found.draft.options["model_path"] == "deepseek-ai/DeepSeek-V3"
    assert found.draft.options["page_size"] == 64
    assert "host" not in blanks(found)


def test_leader_worker_set_is_one_launch() -> None:
    container = """
              - name: x
                image: lmsysorg/sglang
                command: [python3, -m, sglang.launch_server]
                args: [--model-path, x, --tp, "16", --nnodes, $(LWS_GROUP_SIZE),
                       --node-rank, $(LWS_WORKER_INDEX),
                       --dist-init-addr, "$(LWS_LEADER_ADDRESS):20000"]"""
    text = f"""
kind: LeaderWorkerSet
metadata: {{name: x}}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
        spec:
            containers:{container}
    workerTemplate:
        spec:
            containers:{container}
"""
    found = one(text)
    assert found.draft.options == {"model_path": "x", "tp_size": 16, "nnodes": 2}
    assert found.blanks == ()


def test_dockerfile() -> None:
    found = one(
        """FROM lmsysorg/sglang:v0.5.23
ARG TP=4
ENV SGLANG_X=1 \\
    MODEL="Qwen/Qwen3-8B"
CMD sglang serve --model-path $MODEL --tp ${TP}
"""
    )
    assert found.draft.options == {"model_path": "Qwen/Qwen3-8B", "tp_size": 4}
    assert found.draft.env["SGLANG_X"] == "1"


def test_dockerfile_in_exec_form() -> None:
    found = one(
        'FROM lmsysorg/sglang\nENTRYPOINT ["python3", "-m", "sglang.launch_server"]\n'
        'CMD ["--model-path", "x"]\n'
    )
    assert found.draft.options == {"model_path": "x"}


def test_own_configuration_file() -> None:
    found = one("# ours\nmodel-path: x\ntp-size: 4\ndisable-radix-cache: true\n")
    assert found.draft.options == {"model_path": "x", "tp_size": 4, "disable_radix_cache": True}


def test_log_line_keeps_what_differs_from_the_defaults() -> None:
    line = (
        "[2026-10-30 10:00:00] server_args=ServerArgs(model_path='x', tokenizer_path='x', "
        "tp_size=8, page_size=None, disable_radix_cache=False, port=30000, "
        "custom_sigquit_handler=<function f at 0x7f>, mem_fraction_static=0.9, lora_paths=None)"
    )
    found = one(line)
    assert found.draft.options["tp_size"] == 8
    assert found.draft.options["mem_fraction_static"] == 0.9
    assert "port" not in found.draft.options
    assert "page_size" not in found.draft.options


def test_engine_keywords() -> None:
    found = one(
        """
import os
os.environ["SGLANG_X"] = "1"
import sglang as sgl
llm = sgl.Engine(model_path=args.model, tp_size=2, cuda_graph_config={"decode": {"max_bs": 8}},
                 mamba_scheduler_strategy="extra_buffer", disable_radix_cache=True)
"""
    )
    assert found.draft.options == {
        "tp_size": 2,
        "cuda_graph_config": {"decode": {"max_bs": 8}},
        "mamba_radix_cache_strategy": "extra_buffer",
        "disable_radix_cache": True,
    }
    assert blanks(found) == {"model_path": "args.model"}
    assert found.draft.env == {"SGLANG_X": "1"}


def test_systemd_unit() -> None:
    found = one(
        """[Unit]
Description=x
[Service]
Environment="A=1 2" B=3
EnvironmentFile=/etc/x
ExecStart=/opt/venv/bin/sglang serve \\
  --model-path "/models/a b" --served-model-name 100%% --api-key ${KEY}
"""
    )
    assert found.draft.options == {"model_path": "/models/a b", "served_model_name": "100%"}
    assert found.draft.env == {"A": "1 2", "B": "3"}
    assert blanks(found) == {"api_key": "${KEY}"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("sglang serve --model-path x", "shell"),
        ("#!/bin/sh\nmodel: x", "shell"),
        ("services:\n  a: {}", "yaml"),
        ("[launch]\nmodel_path = 'x'", "preset"),
        ('{"command": []}', "json"),
        ("FROM x\nCMD y", "dockerfile"),
        ("llm = Engine(model_path='x')", "python"),
        ("[Service]\nExecStart=x", "unit"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    "text", ["services:\n - [", "{", '{"options": {"nope": 1}}', "[launch]\nnope = 1"]
)
def test_unreadable_sources_are_one_line(text: str) -> None:
    with pytest.raises(InputError) as raised:
        find_launches(text)
    assert "\n" not in str(raised.value)


def test_a_yaml_bomb_is_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    with pytest.raises(InputError):
        find_launches("\n".join(levels))


@pytest.mark.parametrize("text", ["", " \n", "hello", "echo sglang", "'", "$((", "a=(", "\\", "<<"])
def test_nothing_to_find(text: str) -> None:
    assert find_launches(text) == ()
