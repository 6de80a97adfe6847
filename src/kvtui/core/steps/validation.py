"""Checks of the resolved arguments (`srt/arg_groups/validation_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hisparse import HISPARSE_VALIDATION
from kvtui.core.steps.lora import CHECK_LORA_SERVER_ARGS
from kvtui.core.steps.model_paths import OBJECT_STORES
from kvtui.core.steps.validation_layout import (
    pipeline_features,
    plain_numbers,
    ranks_fill_nodes,
    replicas_on_one_node,
    two_batch_overlap_needs,
)
from kvtui.core.steps.validation_metrics import CHECK_METRICS
from kvtui.core.steps.validation_watermark import CHECK_WATERMARK

PRIORITY_POLICIES = ("fcfs", "lof")


@rule(
    "KV1067", stage=Stage.CHECK, option="disable_cuda_graph_padding",
    source="arg_groups/validation_hook.py:189",
    example=Example("--disable-cuda-graph-padding --enable-torch-compile"),
    fragments=("--disable-cuda-graph-padding is incompatible with --enable-torch-compile",),
)  # fmt: skip
def compile_needs_padding(r: Resolution) -> Iterator[Hit]:
    """`torch.compile` needs padded batch sizes.

    Why: without padding every batch size is compiled by itself, which takes many minutes.

    Fix: drop one of the two.
    """
    if r.disable_cuda_graph_padding and r.enable_torch_compile:
        yield hit(
            "--disable-cuda-graph-padding with --enable-torch-compile",
            drop("disable_cuda_graph_padding"),
            drop("enable_torch_compile"),
        )


@rule(
    "KV1070", stage=Stage.CHECK, option="served_model_name",
    source="arg_groups/validation_hook.py:214", example=Example("--served-model-name qwen:8b"),
    fragments=("served_model_name cannot contain a colon",),
)  # fmt: skip
def served_name_without_colon(r: Resolution) -> Iterator[Hit]:
    """A served name has no colon.

    Why: `model:adapter` is how a request names a LoRA adapter.

    Fix: use another separator.
    """
    name = str(r.served_model_name)
    if ":" in name and not name.lower().startswith(OBJECT_STORES):
        plain = name.replace(":", "-")
        yield hit(
            f"--served-model-name {name} has a colon",
            set_to(f"serve as {plain}", served_model_name=plain),
        )


@rule(
    "KV1072", stage=Stage.CHECK, option="chunked_prefill_size",
    source="arg_groups/validation_hook.py:244",
    example=Example("--chunked-prefill-size 1000 --page-size 64"),
    fragments=("chunked_prefill_size must be divisible by page_size",),
)  # fmt: skip
def chunk_is_whole_pages(r: Resolution) -> Iterator[Hit]:
    """A prefill chunk is a whole number of pages.

    Why: the next chunk has to start on a page of its own. Attention DP divides the chunk first.

    Fix: round the chunk to pages (times the attention-DP groups), or choose smaller pages.
    """
    chunk, page = whole(r.chunked_prefill_size), whole(r.page_size, 1)
    if chunk <= 0 or r.disaggregation_mode == "decode":
        return
    if page == 0:
        yield hit("pages of 0 tokens", drop("page_size"), option="page_size")
        return
    if chunk % page == 0:
        return
    groups = max(1, whole(r.attn_dp_size, 1))
    size = max(1, chunk // abs(page)) * abs(page) * groups
    fixes = [set_to(f"prefill in chunks of {size} tokens", chunked_prefill_size=size)]
    if r.chose("page_size"):
        fixes.append(drop("page_size"))
    yield hit(f"a chunk of {chunk} tokens is not a whole number of pages of {page}", *fixes)


@rule(
    "KV1073", stage=Stage.CHECK, option="enable_pdmux",
    source="arg_groups/validation_hook.py:250", example=Example("--enable-pdmux"),
    fragments=("PD-Multiplexing is",),
)  # fmt: skip
def multiplexing_needs(r: Resolution) -> Iterator[Hit]:
    """Multiplexing prefill and decode on one GPU takes whole prompts, without overlap.

    Why: it splits the GPU between two streams itself.

    Fix: set what the line names.
    """
    if not r.enable_pdmux:
        return
    for broken, found, fix in (
        (r.pp_size != 1, f"--pp-size is {r.pp_size}", set_to("use one stage", pp_size=1)),
        (r.chunked_prefill_size != -1, f"--chunked-prefill-size is {r.chunked_prefill_size}",
         set_to("prefill whole prompts", chunked_prefill_size=-1)),
        (r.disaggregation_mode != "null", f"--disaggregation-mode is {r.disaggregation_mode}",
         drop("enable_pdmux")),
        (not r.disable_overlap_schedule, "the overlap scheduler is on",
         set_to("schedule without overlap", disable_overlap_schedule=True)),
    ):  # fmt: skip
        if broken:
            yield hit(f"--enable-pdmux: {found}", fix)


@rule(
    "KV1074", stage=Stage.CHECK, option="schedule_policy",
    source="arg_groups/validation_hook.py:281",
    example=Example("--enable-priority-scheduling --schedule-policy lpm"),
    fragments=("To use priority scheduling", "--retraction-policy priority requires"),
)  # fmt: skip
def priorities_need_order(r: Resolution) -> Iterator[Hit]:
    """Priorities refine first-come or longest-output order.

    Why: other policies order the queue by cache hits or at random, against the priorities.

    Fix: use `fcfs`, or drop priorities.
    """
    if r.enable_priority_scheduling and r.schedule_policy not in PRIORITY_POLICIES:
        yield hit(
            f"--enable-priority-scheduling with --schedule-policy {r.schedule_policy}",
            set_to("serve in order of arrival", schedule_policy="fcfs"),
            drop("enable_priority_scheduling"),
        )
    if r.retraction_policy == "priority" and not r.enable_priority_scheduling:
        yield hit(
            "--retraction-policy priority without --enable-priority-scheduling",
            drop("retraction_policy"),
            option="retraction_policy",
        )


@rule(
    "KV1075", stage=Stage.CHECK, option="device", source="arg_groups/validation_hook.py:318",
    example=Example("--model-impl mindspore"),
    fragments=("MindSpore model impl", "InstantTensor requires", "Communications quantization",
               "--sampling-backend intel_xpu requires"),
)  # fmt: skip
def device_features(r: Resolution) -> Iterator[Hit]:
    """Some implementations belong to one kind of device.

    Why: MindSpore and quantized collectives run on Ascend, InstantTensor on CUDA and ROCm, the
    `intel_xpu` sampler on Intel GPUs.

    Fix: leave the option out.
    """
    conditions: tuple[tuple[object, str, str], ...] = (
        (r.model_impl == "mindspore" and not r.platform.is_npu, "model_impl", "mindspore"),
        (r.load_format == "instanttensor" and r.device != "cuda", "load_format", "instanttensor"),
        (r.enable_quant_communications and (r.tp_size == 1 or r.device != "npu"),
         "enable_quant_communications", "on"),
        (r.sampling_backend == "intel_xpu" and r.device != "xpu", "sampling_backend", "intel_xpu"),
    )  # fmt: skip
    for broken, name, word in conditions:
        if broken:
            flag = "--" + name.replace("_", "-")
            yield hit(f"{flag} {word} on {r.device}", drop(name), option=name)


@rule(
    "KV1077", stage=Stage.CHECK, option="kv_canary_sweep_interval",
    source="arg_groups/validation_hook.py:375", example=Example("--kv-canary-sweep-interval 4"),
    fragments=("--kv-canary-sweep-interval requires", "must contain 1 to 3 integers",
               "must differ from --port"),
)  # fmt: skip
def odds_and_ends(r: Resolution) -> Iterator[Hit]:
    """A sweep needs a canary, the collector three thresholds at most, two listeners two ports.

    Why: the engine checks these last.

    Fix: drop the option.
    """
    if whole(r.kv_canary_sweep_interval) > 0 and r.kv_canary == "none":
        yield hit("--kv-canary-sweep-interval without --kv-canary",
                  drop("kv_canary_sweep_interval"))  # fmt: skip
    if r.gc_threshold and len(r.gc_threshold) > 3:
        yield hit(f"--gc-threshold has {len(r.gc_threshold)} numbers", drop("gc_threshold"),
                  option="gc_threshold")  # fmt: skip
    legacy = r.smg_grpc_mode or r.grpc_mode
    if not legacy and r.grpc_port is not None and r.grpc_port == r.port:
        yield hit(f"--grpc-port and --port are both {r.port}", drop("grpc_port"),
                  option="grpc_port")  # fmt: skip


CHECK_SERVER_ARGS: tuple[Part, ...] = (
    ranks_fill_nodes,
    plain_numbers,
    compile_needs_padding,
    pipeline_features,
    replicas_on_one_node,
    served_name_without_colon,
    *CHECK_LORA_SERVER_ARGS,
    chunk_is_whole_pages,
    multiplexing_needs,
    priorities_need_order,
    *HISPARSE_VALIDATION,
    device_features,
    *CHECK_METRICS,
    two_batch_overlap_needs,
    odds_and_ends,
    *CHECK_WATERMARK,
)
