"""What a log of a run, a replay or an eval holds while it goes on: whole lines on stderr, nothing that steers."""

from __future__ import annotations

import io

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.cli.plain_progress import EVERY_S, Lines, PlainEval, PlainView
from servemark.replay.progress import ProgressSnapshot

NOW = ProgressSnapshot(1.0, 28, 10, 9, 0, 1, 1, 0.25, 40.0)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Gone(io.StringIO):
    """Standard error whose reader has ended."""

    def write(self, s: str, /) -> int:
        raise BrokenPipeError


def test_a_line_a_phase_and_a_sign_of_life(capsys: pytest.CaptureFixture[str]) -> None:
    """The first snapshots of a phase say nothing; after half a minute one does, and starts the wait again."""
    clock = Clock()
    view = PlainView(Lines(clock))
    view.begin("some-line", (1, 4))
    view.phase("replay", 4)
    for clock.now in (1.0, EVERY_S - 1, EVERY_S, EVERY_S + 1):
        view.progress(NOW)
    view.note("runs.scored_apart", points="\x1b[2J")
    view.point_failed(4, ServemarkError("runs.bug", Layer.ENGINE, problem="x"))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 5
    assert "some-line: concurrency 1, 4" in lines[0]
    assert lines[1] == "[   0.0 s] c4: replay"
    assert lines[2].startswith("[  30.0 s] c4: 9/28") and "250" in lines[2]
    assert "concurrency 4" in lines[4] and "engine" in lines[4]
    assert not any(ord(letter) < 32 for line in lines for letter in line)


def test_a_phase_of_a_point_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The last point collects before and after its engine stops; the engine itself may be started again."""
    view = PlainView(Lines(Clock()))
    for name, load in (("workers", None), ("collect", 1), ("stop", None), ("collect", 1), ("workers", None)):
        view.phase(name, load)
    view.phase("collect", 4)
    said = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["workers", "c1: collect", "stop", "workers", "c4: collect"]


def test_an_eval_says_the_end_of_each_task(capsys: pytest.CaptureFixture[str]) -> None:
    """200 answers within a second: one line, the last."""
    told = PlainEval(Lines(Clock()))
    for done in range(1, 201):
        told("basics", 4, done, 200, done // 2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "200/200" in err and "\r" not in err


def test_a_reader_that_went_away_stops_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """`2>&1 | head -1`: the work goes on without its lines."""
    monkeypatch.setattr("sys.stderr", Gone())
    view = PlainView(Lines(Clock()))
    view.begin("line", (1,))
    view.phase("replay", 1)
