"""A systemd unit."""

from __future__ import annotations

from kvtui.core.export.job import (
    ExportJob,
    Part,
    Secret,
    Word,
    comment,
    commented,
    env_of,
    header,
    parts_of,
)

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "%": "%%"}


def quoted(text: str) -> str:
    """Text in double quotes as systemd reads them."""
    return '"' + "".join(_ESCAPES.get(char, _plain(char)) for char in text) + '"'


def _plain(char: str) -> str:
    return f"\\x{ord(char):02x}" if char < " " or char == "\x7f" else char


def unit_word(word: Word) -> str:
    """One word of ExecStart; `$` stands for itself."""
    if isinstance(word, Secret):
        return f'"${{{word.variable}}}"'
    text = quoted(word.replace("$", "$$"))
    bare = text[1:-1]
    safe = bare and all(char.isalnum() or char in "-_./=:,+@" for char in bare)
    return bare if safe and bare.isascii() else text


def systemd(job: ExportJob) -> str:
    """A service that starts the launch at boot and again after a failure."""
    lines = [
        commented(header(job)).rstrip("\n"),
        "[Unit]",
        f"Description=SGLang {comment(job.name).replace('%', '%%')}",
        "After=network-online.target",
        "Wants=network-online.target",
        "",
        "[Service]",
        "Type=exec",
    ]
    secrets = [name for name, value in env_of(job).items() if isinstance(value, Secret)]
    parts = parts_of(job)
    secrets += [w.variable for part in parts for w in part if isinstance(w, Secret)]
    if secrets:
        lines.append(f"# holds {', '.join(sorted(set(secrets)))}")
        lines.append(f"EnvironmentFile=/etc/sglang/{job.slug}.env")
    lines += [
        f"Environment={quoted(f'{name}={value}')}"
        for name, value in env_of(job).items()
        if not isinstance(value, Secret)
    ]
    if job.preflight:
        lines.append(f"ExecStartPre={_preflight(parts)}")
    lines.append("ExecStart=/usr/bin/env " + " \\\n  ".join(map(_unit_part, parts)))
    lines += [
        "Restart=on-failure",
        "RestartSec=10",
        "TimeoutStartSec=infinity",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _unit_part(part: Part) -> str:
    return " ".join(map(unit_word, part))


def _preflight(parts: tuple[Part, ...]) -> str:
    return "/usr/bin/env kvtui check --gpu local -- " + " \\\n  ".join(map(_unit_part, parts[1:]))
