"""The folder of one `eval`: what is expected is written first, samples as they come, the scores last.

manifest.json         what was asked of which server, and the expected set; written before the first request
samples.jsonl         every sample, one a line, as each item ends
retried.jsonl         failed samples of earlier attempts, whose items an attempt with --resume asks again
evals.json            scores and statistics; not there while anything is being asked
summary.json          the same in short with what is missing and doubtful; what `--json` prints
lock                  held (flock) by the process that writes here; the kernel frees it, also after kill -9
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from servemark.base.errors import input_error
from servemark.base.files import disk_error, make_folder, write_atomic
from servemark.evals.expected import ExpectedSet, read_expected
from servemark.evals.runner import Earlier
from servemark.evals.samples import SAMPLES_NAME, SampleRecord, SampleWriter, read_samples
from servemark.evals.statistics import Tally

MANIFEST: Final = "manifest.json"
EVALS: Final = "evals.json"
SUMMARY: Final = "summary.json"
RETRIED: Final = "retried.jsonl"
MAX_MANIFEST: Final = 4_000_000

Key = tuple[str, str, int | None]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """The folder, made where it is not there, as this process's own. Raises ServemarkError when another one has it."""
    make_folder(path)
    try:
        handle = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise input_error("evals.folder_busy", path=path) from None
        yield
    finally:
        os.close(handle)


def begin(path: Path, manifest: Mapping[str, object]) -> None:
    """Write the manifest of a new eval. Raises ServemarkError (exit 2) where one is already."""
    if any((path / name).exists() for name in (MANIFEST, SAMPLES_NAME, EVALS)):
        raise input_error("evals.folder_used", path=path)
    write_json(path / MANIFEST, manifest)
    (path / SAMPLES_NAME).touch()


def resume(path: Path, manifest: Mapping[str, object], expected: ExpectedSet) -> dict[Key, Earlier]:
    """What an unfinished eval has already. Its failed samples are dropped from the file, their failures go on with the
    items. Raises ServemarkError (exit 2) where the folder holds no eval, or one of other tasks, another server or
    another model."""
    before = read_manifest(path)
    said = before.get("expected")
    was = read_expected(said.get("evals") if isinstance(said, dict) else None)
    if was != expected:
        raise input_error("evals.resume_other", path=path, field="expected")
    for field in ("urls", "model", "options"):
        if before.get(field) != manifest.get(field):
            raise input_error("evals.resume_other", path=path, field=field)
    for name in (EVALS, SUMMARY):
        (path / name).unlink(missing_ok=True)
    return _kept(path / SAMPLES_NAME, expected)


def read_manifest(path: Path) -> dict[str, object]:
    """The manifest of a folder. Raises ServemarkError (exit 2) when there is none or it is damaged."""
    file = path / MANIFEST
    try:
        with file.open("rb") as stream:
            found = json.loads(stream.read(MAX_MANIFEST))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise input_error("evals.no_eval_here", path=path, reason=(reason or "?")[:200]) from None
    if not isinstance(found, dict):
        raise input_error("evals.no_eval_here", path=path, reason=type(found).__name__)
    return found


def _kept(file: Path, expected: ExpectedSet) -> dict[Key, Earlier]:
    """The good samples, counted; the file is written again without the others and without half a line at its end."""
    sizes: dict[Key, int] = {(e.task, e.version, e.concurrency): e.n for e in expected.tasks}
    tallies = {key: Tally(n) for key, n in sizes.items()}
    items: dict[Key, set[str]] = {key: set() for key in sizes}
    failures: dict[Key, dict[str, tuple[str, ...]]] = {key: {} for key in sizes}
    retried = file.with_name(RETRIED)
    fresh, fresh_retried = file.with_name(f".{SAMPLES_NAME}.tmp"), file.with_name(f".{RETRIED}.tmp")
    for path in (fresh, fresh_retried):
        path.unlink(missing_ok=True)
    with SampleWriter(fresh) as writer, SampleWriter(fresh_retried) as failed:
        for sample in read_samples(retried) if retried.exists() else ():
            _note_failure(failures, sample)
            failed.write(sample)
        for sample in read_samples(file, lenient_end=True) if file.exists() else ():
            key = (sample.task, sample.version, sample.concurrency)
            if key not in sizes:
                raise input_error("evals.stray_sample", where=str(file), task=sample.task)
            if sample.outcome != "ok":
                _note_failure(failures, sample)
                failed.write(sample)
            elif sample.item not in items[key]:
                items[key].add(sample.item)
                tallies[key].add(sample)
                writer.write(sample)
    fresh_retried.replace(retried)  # first: a kill between the two loses no failure
    fresh.replace(file)
    return {key: Earlier(tallies[key], frozenset(items[key]), failures[key]) for key in sizes}


def _note_failure(failures: dict[Key, dict[str, tuple[str, ...]]], sample: SampleRecord) -> None:
    """A sample's failures hold those of the attempts before it, so the longest list is the whole."""
    of_key = failures.get((sample.task, sample.version, sample.concurrency))
    said = (*sample.failures, sample.error_kind or sample.outcome)
    if of_key is not None and len(said) > len(of_key.get(sample.item, ())):
        of_key[sample.item] = said


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """One JSON object, indented, atomically."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")
