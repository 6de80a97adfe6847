"""Exports for a POSIX shell: the bare command, a bash script, `docker run`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from kvtui.core.export.job import (
    ExportJob,
    Part,
    Secret,
    Word,
    commented,
    env_of,
    header,
    parts_of,
)

CONTINUED = " \\\n  "


def shell_word(word: Word) -> str:
    """One word, quoted so that a shell reads exactly it."""
    if isinstance(word, Secret):
        return f'"${{{word.variable}:?set it in the environment}}"'
    return shlex.quote(word)


def shell_part(part: Part) -> str:
    """Words of one option on one line."""
    return " ".join(map(shell_word, part))


def command(job: ExportJob) -> str:
    """The command, environment in front, one option a line."""
    env = env_of(job)
    lines = [f"{name}={shell_word(value)}" for name, value in env.items()]
    return CONTINUED.join([*lines, *map(shell_part, parts_of(job))]) + "\n"


def bash(job: ExportJob) -> str:
    """A script in strict mode: environment, the arguments once, an optional preflight, exec."""
    program, *options = parts_of(job)
    lines = ["#!/usr/bin/env bash", commented(header(job)).rstrip("\n"), "set -euo pipefail", ""]
    lines += [_exported(name, value) for name, value in env_of(job).items()]
    lines += [*([""] if job.draft.env else []), "args=("]
    lines += [f"  {shell_part(part)}" for part in options]
    lines += [")", ""]
    if job.preflight:
        lines += [*_preflight(), ""]
    lines += [f'exec {shell_part(program)} "${{args[@]}}" "$@"']
    return "\n".join(lines) + "\n"


def _exported(name: str, value: Word) -> str:
    if isinstance(value, Secret):
        return f': "${{{name}:?set it in the environment}}"; export {name}'
    return f"export {name}={shell_word(value)}"


def _preflight() -> Iterator[str]:
    """Lines that stop with kvtui's reason where the launch would fail on this machine."""
    yield "if command -v kvtui >/dev/null 2>&1; then"
    yield '  kvtui check --gpu local -- "${args[@]}" >&2 || {'
    yield "    code=$?"
    yield '    if [ "$code" -eq 1 ]; then exit 1; fi'
    yield "  }"
    yield "fi"


def docker(job: ExportJob) -> str:
    """`docker run` with the GPUs, the caches and the environment; the network is the host's."""
    options: list[str] = ["docker run --rm --init", f"--name {job.slug}"]
    options += _devices(job)
    options += ["--ipc host --shm-size 32g --network host"]
    options += ['--volume "${HF_HOME:-$HOME/.cache/huggingface}:/root/.cache/huggingface"']
    options += [f"--volume {shlex.quote(f'{path}:{path}:ro')}" for path in job.mounts]
    for name, value in env_of(job).items():
        given = name if isinstance(value, Secret) else f"{name}={value}"
        options.append(f"--env {shlex.quote(given)}")
    lines = [*options, shlex.quote(job.image), *map(shell_part, parts_of(job))]
    return "#!/usr/bin/env bash\n" + commented(header(job)) + CONTINUED.join(lines) + "\n"


def _devices(job: ExportJob) -> list[str]:
    if job.vendor == "amd":
        return [
            "--device /dev/kfd --device /dev/dri --group-add video",
            "--security-opt seccomp=unconfined",
        ]
    return ["--gpus all"]
