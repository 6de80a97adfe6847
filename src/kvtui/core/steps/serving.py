"""Defaults and refusals around serving (`srt/arg_groups/serving_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

MODALITIES = ("image", "video", "audio")


@step("arg_groups/serving_hook.py:598")
def return_hidden_states_mode(r: Resolution) -> None:
    """The mode and the switch for hidden states imply each other."""
    if r.return_hidden_states_mode is not None:
        r.default("a mode was chosen", enable_return_hidden_states=True)
    elif r.enable_return_hidden_states or r.enable_return_aux_hidden_states:
        r.default("all tokens' states", return_hidden_states_mode="full")


HANDLE_RETURN_HIDDEN_STATES_MODE: tuple[Part, ...] = (return_hidden_states_mode,)


def _domain_problem(domain: object) -> str | None:
    if not isinstance(domain, str):
        return "is no text"
    name = domain.strip().rstrip(".")
    if not name:
        return "is empty"
    if "://" in name or any(mark in name for mark in "/?#@"):
        return "is a URL, not a host name"
    if ":" in name and not name.startswith("[") and name.count(":") == 1:
        return "has a port"
    return None


@rule(
    "KV1031", stage=Stage.RESOLVE, option="allowed_media_domains", source="utils/common.py:1739",
    example=Example("--allowed-media-domains https://example.org"),
    fragments=("allowed media domain", "media_url_max_file_size_mb must be"),
)  # fmt: skip
def media_policy(r: Resolution) -> Iterator[Hit]:
    """Media may be fetched from hosts named without scheme, path or port, up to a size.

    Why: the policy compares host names, and counts bytes up to a limit of at least zero.

    Fix: give host names only.
    """
    if whole(r.media_url_max_file_size_mb) < 0:
        yield hit(
            f"--media-url-max-file-size-mb is {r.media_url_max_file_size_mb}",
            drop("media_url_max_file_size_mb"),
            option="media_url_max_file_size_mb",
        )
    for domain in r.allowed_media_domains or ():
        problem = _domain_problem(domain)
        if problem:
            yield hit(f"--allowed-media-domains: {domain!r} {problem}",
                      drop("allowed_media_domains"))  # fmt: skip


HANDLE_MEDIA_URL_SECURITY: tuple[Part, ...] = (media_policy,)


@rule(
    "KV1032", stage=Stage.RESOLVE, option="mm_process_config",
    source="arg_groups/serving_hook.py:127", example=Example("--mm-preprocess-cache-size-mb -1"),
    fragments=("mm_process_config", "mm_preprocess_cache_size_mb"),
)  # fmt: skip
def multimodal_settings(r: Resolution) -> Iterator[Hit]:
    """Settings of media processors are objects by kind of media; their cache has a size.

    Why: each processor gets its own object of keyword arguments.

    Fix: write `{"image": {...}, "video": {...}}`.
    """
    if r.mm_preprocess_cache_size_mb is not None and whole(r.mm_preprocess_cache_size_mb) < 0:
        yield hit(
            f"--mm-preprocess-cache-size-mb is {r.mm_preprocess_cache_size_mb}",
            drop("mm_preprocess_cache_size_mb"),
            option="mm_preprocess_cache_size_mb",
        )
    config = r.mm_process_config
    if config is None:
        return
    fix = drop("mm_process_config")
    if not isinstance(config, dict):
        yield hit(f"--mm-process-config is a {type(config).__name__}, not an object", fix)
        return
    for kind in MODALITIES:
        if kind in config and not isinstance(config[kind], dict):
            yield hit(f"--mm-process-config: {kind} is no object", fix)


HANDLE_MULTIMODAL: tuple[Part, ...] = (multimodal_settings,)


@rule(
    "KV1035", stage=Stage.RESOLVE, option="asr_max_buffer_seconds",
    source="arg_groups/serving_hook.py:121", example=Example("--asr-max-buffer-seconds 0"),
    fragments=("--asr-max-",),
)  # fmt: skip
def transcription_limits(r: Resolution) -> Iterator[Hit]:
    """Limits of transcription sessions are positive.

    Why: a session without buffer, or none at all, can't transcribe.

    Fix: leave the option out.
    """
    for name in ("asr_max_buffer_seconds", "asr_max_concurrent_sessions"):
        if whole(getattr(r, name), 1) <= 0:
            yield hit(f"--{name.replace('_', '-')} is {getattr(r, name)}", drop(name), option=name)


HANDLE_ASR_VALIDATION: tuple[Part, ...] = (transcription_limits,)


@step("arg_groups/serving_hook.py:611")
def prefill_delayer_environment(r: Resolution) -> None:
    """Old environment variables of the prefill delayer still count."""
    if r.env_flag("SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE"):
        r.default("SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE is set", enable_prefill_delayer=True)
    passes = r.env_int("SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES", 0)
    if passes:
        r.default(
            "SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES is set",
            prefill_delayer_max_delay_passes=passes,
        )


HANDLE_PREFILL_DELAYER_ENV_COMPAT: tuple[Part, ...] = (prefill_delayer_environment,)


@step("arg_groups/serving_hook.py:512")
def missing_default_values(r: Resolution) -> None:
    """Names follow the model, the device follows the machine, `unquant` means none."""
    if r.tokenizer_path is None:
        r.default("the model's own tokenizer", tokenizer_path=r.model_path)
    if r.served_model_name is None:
        r.default("the model's path", served_model_name=r.model_path)
    device = r.device if isinstance(r.device, str) else r.platform.device
    r.default("the machine's device", device=device.split(":")[0])
    if r.mm_process_config is None:
        r.default("nothing is set", mm_process_config={})
    if r._speculative_draft_quantization_explicitly_set is None:
        r.default(
            "whether the draft's quantization was chosen",
            _speculative_draft_quantization_explicitly_set=(
                r.speculative_draft_model_quantization is not None
            ),
        )
    if r.speculative_draft_model_quantization is None:
        r.default(
            "drafts are quantized as the target is",
            speculative_draft_model_quantization=r.quantization,
        )
    r.scratch["quantization_explicitly_unset"] = r.quantization == "unquant"
    for name in ("quantization", "speculative_draft_model_quantization"):
        if getattr(r, name) == "unquant":
            r.default("unquant means no quantization", **{name: None})


HANDLE_MISSING_DEFAULT_VALUES: tuple[Part, ...] = (missing_default_values,)


@step("arg_groups/serving_hook.py:221")
def load_balance_method(r: Resolution) -> None:
    """Requests go round, or follow their bootstrap room on a prefill server."""
    if r.load_balance_method == "auto":
        prefill = r.disaggregation_mode == "prefill"
        r.default(
            "prefill servers follow the bootstrap room" if prefill else "requests go round",
            load_balance_method="follow_bootstrap_room" if prefill else "round_robin",
        )


HANDLE_LOAD_BALANCE_METHOD: tuple[Part, ...] = (load_balance_method,)


@step("arg_groups/serving_hook.py:237")
def grammar_backend(r: Resolution) -> None:
    """Constrained output runs on XGrammar."""
    if r.grammar_backend is None:
        r.default("the engine's own choice", grammar_backend="xgrammar")


HANDLE_GRAMMAR_BACKEND: tuple[Part, ...] = (grammar_backend,)


@rule(
    "KV1037", stage=Stage.RESOLVE, option="enable_tokenizer_batch_encode",
    source="arg_groups/serving_hook.py:638",
    example=Example("--enable-tokenizer-batch-encode --enable-dynamic-batch-tokenizer"),
    fragments=("--enable-tokenizer-batch-encode and --enable-dynamic-batch-tokenizer",),
)  # fmt: skip
def one_way_of_batching_text(r: Resolution) -> Iterator[Hit]:
    """Text is tokenized in request batches or in timed batches.

    Why: both would own the same queue.

    Fix: keep one.
    """
    if r.enable_tokenizer_batch_encode and r.enable_dynamic_batch_tokenizer:
        yield hit(
            "--enable-tokenizer-batch-encode together with --enable-dynamic-batch-tokenizer",
            drop("enable_dynamic_batch_tokenizer"),
            drop("enable_tokenizer_batch_encode"),
        )


@step("arg_groups/serving_hook.py:644")
def no_tokenizer(r: Resolution) -> None:
    """Without a tokenizer there is no text to batch and nothing to detokenize."""
    if not r.skip_tokenizer_init or r.env_flag("SGLANG_RUST_SERVER"):
        return
    r.declare(
        "--skip-tokenizer-init leaves no text to work on",
        detokenizer_worker_num=1,
        enable_tokenizer_batch_encode=False,
        enable_dynamic_batch_tokenizer=False,
    )


HANDLE_TOKENIZER_BATCHING: tuple[Part, ...] = (one_way_of_batching_text, no_tokenizer)
HANDLE_CRASH_DUMP_ENV: tuple[Part, ...] = ()
HANDLE_DEBUG_UTILS: tuple[Part, ...] = ()
