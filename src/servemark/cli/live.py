"""The live view of a run: phases, a bar a point, running numbers. On stderr, and only on a terminal;
`plain_progress` tells the same elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text as RichText

from servemark.base.errors import ServemarkError
from servemark.base.messages import text
from servemark.catalog.phase_budgets import PHASES as ALL_PHASES
from servemark.cli.plain_progress import numbers_text, point_text
from servemark.cli.safe_text import Text
from servemark.replay.loop import ProgressSnapshot
from servemark.results.row import ResultRow

PHASES = ("allocate", "workers", "warmup", "replay", "evals", "collect")
"""Always shown; another phase is shown in its place while it goes on."""


class LiveView:
    """Draws at most ten times a second. Call `close` (or leave the context) before printing anything else."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.points: dict[int, str] = {}
        self.shares: dict[int, float] = {}
        self.current: int | None = None
        self.phase_name = ""
        self.phase_since = time.monotonic()
        self.numbers = ""
        self.began = time.monotonic()
        self.live = Live(console=console, refresh_per_second=10, transient=True, get_renderable=self._draw)

    def __enter__(self) -> LiveView:
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the view off the screen."""
        self.live.stop()

    def begin(self, line_id: str, concurrencies: tuple[int, ...]) -> None:
        """All points are waiting."""
        self.points = dict.fromkeys(concurrencies, "waiting")
        self.shares = dict.fromkeys(concurrencies, 0.0)
        self.console.print(RichText.from_markup(f"[bold]servemark[/bold] [dim]{line_id}[/dim]"))

    def phase(self, name: str, concurrency: int | None) -> None:
        """A phase begins."""
        self.phase_name, self.phase_since, self.numbers = name, time.monotonic(), ""
        self.current = concurrency
        if concurrency is not None and self.points.get(concurrency) != "running":
            self.points[concurrency] = "running"

    def waiting(self, seconds: float, budget_s: float) -> None:
        """The engine loads."""
        self.numbers = text("cli.live.waiting", None, seconds=f"{seconds:.0f}", budget=f"{budget_s:.0f}")

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Running numbers of the window."""
        if self.current is not None and snapshot.planned:
            self.shares[self.current] = snapshot.done / snapshot.planned
        self.numbers = numbers_text(snapshot)

    def eval_progress(self, task: str, done: int, total: int, correct: int) -> None:
        """Accuracy so far."""
        self.numbers = text("cli.live.evals", None, task=task, done=done, total=total, correct=correct)

    def point_done(self, row: ResultRow) -> None:
        """A first figure as soon as there is one."""
        if row.concurrency is not None:
            self.points[row.concurrency] = "done"
            self.shares[row.concurrency] = 1.0
        self.console.print(Text("✓ ", style="green") + Text(point_text(row)))

    def point_failed(self, concurrency: int, error: ServemarkError) -> None:
        """Said in full when the run ends; here it is only marked."""
        self.points[concurrency] = "failed"

    def note(self, key: str, /, **values: object) -> None:
        """A line that stays."""
        self.console.print(Text("! ", style="yellow") + Text(text(key, None, **values)))

    def _draw(self) -> Group:
        head = Text()
        names = [n for n in ALL_PHASES if n in PHASES or n == self.phase_name]
        for name in names:
            style = "bold cyan" if name == self.phase_name else "dim"
            head.append(text(f"cli.phase.{name}"), style=style)
            if name != names[-1]:
                head.append(" → ", style="dim")
        head.append(f"   {time.monotonic() - self.began:.0f} s", style="dim")
        bars = Table.grid(padding=(0, 1))
        for concurrency, state in self.points.items():
            share = self.shares.get(concurrency, 0.0)
            mark = {"waiting": "·", "running": "▸", "done": "✓", "failed": "✗"}[state]
            style = {"waiting": "dim", "running": "cyan", "done": "green", "failed": "red"}[state]
            numbers = self.numbers if concurrency == self.current else ""
            bars.add_row(
                Text(mark, style=style),
                Text(f"c{concurrency}", style=style),
                ProgressBar(
                    total=1.0, completed=share, width=24, complete_style="cyan", finished_style="green"
                ),
                Text(numbers, style="dim" if state != "running" else ""),
            )
        rows: list[RichText | Table] = [head, bars]
        if self.current is None and self.numbers:
            rows.append(Text(self.numbers, style="dim"))
        return Group(*rows)
