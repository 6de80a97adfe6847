"""Where weights come from: load formats, remote stores, expert packs.

Mirrors `srt/arg_groups/model_path_hook.py`, `expert_pack_hook.py` and the environment defaults
of `muse_spark_hook.py` (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.model_common import arch, settle

HOOK = "arg_groups/model_path_hook.py"
OBJECT_STORES = ("s3://", "gs://", "az://")
NATIVE_MISTRAL = ("mistral-large-3", "mistral-small-4", "leanstral")

MUSE_SPARK_ENV = (
    ("SGLANG_ENABLE_CUDA_GRAPH_DEDUP", "true"),
    ("SGLANG_ENABLE_GRAPH_POOL_BORROW", "true"),
    ("SGLANG_ENABLE_GRAPH_POOL_PRECARVE", "true"),
    ("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING", "true"),
    ("SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS", "false"),
)


def is_object_store(path: object) -> bool:
    """True for a model in an object store that the streamer reads."""
    return isinstance(path, str) and path.lower().startswith(OBJECT_STORES)


def is_remote(path: object) -> bool:
    """True for a path of the form scheme://place."""
    return isinstance(path, str) and "://" in path


def is_gguf(path: object) -> bool:
    """True for a GGUF file, told by its name."""
    return isinstance(path, str) and path.lower().endswith(".gguf")


@step(f"{HOOK}:24")
def unreadable_sources(r: Resolution) -> None:
    """Leave the verdict open where the configuration lies behind a remote store."""
    for path in (r.model_path, r.speculative_draft_model_path):
        if is_object_store(path):
            r.doubt(f"{path}: the rules don't read object stores")


@step("arg_groups/muse_spark_hook.py:49")
def muse_spark_env_defaults(r: Resolution) -> None:
    """Switches that Muse Spark serves with unless the environment says otherwise."""
    if arch(r) != "MuseSparkForConditionalGeneration":
        return
    for name, value in MUSE_SPARK_ENV:
        r.env.setdefault(name, value)
    if r.quantization == "modelopt_fp4":
        r.env.setdefault("SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION", "true")


@rule(
    "KV165",
    stage=Stage.RESOLVE,
    option="load_format",
    source="arg_groups/expert_pack_hook.py:33",
    example=Example("--tp-size 2 --load-format expert_pack"),
    fragments=("Invalid expert_pack configuration",),
)
def expert_pack_needs(r: Resolution) -> Iterator[Hit]:
    """An expert pack is served by one GPU without graphs.

    Why: experts are streamed from the pack into one process, which neither splits them nor
    captures graphs.

    Fix: drop the option that is named.
    """
    if r.load_format != "expert_pack":
        return
    for name in ("tp_size", "dp_size", "attn_dp_size", "ep_size"):
        if getattr(r, name) != 1:
            flag = "--" + name.replace("_", "-")
            yield hit(f"expert_pack with {flag} {getattr(r, name)}", drop(name), option=name)
    for name in ("enforce_shared_experts_fusion", "enable_waterfill"):
        if getattr(r, name):
            flag = "--" + name.replace("_", "-")
            yield hit(f"expert_pack with {flag}", drop(name), option=name)
    for name in ("cuda_graph_backend_decode", "cuda_graph_backend_prefill"):
        if getattr(r, name) not in (None, "disabled"):
            flag = "--" + name.replace("_", "-")
            yield hit(f"expert_pack with {flag} {getattr(r, name)}", drop(name), option=name)


@step("arg_groups/expert_pack_hook.py:193")
def expert_pack_eager(r: Resolution) -> None:
    """Expert packs run eagerly, with shared experts apart."""
    if r.load_format != "expert_pack":
        return
    r.doubt("the rules don't read expert packs and their manifests")
    settle(
        r, "an expert pack is streamed",
        disable_cuda_graph=True, disable_shared_experts_fusion=True,
    )  # fmt: skip


@step(f"{HOOK}:152")
def load_format_by_source(r: Resolution) -> None:
    """The load format that the model's place and files call for."""
    path = r.model_path
    if r.load_format in ("auto", "gguf") and is_gguf(path):
        settle(r, "the model is a GGUF file", quantization="gguf", load_format="gguf")
    if r.load_format == "auto" and _native_mistral(r):
        settle(r, "the weights are in Mistral's own format", load_format="mistral")
    if is_object_store(path):
        settle(r, "the model lies in an object store", load_format="runai_streamer")
    elif is_remote(path):
        settle(r, "the model lies on another machine", load_format="remote")
    draft = r.speculative_draft_model_path
    if is_object_store(draft) and r.speculative_draft_load_format is None:
        r.default(
            "the draft lies in an object store", speculative_draft_load_format="runai_streamer"
        )
    if r.custom_weight_loader is None:
        r.default("none is given", custom_weight_loader=[])


def _native_mistral(r: Resolution) -> bool:
    path = r.model_path
    found = r.facts.checkpoints.get(path) if isinstance(path, str) else None
    if found is None:
        return False
    if "params.json" in found.files and any(name in path.lower() for name in NATIVE_MISTRAL):
        return True
    native = any(n.startswith("consolidated") and n.endswith(".safetensors") for n in found.files)
    usual = any(n.startswith("model") and n.endswith(".safetensors") for n in found.files)
    return native and not usual


@step(f"{HOOK}:203")
def remote_instance_fallback(r: Resolution) -> None:
    """Weights come from disk where the seed server isn't described fully."""
    if r.load_format != "remote_instance":
        return
    backend = r.remote_instance_weight_loader_backend
    seed = (
        r.remote_instance_weight_loader_seed_instance_ip,
        r.remote_instance_weight_loader_seed_instance_service_port,
    )
    nccl = backend == "nccl" and r.remote_instance_weight_loader_send_weights_group_ports is None
    if (backend != "modelexpress" and None in seed) or nccl:
        settle(r, "the seed server isn't described fully", load_format="auto")


@rule(
    "KV164",
    stage=Stage.RESOLVE,
    option="weight_cache_mode",
    source=f"{HOOK}:266",
    example=Example("--weight-cache-mode daemon --speculative-algorithm NGRAM"),
    fragments=("--weight-cache-mode is not supported together",),
)
def weight_cache_without_drafts(r: Resolution) -> Iterator[Hit]:
    """The weight cache serves no draft model.

    Why: its daemon exports the target's weights only.

    Fix: drop --weight-cache-mode, or speculation.
    """
    if r.weight_cache_mode != "off" and r.speculative_algorithm is not None:
        yield hit(
            f"--weight-cache-mode {r.weight_cache_mode} with speculation",
            drop("weight_cache_mode"),
            drop("speculative_algorithm"),
        )


HANDLE_MODEL_SOURCE_PATHS: tuple[Part, ...] = (unreadable_sources,)
APPLY_MUSE_SPARK_ENV_DEFAULTS: tuple[Part, ...] = (muse_spark_env_defaults,)
HANDLE_EXPERT_PACK: tuple[Part, ...] = (expert_pack_needs, expert_pack_eager)
HANDLE_LOAD_FORMAT: tuple[Part, ...] = (
    load_format_by_source,
    remote_instance_fallback,
    weight_cache_without_drafts,
)
