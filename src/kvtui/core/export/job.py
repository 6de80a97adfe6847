"""What an export is made from: the launch, the evidence for its header, and where it will run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvtui.core.command import SERVE, command_parts
from kvtui.core.draft import Draft
from kvtui.core.options import NEWEST, catalogue
from kvtui.core.secrets import secrets_of, without_secrets
from kvtui.errors import InputError

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

PATH_OPTIONS = (
    "model_path", "tokenizer_path", "speculative_draft_model_path", "download_dir",
    "chat_template", "quantization_param_path", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs",
    "lmcache_config_file", "flexkv_config_file", "kt_weight_path", "ple_offload_dir",
    "file_storage_path", "speculative_token_map",
)  # fmt: skip
"""Options that name a file or folder which a container must see."""


class ExportError(InputError):
    """The launch can't be written in that format; the text says why."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A word that is not written down: the environment variable holds it where it runs."""

    variable: str


Word = str | Secret
Part = tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was checked, when and on what, for the header of an export."""

    kvtui_version: str
    time: str
    """UTC, ISO 8601."""
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    host_bytes: int = 0
    """Host memory that the launch takes per GPU for its caches, in bytes."""


@dataclass(frozen=True, slots=True)
class ExportJob:
    """One export: text is made from nothing else."""

    draft: Draft
    evidence: Evidence | None = None
    name: str = "sglang"
    """Name of services and files."""
    engine_version: str = NEWEST
    preflight: bool = False
    """Put a line in that runs `kvtui check` first and stops with its reason."""
    program: tuple[str, ...] = SERVE
    vendor: str = "nvidia"
    nodes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        value = self.draft.options.get("port")
        default: int = catalogue().defaults["port"]
        return value if isinstance(value, int) and 0 < value < 65536 else default

    @property
    def slug(self) -> str:
        """The name as services and files may carry it."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", self.name).strip("-_")[:60] or "sglang"

    @property
    def nnodes(self) -> int:
        """Nodes that the launch spans."""
        value = self.draft.options.get("nnodes", 1)
        return value if isinstance(value, int) and value > 0 else 1

    @property
    def gpus_per_node(self) -> int:
        """GPUs that one node of the launch takes."""
        options = self.draft.options
        names = ["tp_size", "pp_size"]
        if not options.get("enable_dp_attention"):
            names.append("dp_size")
        world = 1
        for name in names:
            size = options.get(name, 1)
            world *= size if isinstance(size, int) and size > 0 else 1
        return max(1, world // self.nnodes)

    @property
    def image(self) -> str:
        """The engine's container image, pinned to its release."""
        suffix = "-rocm700-mi30x" if self.vendor == "amd" else ""
        return f"lmsysorg/sglang:v{self.engine_version}{suffix}"

    @property
    def mounts(self) -> tuple[str, ...]:
        """Absolute paths that the launch names, for a container to see."""
        values = (self.draft.options.get(name) for name in PATH_OPTIONS)
        paths = (v for v in values if isinstance(v, str) and v.startswith("/"))
        return tuple(dict.fromkeys(paths))


def secret_variable(option: str) -> str:
    """The environment variable that holds an option's secret where the launch runs."""
    return f"SGLANG_{option.upper()}"


def env_of(job: ExportJob) -> dict[str, Word]:
    """The launch's environment in steady order; secrets by reference."""
    secret = {name.removeprefix("env:") for name in secrets_of(job.draft)}
    return {
        name: Secret(name) if name in secret else value
        for name, value in sorted(job.draft.env.items())
    }


def parts_of(job: ExportJob) -> tuple[Part, ...]:
    """The command in parts: the program, then one part for each option; secrets by reference."""
    parts: list[Part] = list(command_parts(without_secrets(job.draft), program=job.program))
    for name in secrets_of(job.draft):
        if not name.startswith("env:"):
            option = catalogue().options.get(name)
            flag = option.flag if option is not None else "--" + name.replace("_", "-")
            parts.append((flag, Secret(secret_variable(name))))
    for word in (w for part in parts for w in part):
        _check_word(word)
    for name, value in job.draft.env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ExportError(f"{name!r} is no name of an environment variable")
        _check_word(value)
    return tuple(parts)


def words_of(job: ExportJob) -> tuple[Word, ...]:
    """All words of the command."""
    return tuple(word for part in parts_of(job) for word in part)


def _check_word(word: Word) -> None:
    if isinstance(word, Secret):
        return
    if "\0" in word:
        raise ExportError("a value holds a NUL character, which no command line can carry")
    if any("\ud800" <= char <= "\udfff" for char in word):
        raise ExportError("a value holds half a character, which can't be written as UTF-8")


def refuse_unknown(job: ExportJob) -> None:
    """Raise for words that no option takes: formats with named options can't hold them."""
    if job.draft.unknown:
        raise ExportError(
            f"{job.draft.unknown[0]} is no option of SGLang", "repair the launch, or export command"
        )


def comment(text: str) -> str:
    """Text for one line of a comment: nothing in it can end the line."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    return clean if len(clean) <= 300 else clean[:297] + "..."


def header(job: ExportJob) -> Iterator[str]:
    """Lines that say what this is, what was checked and what was not."""
    evidence = job.evidence
    yield f"{comment(job.name)}: SGLang {comment(job.engine_version)}"
    if evidence is None:
        yield "Not checked: this launch was written out without a check."
        return
    yield f"Written by kvtui {comment(evidence.kvtui_version)} at {comment(evidence.time)}."
    yield from (f"Checked: {comment(line)}" for line in evidence.checked)
    yield from (f"Not checked: {comment(line)}" for line in evidence.not_checked)


def commented(lines: Sequence[str] | Iterator[str], mark: str = "# ") -> str:
    """Lines as a block of comments."""
    return "".join(f"{mark}{line}\n" for line in lines)


def evidence_of(report: Report, kvtui_version: str, time: str) -> Evidence:
    """What a report proves, in the words of a header."""
    checked, open_ = [], []
    gpu = report.facts.gpu
    where = f" for {report.facts.gpu_count} x {gpu.name}" if gpu else ""
    errors, warnings = len(report.errors), len(report.warnings)
    line = f"rules of SGLang {report.engine_version}{where}: {report.rules_outcome.value}"
    if errors or warnings:
        line += f", {errors} errors, {warnings} warnings"
    checked.append(line)
    pool = report.pool_fact
    if pool is None:
        open_.append("the pool was not built")
    else:
        made = f"{pool.report.get('class', 'pool')}, {pool.report.get('tokens', '?')} tokens"
        (checked if pool.ok else open_).append(
            f"pool: {made} built, written, read back" if pool.ok else f"pool: {made} failed"
        )
    engine = report.engine_fact
    if engine is None:
        open_.append("no installed SGLang was asked")
    else:
        answer = "accepts it" if engine.accepted else f"refuses it: {engine.error or ''}"
        checked.append(f"SGLang {engine.version} ({engine.place}) {answer}")
    open_ += report.unknowns[:4]
    open_.append("kernels, graph capture and the weights themselves")
    host = getattr(report.capacity, "host_bytes", 0) or 0
    return Evidence(kvtui_version, time, tuple(checked), tuple(open_), int(host))
