"""A launch as text for where it will run. Text out, no I/O; time and facts are handed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvtui.core.export.compose import compose
from kvtui.core.export.config import config_yaml
from kvtui.core.export.data import as_json, as_preset
from kvtui.core.export.job import Evidence, ExportError, ExportJob, evidence_of
from kvtui.core.export.kubernetes import kubernetes
from kvtui.core.export.python_engine import python_engine
from kvtui.core.export.shell import bash, command, docker
from kvtui.core.export.systemd import systemd

__all__ = ["EXPORTERS", "Evidence", "ExportError", "ExportJob", "Exporter", "evidence_of", "export"]


@dataclass(frozen=True, slots=True)
class Exporter:
    """One format: what it is called, what it makes, how a file of it is named."""

    format: str
    title: str
    file_name: str
    """With `{name}` for the launch's name."""
    write: Callable[[ExportJob], str]
    executable: bool = False

    def name_for(self, job: ExportJob) -> str:
        """The file name of this export."""
        return self.file_name.format(name=job.slug)


EXPORTERS: dict[str, Exporter] = {
    exporter.format: exporter
    for exporter in (
        Exporter("command", "command for a terminal", "{name}.txt", command),
        Exporter("bash", "bash script in strict mode", "{name}.sh", bash, executable=True),
        Exporter("yaml", "SGLang's own --config file", "{name}.yaml", config_yaml),
        Exporter("docker", "docker run", "{name}-docker.sh", docker, executable=True),
        Exporter("compose", "compose file", "compose.yaml", compose),
        Exporter("k8s", "Kubernetes manifests", "{name}-k8s.yaml", kubernetes),
        Exporter("systemd", "systemd unit", "{name}.service", systemd),
        Exporter("python", "Python with sglang.Engine", "{name}.py", python_engine),
        Exporter("json", "JSON for programs", "{name}.json", as_json),
        Exporter("preset", "kvtui preset", "{name}.toml", as_preset),
    )
}
"""Every format, in the order in which it is offered."""


def export(format: str, job: ExportJob) -> str:
    """The launch in a format; raises ExportError, and KeyError for a format that is none."""
    return EXPORTERS[format].write(job)
