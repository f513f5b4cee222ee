"""How runs are listed and told to machines."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from servemark.analysis.format import display
from servemark.analysis.own_verdicts import quarantines
from servemark.base.joined import in_list
from servemark.base.messages import find_text, text
from servemark.base.printable import one_line
from servemark.cli.safe_text import Text
from servemark.metrics.derive import value_of
from servemark.results.gates.base import GateFinding
from servemark.results.gates.words import title
from servemark.results.row import ResultRow
from servemark.results.serialize import read_result, row_to_json
from servemark.runs.folder import RunInfo, RunState
from servemark.store.overview import ImportedRun

MAX_WHOLE = 48
"""Run ids up to this long are never broken over two lines, so that they can be copied."""

STYLES = {
    RunState.COMPLETE: "green",
    RunState.PARTIAL: "yellow",
    RunState.RUNNING: "cyan",
    RunState.FAILED: "red",
    RunState.DIED: "red",
    RunState.DAMAGED: "red",
    RunState.INTERRUPTED: "yellow",
}


def reason(info: RunInfo) -> str:
    """Why a run has no result, in one line; empty for a complete or running one."""
    if info.state is RunState.DIED:
        return text("runs.state.died_why")
    if info.state is RunState.DAMAGED:
        return text("runs.state.damaged_why")
    failure = info.failure
    if failure is None:
        return ""
    values = failure.get("values")
    key = str(failure.get("key", ""))
    try:
        said = find_text(key, None, **(values if isinstance(values, dict) else {}))
    except (KeyError, IndexError, ValueError):  # written by another version, with other placeholders
        said = None
    first = (said or key).splitlines()[0]
    return f"[{failure.get('layer', '?')}] {first}"


def judged(found: Sequence[RunInfo]) -> tuple[dict[str, ResultRow], dict[str, tuple[GateFinding, ...]]]:
    """(run id -> row of each run with a result; run id -> what quarantines it), judged among each other."""
    rows = {
        info.run_id: read_result(info.path / "result.json", verify_files=False)
        for info in found
        if info.state.has_result
    }
    expected = {info.run_id: (info.manifest or {}).get("expected") for info in found}
    return rows, quarantines(list(rows.values()), expected)


def figures(stored: ResultRow, bad: Sequence[GateFinding] = ()) -> str:
    """A run with a result in one line: requests, median TTFT, output rate, and what quarantines it."""
    row = row_to_json(stored)
    counts = row["counts"]
    ttft, rate = value_of(row, "ttft_s.p50"), value_of(row, "output_tokens_per_s")
    parts = [f"{counts['ok']}/{counts['planned']} ok", f"TTFT p50 {display('s', [ttft]).text(ttft)}"]
    parts.append(display("tok/s", [rate]).text(rate))
    if bad:
        parts.append(text("cli.runs.quarantined", None, titles=in_list([title(each.gate) for each in bad])))
    return " · ".join(parts)


def run_json(info: RunInfo, bad: Sequence[GateFinding] = ()) -> dict[str, object]:
    """One run as one JSON object: run_id, state, arm, concurrency, created_utc, point_id, failure, quarantined_by (ids of
    gates), folder."""
    manifest = info.manifest or {}
    return {
        "run_id": info.run_id,
        "state": str(info.state),
        "suite": manifest.get("suite"),
        "arm": manifest.get("arm"),
        "concurrency": manifest.get("concurrency"),
        "created_utc": manifest.get("created_utc"),
        "point_id": manifest.get("point_id"),
        "line_id": manifest.get("line_id"),
        "failure": info.failure,
        "quarantined_by": [each.gate for each in bad],
        "folder": str(info.path),
    }


def print_runs(found: Sequence[RunInfo], limit: int) -> None:
    """A table, newest last, on stdout."""
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    whole = max(len(info.run_id) for info in found[-limit:]) <= MAX_WHOLE
    table.add_column(text("cli.runs.column.run"), overflow="fold", no_wrap=whole)
    table.add_column(text("cli.runs.column.state"), no_wrap=True)
    table.add_column(text("cli.runs.column.why"), overflow="fold")
    rows, bad = judged(found[-limit:])
    for info in found[-limit:]:
        state = Text(text(f"runs.state.{info.state}"), style=STYLES[info.state])
        said = figures(rows[info.run_id], bad.get(info.run_id, ())) if info.run_id in rows else reason(info)
        table.add_row(Text(info.run_id), state, Text(said))
    console.print(table)
    if len(found) > limit:
        console.print(text("cli.runs.more", None, hidden=len(found) - limit), style="dim")


def print_imported(found: Sequence[ImportedRun]) -> None:
    """Imported runs as a table, newest last, on stdout."""
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("source", "run", "date", "model"):
        table.add_column(text(f"cli.runs.column.{name}"), overflow="fold", no_wrap=name == "date")
    for name in ("lines", "points", "usable"):
        table.add_column(text(f"cli.runs.column.{name}"), justify="right")
    for one in found:
        counts = [Text(str(each)) for each in (one.lines, one.points, one.usable)]
        minute = one.at_utc[:16].replace("T", " ")
        words = (one.source, one.run, minute, one.models)
        table.add_row(*(Text(one_line(each)) for each in words), *counts)
    console.print(table)
