"""tools/gpu: GPU code is zeroed where nobody runs it, and nothing else is touched."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "gpu"


@pytest.fixture(scope="module")
def prune() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("prune_cubins", TOOLS / "prune_cubins.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(kind: int, arch: int, payload: bytes) -> bytes:
    """One entry as cuobjdump reads them: a header of 32 bytes, the architecture in its last four."""
    return struct.pack("<HHIQ", kind, 0, 32, len(payload)) + bytes(12) + struct.pack("<I", arch) + payload


def binary(*entries: bytes) -> bytes:
    """A fat binary of these entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_one_architecture_stays(prune: ModuleType) -> None:
    """Machine code of sm_90 is kept; PTX of the same, other code, and no byte outside of payloads."""
    made = b"head" + binary(entry(2, 80, b"A" * 8), entry(2, 90, b"B" * 8), entry(1, 90, b"P" * 8)) + b"tail"
    data = bytearray(made)
    assert prune.prune(data, 90, fa3=False) == (8, 16)
    assert bytes(data) == made.replace(b"A" * 8, bytes(8)).replace(b"P" * 8, bytes(8))


def test_a_magic_number_by_chance(prune: ModuleType) -> None:
    """Four bytes that look like a header, and one that is cut off, are data."""
    made = (
        struct.pack("<I", 0xBA55ED50)
        + b"x" * 40
        + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40)
        + b"y" * 8
    )
    data = bytearray(made)
    assert prune.prune(data, 90, fa3=False) == (0, 0)
    assert bytes(data) == made


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (b"CollectiveMainloopFwdSm90ILi2EN4cute5tupleIJNS1_1CILi1EEES3_S3_EEENS1_IJNS2_ILi128EEENS2_ILi176EEES5_EEELi128E"
         b"N7cutlass10bfloat16_tEfN", True),
        (b"CollectiveMainloopFwdSm90ILi2EN4cute5tupleIJNS1_1CILi1EEES3_S3_EEENS1_IJNS2_ILi128EEENS2_ILi80EEENS2_ILi256EEEEEELi256E"
         b"N7cutlass10bfloat16_tEfN", False),
        (b"CollectiveMainloopFwdSm90ILi2EN4cute5tupleIJNS1_1CILi1EEES3_S3_EEENS1_IJNS2_ILi128EEENS2_ILi176EEES5_EEELi128E"
         b"N7cutlass6half_tEfN", False),
        (b"flash_fwd_combine_kernel", True),
    ],
)  # fmt: skip
def test_kernels_of_flash_attention(prune: ModuleType, name: bytes, kept: bool) -> None:
    """bf16 with head size 128 and what has no main loop; another head size or type is not."""
    data = bytearray(binary(entry(2, 90, name)))
    prune.prune(data, 90, fa3=True)
    assert (name in data) is kept
