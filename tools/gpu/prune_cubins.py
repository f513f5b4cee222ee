#!/usr/bin/env python3
"""Zero the GPU code that one host never runs, so that a CUDA extension compresses to a few megabytes.

    prune_cubins.py FILE.so [--arch 90] [--fa3]

A CUDA "fat binary" is a header (magic 0xBA55ED50, u16 version, u16 header size, u64 payload size) and entries: u16 kind
(1 PTX, 2 machine code), u16, u32 header size, u64 payload size, and at byte 28 of that header u32 architecture. Headers stay
as they are, so that the loader chooses as before; only payloads are zeroed. `--fa3` looks into FlashAttention 3, whose
kernels are told by their mangled names: bf16 with head size 128 stays, and what has no main loop.
"""

from __future__ import annotations

import argparse
import re
import struct
from collections.abc import Iterator
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
MACHINE_CODE = 2
_MAIN_LOOP = re.compile(rb"CollectiveMainloopFwdSm90ILi\d+E(.{0,170})")
_SHAPE = re.compile(rb"N4cute5tupleIJNS\w?_1CILi\d+EEE\w+?EEENS\w_IJ(.*?)EEELi(\d+)E")
_BF16 = re.compile(rb"MainloopFwdSm90.{60,150}bfloat16_tEfN")
_OTHER = re.compile(rb"MainloopFwdSm90.{60,160}(?:float_e4m3_t|half_t)")
HEAD = 128
OTHER_HEADS = (b"96", b"192", b"256")


def fat_binaries(data: bytearray) -> Iterator[tuple[int, int]]:
    """(first byte of the payload, byte after it) of every fat binary in the file."""
    at = data.find(MAGIC)
    while at >= 0:
        version, header, size = struct.unpack_from("<HHQ", data, at + 4)
        if version == 1 and header in {16, 24} and at + header + size <= len(data):
            yield at + header, at + header + size
            at = data.find(MAGIC, at + header + size)
        else:
            at = data.find(MAGIC, at + 4)


def entries(data: bytearray, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(kind, architecture, first byte, size) of each payload of one fat binary."""
    at = begin
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        if kind == 0 or header == 0:
            return
        (arch,) = struct.unpack_from("<I", data, at + 28)
        yield kind, arch, at + header, size
        at += header + size


def is_wanted_fa3(code: bytes) -> bool:
    """Whether a FlashAttention 3 binary holds nothing but bf16 kernels of head size 128, or no main loop at all."""
    loops = _MAIN_LOOP.findall(code)
    if not _BF16.search(code):
        return not _OTHER.search(code)
    shapes = [_SHAPE.match(loop) for loop in loops]
    return all(
        shape and int(shape[2]) == HEAD and not any(head in shape[1][:60] for head in OTHER_HEADS)
        for shape in shapes
    )


def prune(data: bytearray, arch: int, *, fa3: bool) -> tuple[int, int]:
    """Zero in place; bytes of payloads kept and zeroed."""
    kept = zeroed = 0
    for begin, end in list(fat_binaries(data)):
        whole = not fa3 or is_wanted_fa3(bytes(data[begin:end]))
        for kind, found, first, size in list(entries(data, begin, end)):
            if whole and (fa3 or (kind == MACHINE_CODE and found == arch)):
                kept += size
            else:
                data[first : first + size] = bytes(size)
                zeroed += size
    return kept, zeroed


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--arch", type=int, default=90, help="compute capability times ten")
    parser.add_argument(
        "--fa3", action="store_true", help="FlashAttention 3: by kernel instead of by architecture"
    )
    asked = parser.parse_args()
    data = bytearray(asked.file.read_bytes())
    kept, zeroed = prune(data, asked.arch, fa3=asked.fa3)
    asked.file.write_bytes(data)
    print(f"{asked.file.name}: {kept} bytes of GPU code kept, {zeroed} zeroed")


if __name__ == "__main__":
    main()
