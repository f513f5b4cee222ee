"""What `servemark replay` shows: one live line on a terminal's stderr, and the closing table."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from servemark.base.messages import text
from servemark.cli.plain_progress import Lines, shown
from servemark.cli.safe_text import Text
from servemark.metrics.derive import value_of
from servemark.metrics.registry import METRICS
from servemark.replay.progress import ProgressSnapshot
from servemark.results.serialize import row_to_json

if TYPE_CHECKING:
    from servemark.runs.replay_run import ReplayResult

ROWS = (
    "ttft_s", "itl_s", "chunk_gap_s", "tpot_s", "e2el_s", "interactivity", "normalised_interactivity",
    "ttft_intended_s", "e2el_intended_s", "send_lateness_s",
)  # fmt: skip
FIGURES = (
    "output_tokens_per_s", "input_tokens_per_s", "total_tokens_per_s", "steady_output_tokens_per_s",
    "output_tokens_per_s_per_gpu", "requests_per_s", "requests_within_slo_per_s", "within_slo_share",
    "cache_hit_theoretical", "cache_hit_usage", "cache_hit_engine", "achieved_concurrency", "stalls",
)  # fmt: skip


class ReplayView:
    """Draws a few times a second; a plain line every half minute where stderr is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self.shown = console.is_terminal
        self._lines = Lines()
        self._live = Live(console=console, transient=True, refresh_per_second=4)

    def __enter__(self) -> ReplayView:
        if self.shown:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        if self.shown:
            self._live.stop()

    def progress(self, now: ProgressSnapshot) -> None:
        """Two lines that fit 80 columns."""
        first = text(
            "cli.replay.live_counts", None, done=now.done, planned="∞" if now.planned is None else now.planned,
            flight=now.in_flight, errors=now.errors,
            rate=shown(now.requests_per_s, "req/s"), speed=shown(now.tokens_per_s, "tok/s"),
            eta="—" if now.eta_s is None else f"{now.eta_s:.0f} s",
        )  # fmt: skip
        second = text(
            "cli.replay.live_times", None, ttft=shown(now.ttft_p50_s, "s"), ttft90=shown(now.ttft_p90_s, "s"),
            itl=shown(now.itl_p50_s, "s"), itl90=shown(now.itl_p90_s, "s"),
        )  # fmt: skip
        if now.stopping:
            first = text("cli.replay.live_stopping", None, flight=now.in_flight)
        elif now.warming:
            first = text("cli.replay.live_warming", None, flight=now.in_flight)
        if self.shown:
            self._live.update(Text(first + "\n" + second))
        else:
            self._lines.sign(lambda: first + " · " + second)


def print_replay(result: ReplayResult) -> None:
    """Counts, latencies, rates, doubts, and where everything lies."""
    row = row_to_json(result.row)
    counts = result.row.counts
    console = Console()
    console.print(
        text(
            "cli.replay.counts", None, ok=counts.ok, error=counts.error, incomplete=counts.incomplete,
            timeout=counts.timeout, cancelled=counts.cancelled,
            status=text(f"cli.replay.status.{result.row.status}"),
        )
    )  # fmt: skip
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    for name in ("p50", "p90", "p99"):
        table.add_column(name, justify="right")
    for name in ROWS:
        values = [value_of(row, f"{name}.{q}") for q in ("p50", "p90", "p99")]
        if any(value is not None for value in values):
            unit = METRICS[name].unit.value
            table.add_row(Text(text(METRICS[name].label_key)), *(shown(v, unit) for v in values))
    console.print(table)
    plain = Table(box=None, pad_edge=False, show_header=False)
    for name in FIGURES:
        value = value_of(row, name)
        if value is not None:
            plain.add_row(Text(text(METRICS[name].label_key)), shown(value, METRICS[name].unit.value))
    console.print(plain)
    if result.stalls:
        console.print(text("cli.replay.stalls"))
    for request, stall in result.stalls:
        said = text(
            "cli.replay.stall", None, request=request, gap=shown(stall.gap_s, "s"), chunk=stall.chunk,
            at=shown(stall.at_s, "s"),
        )  # fmt: skip
        console.print(Text(f"  {said}"))
    for warned in result.row.warnings:
        console.print(Text("! " + text(f"warning.{warned.code}", None, **warned.values), style="yellow"))
    console.print(text("cli.show.folder", None, folder=result.folder), style="dim", soft_wrap=True)
