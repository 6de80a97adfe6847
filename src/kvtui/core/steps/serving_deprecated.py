"""Old spellings and the gRPC listener (`srt/arg_groups/serving_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

TOOL_PARSERS = {"qwen25": "qwen", "glm45": "glm"}
ATTENTION_ALIASES = {"compressed": "dsv4", "tokenspeed_mla": "cutedsl_mla"}
ATTENTION_OPTIONS = (
    "attention_backend",
    "decode_attention_backend",
    "prefill_attention_backend",
    "speculative_draft_attention_backend",
)
GRPC_OFFSET = 10000
"""Distance of the old gRPC port from `--port`."""


@rule(
    "KV1045", stage=Stage.RESOLVE, option="disable_fast_image_processor",
    source="arg_groups/serving_hook.py:264",
    example=Example("--disable-fast-image-processor --image-processor-backend torchvision"),
    fragments=("--disable-fast-image-processor conflicts",),
)  # fmt: skip
def one_image_processor(r: Resolution) -> Iterator[Hit]:
    """The old switch for slow image processing contradicts another back end.

    Why: it means `--image-processor-backend pil`.

    Fix: drop the switch.
    """
    if r.disable_fast_image_processor and r.image_processor_backend not in ("auto", "pil"):
        yield hit(
            "--disable-fast-image-processor with --image-processor-backend "
            f"{r.image_processor_backend}",
            drop("disable_fast_image_processor"),
        )


@step("arg_groups/serving_hook.py:274")
def old_spellings(r: Resolution) -> None:
    """Old words become the present ones."""
    if r.disable_fast_image_processor:
        r.declare("the switch means it", image_processor_backend="pil")
    parser = TOOL_PARSERS.get(r.tool_call_parser)
    if parser:
        r.declare(f"{r.tool_call_parser} is now called so", tool_call_parser=parser)
    if r.enable_flashinfer_allreduce_fusion:
        if r.flashinfer_allreduce_fusion_backend is None:
            r.declare("the old switch means it", flashinfer_allreduce_fusion_backend="auto")
        r.declare(
            "--flashinfer-allreduce-fusion-backend says it now",
            enable_flashinfer_allreduce_fusion=False,
        )


@step("arg_groups/serving_hook.py:303")
def old_attention_names(r: Resolution) -> None:
    """Renamed attention back ends, with what the old name implied."""
    given = {name: getattr(r.raw, name) for name in ATTENTION_OPTIONS}
    renamed = {
        name: ATTENTION_ALIASES[old] for name, old in given.items() if old in ATTENTION_ALIASES
    }
    if not renamed:
        return
    if renamed.get("prefill_attention_backend") == "cutedsl_mla":
        renamed["prefill_attention_backend"] = "trtllm_mla"
    if "tokenspeed_mla" in (given["attention_backend"], given["decode_attention_backend"]):
        if r.kv_cache_dtype != "fp8_e4m3":
            renamed["kv_cache_dtype"] = "fp8_e4m3"
        if r.speculative_algorithm is not None and r.speculative_attention_mode == "prefill":
            renamed["speculative_attention_mode"] = "decode"
    old = next(name for name in given.values() if name in ATTENTION_ALIASES)
    r.declare(f"{old} is an old name", **renamed)


@step("arg_groups/serving_hook.py:340")
def grpc_ports(r: Resolution) -> None:
    """The gRPC port comes from its option, its variable, or the old offset."""
    if r.grpc_mode and not r.smg_grpc_mode:
        r.declare("--grpc-mode is an old name", smg_grpc_mode=True)
    r.default(
        "SGLANG_GRPC_WORKER_THREADS", grpc_worker_threads=r.env_int("SGLANG_GRPC_WORKER_THREADS", 4)
    )
    if r.grpc_port is None and "SGLANG_GRPC_PORT" in r.env:
        r.default("SGLANG_GRPC_PORT", grpc_port=r.env_int("SGLANG_GRPC_PORT", 0))
    if (r.smg_grpc_mode or r.grpc_mode) and r.grpc_port is None:
        r.default("10000 above --port", grpc_port=whole(r.port) + GRPC_OFFSET)


@rule(
    "KV1046", stage=Stage.RESOLVE, option="grpc_port", source="arg_groups/serving_hook.py:375",
    example=Example("--grpc-port 70000"),
    fragments=("must be between 1 and 65535", "--grpc-response-timeout-secs",
               "SGLANG_GRPC_WORKER_THREADS"),
)  # fmt: skip
def grpc_numbers(r: Resolution) -> Iterator[Hit]:
    """The gRPC listener has a port, at least one thread and a positive time limit.

    Why: the old gRPC mode takes its port 10000 above `--port`, which may run past 65535.

    Fix: give a free port.
    """
    if whole(r.grpc_response_timeout_secs, 1) <= 0:
        name = "grpc_response_timeout_secs"
        yield hit(
            f"--grpc-response-timeout-secs is {r.grpc_response_timeout_secs}",
            drop(name),
            option=name,
        )
    if r.grpc_port is None:
        return
    if not 1 <= whole(r.grpc_port) <= 65535:
        yield hit(
            f"the gRPC port is {r.grpc_port}; it must be 1 to 65535",
            set_to("listen on 50051", grpc_port=50051),
        )
    if whole(r.grpc_worker_threads, 1) < 1:
        yield hit(f"SGLANG_GRPC_WORKER_THREADS is {r.grpc_worker_threads}", drop("grpc_port"))


@rule(
    "KV1047", stage=Stage.RESOLVE, option="sidecar", source="arg_groups/serving_hook.py:398",
    example=Example("--sidecar program"), fragments=("--sidecar",),
)  # fmt: skip
def sidecar_needs_grpc(r: Resolution) -> Iterator[Hit]:
    """A sidecar talks to the native gRPC listener.

    Why: it is started beside the server and handed that port; the old gRPC mode has none.

    Fix: give `--grpc-port`, or drop the sidecar.
    """
    fix = drop("sidecar", "sidecar_args")
    arguments = r.sidecar_args
    if arguments is not None and r.sidecar is None:
        yield hit("--sidecar-args without --sidecar", drop("sidecar_args"))
    if arguments is not None and not (
        isinstance(arguments, list) and all(isinstance(word, str) for word in arguments)
    ):
        yield hit("--sidecar-args is no list of words", drop("sidecar_args"))
    if r.sidecar is None:
        return
    if not r.sidecar.strip():
        yield hit("--sidecar is empty", fix)
    elif r.smg_grpc_mode or r.grpc_mode:
        yield hit("--sidecar with the old gRPC mode", fix)
    elif r.grpc_port is None:
        yield hit("--sidecar without --grpc-port", set_to("listen on 50051", grpc_port=50051), fix)


@rule(
    "KV1048", stage=Stage.RESOLVE, option="grpc_port", source="arg_groups/serving_hook.py:412",
    example=Example("--grpc-port 50051 --api-key secret"),
    fragments=("--grpc-port is not supported with", "Native gRPC does not yet support",
               "--grpc-port is incompatible"),
)  # fmt: skip
def native_grpc_needs(r: Resolution) -> Iterator[Hit]:
    """The native gRPC listener serves one tokenizer worker without keys.

    Why: it does not pass through the HTTP server's authentication, worker routing or Ray path.

    Fix: drop the port, or what the line names.
    """
    if r.grpc_port is None or r.smg_grpc_mode or r.grpc_mode:
        return
    for broken, found in (
        (r.use_ray, "--use-ray"),
        (r.encoder_only, "--encoder-only"),
        (whole(r.tokenizer_worker_num, 1) > 1, f"--tokenizer-worker-num {r.tokenizer_worker_num}"),
        (r.api_key or r.admin_api_key, "an API key"),
    ):
        if broken:
            yield hit(f"--grpc-port {r.grpc_port} with {found}", drop("grpc_port"))


HANDLE_DEPRECATED_ARGS: tuple[Part, ...] = (
    one_image_processor,
    old_spellings,
    old_attention_names,
    grpc_ports,
    grpc_numbers,
    sidecar_needs_grpc,
    native_grpc_needs,
)
