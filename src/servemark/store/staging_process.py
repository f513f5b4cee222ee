"""A second process for a large list of rows: it maps, encodes and judges the later ones while this process does the first
and begins to insert.

The other process reads the kept bytes itself and passes its rows through a nameless file; they are inserted here, after the
first ones, so what the store holds is the same. It writes nothing but that file. Where it fails in any way, or stalls, what
was inserted is rolled back, and this process does all rows alone and says itself what is wrong with the file.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servemark.base.files import make_folder
from servemark.results.importers.base import HEAD_BYTES, Given, Importer, Part
from servemark.results.importers.registry import importer_of
from servemark.results.measured_power import has_power
from servemark.store.found_files import Found
from servemark.store.import_types import Judge
from servemark.store.point_codec import Encoder
from servemark.store.raw_files import RawFiles
from servemark.store.staging import Staged, Staging, packed, unpacked

SHARED_BYTES = 32 * 2**20
"""A smaller file is nearly done before a second process has started, which takes some 0.4 s."""
FIRST_SHARE = 0.22
"""Of the bytes for this process, which also keeps the raw bytes and inserts all rows."""
TOGETHER = 6000
"""Rows that the other process judges together and hands over: half of what one process takes, so that inserts can begin."""
AHEAD = 0.3
"""Share of its rows that the other process must have handed over before the store is locked: it stages two rows while three
are inserted, so nobody waits longer for the lock than the inserts take."""
STALLED_S = 20.0
"""So long may the next rows take; a batch takes half a second of a processor."""
_START = "from servemark.store.staging_process import serve; serve()"


class LostError(Exception):
    """The other process ended, or stalled, before it had handed over all rows."""


class SecondProcess:
    """The other process. A context manager, which ends it and lets its file go."""

    def __init__(self, folder: Path) -> None:
        """Start it; `folder` is where its file lies. Raises OSError, and ServemarkError where the disk refuses."""
        make_folder(folder)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as the process
        self._pipe, theirs = Pipe()
        self._told: list[tuple[int, int, dict[tuple[str, str], int] | None]] = []
        """(rows, bytes, None) of each chunk in the file, then (0, 0, the runs of all)."""
        fds = theirs.fileno(), self._file.fileno()
        path = os.pathsep.join(filter(None, sys.path))
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *map(str, fds)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, pass_fds=fds, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        except OSError:
            self._pipe.close()
            self._file.close()
            raise
        finally:
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()
        self._pipe.close()
        self._file.close()

    def stage(
        self, staged: Staging, importer: Importer, given: Given, *, raw: RawFiles, sha256: str, judge: Judge
    ) -> None:
        """Take the first part here while the other process takes the rest, and wait until it is far enough ahead. What
        the importer raises goes through. Raises LostError."""
        first = first_part(given)
        hints = dict(given.hints)
        sent = importer.id, given.name, given.size, hints, first, raw.folder, sha256, judge, TOGETHER
        try:
            self._pipe.send(sent)
        except (OSError, pickle.PicklingError, AttributeError, TypeError) as error:
            raise LostError from error
        staged.take(importer.read(replace(given, part=Part(True, first))))
        expected = staged.rows * (given.size - first) / first
        while not self._ended and sum(rows for rows, *_ in self._told) < AHEAD * expected:
            self._hear()
        staged.follow(self)

    def chunks(self, runs: dict[tuple[str, str], int]) -> Iterator[list[Staged]]:
        """As `staging.Rest`. Raises LostError."""
        at = 0
        for place in count():
            if place == len(self._told):
                self._hear()
            _, size, found = self._told[place]
            if found is not None:
                for key, batches in found.items():
                    runs[key] = runs.get(key, 0) + batches
                return
            yield unpacked(self._read(at, size))
            at += size

    def _read(self, at: int, size: int) -> bytes:
        """Bytes of the file; where it stands is left alone, because the other process goes on writing from there."""
        parts = []
        while size and (part := os.pread(self._file.fileno(), size, at)):
            parts.append(part)
            at, size = at + len(part), size - len(part)
        return b"".join(parts)

    @property
    def _ended(self) -> bool:
        return bool(self._told) and self._told[-1][2] is not None

    def _hear(self) -> None:
        """One more chunk, or the end."""
        try:
            if not self._pipe.poll(STALLED_S):
                raise LostError
            self._told.append(self._pipe.recv())
        except (EOFError, OSError) as error:
            raise LostError from error


def second_process(raw: RawFiles, found: Found, size: int) -> SecondProcess | None:
    """Started for a file of `size` bytes that may be a large list; None where one process alone is sooner."""
    if size < SHARED_BYTES or _cores() < 2:
        return None
    try:
        with found.open() as stream:
            if stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] != b"[":
                return None
        return SecondProcess(raw.folder)
    except OSError:
        return None


def can_share(importer: Importer, given: Given) -> bool:
    """Whether the other process can read a part of the file as this one would, and the file is large enough for it."""
    known = importer_of(importer.id)
    if known is None or known.read is not importer.read or importer.parts is None or has_power(given):
        return False
    return given.size >= SHARED_BYTES and importer.parts(given)


def stage_alone(staged: Staging, importer: Importer, given: Given) -> None:
    """All rows of a file that could be shared, by this process: judged together are the rows that two processes would judge
    together, so that a verdict does not depend on the machine. What the importer raises goes through."""
    first = first_part(given)
    staged.take(importer.read(replace(given, part=Part(True, first))))
    staged.take(importer.read(replace(given, part=Part(False, first))), TOGETHER)


def first_part(given: Given) -> int:
    """Bytes of a shared file up to which rows are this process's."""
    return int(given.size * FIRST_SHARE)


def serve() -> None:
    """The other process: stages the rest of the file that it is told of. It ends without a word where it fails, and when
    the first process is gone. Ctrl-C is the first one's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    pipe, file = (int(each) for each in sys.argv[1:3])
    with contextlib.suppress(Exception), Connection(pipe) as told, os.fdopen(file, "r+b") as out:
        import numpy as np  # noqa: F401, PLC0415 - loaded before the job comes: gates will want it

        importer_of("")
        _stage(told, out, told.recv())


def _stage(told: Connection, out: Any, job: tuple[Any, ...]) -> None:  # noqa: ANN401 - a file of bytes; plain values
    name, path, size, hints, first, folder, sha256, judge, together = job
    raw, importer = RawFiles(folder), importer_of(name)
    if importer is None:
        return
    with raw.opened(sha256) as stream:
        head = stream.read(HEAD_BYTES)
    given = Given(path, size, head, lambda: raw.opened(sha256), hints, {}, Part(False, first))
    with Staging(folder, judge, Encoder()) as staging:
        for rows in staging.batches(importer.read(given), together):
            data = packed(rows)
            out.write(data)
            out.flush()
            told.send((len(rows), len(data), None))
        told.send((0, 0, staging.runs))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
