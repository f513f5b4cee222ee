"""Files and bytes as importers get them. Not a test module."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from servemark.results.importers.base import HEAD_BYTES, Given
from servemark.results.importers.inferencex import read
from servemark.results.point import Mapped, Point

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "results"
PUBLISHED = "published-2026-06"


def corpus(path: str) -> Path:
    """A real file; skips where it is not there."""
    found = DATA / path
    if not found.is_file():
        pytest.skip(f"{path} of the shared data is not here")
    return found


def of_file(path: Path, **hints: str) -> Given:
    """A file on disk."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    siblings = {
        each.name: Given(each.name, each.stat().st_size, b"", lambda each=each: each.open("rb"))  # type: ignore[misc]
        for each in path.parent.iterdir()
        if each.is_file()
    }
    return Given(str(path), path.stat().st_size, head, lambda: path.open("rb"), hints, siblings)


def of_bytes(data: bytes, name: str = "folder/file.json", **hints: str) -> Given:
    """Bytes at hand."""
    return Given(name, len(data), data[:HEAD_BYTES], lambda: io.BytesIO(data), hints)


def of_rows(*rows: object, name: str = "folder/file.json", **hints: str) -> Given:
    """A list of rows."""
    return of_bytes(json.dumps(rows).encode(), name, **hints)


def mapped(given: Given) -> list[Mapped]:
    """All rows of a file."""
    return list(read(given))


def points(path: str) -> list[tuple[dict[str, Any], Point]]:
    """Raw rows of a real list with their points; every row must have one."""
    file = corpus(path)
    raw = json.loads(file.read_bytes())
    rows = mapped(of_file(file))
    assert [each.ordinal for each in rows] == list(range(len(raw)))
    assert {each.status for each in rows} == {"mapped"}
    return [(row, each.point) for row, each in zip(raw, rows, strict=True) if each.point is not None]
