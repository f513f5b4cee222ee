"""What `servemark sweep` shows: a bar, counts, the time that is left, and a table of points that fits the terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.cli.text_table import columns_of, padded, shortened_end, table
from servemark.runs.sweep_plan import SweepOptions
from servemark.runs.sweep_status import SweepStatus, read_status, why
from servemark.store.sweep_rows import PointState, SweepPoint, SweepRow
from servemark.store.sweeps import SweepStore

if TYPE_CHECKING:
    from servemark.runs.sweep_scheduler import Scheduler

SHOWN = 40
"""Rows of the table unless all are asked for: those that matter most now."""
_LIVE_EVERY_S = 0.5
_PLAIN_EVERY_S = 1.0
_ENDED = (PointState.DONE, PointState.FAILED, PointState.SKIPPED, PointState.CANCELLED)
_COLOURS = {
    PointState.DONE: "green",
    PointState.RUNNING: "cyan",
    PointState.FAILED: "red",
    PointState.SKIPPED: "yellow",
    PointState.CANCELLED: "yellow",
}
_MARKS = {
    PointState.WAITING: "·",
    PointState.RUNNING: "▶",
    PointState.DONE: "✓",
    PointState.FAILED: "✗",
    PointState.SKIPPED: "-",
    PointState.CANCELLED: "-",
}


def width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return max(40, shutil.get_terminal_size((100, 24)).columns)


def duration(seconds: float) -> str:
    """`4.2 s`, `3:07`, `2:03:04`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def head_lines(status: SweepStatus, columns: int) -> list[str]:
    """The sweep's name and state, a bar with counts, what is left."""
    rehearsal = SweepOptions.of(status.sweep.options).rehearse
    state = text(f"runs.sweep.state.{status.state}")
    if status.state in ("running", "pausing", "cancelling") and status.holder is not None:
        state += " " + text("cli.sweep.by", None, pid=status.holder[1], host=status.holder[0])
    first = f"{status.sweep.sweep_id}  {state}" + (f"  {text('cli.sweep.rehearsal')}" if rehearsal else "")
    total = len(status.points)
    ended = sum(status.count(one) for one in _ENDED)
    cells = max(10, min(30, columns - 50))
    full = cells * ended // total if total else cells
    second = f"{'█' * full}{'░' * (cells - full)} {counts_text(status)}"
    return [shortened_end(line, columns) for line in (first, second, _left(status))]


def counts_text(status: SweepStatus) -> str:
    """`3/12  3 done · 1 running · 8 waiting`: ended of all, then how many are in each state."""
    counts = [
        f"{status.count(one)} {text(f'runs.sweep.point.{one}')}" for one in PointState if status.count(one)
    ]
    ended = sum(status.count(one) for one in _ENDED)
    return f"{ended}/{len(status.points)}  " + " · ".join(counts)


def _left(status: SweepStatus) -> str:
    each, eta = status.seconds_per_point(), status.eta_s()
    if status.state not in ("running", "pausing"):
        return (
            text("cli.sweep.each", None, each=duration(each))
            if each is not None
            else text("cli.sweep.no_figures")
        )
    if eta is None or each is None:
        return text("cli.sweep.eta_unknown")
    return text("cli.sweep.eta", None, left=duration(eta), each=duration(each))


def _chosen(points: Sequence[SweepPoint], limit: int | None) -> list[SweepPoint]:
    """In the order of the plan; when there are too many, what runs, what went wrong, what comes next, the last ends."""
    if limit is None or len(points) <= limit:
        return list(points)
    order = (PointState.RUNNING, PointState.FAILED, PointState.CANCELLED, PointState.SKIPPED)
    ranked = [point for state in order for point in points if point.state is state][: limit - 6]
    waiting = [point for point in points if point.state is PointState.WAITING]
    done = sorted((p for p in points if p.state is PointState.DONE), key=lambda p: p.attempt or 0)
    ranked += waiting[: (limit - len(ranked)) // 2]
    ranked += done[-(limit - len(ranked)) :]
    return sorted(ranked, key=lambda point: point.number)


def table_lines(status: SweepStatus, columns: int, limit: int | None) -> list[tuple[str, PointState | None]]:
    """Lines with the state that colours them."""
    points = _chosen(status.points, limit)
    heads = [text(f"cli.sweep.head.{name}") for name in ("point", "state", "tries", "started", "seconds")]
    rows = [_row(point, status) for point in points]
    widest = max(columns_of(row[1]) for row in [heads, *rows])
    for row in [heads, *rows]:
        row[1] = padded(row[1], widest, left=True)  # so that the marks stand below each other
    drawn = table(heads, rows, columns)
    found: list[tuple[str, PointState | None]] = [(line, None) for line in drawn[:2]]
    for point, line in zip(points, drawn[2:], strict=True):
        found.append((line, point.state))
        said = _why(point, status)
        if said:
            found.append((shortened_end("    " + said, columns), point.state))
    hidden = len(status.points) - len(points)
    if hidden:
        found.append((text("cli.sweep.hidden", None, count=hidden), None))
    return found


def _row(point: SweepPoint, status: SweepStatus) -> list[str]:
    attempt = status.attempt_of(point)
    timed = attempt is not None and (attempt.seconds is not None or point.state is PointState.RUNNING)
    canary = " ◆" if point.canary else ""
    return [
        one_line(f"{point.selector}{canary}"),
        f"{_MARKS[point.state]} {text(f'runs.sweep.point.{point.state}')}",
        f"{point.tries}/{point.budget}",
        attempt.started_utc[11:19] if attempt is not None else "",
        duration(status.elapsed_s(attempt)) if attempt is not None and timed else "",
    ]


def _why(point: SweepPoint, status: SweepStatus) -> str:
    if point.failure is None or point.state is PointState.RUNNING:
        return ""
    said = f"[{point.failure.get('layer', '?')}] {one_line(why(point.failure).partition(chr(10))[0])}"
    if point.state is PointState.WAITING and point.not_before_s > status.now_s:
        said = text("cli.sweep.again_in", None, left=duration(point.not_before_s - status.now_s)) + " " + said
    return said


def status_lines(status: SweepStatus, columns: int, limit: int | None) -> list[tuple[str, PointState | None]]:
    """All of the view."""
    heads: list[tuple[str, PointState | None]] = [
        (line, None) for line in head_lines(status, columns) if line
    ]
    return [*heads, ("", None), *table_lines(status, columns, limit)]


def print_status(status: SweepStatus, *, every: bool = False) -> None:
    """On stdout; coloured on a terminal."""
    for line, state in status_lines(status, width(), None if every else SHOWN):
        click.secho(line, fg=_COLOURS.get(state) if state is not None else None)


def next_step(status: SweepStatus) -> str:
    """What the user may do now; empty when there is nothing to do."""
    sweep = status.sweep.sweep_id
    if status.state in ("paused", "stopped"):
        return text("cli.sweep.next_resume", None, sweep=sweep)
    if status.state in ("failed", "cancelled"):
        return text("cli.sweep.next_retry", None, sweep=sweep)
    return ""


def print_list(found: Sequence[SweepStatus]) -> None:
    """One line a sweep, the newest last."""
    heads = [
        text(f"cli.sweep.head.{name}") for name in ("sweep", "state", "done", "failed", "points", "priority")
    ]
    rows = [
        [
            one.sweep.sweep_id,
            text(f"runs.sweep.state.{one.state}"),
            str(one.count(PointState.DONE)),
            str(one.count(PointState.FAILED)),
            str(len(one.points)),
            str(one.sweep.priority),
        ]
        for one in found
    ]
    for line in table(heads, rows, width()):
        click.echo(line)


def watch_status(home: Home, sweep: SweepRow, *, every: bool) -> None:
    """Draw the status again each half second until the sweep rests; on a pipe once."""
    if not sys.stdout.isatty():
        print_status(read_status(home, sweep), every=every)
        return
    with _screen(to_stderr=False) as draw:
        while True:
            now = read_status(home, sweep)
            draw(now, every)
            if now.state not in ("running", "pausing", "cancelling"):
                break
            time.sleep(_LIVE_EVERY_S)
    print_status(now, every=every)


@contextlib.contextmanager
def _screen(*, to_stderr: bool) -> Iterator[Callable[[SweepStatus, bool], None]]:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text as RichText  # noqa: PLC0415

    console = Console(stderr=to_stderr)
    # No thread of its own: processes are started from this one.
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:

        def draw(status: SweepStatus, every: bool) -> None:
            drawn = RichText(no_wrap=True)
            rows = console.height - 4
            for line, state in status_lines(status, console.width, None if every else max(8, rows // 2))[
                :rows
            ]:
                drawn.append(line + "\n", style=_COLOURS.get(state, "") if state is not None else "")
            live.update(drawn, refresh=True)

        yield draw


@contextlib.contextmanager
def live_view(home: Home, sweep: SweepRow) -> Iterator[Callable[[Scheduler], None] | None]:
    """Gives what the scheduler calls after changes: draws on stderr when that is a terminal, a plain line there else
    whenever a point began or ended, at most one a second; None where there is no sweep to read."""
    store = SweepStore.read(home.sweeps)
    if store is None:
        yield None
        return
    if not sys.stderr.isatty():
        with store:
            yield _plain_lines(home, store)
        return
    drawn_s = 0.0
    with store, _screen(to_stderr=True) as draw:

        def changed(scheduler: Scheduler) -> None:
            nonlocal drawn_s
            if time.monotonic() - drawn_s >= _LIVE_EVERY_S:
                drawn_s = time.monotonic()
                draw(read_status(home, scheduler.sweep, store), False)

        yield changed


def _plain_lines(home: Home, store: SweepStore) -> Callable[[Scheduler], None]:
    from servemark.cli.plain_progress import Lines  # noqa: PLC0415 - `sweep list` needs none

    lines, told, looked_s = Lines(), "", -_PLAIN_EVERY_S

    def changed(scheduler: Scheduler) -> None:
        nonlocal told, looked_s
        if time.monotonic() - looked_s < _PLAIN_EVERY_S:
            return
        looked_s = time.monotonic()
        status = read_status(home, scheduler.sweep, store)
        now = counts_text(status)
        if now != told:
            told = now
            open_now = status.count(PointState.WAITING) + status.count(PointState.RUNNING)
            lines.say(f"{now} · {_left(status)}" if open_now else now)

    return changed
