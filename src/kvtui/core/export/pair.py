"""A prefill/decode pair with its router: commands, script, compose file, manifests."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.export.compose import compose_service
from kvtui.core.export.job import Evidence, ExportJob, commented, header
from kvtui.core.export.kubernetes import deployment_of, dns_name, service_of
from kvtui.core.export.shell import command
from kvtui.core.export.yaml_text import dump
from kvtui.core.options import NEWEST
from kvtui.core.pair import ROLES, Pair, router_words


def _job(pair: Pair, role: str, name: str, evidence: Evidence | None) -> ExportJob:
    return ExportJob(pair.half(role), evidence, name=f"{name}-{role}")


def _header(name: str, evidence: Evidence | None) -> str:
    return commented(header(ExportJob(Draft(), evidence, name=name)))


def on_one_machine(pair: Pair) -> Pair:
    """The pair with GPUs of its own for each half, where both run on the same machine."""
    if "base_gpu_id" in pair.decode.options or "base_gpu_id" in pair.prefill.options:
        return pair
    taken = ExportJob(pair.prefill).gpus_per_node
    options = {**pair.decode.options, "base_gpu_id": taken}
    return replace(pair, decode=replace(pair.decode, options=options))


def pair_command(pair: Pair, name: str, evidence: Evidence | None) -> str:
    """The three commands, each for a terminal of its own."""
    pair = on_one_machine(pair)
    parts = [_header(name, evidence)]
    parts += [f"# {role}\n{command(_job(pair, role, name, evidence))}" for role in ROLES]
    parts.append(f"# router\n{shlex.join(router_words(pair))}\n")
    return "\n".join(parts)


def pair_bash(pair: Pair, name: str, evidence: Evidence | None) -> str:
    """A script that runs all three on this machine and ends them together."""
    pair = on_one_machine(pair)
    lines = ["#!/usr/bin/env bash", _header(name, evidence).rstrip("\n"), "set -euo pipefail", ""]
    lines += ["trap 'kill $(jobs -p) 2>/dev/null || true' EXIT", ""]
    for role in ROLES:
        text = command(_job(pair, role, name, evidence)).rstrip("\n")
        lines += [f"# {role}", f"{text} &", ""]
    lines += ["# router", f"{shlex.join(router_words(pair))} &", "", "wait -n"]
    return "\n".join(lines) + "\n"


def pair_compose(pair: Pair, name: str, evidence: Evidence | None) -> str:
    """Three services on the host's network."""
    pair = on_one_machine(pair)
    jobs = {role: _job(pair, role, name, evidence) for role in ROLES}
    services: dict[str, Any] = {job.slug: compose_service(job) for job in jobs.values()}
    services[f"{jobs['prefill'].slug.removesuffix('-prefill')}-router"] = {
        "image": jobs["prefill"].image,
        "command": [word.replace("$", "$$") for word in router_words(pair)],
        "network_mode": "host",
        "depends_on": {job.slug: {"condition": "service_healthy"} for job in jobs.values()},
        "restart": "unless-stopped",
    }
    return _header(name, evidence) + dump({"services": services})


def pair_kubernetes(pair: Pair, name: str, evidence: Evidence | None) -> str:
    """A Deployment and a Service for each half and for the router."""
    documents: list[Any] = []
    for role in ROLES:
        job = _job(pair, role, name, evidence)
        documents += [deployment_of(job), service_of(job)]
    open_pair = replace(pair, router=replace(pair.router, host="0.0.0.0"))
    hosts = [dns_name(f"{name}-{role}") for role in ROLES]
    documents += _router_documents(open_pair, dns_name(f"{name}-router"), hosts)
    _expose_bootstrap(pair, documents[1])
    return _header(name, evidence) + "---\n".join(map(dump, documents))


def _expose_bootstrap(pair: Pair, service: dict[str, Any]) -> None:
    """Decode servers ask the prefill server's bootstrap port for its layout."""
    port = pair.prefill.options.get("disaggregation_bootstrap_port", 8998)
    service["spec"]["ports"].append({"name": "bootstrap", "port": port, "targetPort": port})


def _router_documents(pair: Pair, name: str, hosts: list[str]) -> list[Any]:
    labels = {"app": name}
    words = [word.replace("$", "$$") for word in router_words(pair, *hosts)]
    container = {
        "name": "router",
        "image": f"lmsysorg/sglang:v{NEWEST}",
        "command": words[:3],
        "args": words[3:],
        "ports": [{"name": "http", "containerPort": pair.router.port}],
    }
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": labels,
            "ports": [{"name": "http", "port": pair.router.port, "targetPort": "http"}],
        },
    }
    return [deployment, service]


PAIR_EXPORTERS: dict[str, Callable[[Pair, str, Evidence | None], str]] = {
    "command": pair_command,
    "bash": pair_bash,
    "compose": pair_compose,
    "k8s": pair_kubernetes,
}
"""Formats that hold a whole pair."""
