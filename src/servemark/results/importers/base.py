"""What every importer is: a detector and a mapping with a name and a version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from servemark.results.point import Mapped

HEAD_BYTES = 256 * 1024
"""As much of a file's beginning as a detector may look at."""

HINTS = (
    "attempt", "dataset", "date", "dram_bytes", "engine", "engine_version", "gpu_roles", "gpus", "hardware", "image",
    "isl", "model", "offload", "osl", "precision", "recipe_fingerprint", "run", "scenario", "window",
)  # fmt: skip
"""What a user may say that a file does not; each importer takes those that it lacks."""


class Part(NamedTuple):
    """Which rows of a list are wanted: those that begin within its first `bytes` (of rows, what stands between them aside),
    or the others."""

    first: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class Given:
    """One file to import. `open` gives a fresh binary stream at its beginning (a file, a member of an archive, stdin
    spooled to disk); `siblings` are files beside it by name, for formats that need two (a summary and its raw records)."""

    name: str
    """Path as the user would know it, for messages; never opened by an importer."""
    size: int
    head: bytes
    """The first HEAD_BYTES."""
    open: Callable[[], BinaryIO]
    hints: Mapping[str, str] = field(default_factory=dict)
    """What the user says that the file does not: model, hardware, gpus, date, ... (`--set KEY=VALUE`)."""
    siblings: Mapping[str, Given] = field(default_factory=dict)
    part: Part | None = None
    """Given only to an importer whose `parts` said yes; all rows otherwise."""


@dataclass(frozen=True, slots=True)
class Importer:
    """One format.

    `detect` looks at the head and says how sure it is, 0..1; the surest wins and a tie is an error that names both.
    `read` yields every row of the file, in order, lazily. It raises ServemarkError (layer results, key
    `results.import_*`) for a file that is damaged as a whole; a row that is wrong is a Mapped with status `invalid`.
    `version` goes up whenever the same bytes would give another point.
    """

    id: str
    version: int
    title: str
    detect: Callable[[Given], float]
    read: Callable[[Given], Iterator[Mapped]]
    parts: Callable[[Given], bool] | None = None
    """Whether `read` takes each row of this file by itself, reads no file beside it and heeds `Given.part`: two processes
    may then share it. None: of no file."""


def surest(importers: Sequence[Importer], given: Given) -> list[tuple[float, Importer]]:
    """Every importer that takes the file, surest first."""
    found = [(importer.detect(given), importer) for importer in importers]
    return sorted(((sure, one) for sure, one in found if sure > 0), key=lambda pair: (-pair[0], pair[1].id))
