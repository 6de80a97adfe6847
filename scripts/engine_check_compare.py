"""Compare a recorded launch with the probe's answer to the same launch."""

from __future__ import annotations

from typing import Any

NAMES = {
    "graph_decode_max_bs": "cuda_graph_max_bs_decode",
    "graph_prefill_backend": "cuda_graph_backend_prefill",
}
"""Resolved values that the record calls otherwise."""
POOL_NAMES = {
    "pool_class": "class", "allocator_class": "allocator", "req_pool_class": "req_pool",
    "configurator": "configurator", "cell_size": "bytes_per_token",
    "decode_offload_pool_ok": "decode_offload",
}  # fmt: skip


def differences(row: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """Each value that differs, as text; empty where everything is equal."""
    verdict = "starts" if answer.get("accepted") else "fails"
    if verdict != row["verdict"]:
        return [f"verdict {verdict} ({answer.get('error')}), recorded {row['verdict']}"]
    if verdict == "fails":
        return list(_refusal(row, answer))
    found = [*_values(row.get("resolved") or {}, answer.get("resolved") or {})]
    if "pool" in row and not row.get("pool_spoilt"):
        if answer.get("pool_error"):
            return [*found, f"pool not built: {answer['pool_error']}"]
        found += _pool(row["pool"], answer["pool"])
    return found


def _refusal(row: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    recorded = str(row.get("error") or "").partition("error: ")
    text = recorded[2] if row.get("error_type") == "SystemExit" else str(row.get("error") or "")
    pairs = {
        "stage": (row.get("stage"), answer.get("stage")),
        "error_type": (row.get("error_type"), answer.get("error_type")),
        "error": (text[:500], str(answer.get("error") or "")[:500]),
        "at": (row.get("at"), answer.get("at")),
    }
    return [f"{name}: {a!r}, {b!r}" for name, (a, b) in pairs.items() if a != b]


def _values(recorded: dict[str, Any], resolved: dict[str, Any]) -> list[str]:
    found = []
    for name, value in recorded.items():
        ours = resolved.get(NAMES.get(name, name))
        if ours != value:
            found.append(f"{name}: {value!r}, {ours!r}")
    return found


def _pool(recorded: dict[str, Any], built: dict[str, Any]) -> list[str]:
    found = []
    for name, ours in POOL_NAMES.items():
        if name in recorded and recorded[name] != built.get(ours):
            found.append(f"{name}: {recorded[name]!r}, {built.get(ours)!r}")
    if recorded["kv_dtype"].removeprefix("torch.") != built.get("kv_dtype"):
        found.append(f"kv_dtype: {recorded['kv_dtype']}, {built.get('kv_dtype')}")
    tensors = {
        name: (dtype.removeprefix("torch."), list(shape), count)
        for name, (dtype, shape, count) in recorded.get("tensors", {}).items()
    }
    ours_tensors = {r["name"]: (r["dtype"], r["shape"], r["count"]) for r in built["buffers"]}
    for name in sorted(set(tensors) | set(ours_tensors)):
        if tensors.get(name) != ours_tensors.get(name):
            found.append(f"{name}: {tensors.get(name)}, {ours_tensors.get(name)}")
    sizes = recorded.get("tokens_for_gib", {})
    for row in built.get("capacity", ()):
        wanted = sizes.get(str(row["budget_bytes"] >> 30), {})
        for name, value in wanted.items():
            if isinstance(value, int) and row.get(name) != value:
                found.append(
                    f"{name} for {row['budget_bytes'] >> 30} GiB: {value}, {row.get(name)}"
                )
    return found
