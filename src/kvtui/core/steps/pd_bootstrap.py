"""The registry of a prefill/decode pair inside the Rust server."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop
from kvtui.core.options import catalogue
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

HOOK = "arg_groups/pd_disaggregation_hook.py"


def _rust_bootstrap(r: Resolution) -> bool:
    """True where the Rust server's own port serves the registry of the pair.

    Source: managers/disagg_service.py:54; all built-in back ends but fake use that registry.
    """
    rust = r.disaggregation_mode == "prefill" and r.env_flag("SGLANG_RUST_SERVER")
    return bool(rust and r.disaggregation_transfer_backend != "fake")


def _default_bootstrap_port() -> int:
    return int(catalogue().defaults["disaggregation_bootstrap_port"])


@rule(
    "KV508",
    stage=Stage.RESOLVE,
    option="disaggregation_bootstrap_port",
    source=f"{HOOK}:275",
    example=Example(
        "--disaggregation-mode prefill --disaggregation-bootstrap-port 9000",
        env={"SGLANG_RUST_SERVER": "1"},
    ),
    fragments=("serves the PD KV bootstrap registry on the api",),
)
def rust_bootstrap_port(r: Resolution) -> Iterator[Hit]:
    """The Rust server serves the pair's registry on its own port.

    Why: there is one listener, so the registry can't have another port.
    Fix: drop --disaggregation-bootstrap-port; decode servers and router use --port.
    """
    port = r.disaggregation_bootstrap_port
    if _rust_bootstrap(r) and port not in (_default_bootstrap_port(), r.port):
        yield hit(
            f"the registry is served on port {r.port}, and {port} is set",
            drop("disaggregation_bootstrap_port"),
        )


@step(f"{HOOK}:289")
def alias_bootstrap_port(r: Resolution) -> None:
    """Let the registry's port follow the server's where the Rust server runs it."""
    if _rust_bootstrap(r) and r.disaggregation_bootstrap_port == _default_bootstrap_port():
        r.declare(
            "the Rust server runs the registry on its own port",
            disaggregation_bootstrap_port=r.port,
        )


RUST_BOOTSTRAP: tuple[Part, ...] = (rust_bootstrap_port, alias_bootstrap_port)
