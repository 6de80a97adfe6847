"""Checks of metrics options (`srt/arg_groups/validation_hook.py` of 0.5.23)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvtui.core.derived import num_dp_ranks
from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

BUCKET_OPTIONS = ("prompt_tokens_buckets", "generation_tokens_buckets")
BUCKET_RULES = ("tse", "default", "custom")
WILDCARD_HOSTS = ("*", "0.0.0.0", "::")
MOST_PORT = 65535


def _numbers(words: list[str]) -> list[float] | None:
    try:
        return [float(word) for word in words]
    except (TypeError, ValueError):
        return None


def _bucket_problem(words: list[str]) -> str | None:
    kind, rest = words[0], words[1:]
    values = _numbers(rest)
    if kind not in BUCKET_RULES:
        return f"{kind!r} is none of {', '.join(BUCKET_RULES)}"
    if kind == "default":
        return "default takes no numbers" if rest else None
    if kind == "tse" and len(rest) != 3:
        return f"tse takes middle, base and count, not {len(rest)} numbers"
    if not rest or values is None:
        return f"{kind} takes numbers"
    if kind == "tse":
        if not float(rest[2]).is_integer() or "." in str(rest[2]):
            return "the count is no integer"
        good = values[0] > 0 and values[1] > 1 and values[2] > 0
        return None if good else "middle and count must be positive, the base above 1"
    if len(set(values)) != len(values):
        return "a bucket repeats"
    return "a bucket is negative" if min(values) < 0 else None


@rule(
    "KV1080", stage=Stage.CHECK, option="prompt_tokens_buckets",
    source="arg_groups/validation_hook.py:388", example=Example("--prompt-tokens-buckets tse 1 2"),
    fragments=("TSE rule", "TSE base must be", "TSE count must be", "TSE middle must be",
               "custom rule", "default rule should only have", "rule type:"),
)  # fmt: skip
def histogram_buckets(r: Resolution) -> Iterator[Hit]:
    """Histogram buckets follow one of three rules.

    Why: `default`, `tse` with middle, base and count, or `custom` with the buckets themselves.

    Fix: leave the option out for the default buckets.
    """
    for name in BUCKET_OPTIONS:
        words = getattr(r, name)
        problem = _bucket_problem(words) if words else None
        if problem:
            yield hit(f"--{name.replace('_', '-')}: {problem}", drop(name), option=name)


@rule(
    "KV1081", stage=Stage.CHECK, option="export_metrics_to_file",
    source="arg_groups/validation_hook.py:331", example=Example("--export-metrics-to-file"),
    fragments=("--export-metrics-to-file-dir is required",
               "Please set --tokenizer-metrics-custom-labels-header"),
)  # fmt: skip
def metrics_places(r: Resolution) -> Iterator[Hit]:
    """Exported metrics need a folder, custom labels a header.

    Why: there is no default folder, and labels are read from a request's header.

    Fix: give what is missing, or drop the switch.
    """
    if r.export_metrics_to_file and r.export_metrics_to_file_dir is None:
        yield hit("--export-metrics-to-file without --export-metrics-to-file-dir",
                  drop("export_metrics_to_file"))  # fmt: skip
    name = "tokenizer_metrics_allowed_custom_labels"
    if getattr(r, name) and not r.tokenizer_metrics_custom_labels_header:
        yield hit("custom labels without --tokenizer-metrics-custom-labels-header", drop(name),
                  option=name)  # fmt: skip


def _tcp(endpoint: object) -> tuple[str, int] | None:
    """Host and port of a `tcp://` address, None for anything else."""
    if not isinstance(endpoint, str) or not endpoint.startswith("tcp://"):
        return None
    host, _, port = endpoint[len("tcp://") :].rpartition(":")
    if not port.isdigit() or not 0 < int(port) <= MOST_PORT:
        return None
    return host.strip("[]"), int(port)


def _overlap(one: int, other: int, count: int) -> bool:
    return one < other + count and other < one + count


def _load_problem(mode: str, events: object, count: int) -> str | None:
    try:
        config = json.loads(events) if isinstance(events, str) else events
    except ValueError:
        return "--kv-events-config is no JSON"
    if not isinstance(config, dict):
        return "--kv-events-config is no JSON object"
    endpoint = config.get("endpoint", "tcp://*:5557")
    if config.get("publisher", "null") == "null" or not endpoint:
        return "--kv-events-config has no active publisher"
    place, replay = _tcp(endpoint), _tcp(config.get("replay_endpoint"))
    if mode.lower() == "auto":
        if place is None or place[0] not in WILDCARD_HOSTS:
            return f"{endpoint} is no address to pack after"
        base = place[1] + count
        if replay and _overlap(base, replay[1], count):
            base = replay[1] + count
    else:
        own = _tcp(mode)
        if place is None:
            return f"{endpoint} is no tcp:// address"
        if own is None or own[0] not in WILDCARD_HOSTS:
            return f"{mode} can't be bound"
        base = own[1]
        if any(other and _overlap(base, other[1], count) for other in (place, replay)):
            return f"ports from {base} overlap those of the KV events"
    return f"ports from {base} run past {MOST_PORT}" if base + count - 1 > MOST_PORT else None


@rule(
    "KV1082", stage=Stage.CHECK, option="load_publish_endpoint",
    source="arg_groups/validation_hook.py:453", example=Example("--load-publish-endpoint auto"),
    fragments=("--load-publish-endpoint",),
)  # fmt: skip
def load_publisher_needs_events(r: Resolution) -> Iterator[Hit]:
    """Load is published next to KV events, on ports of its own.

    Why: routers find the load ports through the KV-event publisher, one port for each
    data-parallel rank.

    Fix: configure `--kv-events-config` with a `tcp://*` endpoint, or drop the option.
    """
    mode = str(r.load_publish_endpoint or "").strip()
    if not mode or mode.lower() == "off":
        return
    if not r.kv_events_config:
        problem: str | None = "--kv-events-config is not set"
    else:
        problem = _load_problem(mode, r.kv_events_config, num_dp_ranks(r))
    if problem:
        yield hit(f"--load-publish-endpoint {mode}: {problem}", drop("load_publish_endpoint"))


CHECK_METRICS: tuple[Part, ...] = (histogram_buckets, metrics_places, load_publisher_needs_events)
