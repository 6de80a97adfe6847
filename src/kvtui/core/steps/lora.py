"""LoRA adapters (`srt/arg_groups/lora_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

SPECULATION = (None, "NGRAM", "EAGLE", "EAGLE3", "DFLASH", "DSPARK")
RUNNER_QUANTIZATIONS = (None, "fp8", "modelopt_fp4")
ADAPTERS = "--enable-lora --max-lora-rank 16 --lora-target-modules all "


def _active(r: Resolution) -> bool:
    return bool(r.enable_lora)


def _lora_runner(r: Resolution) -> bool:
    return str(r.moe_runner_backend).startswith("lora")


@rule(
    "KV1090", stage=Stage.CHECK, option="max_loras_per_batch",
    source="arg_groups/lora_hook.py:41", example=Example("--max-loras-per-batch 0"),
    fragments=("max_loras_per_batch must be positive", "--max-lora-chunk-size must be a power",
               "--lora-drain-wait-threshold must be"),
)  # fmt: skip
def adapter_numbers(r: Resolution) -> Iterator[Hit]:
    """Adapter slots are positive, drain thresholds not negative.

    Why: slots are allocated even where no adapter is served.

    Fix: leave the option out.
    """
    if whole(r.max_loras_per_batch, 1) <= 0:
        yield hit(f"--max-loras-per-batch is {r.max_loras_per_batch}", drop("max_loras_per_batch"))
    if _active(r) and r.lora_drain_wait_threshold < 0:
        name = "lora_drain_wait_threshold"
        yield hit(f"--lora-drain-wait-threshold is {r.lora_drain_wait_threshold}", drop(name),
                  option=name)  # fmt: skip


@step("arg_groups/lora_hook.py:44")
def adapters_switch_lora_on(r: Resolution) -> None:
    """Adapters on the command line switch LoRA on."""
    if r.lora_paths and r.enable_lora is None:
        r.default("--lora-paths names adapters", enable_lora=True)
    if _active(r):
        if r.enable_lora_overlap_loading is None:
            r.default("adapters load one after another", enable_lora_overlap_loading=False)
        if r.lora_paths is None:
            r.default("adapters come later", lora_paths=[])


def _v2_obstacle(r: Resolution) -> str | None:
    if whole(r.attn_dp_size, 1) > 1:
        return f"--attn-dp-size {r.attn_dp_size}"
    if r.enable_pdmux:
        return "--enable-pdmux"
    if r.enable_two_batch_overlap:
        return "--enable-two-batch-overlap"
    if r.env_flag("SGLANG_EXPERIMENTAL_LORA_OPTI"):
        return "SGLANG_EXPERIMENTAL_LORA_OPTI"
    return "ROCm" if r.platform.is_hip else None


@rule(
    "KV1091", stage=Stage.CHECK, option="lora_backend", source="arg_groups/lora_hook.py:24",
    example=Example(ADAPTERS + "--lora-backend triton_v2 --tp-size 2 --attn-dp-size 2"),
    fragments=("does not yet support DP-attention", "does not yet support two-batch overlap",
               "does not yet support PD-multiplexing", "does not yet support ROCm"),
)  # fmt: skip
def second_triton_backend(r: Resolution) -> Iterator[Hit]:
    """The second Triton back end for adapters runs without splits of the batch.

    Why: its batch layout is not understood by what splits or reorders batches.

    Fix: use `csgmv`, or drop what the line names.
    """
    if not _lora_runner(r) and not (_active(r) and r.lora_backend == "triton_v2"):
        return
    if _lora_runner(r) and r.lora_backend != "triton_v2":
        return
    obstacle = _v2_obstacle(r)
    if obstacle:
        yield hit(
            f"--lora-backend triton_v2 with {obstacle}",
            set_to("serve adapters with csgmv", lora_backend="csgmv", moe_runner_backend="auto"),
        )


@rule(
    "KV1092", stage=Stage.CHECK, option="max_loaded_loras", source="arg_groups/lora_hook.py:66",
    example=Example(ADAPTERS + "--max-loaded-loras 2"),
    fragments=("--max-loaded-loras must be less than", "max_loaded_loras should be greater",
               "should not exceed max_loaded_loras"),
)  # fmt: skip
def loaded_adapters_fit(r: Resolution) -> Iterator[Hit]:
    """Adapters in host memory are at least those of a batch and those on the command line.

    Why: a batch must find its adapters loaded; loading beside the GPU pins at most two batches'
    worth.

    Fix: raise the number, or leave it out.
    """
    if not _active(r):
        return
    most, batch, given = r.max_loaded_loras, whole(r.max_loras_per_batch, 1), len(r.lora_paths)
    if r.enable_lora_overlap_loading and (most is None or most > 2 * batch):
        yield hit(
            f"--enable-lora-overlap-loading with --max-loaded-loras {most}; it must be at most "
            f"{2 * batch}",
            set_to(f"load at most {2 * batch}", max_loaded_loras=2 * batch),
            drop("enable_lora_overlap_loading"),
        )
    if most is None:
        return
    if most < batch or given > most:
        least = max(batch, given)
        yield hit(
            f"--max-loaded-loras {most} is less than {least} (a batch has {batch}, the command "
            f"line {given})",
            set_to(f"load up to {least}", max_loaded_loras=least),
        )


@rule(
    "KV1093", stage=Stage.CHECK, option="lora_target_modules",
    source="arg_groups/lora_hook.py:137", example=Example("--enable-lora"),
    fragments=("you need to specify both --max-lora-rank", "should be the only module specified"),
)  # fmt: skip
def adapter_shape_known(r: Resolution) -> Iterator[Hit]:
    """Without adapters on the command line, their rank and modules must be named.

    Why: buffers are allocated at start for the largest adapter that may come.

    Fix: give `--max-lora-rank` and `--lora-target-modules all`.
    """
    if not _active(r):
        return
    modules = r.lora_target_modules
    if modules and "all" in modules and len(set(modules)) > 1:
        yield hit(
            f"--lora-target-modules all beside {len(set(modules)) - 1} other modules",
            set_to("adapt all modules", lora_target_modules=["all"]),
        )
    if not r.lora_paths and not (r.max_lora_rank and modules):
        yield hit(
            "--enable-lora without --lora-paths, --max-lora-rank and --lora-target-modules",
            set_to("allow adapters of rank 16 on all modules", max_lora_rank=r.max_lora_rank or 16,
                   lora_target_modules=modules or ["all"]),
        )  # fmt: skip


def _speculation_problem(r: Resolution) -> str | None:
    name = r.speculative_algorithm
    if name not in SPECULATION:
        return f"--speculative-algorithm is {name}"
    if name in (None, "NGRAM"):
        return None
    if name == "DSPARK" and r.env.get("SGLANG_RAGGED_VERIFY_MODE", "static") != "static":
        return "SGLANG_RAGGED_VERIFY_MODE is not static"
    if r.speculative_adaptive:
        return "--speculative-adaptive changes the draft width"
    runners = (r.moe_runner_backend, r.speculative_moe_runner_backend)
    if "experimental_sgl_trtllm" in runners:
        return "experimental_sgl_trtllm reads the target's adapters"
    if r.env_flag("SGLANG_ENABLE_OVERLAP_PLAN_STREAM"):
        return "SGLANG_ENABLE_OVERLAP_PLAN_STREAM prepares adapters out of order"
    return None


@rule(
    "KV1094", stage=Stage.CHECK, option="enable_lora", source="arg_groups/lora_hook.py:240",
    example=Example(ADAPTERS + "--speculative-algorithm STANDALONE "
                    "--speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("LoRA is only compatible with", "LoRA with EAGLE/NEXTN/EAGLE3"),
)  # fmt: skip
def adapters_with_speculation(r: Resolution) -> Iterator[Hit]:
    """Adapters go with drafts of one width for all requests.

    Why: adapter segments are laid out by tokens per request; the draft itself runs unadapted.

    Fix: use EAGLE, EAGLE3, DFLASH, DSPARK or NGRAM, or drop speculation.
    """
    problem = _speculation_problem(r) if _active(r) else None
    if problem:
        yield hit(f"LoRA with speculation: {problem}", drop("speculative_algorithm"),
                  drop("enable_lora", "lora_paths"))  # fmt: skip


@rule(
    "KV1095", stage=Stage.CHECK, option="moe_runner_backend", source="arg_groups/lora_hook.py:176",
    example=Example("--moe-runner-backend lora_triton", model="Qwen/Qwen3-30B-A3B"),
    fragments=("--moe-runner-backend lora_", "the LoRA MoE runner serves adapter traffic"),
)  # fmt: skip
def adapter_runner_needs(r: Resolution) -> Iterator[Hit]:
    """Runners for adapted experts take plain placement and dispatch.

    Why: adapters attach to experts by position, in bf16, block-FP8 or (on Marlin) NVFP4.

    Fix: leave the runner to the engine, or set what the line names.
    """
    draft = r.speculative_moe_runner_backend
    if r.speculative_algorithm is not None and str(draft or "").startswith("lora"):
        name = "speculative_moe_runner_backend"
        yield hit(f"--speculative-moe-runner-backend {draft}: drafts have no adapters",
                  drop(name), option=name)  # fmt: skip
    if not _lora_runner(r):
        return
    runner, quantization = r.moe_runner_backend, r.quantization
    moved = r.enable_eplb or r.init_expert_location != "trivial" or r.ep_num_redundant_experts > 0
    fix = drop("moe_runner_backend")
    for broken, found in (
        (not _active(r), "--enable-lora is not set"),
        (r.lora_backend != "triton_v2", f"--lora-backend is {r.lora_backend}, not triton_v2"),
        (quantization not in RUNNER_QUANTIZATIONS, f"quantization is {quantization}"),
        (quantization == "modelopt_fp4" and runner != "lora_marlin",
         "NVFP4 experts run on lora_marlin"),
        (r.moe_a2a_backend != "none", f"--moe-a2a-backend is {r.moe_a2a_backend}"),
        (r.ep_join_mode is not None, f"--elastic-ep-join-mode is {r.ep_join_mode}"),
        (moved, "experts are moved or doubled"),
    ):  # fmt: skip
        if broken:
            yield hit(f"--moe-runner-backend {runner}: {found}", fix)


CHECK_LORA_SERVER_ARGS: tuple[Part, ...] = (
    adapter_numbers,
    adapters_switch_lora_on,
    second_triton_backend,
    loaded_adapters_fit,
    adapters_with_speculation,
    adapter_shape_known,
    adapter_runner_needs,
)
