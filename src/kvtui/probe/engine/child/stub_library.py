"""A driver library of refusing functions, for kernels that only want to be linked.

Kernel packages link against libcuda.so.1, which a machine without a GPU lacks. Nothing is ever
run on a claimed GPU, so a shared object that exports the wanted names is enough. It is written
byte by byte (ELF64, no compiler needed) and loaded once, before the kernels.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
import tempfile

SONAME = b"libcuda.so.1"
WANTED = re.compile(rb"\0(cu[A-Z][A-Za-z0-9]*(?:_v\d)?)(?=\0)")
MAX_SCAN_BYTES = 64 << 20
BASE_NAMES = (b"cuInit", b"cuDriverGetVersion", b"cuGetErrorString", b"cuGetErrorName",
              b"cuGetProcAddress", b"cuGetProcAddress_v2")  # fmt: skip
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""
CODE = {
    "x86_64": (62, b"\xb8" + struct.pack("<I", NO_DEVICE) + b"\xc3"),  # mov eax, 100; ret
    "aarch64": (183, struct.pack("<II", 0x52800000 | NO_DEVICE << 5, 0xD65F03C0)),
}
"""ELF machine number and the body of a function that returns NO_DEVICE, by processor."""


def names_wanted_by(folder: str) -> set[bytes]:
    """Driver functions named in the shared objects under `folder` (large ones left out)."""
    names = set(BASE_NAMES)
    for base, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(base, name)
            if ".so" in name and os.path.getsize(path) <= MAX_SCAN_BYTES:
                with open(path, "rb") as file:
                    names.update(WANTED.findall(file.read()))
    return names


def driver_is_there() -> bool:
    """True where a real libcuda can be loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def load_stub(kernel_folder: str) -> None:
    """Load a stub libcuda.so.1 into this process, unless a real one is there."""
    if driver_is_there() or platform.machine() not in CODE:
        return
    image = shared_object(sorted(names_wanted_by(kernel_folder)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "libcuda.so.1")
        with open(path, "wb") as file:
            file.write(image)
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def shared_object(names: list[bytes]) -> bytes:
    """An ELF64 shared object that exports each name as a function returning NO_DEVICE."""
    machine, code = CODE[platform.machine()]
    strings = b"\0" + SONAME + b"\0"
    soname_at = 1
    offsets = []
    for name in names:
        offsets.append(len(strings))
        strings += name + b"\0"
    count = len(names) + 1
    header_size, segment_size = 64, 56
    hash_at = header_size + 3 * segment_size
    hash_table = _hash_table(names)
    symbols_at = _align(hash_at + len(hash_table))
    strings_at = symbols_at + 24 * count
    code_at = _align(strings_at + len(strings), 16)
    dynamic_at = _align(code_at + len(code), 4096)
    symbols = b"\0" * 24 + b"".join(
        # st_info: global function; any section index but zero makes the symbol defined
        struct.pack("<IBBHQQ", offset, 0x12, 0, 1, code_at, len(code))
        for offset in offsets
    )
    tags = ((14, soname_at), (4, hash_at), (5, strings_at), (6, symbols_at), (10, len(strings)),
            (11, 24), (0, 0))  # fmt: skip
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in tags)
    end = dynamic_at + len(dynamic)
    header = (
        b"\x7fELF\x02\x01\x01"
        + b"\0" * 9
        + struct.pack(
            "<HHIQQQIHHHHHH",
            3,
            machine,
            1,
            0,
            header_size,
            0,
            0,
            header_size,
            segment_size,
            3,
            64,
            0,
            0,
        )
    )
    segments = (
        struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, code_at + len(code), code_at + len(code), 4096)
        + struct.pack("<IIQQQQQQ", 1, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic),
                      len(dynamic), 4096)
        + struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic),
                      len(dynamic), 8)
    )  # fmt: skip
    image = bytearray(end)
    for at, part in ((0, header + segments), (hash_at, hash_table), (symbols_at, symbols),
                     (strings_at, strings), (code_at, code), (dynamic_at, dynamic)):  # fmt: skip
        image[at : at + len(part)] = part
    return bytes(image)


def _align(offset: int, to: int = 8) -> int:
    return (offset + to - 1) // to * to


def _hash_table(names: list[bytes]) -> bytes:
    """The System V symbol hash table with one bucket: a chain through all symbols."""
    count = len(names) + 1
    chain = [0] * count
    for index in range(1, count - 1):
        chain[index] = index + 1
    first = 1 if names else 0
    return struct.pack(f"<{3 + count}I", 1, count, first, *chain)
