"""`evals.json` of a run folder: every task with its score and all samples, written whole, read with care.

The file is one JSON object `{"schema": 1, "tasks": [TaskOutcome, …]}`; field names are those of the classes
in `evals.runner` and `metrics.accuracy.EvalScore`; absent is null.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import write_atomic
from servemark.evals.runner import TaskOutcome, score_samples

EVALS_SCHEMA = 1
MAX_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class _File:
    schema: int
    tasks: tuple[TaskOutcome, ...]


def write_evals(path: Path, outcomes: Sequence[TaskOutcome]) -> None:
    """Write the file atomically. Raises ServemarkError (layer home) when the disk refuses."""
    packed = msgspec.json.encode(_File(EVALS_SCHEMA, tuple(outcomes)))
    write_atomic(path, msgspec.json.format(packed, indent=1) + b"\n")


def read_evals(path: Path) -> tuple[TaskOutcome, ...]:
    """Read the file back and check it: known schema, right types, and every score equal to what its own
    samples give. Raises ServemarkError (layer evals, exit code 2) naming the file and what is wrong."""
    where = str(path)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe might never end
            raise _error("evals.not_a_file", where)
        if found.st_size > MAX_BYTES:
            raise _error("evals.file_too_large", where, limit=MAX_BYTES)
        data = path.read_bytes()
    except OSError as error:
        raise _error("evals.cannot_read", where, reason=error.strerror or str(error)) from error
    try:
        head = msgspec.json.decode(data)
        schema = head.get("schema") if isinstance(head, dict) else None
        if schema != EVALS_SCHEMA:
            shown = schema if isinstance(schema, int | str) else "?"
            raise _error("evals.unknown_schema", where, found=shown, known=EVALS_SCHEMA)
        tasks = msgspec.convert(head, _File).tasks
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _error("evals.bad_file", where, reason=str(error)[:200]) from None
    for outcome in tasks:
        _check(outcome, where)
    return tasks


def _check(outcome: TaskOutcome, where: str) -> None:
    """A score that its samples do not give is not a result, whoever wrote it."""
    score = outcome.score
    task = score.task
    ids = {sample.item for sample in outcome.samples}
    if len(ids) != len(outcome.samples):
        raise _error("evals.repeated_item", where, task=task)
    try:
        made = score_samples(task, score.version, score.expected_n, outcome.samples, score.duration_s)
    except ValueError:
        raise _error(
            "evals.inconsistent", where, task=task, field="expected_n", found=score.expected_n,
            expected=len(outcome.samples),
        ) from None  # fmt: skip
    expected = {**asdict(made), "missing": score.expected_n - len(outcome.samples)}
    actual = {**asdict(score), "missing": outcome.missing}
    for field, value in expected.items():
        same = actual[field] == value
        if isinstance(value, float):
            same = math.isclose(actual[field], value, rel_tol=1e-9, abs_tol=1e-12)
        if not same:
            raise _error(
                "evals.inconsistent", where, task=task, field=field, found=actual[field], expected=value
            )


def _error(key: str, where: str, **values: object) -> ServemarkError:
    return ServemarkError(key, Layer.EVALS, exit_code=2, where=where, **values)
