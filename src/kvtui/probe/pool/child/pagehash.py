"""Names of KV pages in storage: a SHA-256 chain over token pages, as the engine computes it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from struct import pack

WIDE_TAG = b"\xff"
UINT32_MAX = 0xFFFFFFFF


def namespace_seed(extra_key: str | None, cache_salt: str | None) -> str | None:
    """Start of the chain for requests with a key or salt of their own; None without either."""
    if extra_key is None and cache_salt is None:
        return None
    digest = sha256(b"sglang-cache-namespace-v1")
    for part in (extra_key, cache_salt):
        if part is None:
            digest.update(b"\x00")
        else:
            encoded = part.encode()
            digest.update(b"\x01" + len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def page_hash(tokens: Sequence[int], prior: str | None) -> str:
    """Hash of one page behind `prior` (hex): tokens as 32-bit words, or tagged 64-bit ones."""
    digest = sha256(bytes.fromhex(prior) if prior else b"")
    if any(token > UINT32_MAX for token in tokens):
        digest.update(WIDE_TAG + pack(f"<{len(tokens)}Q", *tokens))
    else:
        digest.update(pack(f"<{len(tokens)}I", *tokens))
    return digest.hexdigest()


def chain(tokens: Sequence[int], page: int, prior: str | None) -> list[str]:
    """Hashes of all pages of `tokens`, each one continuing the last."""
    hashes = []
    for start in range(0, len(tokens), page):
        prior = page_hash(tokens[start : start + page], prior)
        hashes.append(prior)
    return hashes
