"""What a run tells whoever watches it. The command line draws it; `SilentView` shows nothing."""

from __future__ import annotations

from typing import Protocol

from servemark.base.errors import ServemarkError
from servemark.replay.loop import ProgressSnapshot
from servemark.results.row import ResultRow


class RunView(Protocol):
    """Called from the thread that runs the line; must return at once and raise nothing."""

    def begin(self, line_id: str, concurrencies: tuple[int, ...]) -> None:
        """The line's folders exist."""

    def phase(self, name: str, concurrency: int | None) -> None:
        """A phase begins; `concurrency` is None for phases of the whole deployment."""

    def waiting(self, seconds: float, budget_s: float) -> None:
        """The engine is not ready yet."""

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Numbers of the running replay, a few times a second."""

    def eval_progress(self, task: str, done: int, total: int, correct: int) -> None:
        """One more item of an accuracy task was judged."""

    def point_done(self, row: ResultRow) -> None:
        """A point has its result."""

    def point_failed(self, concurrency: int, error: ServemarkError) -> None:
        """A point has no result."""

    def note(self, key: str, /, **values: object) -> None:
        """A message worth a line while the run goes on."""


class SilentView:
    """Shows nothing."""

    def begin(self, line_id: str, concurrencies: tuple[int, ...]) -> None:
        """Ignored."""

    def phase(self, name: str, concurrency: int | None) -> None:
        """Ignored."""

    def waiting(self, seconds: float, budget_s: float) -> None:
        """Ignored."""

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Ignored."""

    def eval_progress(self, task: str, done: int, total: int, correct: int) -> None:
        """Ignored."""

    def point_done(self, row: ResultRow) -> None:
        """Ignored."""

    def point_failed(self, concurrency: int, error: ServemarkError) -> None:
        """Ignored."""

    def note(self, key: str, /, **values: object) -> None:
        """Ignored."""
