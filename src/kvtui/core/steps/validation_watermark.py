"""Watermarks (`serving_hook.py`, `validation_hook.py`, `sampling/watermarking` of 0.5.23)."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping
from typing import Any

from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

FIELDS = frozenset(
    {
        "key", "key_b", "context_window", "mixing_probability", "max_probability",
        "default_enabled", "enforce_all",
    }
)  # fmt: skip
MOST_BYTES = 4096
WIDEST_WINDOW = 64
ALGORITHMS = (None, "NGRAM", "EAGLE", "EAGLE3")
SAMPLERS = (None, "flashinfer", "pytorch", "ascend", "intel_xpu")


def _config(r: Resolution) -> Mapping[str, Any] | str | None:
    """The configuration as an object, a problem as text, or None for one in a file."""
    source = r.watermark_config
    if not isinstance(source, str) or not source.lstrip().startswith("{"):
        return None
    if len(source.encode()) > MOST_BYTES:
        return f"is longer than {MOST_BYTES} bytes"
    try:
        parsed = json.loads(source)
    except ValueError:
        return "is no JSON"
    if not isinstance(parsed, dict):
        return "is no JSON object"
    odd = set(parsed) - FIELDS
    return f"has unknown fields: {', '.join(sorted(odd))}" if odd else parsed


def _key_problem(key: object) -> str | None:
    if key is None:
        return None
    digits = key[2:] if isinstance(key, str) and key.lower().startswith("0x") else key
    good = (
        isinstance(digits, str) and 1 <= len(digits) <= 16 and set(digits) <= set(string.hexdigits)
    )
    return None if good else "a key is 1 to 16 hexadecimal digits"


def _types_problem(config: Mapping[str, Any]) -> str | None:
    for name in ("mixing_probability", "max_probability"):
        value = config.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            return f"{name} is no number"
    for name in ("default_enabled", "enforce_all"):
        if config.get(name) is not None and not isinstance(config[name], bool):
            return f"{name} is neither true nor false"
    return _key_problem(config.get("key")) or _key_problem(config.get("key_b"))


@rule(
    "KV1085", stage=Stage.RESOLVE, option="watermark_config",
    source="sampling/watermarking/config.py:81",
    example=Example("--enable-watermark --watermark-config '{\"color\": 1}'"),
    fragments=("watermark config",),
)  # fmt: skip
def watermark_config_readable(r: Resolution) -> Iterator[Hit]:
    """A watermark's configuration is a small JSON object with known fields.

    Why: it is read, from the option or a file, before anything else of the watermark.

    Fix: use key, key_b, context_window, mixing_probability, max_probability, default_enabled and
    enforce_all.
    """
    config = _config(r)
    problem = config if isinstance(config, str) else None
    if isinstance(config, Mapping):
        problem = _types_problem(config)
    if problem:
        yield hit(f"--watermark-config {problem}", drop("watermark_config"))


@step("arg_groups/serving_hook.py:33")
def watermark_values(r: Resolution) -> None:
    """Fields of the configuration become values of their own."""
    config = _config(r)
    if isinstance(config, Mapping):
        given = {f"watermark_{name}": value for name, value in config.items() if value is not None}
        if given:
            r.default("--watermark-config says so", **given)


HANDLE_WATERMARK_CONFIG: tuple[Part, ...] = (watermark_config_readable, watermark_values)


def _values_problem(r: Resolution) -> str | None:
    window = r.watermark_context_window
    if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= WIDEST_WINDOW:
        return f"context_window is {window}, it must be 1 to {WIDEST_WINDOW}"
    if r.watermark_key_b is not None and r.watermark_key is None:
        return "key_b without key"
    if not 0 < r.watermark_mixing_probability < 1:
        return f"mixing_probability is {r.watermark_mixing_probability}"
    if r.watermark_key_b is None and r.watermark_mixing_probability != 0.5:
        return "mixing_probability without key_b"
    if not 0 < r.watermark_max_probability <= 1:
        return f"max_probability is {r.watermark_max_probability}"
    forced = r.watermark_default_enabled or r.watermark_enforce_all
    if forced and r.watermark_key is None:
        return "default_enabled and enforce_all need a key"
    return None


@rule(
    "KV1086", stage=Stage.CHECK, option="enable_watermark",
    source="arg_groups/validation_hook.py:37",
    example=Example("--enable-watermark --enable-custom-logit-processor"),
    fragments=("--enable-watermark", "--watermark-config requires", "watermark "),
)  # fmt: skip
def watermark_needs(r: Resolution) -> Iterator[Hit]:
    """A watermark is sampled on CUDA by a built-in sampler, without disaggregation.

    Why: it changes how each token is drawn, so nothing else may draw or verify tokens its own
    way.

    Fix: drop what the line names, or the watermark.
    """
    if r.watermark_config is not None and not r.enable_watermark:
        yield hit("--watermark-config without --enable-watermark", drop("watermark_config"),
                  option="watermark_config")  # fmt: skip
    if not r.enable_watermark:
        return
    name = r.speculative_algorithm
    values = _values_problem(r)
    for broken, found in (
        (r.device != "cuda", f"it does not run on {r.device}"),
        (values, values or ""),
        (r.enable_custom_logit_processor, "--enable-custom-logit-processor is set"),
        (r.sampling_backend not in SAMPLERS, f"--sampling-backend is {r.sampling_backend}"),
        (r.dllm_algorithm is not None, "diffusion models draw tokens otherwise"),
        (r.disaggregation_mode != "null", f"--disaggregation-mode is {r.disaggregation_mode}"),
        (name not in ALGORITHMS, f"--speculative-algorithm is {name}"),
        (r.pp_size > 1 and name is not None, f"{name} over {r.pp_size} stages"),
        (r.speculative_use_rejection_sampling, "--speculative-use-rejection-sampling is set"),
        (r.env_flag("SGLANG_RUST_SERVER"), "SGLANG_RUST_SERVER is set"),
    ):
        if broken:
            yield hit(f"--enable-watermark: {found}", drop("enable_watermark", "watermark_config"))


CHECK_WATERMARK: tuple[Part, ...] = (watermark_needs,)
