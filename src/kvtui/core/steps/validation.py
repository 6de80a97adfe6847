"""Checks of the resolved arguments (`srt/arg_groups/validation_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.hisparse import HISPARSE_VALIDATION
from kvtui.core.steps.lora import CHECK_LORA_SERVER_ARGS
from kvtui.core.steps.validation_metrics import CHECK_METRICS
from kvtui.core.steps.validation_watermark import CHECK_WATERMARK

AUX_METHODS = ("EAGLE3", "DFLASH", "DSPARK")
PRIORITY_POLICIES = ("fcfs", "lof")
OBJECT_STORES = ("s3://", "gs://", "az://")


@rule(
    "KV1060", stage=Stage.RESOLVE, option="prefill_decode_interval",
    source="arg_groups/validation_hook.py:637", example=Example("--prefill-decode-interval -1"),
    fragments=("--prefill-decode-interval",),
)  # fmt: skip
def prefill_interval_counts(r: Resolution) -> Iterator[Hit]:
    """Steps between prefills are counted from zero.

    Why: the scheduler decodes that many steps before it prefills again.

    Fix: leave the option out.
    """
    for name in ("prefill_decode_interval", "prefill_decode_interval_min_bs"):
        value = getattr(r, name)
        if value is not None and whole(value) < 0:
            yield hit(f"--{name.replace('_', '-')} is {value}", drop(name), option=name)


VALIDATE_PREFILL_DECODE_INTERVAL: tuple[Part, ...] = (prefill_interval_counts,)


@rule(
    "KV1061", stage=Stage.RESOLVE, option="enable_response_store",
    source="arg_groups/validation_hook.py:120",
    example=Example("--enable-response-store --disaggregation-mode prefill"),
    fragments=("--enable-response-store is not supported",),
)  # fmt: skip
def response_store_on_one_server(r: Resolution) -> Iterator[Hit]:
    """Responses are stored by a server that both prefills and decodes.

    Why: neither half of a disaggregated pair sees a whole response.

    Fix: drop the store.
    """
    if r.enable_response_store and r.disaggregation_mode != "null":
        yield hit(
            f"--enable-response-store with --disaggregation-mode {r.disaggregation_mode}",
            drop("enable_response_store"),
        )


VALIDATE_RESPONSE_STORE: tuple[Part, ...] = (response_store_on_one_server,)


@rule(
    "KV1062", stage=Stage.RESOLVE, option="sampling_mask_max_tokens",
    source="arg_groups/validation_hook.py:657", example=Example("--sampling-mask-max-tokens 0"),
    fragments=("SAMPLING_MASK_MAX_TOKENS", "--sampling-mask-max-tokens must be positive"),
)  # fmt: skip
def sampling_mask_size(r: Resolution) -> Iterator[Hit]:
    """Sampling masks hold a positive number of tokens, set by option only.

    Why: the old environment variable is refused so that both servers of a pair agree.

    Fix: unset the variable; give a positive number.
    """
    old = "SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS"
    if old in r.env:
        yield hit(f"{old} is set", set_to(f"unset {old}", **{f"env:{old}": None}))
    if whole(r.sampling_mask_max_tokens, 1) <= 0:
        yield hit(
            f"--sampling-mask-max-tokens is {r.sampling_mask_max_tokens}",
            drop("sampling_mask_max_tokens"),
        )


VALIDATE_SAMPLING_MASK_MAX_TOKENS: tuple[Part, ...] = (sampling_mask_size,)


def _layers_problem(layers: object) -> str | None:
    if not isinstance(layers, list):
        return None
    if not layers:
        return "is empty"
    if any(whole(layer) < 0 for layer in layers):
        return "has a negative layer"
    return "repeats a layer" if len(set(layers)) != len(layers) else None


@rule(
    "KV1063", stage=Stage.RESOLVE, option="enable_return_aux_hidden_states",
    source="arg_groups/validation_hook.py:683",
    example=Example("--enable-return-aux-hidden-states"),
    fragments=("--enable-return-aux-hidden-states", "--return-aux-hidden-state-layer-ids"),
)  # fmt: skip
def aux_states_need(r: Resolution) -> Iterator[Hit]:
    """Auxiliary hidden states are captured as one of three drafts would read them.

    Why: `--speculative-algorithm` names the convention only; no draft is loaded, and hooks see
    the layers of one pipeline stage.

    Fix: name EAGLE3, or DFLASH or DSPARK with the layers wanted.
    """
    layers = r.return_aux_hidden_state_layer_ids
    if not r.enable_return_aux_hidden_states:
        if layers is not None:
            name = "return_aux_hidden_state_layer_ids"
            yield hit("--return-aux-hidden-state-layer-ids without its switch", drop(name),
                      option=name)  # fmt: skip
        return
    method = str(r.raw.speculative_algorithm or "").upper()
    problem = _layers_problem(layers)
    stop = drop("enable_return_aux_hidden_states", "return_aux_hidden_state_layer_ids")
    for broken, found in (
        (method not in AUX_METHODS, f"--speculative-algorithm is {method or 'not set'}"),
        (r.speculative_draft_model_path is not None, "--speculative-draft-model-path is set"),
        (r.pp_size != 1, f"--pp-size is {r.pp_size}"),
        (method in ("DFLASH", "DSPARK") and layers is None,
         f"{method} needs --return-aux-hidden-state-layer-ids"),
        (problem, f"--return-aux-hidden-state-layer-ids {problem}"),
    ):  # fmt: skip
        if broken:
            yield hit(f"--enable-return-aux-hidden-states: {found}", stop)


@step("arg_groups/validation_hook.py:730")
def aux_states_take_the_algorithm(r: Resolution) -> None:
    """The algorithm names a convention then, nothing is drafted."""
    if r.enable_return_aux_hidden_states and r.speculative_algorithm is not None:
        r.declare(
            "--enable-return-aux-hidden-states takes it as the capture convention",
            aux_hidden_state_capture=str(r.speculative_algorithm).lower(),
            speculative_algorithm=None,
        )


HANDLE_AUX_HIDDEN_STATE_CAPTURE: tuple[Part, ...] = (
    aux_states_need,
    aux_states_take_the_algorithm,
)


@step("arg_groups/validation_hook.py:644")
def no_prefill_interval(r: Resolution) -> None:
    """Prefills are not spaced unless a model asks for it."""
    if r.prefill_decode_interval is None:
        r.default("prefills are not spaced", prefill_decode_interval=0)


DEFAULT_UNSET_PREFILL_DECODE_INTERVAL: tuple[Part, ...] = (no_prefill_interval,)


@rule(
    "KV1065", stage=Stage.CHECK, option="nnodes", source="arg_groups/validation_hook.py:179",
    example=Example("--tp-size 3 --nnodes 2 --dist-init-addr 10.0.0.1:5000"),
    fragments=("tp_size must be divisible by number of nodes",),
)  # fmt: skip
def ranks_fill_nodes(r: Resolution) -> Iterator[Hit]:
    """Ranks spread evenly over nodes.

    Why: every node starts `tp_size * pp_size / nnodes` of them.

    Fix: choose a number of nodes that divides the ranks.
    """
    nodes = whole(r.nnodes, 1)
    if r.ep_join_mode == "scale":
        return
    if nodes == 0 or (whole(r.tp_size, 1) * whole(r.pp_size, 1)) % nodes:
        yield hit(
            f"--tp-size {r.tp_size} x --pp-size {r.pp_size} is not divisible by --nnodes {nodes}",
            drop("nnodes", title="run on one node"),
        )


@rule(
    "KV1066", stage=Stage.CHECK, option="pp_max_micro_batch_size",
    source="arg_groups/validation_hook.py:184", example=Example("--pp-max-micro-batch-size 0"),
    fragments=("pp_max_micro_batch_size must be", "base_gpu_id must be", "gpu_id_step must be",
               "moe_dense_tp_size only supports", "orker num must >=",
               "schedule_conservativeness must be"),
)  # fmt: skip
def plain_numbers(r: Resolution) -> Iterator[Hit]:
    """Sizes and counts stay in their range.

    Why: the engine asserts each of them once everything else is resolved.

    Fix: leave the option out, or give a number in range.
    """
    dense = r.moe_dense_tp_size
    micro = r.pp_max_micro_batch_size
    for name, broken, wanted in (
        ("pp_max_micro_batch_size", micro is not None and micro < 1, "at least 1"),
        ("base_gpu_id", r.base_gpu_id < 0, "0 or more"),
        ("gpu_id_step", r.gpu_id_step < 1, "at least 1"),
        ("moe_dense_tp_size", dense not in (None, 1, r.tp_size), f"1 or {r.tp_size}"),
        ("tokenizer_worker_num", r.tokenizer_worker_num <= 0, "at least 1"),
        ("detokenizer_worker_num", r.detokenizer_worker_num <= 0, "at least 1"),
        ("mm_processor_worker_num", r.mm_processor_worker_num < 0, "0 or more"),
        ("mm_io_worker_num", r.mm_io_worker_num < 0, "0 or more"),
        ("schedule_conservativeness", r.schedule_conservativeness < 0, "0 or more"),
    ):
        if broken:
            flag = "--" + name.replace("_", "-")
            yield hit(f"{flag} is {getattr(r, name)}; it must be {wanted}", drop(name),
                      option=name)  # fmt: skip


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


def _pipeline_speculation(r: Resolution) -> str | None:
    name, relay = r.speculative_algorithm, r.env_flag("SGLANG_ENABLE_PP_SPEC")
    prefill = r.disaggregation_mode == "prefill"
    if name is None:
        return None
    if name == "DSPARK":
        if not prefill:
            return "DSPARK runs in stages on prefill servers only"
        return "SGLANG_ENABLE_PP_SPEC does not relay DSPARK" if relay else None
    if name != "EAGLE" or r.enable_multi_layer_eagle:
        return f"{name} does not run in stages, only single-layer EAGLE does"
    if not relay:
        return None if prefill else "drafts run in stages on prefill servers only"
    if r.disaggregation_mode != "null":
        return "SGLANG_ENABLE_PP_SPEC is for servers that prefill and decode"
    if r.speculative_adaptive:
        return "SGLANG_ENABLE_PP_SPEC relays a fixed draft width"
    if attn_dp_enabled(r):
        return "SGLANG_ENABLE_PP_SPEC needs one batch for all stages, not attention DP"
    return None


@rule(
    "KV1068", stage=Stage.CHECK, option="pp_size", source="arg_groups/validation_hook.py:129",
    example=Example("--pp-size 2 --speculative-algorithm EAGLE"),
    fragments=("Pipeline parallelism currently only supports EAGLE", "PP + speculative decoding",
               "Pipeline parallel DSPARK", "SGLANG_ENABLE_PP_SPEC",
               "--min-free-slots-delay is not supported"),
)  # fmt: skip
def pipeline_features(r: Resolution) -> Iterator[Hit]:
    """Few features run in pipeline stages.

    Why: drafts need the hidden states of the last stage before the first can go on; slots are
    bounded by the micro batch.

    Fix: use tensor parallelism instead, or drop the feature.
    """
    if whole(r.pp_size, 1) <= 1:
        return
    found = _pipeline_speculation(r)
    if found:
        one = set_to("use one stage", pp_size=1)
        yield hit(f"--pp-size {r.pp_size}: {found}", drop("speculative_algorithm"), one)
    if r.min_free_slots_delay is not None:
        yield hit(
            f"--pp-size {r.pp_size} with --min-free-slots-delay {r.min_free_slots_delay}",
            drop("min_free_slots_delay"),
            option="min_free_slots_delay",
        )


@rule(
    "KV1069", stage=Stage.CHECK, option="dp_size", source="arg_groups/validation_hook.py:199",
    example=Example("--tp-size 2 --dp-size 2 --nnodes 2 --dist-init-addr 10.0.0.1:5000"),
    fragments=("multi-node data-parallel replicas are not supported",),
)  # fmt: skip
def replicas_on_one_node(r: Resolution) -> Iterator[Hit]:
    """Replicas of one server stay on one node.

    Why: one controller starts them all.

    Fix: use attention data parallelism across nodes, or one server on each node.
    """
    if whole(r.dp_size, 1) > 1 and whole(r.nnodes, 1) != 1:
        yield hit(
            f"--dp-size {r.dp_size} over --nnodes {r.nnodes}",
            set_to("run one replica", dp_size=1),
            set_to("split attention instead", dp_size=1, attn_dp_size=r.dp_size),
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
    "KV1076", stage=Stage.CHECK, option="enable_two_batch_overlap",
    source="arg_groups/validation_hook.py:757",
    example=Example("--tp-size 8 --enable-two-batch-overlap", model="deepseek-ai/DeepSeek-V3"),
    fragments=("When enabling two batch overlap without an EP a2a backend",),
)  # fmt: skip
def two_batch_overlap_needs(r: Resolution) -> Iterator[Hit]:
    """Overlapping two batches needs something to overlap.

    Why: it hides an expert exchange, or the gather of attention-DP groups, behind compute.

    Fix: choose an exchange, or attention DP.
    """
    if r.enable_two_batch_overlap and r.moe_a2a_backend == "none" and not attn_dp_enabled(r):
        fixes: list[Fix] = [drop("enable_two_batch_overlap")]
        if whole(r.tp_size, 1) > 1:
            fixes.append(set_to("split attention over all ranks", attn_dp_size=r.tp_size))
        yield hit("--enable-two-batch-overlap without exchange and without attention DP", *fixes)


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
