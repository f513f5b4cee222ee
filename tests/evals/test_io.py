"""`evals.json`: what was written comes back, and nothing else does."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemark.base.errors import Layer, ServemarkError
from servemark.evals import io
from servemark.evals.basics import basics
from servemark.evals.io import read_all_samples, read_evals, write_evals
from servemark.evals.runner import TaskOutcome, run_task
from servemark.evals.samples import write_samples
from servemark.evals.tasks import EvalPrompt
from servemark.replay.record import RequestRecord


def outcome() -> TaskOutcome:
    """A task of nine items: every third fails once, every fourth answer is right."""

    async def send(prompt: EvalPrompt) -> RequestRecord:
        number = int(prompt.item.rsplit("-", 1)[1])
        made = RequestRecord(prompt.item, prompt.item, 0, "eval", outcome="ok", finish_reason="stop")
        if number % 3 == 0 and prompt.attempt == 0:
            made.outcome, made.error_kind = "error", "http_503"
        made.text = expected[prompt.item] if number % 4 == 0 else "h\u00e4?"
        made.start_s, made.end_s = 0.1, 0.3
        return made

    task = basics(9)
    expected = {item.id: item.expected for item in task.items}
    return asyncio.run(run_task(task, send, 2))


def write(path: Path, outcomes: list[TaskOutcome]) -> None:
    """Both files, as a run leaves them."""
    write_samples(path.with_name("samples.jsonl"), [s for each in outcomes for s in each.samples])
    write_evals(path, outcomes)


def written(path: Path) -> dict[str, Any]:
    """A good file at `path`, and its content."""
    write(path, [outcome()])
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    made = outcome()
    assert made.score.correct == 3
    assert made.retried == 3
    write(path, [made])
    (read,) = read_evals(path)
    assert (read.score, read.statistics, read.samples) == (made.score, made.statistics, made.samples)
    assert tuple(read_all_samples(path)) == made.samples
    lines = path.with_name("samples.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[1])["reply"] == "h\u00e4?"
    write(path, [])
    assert read_evals(path) == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evals.json", "samples.jsonl"]


def test_schema_1_is_read(tmp_path: Path) -> None:
    """Samples inside the file, as an earlier version wrote them: without task, refusal and concurrency."""
    path = tmp_path / "evals.json"
    made = outcome()
    samples = [
        {
            k: v
            for k, v in asdict(s).items()
            if k not in {"task", "version", "concurrency", "refused", "before"}
        }
        for s in made.samples
    ]
    score = {k: v for k, v in asdict(made.score).items() if k not in {"refused", "concurrency"}}
    counts = {"missing": 0, "failed": 0, "retried": 3}
    task = {"score": score, "samples": samples, "preamble": [], "ended": "complete", **counts}
    path.write_text(json.dumps({"schema": 1, "tasks": [task]}))
    (read,) = read_evals(path)
    assert (read.score.correct, read.retried, read.score.concurrency) == (3, 3, None)
    assert [s.reply for s in read_all_samples(path)] == [s.reply for s in made.samples]
    assert {s.task for s in read_all_samples(path)} == {"basics"}
    task["score"]["correct"] = 4  # type: ignore[index]
    path.write_text(json.dumps({"schema": 1, "tasks": [task]}))
    assert refused(path) == "evals.inconsistent"


def refused(path: Path) -> str:
    """Key of the error of reading `path`, whose texts exist in both languages."""
    with pytest.raises(ServemarkError) as caught:
        read_evals(path)
    assert (caught.value.layer, caught.value.exit_code) == (Layer.EVALS, 2)
    assert caught.value.where == str(path)
    assert caught.value.what("zh") != caught.value.what("en")
    assert caught.value.next_step("zh")
    return caught.value.key


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": 1}',
        b'{"schema": 1, "tasks": {}}',
        b'{"schema":1,"tasks":[{}]}',
    ],
)
def test_damaged_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "evals.json"
    path.write_bytes(data)
    assert refused(path) == "evals.bad_file"


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "evals.json"
    assert refused(path) == "evals.cannot_read"
    assert refused(tmp_path) == "evals.not_a_file"
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == "evals.not_a_file"
    for other in (b"[]", b"3", b'{"schema": 3, "tasks": []}', b'{"schema": null}', b'{"schema": [1]}'):
        path.write_bytes(other)
        assert refused(path) == "evals.unknown_schema"
    monkeypatch.setattr(io, "MAX_BYTES", 3)
    assert refused(path) == "evals.file_too_large"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("correct", 9),
        ("score", 0.9),
        ("stderr", 0.0),
        ("n", 3),
        ("unanswered", 2),
        ("truncated", 1),
        ("expected_n", 10),
        ("expected_n", 8),
        ("expected_n", 0),
    ],
)
def test_a_score_must_be_that_of_its_samples(tmp_path: Path, field: str, value: float) -> None:
    path = tmp_path / "evals.json"
    content = written(path)
    content["tasks"][0]["score"][field] = value
    path.write_text(json.dumps(content))
    assert refused(path) == "evals.inconsistent"


def test_samples_must_be_those_of_the_score(tmp_path: Path) -> None:
    """A changed verdict, a repeated item, a lost line, a sample of another task, another file, half a line."""
    path, beside = tmp_path / "evals.json", tmp_path / "samples.jsonl"
    written(path)
    good = beside.read_text().splitlines(keepends=True)

    def with_lines(*lines: str) -> str:
        beside.write_text("".join(lines))
        with pytest.raises(ServemarkError) as caught:
            read_evals(path)
        assert caught.value.next_step("zh")
        return caught.value.key

    wrong = good[1].replace('"correct":false', '"correct":true')
    assert wrong != good[1]
    assert with_lines(good[0], wrong, *good[2:]) == "evals.other_samples"
    assert with_lines(good[0], good[0], *good[2:]) == "evals.repeated_item"
    assert with_lines(*good[1:]) == "evals.other_samples"
    assert with_lines(good[0].replace('"task":"basics"', '"task":"other"'), *good[1:]) == "evals.stray_sample"
    assert with_lines(*good[1:], good[0]) == "evals.other_samples"
    assert with_lines(*good[:-1], good[-1][:-5]) == "evals.bad_samples"
    assert with_lines(*good[:-1], "[]\n") == "evals.bad_samples"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 5000), put=st.binary(max_size=6), length=st.integers(0, 8))
def test_changed_bytes_are_errors_or_data(tmp_path: Path, cut: int, put: bytes, length: int) -> None:
    path = tmp_path / "evals.json"
    if not (tmp_path / "good").exists():
        write(tmp_path / "good", [outcome()])
    data = (tmp_path / "good").read_bytes()
    at = cut % len(data)
    path.write_bytes(data[:at] + put + data[at + length :])
    try:
        read_evals(path)
    except ServemarkError as error:
        assert error.what("zh")
