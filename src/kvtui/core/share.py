"""A preset as one line of text that passes through chat and terminals: checksummed, no secrets."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib

from kvtui.core.preset import Preset, PresetError, data_of, preset_of

PREFIX = "kvtui1."
"""Opens every code; the digit is the version of the format."""

CHECK_CHARS = 8
UNPACKED_LIMIT = 1 << 18
"""Bytes of the largest preset that a code may hold."""

_CODE = re.compile(r"kvtui(\d+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{8})")


def _check(body: str) -> str:
    digest = hashlib.sha256(body.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode()[:CHECK_CHARS]


def encode(preset: Preset) -> str:
    """The code of a preset, secrets left out; raises PresetError where it is too large."""
    text = json.dumps(data_of(preset), separators=(",", ":"), ensure_ascii=False).encode()
    if len(text) > UNPACKED_LIMIT:
        raise PresetError(f"the preset is larger than {UNPACKED_LIMIT >> 10} KiB", "send the file")
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(text) + packer.flush()
    body = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    return f"{PREFIX}{body}.{_check(body)}"


def is_code(text: str) -> bool:
    """True where text holds a share code, line breaks and quotes in it included."""
    return _CODE.search(_squeezed(text)) is not None


def _squeezed(text: str) -> str:
    return re.sub(r"[\s>`'\"]+", "", text)


def decode(text: str) -> Preset:
    """The preset in a code; raises PresetError with what is wrong with it."""
    found = _CODE.search(_squeezed(text))
    if found is None:
        raise PresetError("no share code was found", f"it begins with {PREFIX}")
    version, body, check = found.groups()
    if version != "1":
        raise PresetError(f"the code is of format {version}", "update kvtui")
    if _check(body) != check:
        raise PresetError("the code is damaged, its checksum does not fit", "copy it again")
    try:
        unpacker = zlib.decompressobj(wbits=-15)
        raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        text_bytes = unpacker.decompress(raw, UNPACKED_LIMIT)
        if unpacker.unconsumed_tail:
            raise PresetError(f"the code holds more than {UNPACKED_LIMIT >> 10} KiB")
        data = json.loads(text_bytes)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise PresetError("the code holds no preset") from None
    if not isinstance(data, dict):
        raise PresetError("the code holds no preset")
    return preset_of(data, "share code")
