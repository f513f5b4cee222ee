"""The summary of a file of records: one pass, by several processes where the file is large and there are cores."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from servemark.base.collector import uncollected
from servemark.base.errors import ServemarkError
from servemark.replay.records_io import read_part, read_records, split_lines
from servemark.results.summary import Questions, Summary, summarise

PART_BYTES = 24 * 2**20
START_BYTES = 8 * 2**20
"""A process takes about 0.2 s to start, in which this one reads as much: its own part is longer by that."""
MAX_PROCESSES = 4


def summarise_file(path: Path, questions: Questions | None = None, processes: int | None = None) -> Summary:
    """The summary of `requests.jsonl`, the same to the last digit however many processes make it (None: by the
    file's size and the cores). Raises ServemarkError at file:line for the first bad line."""
    asked = questions or Questions()
    parts = split_lines(path, processes or _processes(path), START_BYTES)
    with uncollected():  # records have no cycles
        if len(parts) > 1:
            found = _together(path, parts, asked)
            if found is not None:
                return found
        return summarise((record for _, record in read_records(path)), asked)


def _processes(path: Path) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        size = path.stat().st_size
    except OSError:  # the reader says what is wrong
        return 1
    return max(1, min(cores, MAX_PROCESSES, size // PART_BYTES))


def _together(path: Path, parts: list[tuple[int, int]], questions: Questions) -> Summary | None:
    """Each part in a process of its own, the first in this one. None when a part could not be summarised: one
    reader alone then says at which line, or does without the process that was lost."""
    context = multiprocessing.get_context("spawn")
    others: list[tuple[BaseProcess, Connection]] = []
    try:
        for start, end in parts[1:]:
            ours, theirs = context.Pipe(duplex=False)
            child: BaseProcess = context.Process(
                target=_part, args=(theirs, path, start, end, questions), daemon=True
            )
            child.start()
            theirs.close()
            others.append((child, ours))
        whole = summarise(read_part(path, *parts[0]), questions)
        for _, pipe in others:
            later = pipe.recv()
            if not isinstance(later, Summary):
                return None
            whole.merge(later)
    except (ServemarkError, OSError, EOFError):
        return None
    finally:
        for child, pipe in others:
            pipe.close()
            child.terminate()
            child.join()
            child.close()
    return whole


def _part(pipe: Connection, path: Path, start: int, end: int, questions: Questions) -> None:
    """Entry of a process: sends its summary, or nothing but an end where its part is bad. Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    with contextlib.suppress(ServemarkError, OSError, MemoryError), pipe:
        pipe.send(summarise(read_part(path, start, end), questions))
