"""From what was measured to a result: evidence closed and hashed, the row built, written last, and stored."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from servemark.base.errors import ServemarkError
from servemark.base.files import disk_error, sha256_file
from servemark.base.home import Home
from servemark.catalog.phase_budgets import PHASES
from servemark.evals.io import write_evals
from servemark.evals.samples import SAMPLES_NAME
from servemark.launch.engines.protocol import EngineCounters, EngineIdentity
from servemark.replay.outcome import ReplayOutcome
from servemark.results.build import LoopFigures, RowInputs, build_row
from servemark.results.replay_figures import questions_of, replay_figures
from servemark.results.row import ResultRow
from servemark.results.serialize import encode_result, write_result
from servemark.results.summary import Summary
from servemark.results.summary_file import summarise_file
from servemark.runs.folder import ALLOCATION, STEPS, RunFolder
from servemark.runs.gpu_power import NAME as GPU_METRICS
from servemark.runs.gpu_power import clock_facts, measured_window
from servemark.runs.host import host_facts, package_versions, versions
from servemark.runs.manifest import cache_state, declared, run_id, utc_now, workload_facts
from servemark.store.database import Store
from servemark.traces.theory import TheoreticalHit

if TYPE_CHECKING:
    from servemark.plan.points import Point
    from servemark.runs.deploy import LiveEngine, SiteFacts
    from servemark.runs.measure import Measured
    from servemark.runs.phases import PhaseClock
    from servemark.runs.request import LineRequest

SAMPLE_S = 1.0
HASHED = (
    "manifest.json",
    ALLOCATION,
    "requests.jsonl",
    "server_metrics.jsonl",
    GPU_METRICS,
    "evals.json",
    SAMPLES_NAME,
    "logs/engine.log",
)


def _in_order(phases_s: dict[str, float]) -> dict[str, float]:
    return {name: phases_s[name] for name in PHASES if name in phases_s}


class MetricsSampler:
    """Writes the engine's own counters once a second in a thread of its own, from enter to exit."""

    def __init__(self, engine: LiveEngine, path: Path) -> None:
        self.engine = engine
        self.path = path
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server-metrics", daemon=True)
        self._zero = time.monotonic()

    def __enter__(self) -> MetricsSampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(
            timeout=2
        )  # an engine that hangs answers no question; its thread is left to time out

    def _run(self) -> None:
        try:
            with self.path.open("ab", buffering=0) as stream:
                while True:
                    counters = self.engine.counters()
                    if counters is not None and not self._done.is_set():
                        at = round(time.monotonic() - self._zero, 3)
                        body = {"schema": 1, "at_s": at, "counters": dict(counters.raw)}
                        stream.write(json.dumps(body, separators=(",", ":")).encode() + b"\n")
                    if self._done.wait(SAMPLE_S):
                        return
        except (OSError, RuntimeError):
            return  # a full disk is reported by the records; a stopped engine by the watch


def store_window(before: EngineCounters | None, after: EngineCounters | None) -> dict[str, float]:
    """What the store moved in the measured window: counts, bytes and seconds of puts and gets, all ranks together."""
    if before is None or after is None:
        return {}
    return {
        name: value - before.raw[name]
        for name, value in sorted(after.raw.items())
        if name.startswith("store_") and name in before.raw
    }


NIXL = {
    "transfers": "vllm:nixl_xfer_time_seconds_count",
    "seconds": "vllm:nixl_xfer_time_seconds_sum",
    "post_seconds": "vllm:nixl_post_time_seconds_sum",
    "bytes": "vllm:nixl_bytes_transferred_sum",
    "descriptors": "vllm:nixl_num_descriptors_sum",
    "failed_transfers": "vllm:nixl_num_failed_transfers_total",
    "failed_notifications": "vllm:nixl_num_failed_notifications_total",
    "expired_requests": "vllm:nixl_num_kv_expired_reqs_total",
}
"""Ours -> counters of vLLM's NIXL connector (0.26): histograms' sums and counts, one observation a transfer."""


def kv_transfer_window(before: EngineCounters | None, after: EngineCounters | None) -> dict[str, float]:
    """What moved between prefill and decode workers in the measured window, from the workers' own counters, all of them
    together: transfers, their seconds (posting apart), bytes, descriptors, and what failed. Empty where no worker counts."""
    if before is None or after is None:
        return {}
    found = {}
    for ours, name in NIXL.items():
        moved = [
            value - before.raw[key]
            for key, value in after.raw.items()
            if key.partition("{")[0].rpartition(" ")[2] == name and key in before.raw
        ]
        if moved:
            found[ours] = sum(moved)
    return found if found.get("transfers") else {}


def observed(identity: EngineIdentity) -> dict[str, object]:
    """What ran, read from what ran: engine, host, packages; facts that are declared too stand under that name."""
    facts: dict[str, object] = {
        "engine": asdict(identity),
        "host": host_facts(),
        "packages": package_versions(),
    }
    details = identity.details
    precision, slots, per_slot = (details.get(k) for k in ("model_ftype", "slots", "ctx_tokens_per_slot"))
    if isinstance(precision, str):
        facts["precision"] = precision.lower()
    args: dict[str, object] = {}
    if isinstance(slots, int):
        args["parallel"] = slots
        if isinstance(per_slot, int):
            args["ctx-size"] = slots * per_slot
    if args:
        facts["engine_args"] = args
    return facts


def hashes(folder: RunFolder) -> dict[str, dict[str, object]]:
    """SHA-256 and size of every evidence file of a run."""
    found: dict[str, dict[str, object]] = {}
    steps = sorted(path.relative_to(folder.path) for path in folder.file(STEPS).glob("*.log"))
    for name in (*HASHED, *map(str, steps)):
        path = folder.file(name)
        try:
            if path.is_file():
                found[name] = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        except OSError as error:
            raise disk_error(error, path) from error
    return found


def finish(  # noqa: PLR0917 - all that a row is made from
    request: LineRequest,
    folder: RunFolder,
    line_id: str,
    point: Point,
    started: str,
    measured: Measured,
    identity: EngineIdentity,
    other_runs: Sequence[str],
    clock: PhaseClock,
    theory: TheoreticalHit,
    site: SiteFacts,
    scored_on: Mapping[str, object],
) -> ResultRow:
    """Build the row of one point from its evidence and write it, last and atomically. `scored_on`: the deployment that
    its tasks were asked on, where that is another one."""
    if measured.loop is None:
        raise RuntimeError("the point was not measured")
    with clock.phase("collect", point.concurrency):
        if request.tasks:
            write_evals(folder.file("evals.json"), measured.evals)
        files = hashes(folder)
        # Read back: the row is made from exactly what is kept, to the last digit.
        seen = summarise_file(folder.file("requests.jsonl"), questions_of(measured.loop))
    phases_s = {**clock.seconds, **measured.phases_s}
    clock.seconds.pop("collect")  # each point has its own
    inputs = RowInputs(
        run_id=run_id(line_id, point.concurrency),
        line_id=line_id,
        point_id=point.identity.point_id,
        series_id=point.identity.series_id,
        suite=request.choice.suite.name,
        arm=request.choice.arm.key,
        concurrency=point.concurrency,
        started_utc=started,
        finished_utc=utc_now(),
        identity=point.identity.canonical,
        declared=declared(request),
        observed=_facts(identity, measured, seen, site, scored_on, folder.file(GPU_METRICS)),
        workload=workload_facts(request),
        cache_state=cache_state(request),
        asked_model=line_id,
        gpus_deployed=request.choice.deployment.gpus_total,
        planned_requests=request.workload.requests,
        seen=seen,
        loop=loop_figures(measured.loop, seen, measured.clock_jump_s),
        replayed=replay_figures(measured.loop, seen),
        counters_before=measured.counters_before,
        counters_after=measured.counters_after,
        theoretical=theory.tokens,
        theoretical_blocks=theory.blocks,
        evals=[outcome.score for outcome in measured.evals],
        expected_evals=[task.id for task in request.tasks],
        other_runs=other_runs,
        phases_s=_in_order(phases_s),
        differing_workers=site.differences,
        files=files,
        versions=versions(),
    )
    row = build_row(inputs)
    write_result(folder.file("result.json"), row)
    return row


def _facts(  # noqa: PLR0917 - everything observed
    identity: EngineIdentity,
    measured: Measured,
    seen: Summary,
    site: SiteFacts,
    scored_on: Mapping[str, object],
    gpu_metrics: Path,
) -> dict[str, object]:
    """Everything observed: what ran, its store, what moved between its workers, its site, when the window was on the
    wall clock, the GPUs' clocks in it, and what answered the tasks where that was another deployment."""
    window = {} if measured.loop is None else measured_window(measured.loop, seen, measured.wall_zero)
    moved = kv_transfer_window(measured.counters_before, measured.counters_after)
    kv = {"kv_transfer": moved} if moved else {}
    return (
        observed(identity)
        | _store(identity, measured)
        | kv
        | site.observed
        | window
        | clock_facts(gpu_metrics, window)
        | ({"eval_deployment": dict(scored_on)} if scored_on else {})
    )


def _store(identity: EngineIdentity, measured: Measured) -> dict[str, object]:
    """The store's own block of what was observed; nothing without a store."""
    ranks = identity.details.get("store")
    if not isinstance(ranks, dict):
        return {}
    seconds = [r["store_setup_s"] for r in ranks.values() if isinstance(r.get("store_setup_s"), (int, float))]
    window = store_window(measured.counters_before, measured.counters_after)
    return {"store": {"store_setup_s": max(seconds, default=None), "ranks": ranks, **window}}


def loop_figures(outcome: ReplayOutcome, seen: Summary, clock_jump_s: float | None) -> LoopFigures:
    """The client's own state over the window."""
    health = outcome.health
    lags = [p.lag_p99_s for p in outcome.processes if p.lag_p99_s is not None]
    return LoopFigures(
        cpu_s=health.cpu_s,
        chunks=seen.chunks,
        loop_lag_p50_s=health.lag_p50_s,
        loop_lag_p99_s=health.lag_p99_s,
        loop_lag_max_s=health.lag_max_s,
        clock_jump_s=clock_jump_s,
        cpu_share_max=health.cpu_share_max,
        lag_p99_worst_s=max(lags, default=None),
        kernel_drops=health.kernel_drops,
    )


def _as_point(store: Store, home: Home, folder: Path) -> None:
    """The row among the points of all tools, judged by the gates. Raises ServemarkError for the store and the disk."""
    from servemark.results.gates.registry import gates_version, judge_all  # noqa: PLC0415 - not before it is needed
    from servemark.results.importers.own import IMPORTER  # noqa: PLC0415
    from servemark.store.found_files import Found, find  # noqa: PLC0415
    from servemark.store.intake import Intake, take_in  # noqa: PLC0415
    from servemark.store.raw_files import RawFiles  # noqa: PLC0415

    intake = Intake(RawFiles(home.raw), (IMPORTER,), judge_all, gates_version())
    for found in find(str(folder / "result.json"), home.raw, io.BytesIO()):
        if isinstance(found, Found):  # its files were hashed a moment ago
            take_in(store, intake, replace(found, folder=None))


def ingest(home: Home, row: ResultRow, folder: Path) -> ServemarkError | None:
    """Put a row into the store. The folder is the truth: a store that fails is reported, and the run stays complete."""
    try:
        with Store.open(home.store) as store:
            store.ingest(encode_result(row), folder / "result.json")
            _as_point(store, home, folder)
    except ServemarkError as error:
        return error
    return None
