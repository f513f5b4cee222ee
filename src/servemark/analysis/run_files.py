"""What `report_data` reads of a run folder, each file checked and bounded: row, records, evals, manifest,
failure.

A folder in whatever condition gives values and problems, never a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import ServemarkError
from servemark.evals.io import read_evals
from servemark.evals.runner import TaskOutcome
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import read_records
from servemark.results.errors import bad_file
from servemark.results.row import ResultRow
from servemark.results.serialize import (
    EVALS_NAME,
    REQUESTS_NAME,
    RESULT_NAME,
    read_bounded,
    read_result,
)

MAX_MANIFEST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class RunFiles:
    """One run folder as far as it could be read. `row` is None when there is no sound result; `errors` say
    why parts are missing, each an expected error that can be shown."""

    folder: Path
    row: ResultRow | None
    records: tuple[tuple[int, RequestRecord], ...]
    """(line number from 1, record), in the file's order."""
    evals: tuple[TaskOutcome, ...]
    manifest: Mapping[str, object]
    failure: Mapping[str, object] | None
    errors: tuple[ServemarkError, ...]


def read_run(folder: Path) -> RunFiles:
    """Read one run folder. A missing or damaged part becomes an entry of `errors`."""
    errors: list[ServemarkError] = []
    manifest = _object(folder / "manifest.json", errors) or {}
    failure = _object(folder / "failure.json", errors)
    row: ResultRow | None = None
    records: tuple[tuple[int, RequestRecord], ...] = ()
    evals: tuple[TaskOutcome, ...] = ()
    if (folder / RESULT_NAME).exists():
        try:
            row = read_result(folder)
            records = tuple(read_records(folder / REQUESTS_NAME))
            if EVALS_NAME in row.files:
                evals = read_evals(folder / EVALS_NAME)
        except ServemarkError as error:
            errors.append(error)
    return RunFiles(folder, row, records, evals, manifest, failure, tuple(errors))


def _object(path: Path, errors: list[ServemarkError]) -> dict[str, object] | None:
    """A small JSON object, or None where there is no such file; damage becomes an error."""
    if not path.exists():
        return None
    try:
        found = json.loads(read_bounded(path, MAX_MANIFEST_BYTES))
    except ServemarkError as error:
        errors.append(error)
        return None
    except (ValueError, RecursionError) as error:
        errors.append(bad_file("not_json", path, reason=str(error)))
        return None
    if isinstance(found, dict):
        return found
    errors.append(bad_file("not_json", path, reason=type(found).__name__))
    return None


def expected_runs(manifest: Mapping[str, object]) -> tuple[tuple[str, int | None], ...]:
    """(run id, concurrency) of every run of the line, as the manifest wrote them down before the first one
    began.

    Empty where the manifest does not say. A run's id ends in "-c" and its concurrency.
    """
    expected = manifest.get("expected")
    listed = expected.get("line_runs") if isinstance(expected, Mapping) else None
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return ()
    return tuple((each, concurrency_of(each)) for each in listed if isinstance(each, str))


def concurrency_of(run_id: str) -> int | None:
    """The concurrency that a run's id ends in; None where it does not."""
    tail = run_id.rpartition("-c")[2]
    return int(tail) if tail.isascii() and tail.isdigit() and len(tail) < 10 else None
