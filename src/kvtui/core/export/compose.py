"""A compose file: GPU reservation, shared memory, caches, health check, pinned image."""

from __future__ import annotations

from typing import Any

from kvtui.core.export.job import (
    ExportJob,
    Secret,
    Word,
    commented,
    env_of,
    header,
    words_of,
)
from kvtui.core.export.yaml_text import dump


def escaped(word: Word) -> str:
    """A word for compose, which reads `$` itself."""
    if isinstance(word, Secret):
        return f"${{{word.variable}:?set it in the environment}}"
    return word.replace("$", "$$")


def compose(job: ExportJob) -> str:
    """One service; the network is the host's, so that ports are the launch's own."""
    return commented(header(job)) + dump({"services": {job.slug: compose_service(job)}})


def compose_service(job: ExportJob) -> dict[str, Any]:
    """The service of one launch."""
    service: dict[str, Any] = {
        "image": job.image,
        "command": [escaped(word) for word in words_of(job)],
        "environment": {name: escaped(value) for name, value in env_of(job).items()},
        "network_mode": "host",
        "ipc": "host",
        "shm_size": "32g",
        "ulimits": {"memlock": -1, "stack": 67108864},
        "volumes": _volumes(job),
        "healthcheck": {
            "test": ["CMD", "curl", "--fail", "--silent", health_url(job)],
            "interval": "15s",
            "timeout": "5s",
            "retries": 4,
            "start_period": "900s",
        },
        "restart": "unless-stopped",
        **_devices(job),
    }
    if not service["environment"]:
        del service["environment"]
    return service


def health_url(job: ExportJob) -> str:
    """Where the server says that it is well."""
    scheme = "https" if job.draft.options.get("ssl_certfile") else "http"
    return f"{scheme}://127.0.0.1:{job.port}/health"


def _volumes(job: ExportJob) -> list[Any]:
    cache = "${HF_HOME:-${HOME}/.cache/huggingface}:/root/.cache/huggingface"
    folders = (
        {"type": "bind", "source": escaped(path), "target": escaped(path), "read_only": True}
        for path in job.mounts
    )
    return [cache, *folders]


def _devices(job: ExportJob) -> dict[str, Any]:
    if job.vendor == "amd":
        return {
            "devices": ["/dev/kfd", "/dev/dri"],
            "group_add": ["video"],
            "security_opt": ["seccomp:unconfined"],
        }
    gpus = {"driver": "nvidia", "count": job.gpus_per_node, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [gpus]}}}}
