"""A large list of rows staged by two processes: this one takes the first part, another one the rest.

The other reads the kept bytes itself, maps, encodes and judges its rows, and puts them into a nameless file; they are
inserted here, after the first part, so what the store holds is the same. Where the other process fails in any way, this one
takes the rest as well, and says itself what is wrong with the file.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import tempfile
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Self

from servemark.results.importers.base import Given, Importer, Part
from servemark.results.importers.registry import importer_of
from servemark.results.measured_power import has_power
from servemark.store.import_types import Judge
from servemark.store.point_codec import Encoder
from servemark.store.raw_files import RawFiles
from servemark.store.staging import SpilledRows, Staging

SHARED_BYTES = 32 * 2**20
"""A smaller file is staged before a second process has started."""
FIRST_SHARE = 0.56
"""Of the bytes for this process: the other one starts, and passes over the first part."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What the other process must know. `given` without what cannot be sent."""

    importer: str
    given: Given
    raw: Path
    sha256: str
    judge: Judge
    spill: str


def share(importer: Importer, given: Given, raw: RawFiles, sha256: str, judge: Judge) -> Shared | None:
    """The other process, started; None where one alone is sooner, or the importer or the judge cannot be sent."""
    known = importer_of(importer.id) if importer.parts else None
    if known is None or known.read is not importer.read:
        return None
    if given.size < SHARED_BYTES or _cores() < 2 or has_power(given):
        return None
    if multiprocessing.current_process().daemon:  # such a one may start no other
        return None
    part = Part(False, int(given.size * FIRST_SHARE))
    try:
        handle, path = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=raw.folder)
    except OSError:
        return None
    sent = replace(given, open=_not_sent, siblings={}, hints=dict(given.hints), part=part)
    job = _Job(importer.id, sent, raw.folder, sha256, judge, path)
    file = os.fdopen(handle, "rb")
    try:
        pickle.dumps(job.judge)
        return Shared(job, file)
    except (pickle.PicklingError, AttributeError, TypeError, OSError):
        file.close()
        _remove(path)
        return None


class Shared:
    """The other process at work; a context manager, which ends it and lets its file go."""

    def __init__(self, job: _Job, file: IO[bytes]) -> None:
        self._job = job
        self._file = file
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe(duplex=False)
        self._child: BaseProcess = context.Process(target=_stage_rest, args=(theirs, job), daemon=True)
        try:
            self._child.start()
        finally:
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._child.terminate()
        self._child.join()
        self._child.close()
        self._file.close()
        _remove(self._job.spill)

    def stage(self, staged: Staging, importer: Importer, given: Given) -> None:
        """Take the first part here, and the rest from the other process or, where that has failed, here too. What the
        importer raises goes through."""
        rest = self._job.given.part
        assert rest is not None  # noqa: S101 - `share` gave it
        staged.take(importer.read(replace(given, part=rest._replace(first=True))))
        found = None
        with contextlib.suppress(EOFError, OSError):
            found = self._pipe.recv()
        if isinstance(found, SpilledRows):
            staged.take_spilled(self._file, found)
        else:
            staged.take(importer.read(replace(given, part=rest)))


def _stage_rest(pipe: Connection, job: _Job) -> None:
    """Entry of the process: sends what it has put into the file, or nothing but an end. Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    importer = importer_of(job.importer)
    with contextlib.suppress(Exception), pipe, open(job.spill, "wb") as spill:  # noqa: PTH123 - a path as text
        _remove(job.spill)  # both have it open; nothing is left of it if both are killed
        raw = RawFiles(job.raw)
        given = replace(job.given, open=lambda: raw.opened(job.sha256))
        if importer is not None:
            with Staging(job.raw, job.judge, Encoder(), spill) as staged:
                staged.take(importer.read(given))
                pipe.send(staged.spilled())


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).unlink()


def _not_sent() -> BinaryIO:
    raise OSError("only for the process that was given the file")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
