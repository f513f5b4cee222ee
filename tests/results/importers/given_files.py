"""Files as importers get them, from disk or from bytes, and what every importer must do with bad ones."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.messages import text
from servemark.results.importers.base import HEAD_BYTES, Given, Importer
from servemark.results.point import Mapped, Point

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "results"
HINTS = {"hardware": "h200", "engine": "vllm", "model": "org/model"}


def opener(data: bytes) -> Callable[[], BinaryIO]:
    """A fresh stream over the same bytes."""
    return lambda: BytesIO(data)


def given(
    data: bytes,
    name: str = "result.json",
    hints: Mapping[str, str] | None = None,
    siblings: Mapping[str, Given] | None = None,
) -> Given:
    """A file of these bytes."""
    return Given(name, len(data), data[:HEAD_BYTES], opener(data), hints or {}, siblings or {})


def sample(path: str, hints: Mapping[str, str] | None = None) -> Given:
    """One of the samples, with the files beside it."""
    file = SAMPLES / path
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    beside = {
        one.name: given(one.read_bytes(), one.name)
        for one in file.parent.iterdir()
        if one != file and one.suffix != ".gz"
    }
    return given(data, file.name, HINTS if hints is None else hints, beside)


def only_point(importer: Importer, one: Given) -> Point:
    """The only row, which must be mapped."""
    (row,) = importer.read(one)
    assert row.point is not None, (row.status, row.reason, row.reason_values)
    return row.point


def explained(row: Mapped) -> str:
    """The reason of a row without a point, which must exist in both languages."""
    assert row.point is None
    for lang in ("en", "zh"):
        assert text(row.reason, lang, **row.reason_values)
        assert text(f"{row.reason}.next", lang, **row.reason_values)
    return row.reason


def refused(importer: Importer, one: Given) -> str:
    """The key of the error that reading the file raises, which must exist in both languages."""
    with pytest.raises(ServemarkError) as caught:
        list(importer.read(one))
    for lang in ("en", "zh"):
        assert caught.value.what(lang)
    return caught.value.key


def survives(importer: Importer, data: bytes) -> None:
    """Damage of every common kind gives a message: cut anywhere, wrong shapes, nesting, other bytes."""
    cuts = sorted({0, 1, len(data) // 7, len(data) // 3, len(data) // 2, len(data) - 2})
    wrong = [
        b"[" * 1_000_000,
        b'{"a":' * 500_000,
        b"\x00\xff" * 100,
        b"[1, 2]",
        b'"text"',
        b"{}",
        b"[[]]",
        b"null",
    ]
    for damaged in [*(data[:cut] for cut in cuts), *wrong]:
        one = given(damaged, hints=HINTS)
        try:
            for row in importer.read(one):
                assert row.status != "mapped", damaged[:80]
                explained(row)
        except ServemarkError as error:
            assert error.what("en") and error.what("zh")
