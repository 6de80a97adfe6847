"""The `file` storage backend: one file a page, written beside and renamed, checked when read."""

from __future__ import annotations

import ctypes
import uuid
from hashlib import sha256
from pathlib import Path

import torch

SUFFIX = ".bin"


class StorageFault(RuntimeError):
    """A page in storage is missing, short or altered."""


class FileStorage:
    """Pages in one folder, named KEY_MODEL_RANK_RANKS.bin as the engine names them.

    A write that fails (a full disk, a folder that went away) leaves no file, is counted and
    answered with False; nothing is raised to the copying thread.
    """

    def __init__(self, folder: Path, model: str = "model", rank: int = 0, ranks: int = 1) -> None:
        self.folder = folder
        self.suffix = f"_{model.replace('/', '-')}_{rank}_{ranks}{SUFFIX}"
        self.failures: list[str] = []
        self._digests: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """File of the page `key`."""
        return self.folder / (key + self.suffix)

    def exists(self, key: str) -> bool:
        """Whether the page is stored."""
        return self.path(key).exists()

    def set(self, key: str, page: torch.Tensor) -> bool:
        """Store flat bytes under `key`; True when they are (or already were) there."""
        if self.exists(key):
            return True
        flat = page.contiguous()
        data = ctypes.string_at(flat.data_ptr(), flat.numel())
        beside = self.folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with beside.open("wb") as file:
                file.write(data)
            beside.replace(self.path(key))
        except OSError as error:
            self.failures.append(f"page {key[:12]}: {error.strerror or error}")
            beside.unlink(missing_ok=True)
            return False
        self._digests[key] = sha256(data).hexdigest()
        return True

    def get(self, key: str, nbytes: int) -> torch.Tensor:
        """The page's bytes; raises StorageFault if they are not what was written."""
        try:
            data = self.path(key).read_bytes()
        except OSError as error:
            raise StorageFault(f"page {key[:12]}: {error.strerror or error}") from None
        if len(data) != nbytes:
            raise StorageFault(f"page {key[:12]}: {len(data)} bytes, {nbytes} were expected")
        known = self._digests.get(key)
        if known is not None and sha256(data).hexdigest() != known:
            raise StorageFault(f"page {key[:12]}: its bytes are not those that were written")
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)
