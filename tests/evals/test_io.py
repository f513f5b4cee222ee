"""`evals.json`: what was written comes back, and nothing else does."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemark.base.errors import Layer, ServemarkError
from servemark.evals import io
from servemark.evals.basics import basics
from servemark.evals.io import read_evals, write_evals
from servemark.evals.runner import TaskOutcome, run_task
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


def written(path: Path) -> dict[str, Any]:
    """A good file at `path`, and its content."""
    write_evals(path, [outcome()])
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    made = outcome()
    assert made.score.correct == 3
    assert made.retried == 3
    write_evals(path, [made])
    assert read_evals(path) == (made,)
    assert json.loads(path.read_text(encoding="utf-8"))["tasks"][0]["samples"][1]["reply"] == "h\u00e4?"
    write_evals(path, [])
    assert read_evals(path) == ()
    assert [p.name for p in tmp_path.iterdir()] == ["evals.json"]


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
    for other in (b"[]", b"3", b'{"schema": 2, "tasks": []}', b'{"schema": null}', b'{"schema": [1]}'):
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
    path = tmp_path / "evals.json"
    content = written(path)
    task = content["tasks"][0]
    task["samples"][1]["correct"] = True
    path.write_text(json.dumps(content))
    assert refused(path) == "evals.inconsistent"
    task["samples"][1] = task["samples"][0]
    path.write_text(json.dumps(content))
    assert refused(path) == "evals.repeated_item"
    task["samples"] = task["samples"][2:]
    path.write_text(json.dumps(content))
    assert refused(path) == "evals.inconsistent"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 5000), put=st.binary(max_size=6), length=st.integers(0, 8))
def test_changed_bytes_are_errors_or_data(tmp_path: Path, cut: int, put: bytes, length: int) -> None:
    path = tmp_path / "evals.json"
    if not (tmp_path / "good").exists():
        write_evals(tmp_path / "good", [outcome()])
    data = (tmp_path / "good").read_bytes()
    at = cut % len(data)
    path.write_bytes(data[:at] + put + data[at + length :])
    try:
        read_evals(path)
    except ServemarkError as error:
        assert error.what("zh")
