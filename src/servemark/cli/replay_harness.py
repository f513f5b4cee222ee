"""`servemark replay --client aiperf|agentx`: another harness on the same server, and both side by side."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from pathlib import Path
from types import FrameType

import click
from rich import box
from rich.console import Console
from rich.table import Table

from servemark.base.errors import input_error
from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.plain_progress import shown
from servemark.cli.safe_text import Text
from servemark.metrics.derive import value_of
from servemark.metrics.registry import METRICS
from servemark.replay.harness import HARNESSES, HarnessJob
from servemark.replay.harness_summary import HarnessSummary
from servemark.replay.profiles import find_profile
from servemark.replay.stop import StopSignal
from servemark.results.row import ResultRow
from servemark.results.serialize import row_to_json
from servemark.runs.harness_run import HarnessResult, dry_run, run_harness
from servemark.runs.replay_run import ReplayRequest
from servemark.runs.replay_text import SOURCES
from servemark.traces.open import detect, open_workload
from servemark.traces.random_lengths import parse_spec
from servemark.traces.types import Workload


def job_of(
    request: ReplayRequest, client: str, changed: tuple[str, ...], processes: str, *, busted: bool
) -> HarnessJob:
    """What the harness is asked for. Raises ServemarkError (exit code 2) for an unknown client or workload."""
    if client not in HARNESSES:
        raise input_error(
            "cli.replay.bad_client", client=client[:40], known=", ".join(["servemark", *HARNESSES])
        )
    alone = request.spec.startswith("random:")
    trace = request.trace
    usual = find_profile(request.profile.name).idle_caps
    options = {
        "--scale-lengths": trace.scale_lengths != 1.0,
        "--link": trace.link,
        "--gpus": request.gpus is not None,
        "--tree-idle-cap": request.profile.idle_caps.tree_s != usual.tree_s,
        "--system-idle-cap": request.profile.idle_caps.system_s != usual.system_s,
        "--sessions": trace.sessions is not None and _format(request.spec) != "weka",
    }
    return HarnessJob(
        harness=client,  # type: ignore[arg-type]  # checked above
        target=request.target, profile=request.profile, concurrency=request.concurrency,
        arrivals=request.arrivals, max_requests=request.max_requests, max_in_flight=request.max_in_flight,
        tokenizer=None if request.tokenizer in SOURCES else Path(request.tokenizer), limits=request.limits,
        lengths=parse_spec(request.spec) if alone else None,
        trace_format=None if alone else _format(request.spec),
        scale_think=trace.think_scale, processes=None if processes == "auto" else request.processes,
        changed=(*changed, *(name for name, given in options.items() if given)), given_cache_bust=busted,
    )  # fmt: skip


def _format(spec: str) -> str:
    """Of a trace file; a folder holds session files."""
    if spec.startswith("random:"):
        return "random"
    path = Path(spec)
    return "weka" if path.is_dir() else detect(path)


def run_client(
    request: ReplayRequest,
    job: HarnessJob,
    given: Path | None,
    home: Home,
    own: ResultRow | None,
    *,
    as_json: bool,
) -> int:
    """Run the harness and show its summary, beside `own` where that is given."""
    workload: Workload | None = None
    if job.lengths is None:
        workload = open_workload(request.spec, request.trace)
    stop = StopSignal()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.request("now" if stop.mode else "drain", "interrupt")

    old = {}
    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = run_harness(job, workload, Path(request.spec), given, home, stop=stop)
    finally:
        for number, before in old.items():
            signal.signal(number, before)
    if as_json:
        click.echo(json.dumps(facts(result, own), ensure_ascii=False))
    else:
        print_harness(job.harness, result, own)
    complete = result.summary is not None and result.summary.complete and stop.mode is None
    return 0 if complete and (own is None or own.status == "complete") else 1


def print_command(job: HarnessJob, given: Path | None, home: Home, *, as_json: bool) -> int:
    """`--dry-run`."""
    argv = dry_run(job, given, home)
    click.echo(json.dumps({"argv": argv}, ensure_ascii=False) if as_json else shlex.join(argv))
    return 0


def facts(result: HarnessResult, own: ResultRow | None) -> dict[str, object]:
    """JSON-ready; `servemark` is our own run where there was one."""
    summary = result.summary
    return {
        "folder": str(result.folder),
        "argv": list(result.argv),
        "version": result.version,
        "exit": result.status,
        "harness": None if summary is None else {
            "ok": summary.ok, "errors": summary.errors, "complete": summary.complete,
            "latencies": {name: dict(each) for name, each in summary.latencies.items()},
            "figures": dict(summary.figures),
        },
        "servemark": None if own is None else own.run_id,
    }  # fmt: skip


def rows(summary: HarnessSummary, own: ResultRow | None) -> list[tuple[str, float | None, float | None, str]]:
    """(label, ours, theirs, unit) of every figure that either has."""
    row = None if own is None else row_to_json(own)
    made: list[tuple[str, float | None, float | None, str]] = []
    for metric, found in summary.latencies.items():
        for q in ("p50", "p90", "p99"):
            ours = None if row is None else value_of(row, f"{metric}.{q}")
            made.append((f"{text(METRICS[metric].label_key)} {q}", ours, found.get(q), "s"))
    for metric in ("output_tokens_per_s", "requests_per_s"):
        ours = None if row is None else value_of(row, metric)
        made.append(
            (text(METRICS[metric].label_key), ours, summary.figures.get(metric), METRICS[metric].unit.value)
        )
    for name in ("input_tokens", "output_tokens"):
        ours_sum = None if own is None else own.tokens[name.removesuffix("_tokens")]
        made.append((text(f"cli.replay.sum_{name}"), ours_sum, summary.figures.get(name), "tok"))
    made.append((text("cli.replay.requests_ok"), None if own is None else own.counts.ok, summary.ok, ""))
    bad = None if own is None else own.counts.error + own.counts.timeout + own.counts.incomplete
    made.append((text("cli.replay.requests_bad"), bad, summary.errors, ""))
    return made


def print_harness(harness: str, result: HarnessResult, own: ResultRow | None) -> None:
    """The table, what is not the same in it, and where everything lies."""
    console = Console()
    if result.summary is not None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("")
        if own is not None:
            table.add_column("servemark", justify="right")
        table.add_column(f"{harness} {result.version}", justify="right")
        for label, ours, theirs, unit in rows(result.summary, own):
            cells = ([shown(ours, unit)] if own is not None else []) + [shown(theirs, unit)]
            table.add_row(Text(label), *cells)
        console.print(table)
    console.print(text("cli.replay.harness_differs", None, harness=harness), style="dim", soft_wrap=True)
    console.print(text("cli.show.folder", None, folder=result.folder), style="dim", soft_wrap=True)
