"""Kubernetes manifests: Deployment and Service, or a LeaderWorkerSet over several nodes."""

from __future__ import annotations

import re
from dataclasses import replace
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

GIB = 1 << 30
BASE_MEMORY_GIB = 32
"""Host memory of a server beside its caches, for loading weights and tokenizers."""

DIST_PORT = 20000
POD_IP = "$(POD_IP)"
LEADER = f"$(LWS_LEADER_ADDRESS):{DIST_PORT}"
WORKER_INDEX = "$(LWS_WORKER_INDEX)"
"""What the cluster fills in; an import leaves these out again."""


def dns_name(name: str) -> str:
    """A name that Kubernetes takes."""
    clean = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].strip("-")
    return clean if clean[:1].isalpha() else f"sglang-{clean}".strip("-")


def escaped(word: Word) -> str:
    """A word for a container, where `$(NAME)` is replaced and `$$` stands for `$`."""
    if isinstance(word, Secret):
        return f"$({word.variable})"
    return word.replace("$", "$$")


def kubernetes(job: ExportJob) -> str:
    """The manifests of a launch as one YAML stream."""
    several = job.nnodes > 1
    documents = [_worker_set(job) if several else deployment_of(job), service_of(job)]
    return commented(header(job)) + "---\n".join(map(dump, documents))


def _args(job: ExportJob, several: bool) -> list[str]:
    gone = ("node_rank", "dist_init_addr") if several else ()
    options = {name: v for name, v in job.draft.options.items() if name not in gone}
    words = [escaped(word) for word in words_of(replace(job, draft=_with(job, options)))]
    if "host" not in job.draft.options:
        words += ["--host", POD_IP]
    if several:
        words += ["--dist-init-addr", LEADER, "--node-rank", WORKER_INDEX]
    return words


def _with(job: ExportJob, options: dict[str, Any]) -> Any:
    return replace(job.draft, options=options)


def _environment(job: ExportJob) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    ]
    for name, value in env_of(job).items():
        if isinstance(value, Secret):
            rows.append(_from_secret(job, name))
        else:
            rows.append({"name": name, "value": escaped(value)})
    held = {w.variable for w in words_of(job) if isinstance(w, Secret)} - set(job.draft.env)
    return rows + [_from_secret(job, name) for name in sorted(held)]


def _from_secret(job: ExportJob, name: str) -> dict[str, Any]:
    key = name.lower().replace("_", "-")
    secret = {"name": f"{dns_name(job.slug)}-secrets", "key": key}
    return {"name": name, "valueFrom": {"secretKeyRef": secret}}


def _pod(job: ExportJob, several: bool) -> dict[str, Any]:
    words = _args(job, several)
    probe = {"path": "/health", "port": "http"}
    container: dict[str, Any] = {
        "name": "server",
        "image": job.image,
        "command": words[: len(job.program)],
        "args": words[len(job.program) :],
        "env": _environment(job),
        "ports": [{"name": "http", "containerPort": job.port}],
        "resources": _resources(job),
        "startupProbe": {"httpGet": probe, "periodSeconds": 10, "failureThreshold": 180},
        "readinessProbe": {"httpGet": probe, "periodSeconds": 10},
        "livenessProbe": {"httpGet": probe, "periodSeconds": 30, "failureThreshold": 4},
        "volumeMounts": _mounts(job),
    }
    pod: dict[str, Any] = {"containers": [container], "volumes": _volumes(job)}
    if job.preflight:
        pod["initContainers"] = [_preflight(job, words)]
    return pod


def _preflight(job: ExportJob, words: list[str]) -> dict[str, Any]:
    """Checks the launch on the node's own GPU before the server starts."""
    version = job.evidence.kvtui_version if job.evidence else "latest"
    wanted = "kvtui" if version == "latest" else f"kvtui=={version}"
    script = (
        f"pip install --quiet --no-deps {wanted} && "
        'kvtui check --gpu local -- "$@" || [ "$?" -ne 1 ]'
    )
    return {
        "name": "preflight",
        "image": job.image,
        "command": ["sh", "-c", script, "preflight"],
        "args": words[len(job.program) :],
        "env": _environment(job),
        "resources": {"limits": _gpu_limits(job)},
        "volumeMounts": _mounts(job),
    }


def _gpu_limits(job: ExportJob) -> dict[str, int]:
    return {f"{'amd' if job.vendor == 'amd' else 'nvidia'}.com/gpu": job.gpus_per_node}


def _resources(job: ExportJob) -> dict[str, Any]:
    caches = job.evidence.host_bytes * job.gpus_per_node if job.evidence else 0
    memory = f"{BASE_MEMORY_GIB + -(-caches // GIB)}Gi"
    return {"limits": {**_gpu_limits(job)}, "requests": {"memory": memory}}


def _mounts(job: ExportJob) -> list[dict[str, Any]]:
    folders = [
        {"name": f"path-{n}", "mountPath": path, "readOnly": True}
        for n, path in enumerate(job.mounts)
    ]
    cache = {"name": "cache", "mountPath": "/root/.cache/huggingface"}
    return [{"name": "shm", "mountPath": "/dev/shm"}, cache, *folders]


def _volumes(job: ExportJob) -> list[dict[str, Any]]:
    folders = [
        {"name": f"path-{n}", "hostPath": {"path": path}} for n, path in enumerate(job.mounts)
    ]
    memory = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}}
    return [memory, {"name": "cache", "emptyDir": {}}, *folders]


def deployment_of(job: ExportJob) -> dict[str, Any]:
    """The Deployment of a launch on one node."""
    labels = {"app": dns_name(job.slug)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": dns_name(job.slug), "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(job, several=False)},
        },
    }


def _worker_set(job: ExportJob) -> dict[str, Any]:
    labels = {"app": dns_name(job.slug)}
    leader = {"metadata": {"labels": {**labels, "role": "leader"}}, "spec": _pod(job, True)}
    worker_pod = _pod(job, True)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe", "ports"):
        del worker_pod["containers"][0][probe]
    worker = {"metadata": {"labels": labels}, "spec": worker_pod}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": dns_name(job.slug), "labels": labels},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": job.nnodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }


def service_of(job: ExportJob) -> dict[str, Any]:
    """The Service in front of a launch; of several nodes only the first one answers."""
    several = job.nnodes > 1
    labels = {"app": dns_name(job.slug)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": dns_name(job.slug), "labels": labels},
        "spec": {
            "selector": {**labels, "role": "leader"} if several else labels,
            "ports": [{"name": "http", "port": job.port, "targetPort": "http"}],
        },
    }
