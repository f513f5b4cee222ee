"""Progress where nobody draws: plain lines on stderr for `| tee log`, CI and batch jobs. No control characters, a line
a phase and a finished point, and a sign of life every half minute; stdout stays for results alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from servemark.analysis.format import display
from servemark.base.errors import ServemarkError
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.metrics.derive import value_of
from servemark.replay.progress import ProgressSnapshot
from servemark.results.row import ResultRow
from servemark.results.serialize import row_to_json

EVERY_S = 30.0
"""Between two signs of life of one phase."""


def shown(value: float | None, unit: str) -> str:
    """One figure with its unit, or a dash."""
    return display(unit, [value]).text(value)


def numbers_text(snapshot: ProgressSnapshot) -> str:
    """Running numbers of a window in one line."""
    return text(
        "cli.live.numbers",
        None,
        done=snapshot.done,
        planned="∞" if snapshot.planned is None else snapshot.planned,
        ttft=shown(snapshot.ttft_p50_s, "s"),
        speed=shown(snapshot.tokens_per_s, "tok/s"),
        errors=snapshot.errors,
    )


def point_text(row: ResultRow) -> str:
    """First figures of a finished point in one line."""
    score = row.evals[0] if row.evals else None
    plain = row_to_json(row)
    line = text(
        "cli.live.point_done",
        None,
        concurrency=row.concurrency,
        ttft=shown(value_of(plain, "ttft_s.p50"), "s"),
        users=shown(value_of(plain, "interactivity.p50"), "tok/s"),
        speed=shown(value_of(plain, "output_tokens_per_s"), "tok/s"),
    )
    if score is not None and score.answered:
        line += text("cli.live.point_eval", None, score=f"{score.score:.1%}", se=f"{score.stderr:.1%}")
    return line


class Lines:
    """Writes whole lines on stderr, with the seconds since it was made. A reader that went away stops the lines, never
    the work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._gone = False

    def say(self, said: str) -> None:
        """One line, now."""
        self._last = self._clock()
        if self._gone:
            return
        try:
            sys.stderr.write(f"[{self._last - self._began:6.1f} s] {one_line(said)}\n")
            sys.stderr.flush()
        except OSError:
            self._gone = True

    def sign(self, made: Callable[[], str]) -> None:
        """One line if the last is half a minute old; `made` is called only then."""
        if self._clock() - self._last >= EVERY_S:
            self.say(made())


class PlainView:
    """A `RunView` of plain lines."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._where = ""
        self._told: set[tuple[str, int]] = set()

    def begin(self, line_id: str, concurrencies: tuple[int, ...]) -> None:
        """Name of the run and what it will measure."""
        loads = ", ".join(str(each) for each in concurrencies)
        self._lines.say(text("cli.plain.begin", None, line=line_id, loads=loads))

    def phase(self, name: str, concurrency: int | None) -> None:
        """A line a phase; one of a point that goes on after another (`collect` around `stop`) is told once."""
        self._where = f"c{concurrency}: " if concurrency is not None else ""
        if concurrency is not None:
            if (name, concurrency) in self._told:
                return
            self._told.add((name, concurrency))
        self._lines.say(self._where + text(f"cli.phase.{name}"))

    def waiting(self, seconds: float, budget_s: float) -> None:
        """A sign of life."""
        self._lines.sign(
            lambda: text("cli.live.waiting", None, seconds=f"{seconds:.0f}", budget=f"{budget_s:.0f}")
        )

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """A sign of life."""
        self._lines.sign(lambda: self._where + numbers_text(snapshot))

    def eval_progress(self, task: str, done: int, total: int, correct: int) -> None:
        """A sign of life."""
        self._lines.sign(
            lambda: (
                self._where + text("cli.live.evals", None, task=task, done=done, total=total, correct=correct)
            )
        )

    def point_done(self, row: ResultRow) -> None:
        """First figures of a point."""
        self._lines.say("✓ " + point_text(row))

    def point_failed(self, concurrency: int, error: ServemarkError) -> None:
        """That a point has no result; why is said in full at the end."""
        self._lines.say(text("cli.plain.failed", None, concurrency=concurrency, layer=str(error.layer)))

    def note(self, key: str, /, **values: object) -> None:
        """A message worth a line."""
        self._lines.say("! " + text(key, None, **values))


class PlainEval:
    """Progress of `servemark eval`: a line a task that is done, and signs of life."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __call__(self, task: str, concurrency: int, done: int, expected: int, correct: int) -> None:
        """So many items of a task were judged."""

        def said() -> str:
            values = {"task": task, "concurrency": concurrency, "done": done, "n": expected}
            return text("cli.eval.progress", None, **values, correct=correct)

        if done == expected:
            self._lines.say(said())
        else:
            self._lines.sign(said)
