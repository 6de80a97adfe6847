"""Find a model's configuration: folder, config.json, local Hugging Face cache, catalogue, hub."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvtui.core.facts import Checkpoint
from kvtui.errors import InputError

MAX_JSON_BYTES = 64 << 20
"""An index of the largest released models is about 10 MiB; more is not a model's JSON."""
HUB_PATTERNS = ["*.json"]


def load_checkpoint(path: str, *, download: bool = False) -> Checkpoint:
    """The checkpoint that `--model-path PATH` means; raises InputError with one clear line.

    Looked for in order: a folder, a file, the local hub cache, the built-in catalogue, and,
    only with `download`, the hub (JSON files alone, no weights).
    """
    if not path or "\0" in path:
        raise InputError("the model path is empty or not a path", "name a folder or a hub id")
    try:
        where = Path(path).expanduser()
        is_dir, is_file = where.is_dir(), where.is_file()
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path}: {_reason(error)}", "name a folder or a hub id") from None
    if is_dir:
        return read_folder(where)
    if is_file:
        if where.suffix == ".gguf":
            raise InputError(f"{path}: GGUF files carry no config.json", "name the original model")
        return read_folder(where.parent, where.name, origin="file")
    cached = find_in_cache(path)
    if cached is not None:
        return read_folder(cached, name=path, origin="hf-cache")
    from kvtui.core.model.catalogue import find

    known = find(path)
    if known is not None:
        return known
    if looks_like_path(path):
        raise InputError(f"{path}: no such folder", "name a folder with a config.json")
    if download:
        return fetch_from_hub(path)
    raise InputError(
        f"{path}: not a folder, not in the local hub cache, not in the catalogue",
        "name a local folder, or allow a download with --download",
    )


def looks_like_path(path: str) -> bool:
    """True for text that can't be a hub id (`org/name` or `name`)."""
    return path.startswith(("/", ".", "~")) or path.count("/") > 1 or "\\" in path


def read_folder(
    folder: Path, config_name: str = "config.json", *, name: str = "", origin: str = "folder"
) -> Checkpoint:
    """The checkpoint of a model folder, read without touching weights but their headers."""
    config_path = folder / config_name
    if not config_path.is_file():
        if (folder / "params.json").is_file():
            raise InputError(
                f"{folder}: a Mistral-format folder (params.json) without config.json",
                "download the config.json of the same model",
            )
        raise InputError(f"{folder}: no config.json there", "name a model folder")
    config = read_json(config_path)
    files = _names(folder)
    quant = _optional(folder, "hf_quant_config.json")
    generation = _optional(folder, "generation_config.json")
    weight_bytes = _weight_bytes(folder, files)
    digest = hashlib.sha256(
        json.dumps([config, quant, generation, weight_bytes], sort_keys=True).encode()
    ).hexdigest()[:16]
    return Checkpoint(
        name=name or folder.resolve().name.replace("--", "/", 1),
        key=f"{folder}:{digest}",
        config=config,
        quant_config=quant,
        generation_config=generation,
        weight_bytes=weight_bytes,
        files=files,
        origin=origin,
    )


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object from a file; raises InputError naming file, place and what was expected."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise InputError(f"{path}: {size >> 20} MiB, too large for a model's JSON")
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}", "check the file's permissions") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text, a JSON object was expected") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deep for a model's JSON") from None
    except ValueError as error:
        detail = getattr(error, "msg", str(error))
        line = getattr(error, "lineno", "?")
        raise InputError(
            f"{path}: line {line}: {detail}; a JSON object was expected", "download it again"
        ) from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a {type(data).__name__}, a JSON object was expected")
    return data


def _optional(folder: Path, name: str) -> Mapping[str, Any] | None:
    path = folder / name
    return read_json(path) if path.is_file() else None


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in os.scandir(folder))
    except OSError:
        return frozenset()


def _weight_bytes(folder: Path, files: frozenset[str]) -> int | None:
    """Bytes of all tensors: from the index's total, else from the headers of the files here."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            total = read_json(index).get("metadata", {}).get("total_size")
        except (InputError, AttributeError):
            total = None
        if isinstance(total, int | float) and total > 0:
            return int(total)
    sizes = [header_bytes(folder / name) for name in sorted(files) if name.endswith(".safetensors")]
    if not sizes or any(size is None for size in sizes):
        return None
    return sum(size for size in sizes if size is not None)


def header_bytes(path: Path) -> int | None:
    """Tensor bytes that a safetensors file declares in its header; None where it is damaged.

    The file starts with the header's length as 8 bytes little-endian, then JSON.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_JSON_BYTES:
                return None
            header = json.loads(file.read(length))
        return sum(
            int(entry["data_offsets"][1]) - int(entry["data_offsets"][0])
            for key, entry in header.items()
            if key != "__metadata__"
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error,
            RecursionError):  # fmt: skip
        return None


def hub_cache() -> Path:
    """The local hub cache, by the same variables that huggingface_hub reads."""
    direct = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if direct:
        return Path(direct).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return Path(home).expanduser() / "hub"


def find_in_cache(hub_id: str, cache: Path | None = None) -> Path | None:
    """The newest complete snapshot folder of `hub_id` in the local cache, main branch first."""
    if looks_like_path(hub_id):
        return None
    repo = (cache or hub_cache()) / ("models--" + hub_id.replace("/", "--"))
    try:
        main = repo / "refs" / "main"
        if main.is_file():
            snapshot = repo / "snapshots" / main.read_text(encoding="utf-8").strip()
            if (snapshot / "config.json").is_file():
                return snapshot
        snapshots = [
            folder
            for folder in (repo / "snapshots").glob("*")
            if (folder / "config.json").is_file()
        ]
        return max(snapshots, key=lambda folder: folder.stat().st_mtime, default=None)
    except OSError:
        return None


def cached_models(cache: Path | None = None) -> tuple[str, ...]:
    """Hub ids with a config.json in the local cache, in alphabetical order."""
    base = cache or hub_cache()
    try:
        names = [entry.name for entry in os.scandir(base) if entry.name.startswith("models--")]
    except OSError:
        return ()
    ids = [name.removeprefix("models--").replace("--", "/", 1) for name in names]
    return tuple(sorted(hub_id for hub_id in ids if find_in_cache(hub_id, base) is not None))


def models_in(folder: Path) -> tuple[Path, ...]:
    """Model folders directly under `folder` (or itself), for the model picker."""
    try:
        if (folder / "config.json").is_file():
            return (folder,)
        return tuple(
            sorted(entry for entry in folder.iterdir() if (entry / "config.json").is_file())
        )
    except OSError:
        return ()


def fetch_from_hub(hub_id: str) -> Checkpoint:
    """Download a model's JSON files (never weights) into the hub cache and read them."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(hub_id, allow_patterns=HUB_PATTERNS, etag_timeout=10)
    except Exception as error:  # the library raises many kinds; all mean: not to be had
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{hub_id}: could not be fetched from the hub ({line})", "name a local folder"
        ) from None
    return read_folder(Path(folder), name=hub_id, origin="hub")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
