"""Optimistic prefill, dumps and request settings (`serving_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.graphs import DECODE, DISABLED, PREFILL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.serving import MODALITIES


def _offload_suits_optimism(r: Resolution) -> bool:
    if r.hicache_storage_backend is None:
        return r.hicache_write_policy in ("write_back", "write_through")
    return bool(
        r.hicache_host_memory_mode == "buffer_only" and r.hicache_write_policy == "write_through"
    )


@step("arg_groups/serving_hook.py:497")
def optimistic_prefill(r: Resolution) -> None:
    """Optimistic prefill gives way to pipeline stages and to caches that can't take it back."""
    if whole(r.optimistic_prefill_attempts) <= 0 or r.disaggregation_mode != "prefill":
        return
    if whole(r.pp_size, 1) > 1:
        r.declare("pipeline stages can't take it back", optimistic_prefill_attempts=0)
    elif r.enable_hierarchical_cache and not _offload_suits_optimism(r):
        r.declare("this cache can't take it back", optimistic_prefill_attempts=0)


@rule(
    "KV1038", stage=Stage.RESOLVE, option="disaggregation_decode_allocation_policy",
    source="arg_groups/serving_hook.py:527",
    example=Example("--disaggregation-mode prefill --pp-size 2 "
                    "--disaggregation-decode-allocation-policy prefill_complete"),
    fragments=("prefill_complete requires optimistic prefill, but the resolved",),
)  # fmt: skip
def late_allocation_needs_optimism(r: Resolution) -> Iterator[Hit]:
    """Allocating after prefill needs optimistic prefill on the prefill server.

    Why: the decode server sends its place only when the tokens are there.

    Fix: allow attempts, and drop what switches them off.
    """
    if (
        r.disaggregation_decode_allocation_policy == "prefill_complete"
        and r.disaggregation_mode == "prefill"
        and whole(r.optimistic_prefill_attempts) <= 0
    ):
        yield hit(
            "--disaggregation-decode-allocation-policy prefill_complete without optimistic prefill",
            set_to("allocate early", disaggregation_decode_allocation_policy="early"),
        )


@step("arg_groups/serving_hook.py:537")
def dumps_run_eagerly(r: Resolution) -> None:
    """Dumping tensors switches CUDA graphs and the warm-up off."""
    for name in ("debug_tensor_dump_output_folder", "msprobe_dump_config"):
        if getattr(r, name) is None:
            continue
        graphs = r.cuda_graph_config.with_phase(DECODE, backend=DISABLED)
        r.declare(
            f"--{name.replace('_', '-')} dumps in eager mode",
            cuda_graph_config=graphs.with_phase(PREFILL, backend=DISABLED),
            skip_server_warmup=True,
        )


@rule(
    "KV1039", stage=Stage.RESOLVE, option="limit_mm_data_per_request",
    source="arg_groups/serving_hook.py:582",
    example=Example("""--limit-mm-data-per-request '{"text": 1}'"""),
    fragments=("in --limit-mm-data-per-request", "watermark is not supported in",
               "--default-chat-template-kwargs must decode"),
)  # fmt: skip
def request_settings(r: Resolution) -> Iterator[Hit]:
    """Limits go by kind of media; template arguments and sampling defaults are objects.

    Why: requests are checked against them as they come in.

    Fix: name image, video or audio; leave watermarks to their own options.
    """
    kwargs = r.default_chat_template_kwargs
    if kwargs is not None and not isinstance(kwargs, dict):
        name = "default_chat_template_kwargs"
        yield hit("--default-chat-template-kwargs is no object", drop(name), option=name)
    limits = r.limit_mm_data_per_request
    for kind in limits if isinstance(limits, dict) else ():
        if kind not in MODALITIES:
            yield hit(
                f"--limit-mm-data-per-request: {kind!r} is none of {', '.join(MODALITIES)}",
                drop("limit_mm_data_per_request"),
            )
    sampling = r.preferred_sampling_params
    if isinstance(sampling, dict) and "watermark" in sampling:
        name = "preferred_sampling_params"
        yield hit("--preferred-sampling-params sets a watermark", drop(name), option=name)


HANDLE_OTHER_VALIDATIONS: tuple[Part, ...] = (
    optimistic_prefill,
    late_allocation_needs_optimism,
    dumps_run_eagerly,
    request_settings,
)
