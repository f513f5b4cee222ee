"""`evals.json` of a run folder: every task with its statistics, written whole, read with care.

Schema 2 is one JSON object `{"schema": 2, "samples": {"file", "sha256", "lines"}, "tasks": [{score, statistics,
preamble, ended}, …]}`; the samples themselves lie beside it in `samples.jsonl`, one a line, so that any number of them
can be read one at a time. Schema 1 held them inside. Field names are those of `evals.runner.TaskOutcome`,
`evals.statistics.TaskStatistics` and `metrics.accuracy.EvalScore`; absent is null.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import disk_error, sha256_file, write_atomic
from servemark.evals.runner import Ended, TaskOutcome
from servemark.evals.samples import SAMPLES_NAME, SampleRecord, read_samples
from servemark.evals.statistics import Tally, TaskStatistics, score_of
from servemark.evals.tasks import ChatMessage
from servemark.metrics.accuracy import EvalScore

EVALS_SCHEMA = 2
MAX_BYTES = 50_000_000
SHOWN_SAMPLES = 200
"""So many right and so many wrong samples of a task are kept in memory for showing; the file has them all."""


@dataclass(frozen=True, slots=True)
class _SamplesFile:
    file: str
    sha256: str
    lines: int


@dataclass(frozen=True, slots=True)
class _Task:
    score: EvalScore
    statistics: TaskStatistics
    preamble: tuple[ChatMessage, ...]
    ended: Ended


@dataclass(frozen=True, slots=True)
class _File:
    schema: int
    samples: _SamplesFile
    tasks: tuple[_Task, ...]


@dataclass(frozen=True, slots=True)
class _OldTask:
    score: EvalScore
    samples: tuple[SampleRecord, ...]
    preamble: tuple[ChatMessage, ...]
    ended: Ended
    missing: int
    failed: int
    retried: int


@dataclass(frozen=True, slots=True)
class _OldFile:
    schema: int
    tasks: tuple[_OldTask, ...]


def write_evals(path: Path, outcomes: Sequence[TaskOutcome]) -> None:
    """Write the file atomically. The samples must lie in `samples.jsonl` beside it already, as `SampleWriter` left
    them. Raises ServemarkError (layer home) when the disk refuses."""
    beside = path.with_name(SAMPLES_NAME)
    try:
        digest = sha256_file(beside)
    except OSError as error:
        raise disk_error(error, beside) from error
    lines = sum(each.statistics.expected_n - each.statistics.missing for each in outcomes)
    tasks = tuple(_Task(o.score, o.statistics, o.preamble, o.ended) for o in outcomes)
    packed = msgspec.json.encode(_File(EVALS_SCHEMA, _SamplesFile(SAMPLES_NAME, digest, lines), tasks))
    write_atomic(path, msgspec.json.format(packed, indent=1) + b"\n")


def read_evals(path: Path) -> tuple[TaskOutcome, ...]:
    """Read the file back and check it: known schema, right types, and every figure equal to what its own samples
    give. Each outcome holds at most `2 * SHOWN_SAMPLES` of them. Raises ServemarkError (layer evals, exit code 2)
    naming the file and what is wrong."""
    where = str(path)
    data = _bytes_of(path)
    try:
        head = msgspec.json.decode(data)
        schema = head.get("schema") if isinstance(head, dict) else None
        if schema == EVALS_SCHEMA and type(schema) is int:
            return _joined(path, msgspec.convert(head, _File))
        if schema == 1 and type(schema) is int:
            return tuple(_old(task, where) for task in msgspec.convert(head, _OldFile).tasks)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _error("evals.bad_file", where, reason=str(error)[:200]) from None
    shown = schema if isinstance(schema, int | str) else "?"
    raise _error("evals.unknown_schema", where, found=shown, known=EVALS_SCHEMA)


def read_all_samples(path: Path) -> Iterator[SampleRecord]:
    """Every sample of the `evals.json` at `path`, of either schema, one at a time. Raises as `read_evals` does."""
    data = _bytes_of(path)
    try:
        head = msgspec.json.decode(data)
        if isinstance(head, dict) and head.get("schema") == 1:
            for task in msgspec.convert(head, _OldFile).tasks:
                for sample in task.samples:
                    yield replace(sample, task=task.score.task, version=task.score.version)
            return
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _error("evals.bad_file", str(path), reason=str(error)[:200]) from None
    yield from read_samples(path.with_name(SAMPLES_NAME))


def _bytes_of(path: Path) -> bytes:
    where = str(path)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe might never end
            raise _error("evals.not_a_file", where)
        if found.st_size > MAX_BYTES:
            raise _error("evals.file_too_large", where, limit=MAX_BYTES)
        return path.read_bytes()
    except OSError as error:
        raise _error("evals.cannot_read", where, reason=error.strerror or str(error)) from error


class _Counted:
    """The samples of one task at one concurrency as they come by."""

    def __init__(self, expected_n: int) -> None:
        self.tally = Tally(expected_n)
        self.items: set[str] = set()
        self.shown: list[SampleRecord] = []
        self.kept = {True: 0, False: 0}

    def add(self, sample: SampleRecord) -> bool:
        """False when its item came before."""
        if sample.item in self.items:
            return False
        self.items.add(sample.item)
        self.tally.add(sample)
        if self.kept[sample.correct] < SHOWN_SAMPLES:
            self.kept[sample.correct] += 1
            self.shown.append(sample)
        return True


def _count(task: str, expected_n: int, where: str) -> _Counted:
    try:
        return _Counted(expected_n)
    except ValueError:
        raise _inconsistent(where, task, "expected_n", expected_n, 1) from None


def _take(counted: _Counted, sample: SampleRecord, task: str, where: str) -> None:
    try:
        if not counted.add(sample):
            raise _error("evals.repeated_item", where, task=task)
    except ValueError:
        tally = counted.tally
        raise _inconsistent(where, task, "expected_n", tally.expected_n, tally.seen) from None


def _joined(path: Path, file: _File) -> tuple[TaskOutcome, ...]:
    """Schema 2 with its samples file, whose every line must belong to one of the tasks."""
    where = str(path)
    counts: dict[tuple[str, str, int | None], _Counted] = {}
    for task in file.tasks:
        score = task.score
        key = (score.task, score.version, score.concurrency)
        if key in counts:
            raise _error("evals.repeated_task", where, task=score.task, concurrency=score.concurrency)
        counts[key] = _count(score.task, score.expected_n, where)
    beside = path.with_name(SAMPLES_NAME)
    lines = 0
    for sample in read_samples(beside):
        lines += 1
        counted = counts.get((sample.task, sample.version, sample.concurrency))
        if counted is None:
            raise _error("evals.stray_sample", f"{beside}:{lines}", task=sample.task)
        _take(counted, sample, sample.task, where)
    if lines != file.samples.lines or sha256_file(beside) != file.samples.sha256:
        raise _error("evals.other_samples", str(beside), lines=lines, expected=file.samples.lines)
    return tuple(
        _outcome(task, counts[task.score.task, task.score.version, task.score.concurrency], where)
        for task in file.tasks
    )


def _outcome(task: _Task, counted: _Counted, where: str) -> TaskOutcome:
    """A score that its samples do not give is not a result, whoever wrote it."""
    found = counted.tally.statistics()
    _same(task.score.task, asdict(task.statistics), asdict(found), where)
    made = score_of(task.score.task, task.score.version, found, task.score.duration_s, task.score.concurrency)
    _same(task.score.task, asdict(task.score), asdict(made), where)
    return TaskOutcome(task.score, found, tuple(counted.shown), task.preamble, task.ended)


def _old(task: _OldTask, where: str) -> TaskOutcome:
    """Schema 1: the samples lie in the file itself."""
    score = task.score
    counted = _count(score.task, score.expected_n, where)
    for sample in task.samples:
        _take(counted, sample, score.task, where)
    found = counted.tally.statistics()
    made = score_of(score.task, score.version, found, score.duration_s, score.concurrency)
    said = {"missing": task.missing, **asdict(score)}
    _same(score.task, said, {"missing": found.missing, **asdict(made)}, where)
    return TaskOutcome(score, found, task.samples, task.preamble, task.ended)


def _same(task: str, said: dict[str, object], expected: dict[str, object], where: str) -> None:
    for field, value in expected.items():
        actual = said[field]
        same = actual == value
        if isinstance(value, float) and isinstance(actual, float):
            same = math.isclose(actual, value, rel_tol=1e-9, abs_tol=1e-12)
        if not same:
            raise _inconsistent(where, task, field, actual, value)


def _inconsistent(where: str, task: str, field: str, found: object, expected: object) -> ServemarkError:
    return _error("evals.inconsistent", where, task=task, field=field, found=found, expected=expected)


def _error(key: str, where: str, **values: object) -> ServemarkError:
    return ServemarkError(key, Layer.EVALS, exit_code=2, where=where, **values)
