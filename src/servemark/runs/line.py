"""One line: folders and manifests, one engine, its points one after another, and an orderly end whatever happens."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import disk_error
from servemark.base.home import Home
from servemark.evals.forced import forced_by_engine
from servemark.evals.samples import SAMPLES_NAME
from servemark.launch.engines.protocol import EngineIdentity
from servemark.plan.points import Point
from servemark.replay.prompts import cache_bust_marker
from servemark.replay.records_io import RecordWriter
from servemark.results.row import ResultRow
from servemark.results.serialize import signed_json
from servemark.runs.collect import MetricsSampler, finish, ingest
from servemark.runs.deploy import LiveEngine, SiteFacts, check_deployment, require_fits
from servemark.runs.folder import ALLOCATION, LIVE_LOG, RunFolder, RunState, list_runs, write_json
from servemark.runs.gpu_power import NAME as GPU_METRICS
from servemark.runs.gpu_power import GpuPowerSampler
from servemark.runs.interrupts import Interrupts
from servemark.runs.manifest import manifest, new_line_id, run_id, utc_now
from servemark.runs.measure import Measured, PointJob, measure, score
from servemark.runs.phases import PhaseClock, budgets
from servemark.runs.predictions import FAILED, predictions
from servemark.runs.request import LineRequest
from servemark.runs.site import site_of
from servemark.runs.view import RunView
from servemark.traces.template import measure_template
from servemark.traces.text import TextMaker, build_word_table
from servemark.traces.theory import TheoreticalHit, theoretical_hit

TEXT_SEED = "servemark"
"""Fixed, so that equal workloads send equal bytes on every machine and day."""


@dataclass(slots=True)
class LineOutcome:
    """What became of a line. `done` are folders with a result; `error` is why others have none."""

    line_id: str
    folders: list[Path] = field(default_factory=list)
    done: list[Path] = field(default_factory=list)
    rows: list[ResultRow] = field(default_factory=list)
    error: ServemarkError | None = None
    store_error: ServemarkError | None = None

    @property
    def complete(self) -> bool:
        """True when every planned point has its result."""
        return self.error is None and len(self.done) == len(self.folders)

    def rows_json(self) -> list[dict[str, object]]:
        """Each row as it stands in its result.json."""
        return [signed_json(row) for row in self.rows]


@dataclass(slots=True)
class _Pending:
    """A point that has been measured and has no row yet."""

    point: Point
    started: str
    measured: Measured
    identity: EngineIdentity
    site: SiteFacts
    seconds: dict[str, float]
    """What the phases up to here took, those of its own start among them."""
    scored_on: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Line:
    """State shared by the steps below."""

    request: LineRequest
    home: Home
    view: RunView
    outcome: LineOutcome
    interrupts: Interrupts
    folders: dict[int, RunFolder] = field(default_factory=dict)
    started: dict[int, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    theory: TheoreticalHit | None = None
    allocations: list[dict[str, object]] = field(default_factory=list)
    waiting: list[_Pending] = field(default_factory=list)
    """Points whose tasks are asked on another deployment, once all are measured."""

    def keep_allocation(self, facts: dict[str, object]) -> None:
        """Write down in every folder where the line runs, before anything runs there: one entry a try, newest last."""
        if self.allocations and self.allocations[-1].get("id") == facts.get("id"):
            self.allocations.pop()
        self.allocations.append(facts)
        for folder in self.folders.values():
            write_json(folder.file(ALLOCATION), {"schema": 1, "allocations": self.allocations})


def run_line(request: LineRequest, home: Home, view: RunView, line_id: str | None = None) -> LineOutcome:
    """Run all points of a line. Expected failures end up in the outcome and in the folders, never half-written.
    `line_id`: an id that was made beforehand, by which somebody will look for the folders.

    Raises ServemarkError only when not even the first folder can be made.
    """
    check_deployment(request)
    line_id = line_id or new_line_id(request.choice.arm.key)
    line = _Line(request, home, view, LineOutcome(line_id), Interrupts())
    with contextlib.ExitStack() as stack:
        stack.enter_context(line.interrupts)
        _make_folders(line, stack)
        view.begin(line_id, tuple(line.folders))
        if request.not_scored is not None:
            view.note("runs.not_scored", name=request.not_scored.name)
        first = next(iter(line.folders.values()))
        engine = LiveEngine(
            request=request,
            served_name=line_id,
            log_path=first.file(LIVE_LOG),
            interrupts=line.interrupts,
            clock=PhaseClock(view, budgets(request.choice.deployment, request.described)),
            site=site_of(request.cluster, home.root, request.host),
            record=line.keep_allocation,
        )
        stack.callback(_drop_live_logs, line)
        stack.callback(engine.stop)
        try:
            _points(line, engine)
        except ServemarkError as error:
            _fail_rest(line, error)
        except OSError as error:
            _fail_rest(line, disk_error(error, home.root))
        except BaseException as error:
            # Whatever it is, the folders must not claim that the run is still going on; then it is shown.
            _fail_rest(
                line, ServemarkError("runs.bug", Layer.RESULTS, problem=f"{type(error).__name__}: {error}")
            )
            raise
    return line.outcome


def _make_folders(line: _Line, stack: contextlib.ExitStack) -> None:
    """Manifest of every point first: what is expected is written down before anything starts."""
    created = utc_now()
    expected = predictions(line.request, line.home, created)
    problem = next((each[FAILED] for each in expected.values() if FAILED in each), None)
    if problem is not None:
        line.view.note("predict.use.failed", problem=problem)
    for point in line.request.points:
        asked = line.request.at(point.concurrency)
        content = manifest(asked, line.outcome.line_id, point, created, expected.get(point.concurrency))
        path = line.home.runs / run_id(line.outcome.line_id, point.concurrency)
        try:
            folder = RunFolder.create(path, content)
        except ServemarkError:
            for made in line.folders.values():
                made.discard()
            raise
        stack.callback(folder.close)
        line.folders[point.concurrency] = folder
        line.outcome.folders.append(path)


def _points(line: _Line, engine: LiveEngine) -> None:
    _note_others(line)
    engine.start()
    for folder in line.folders.values():
        folder.share_log(engine.log_path)
    line.interrupts.check()
    with engine.clock.phase("health"):
        identity, text = _healthy(line, engine)
    for number, point in enumerate(line.request.points):
        if line.request.cold and number > 0:
            engine.restart()
            with engine.clock.phase("health"):
                identity = engine.identity()
        pending = _measured(line, engine, identity, point, text)
        if line.request.scored is not None:
            line.waiting.append(pending)
        else:
            _finish(line, engine, pending, last=number == len(line.request.points) - 1)
    _score(line, engine, text)


def _healthy(line: _Line, engine: LiveEngine) -> tuple[EngineIdentity, TextMaker]:
    """Every worker has said what it is, and the deployment counts and fits what will be sent."""
    engine.require_healthy()
    identity = engine.identity()
    if line.request.scored is None:
        _require_verified(line, engine, identity)
    words = build_word_table(engine.tokenize)
    text = TextMaker(words, TEXT_SEED)
    marker = cache_bust_marker(line.outcome.line_id, "session") if line.request.cache_bust != "none" else ""
    template = measure_template(engine.count_prompt, words[0], len(engine.tokenize(marker)))
    line.theory = theoretical_hit(line.request.workload, line.request.cache_bust, template)
    limit = identity.details.get("ctx_tokens_per_slot")
    require_fits(line.request, limit if isinstance(limit, int) else None, template)
    return identity, text


def _gpus_here(engine: LiveEngine) -> tuple[int, ...]:
    """The GPUs of this host that workers have, by number; on a cluster they are elsewhere."""
    if engine.live is None or engine.site.cluster is not None:
        return ()
    return tuple(sorted({gpu for step in engine.live.job.steps for gpu in step.gpus}))


def _require_verified(line: _Line, engine: LiveEngine, identity: EngineIdentity) -> None:
    """No task is asked of an engine that says it forces acceptance, whatever the suite says."""
    rule = forced_by_engine(identity.details) if line.request.tasks else None
    if rule is not None:
        raise rule.refusal(str(engine.log_path))


def _score(line: _Line, engine: LiveEngine, text: TextMaker) -> None:
    """Ask the tasks of every point that waits, on the deployment with real verification, and end those points."""
    scored = line.request.scored
    if scored is None or not line.waiting:
        return
    line.interrupts.check()
    line.view.note("runs.scored_apart", points=len(line.waiting))
    begun = time.monotonic()
    engine.become(scored)
    with engine.clock.phase("health"):
        engine.require_healthy()
        identity = engine.identity()
    _require_verified(line, engine, identity)
    facts: dict[str, object] = {
        "acceptance": "real",
        "fingerprint": scored.choice.deployment.fingerprint(),
        "engine": asdict(identity),
    }
    facts["start_s"] = round(time.monotonic() - begun, 3)
    for pending in line.waiting:
        folder = line.folders[pending.point.concurrency]
        with RecordWriter(folder.file("requests.jsonl")) as records:
            score(_job(line, engine, pending.point, text, records), pending.measured)
        pending.scored_on = facts
    for pending in line.waiting:
        _finish(line, engine, pending, last=pending is line.waiting[-1])


def _job(line: _Line, engine: LiveEngine, point: Point, text: TextMaker, records: RecordWriter) -> PointJob:
    return PointJob(
        request=line.request.at(point.concurrency),
        engine=engine,
        concurrency=point.concurrency,
        marker_salt=f"{line.outcome.line_id}/{point.concurrency}",
        text=text,
        keep=records.write,
        samples_path=line.folders[point.concurrency].file(SAMPLES_NAME),
        view=line.view,
        interrupts=line.interrupts,
    )


def _measured(
    line: _Line, engine: LiveEngine, identity: EngineIdentity, point: Point, text: TextMaker
) -> _Pending:
    folder = line.folders[point.concurrency]
    started = utc_now()
    gpus = _gpus_here(engine)
    with (
        RecordWriter(folder.file("requests.jsonl")) as records,
        MetricsSampler(engine, folder.file("server_metrics.jsonl")),
        GpuPowerSampler(folder.file(GPU_METRICS), len(gpus), gpus),
    ):
        measured = measure(_job(line, engine, point, text, records))
    return _Pending(point, started, measured, identity, engine.observed(), dict(engine.clock.seconds))


def _finish(line: _Line, engine: LiveEngine, pending: _Pending, *, last: bool) -> None:
    """Settle a point's files and write its row."""
    folder = line.folders[pending.point.concurrency]
    engine.clock.seconds = dict(pending.seconds)
    with engine.clock.noted("collect", pending.point.concurrency):
        _note_others(line)
        folder.settle_log(engine.log_path)
        folder.settle_step_logs(engine.step_logs())
        folder.release_reserve()
    if last:  # so that its row says how long the end took; the engine goes on for the others
        engine.stop()
    row = finish(
        line.request.at(pending.point.concurrency),
        folder,
        line.outcome.line_id,
        pending.point,
        pending.started,
        pending.measured,
        pending.identity,
        sorted(line.others),
        engine.clock,
        line.theory or line.request.theory,
        pending.site,
        pending.scored_on,
    )
    line.outcome.done.append(folder.path)
    line.outcome.rows.append(row)
    folder.close()
    refused = ingest(line.home, row, folder.path)
    if refused is not None and line.outcome.store_error is None:
        line.outcome.store_error = refused
        line.view.note("runs.not_stored", reason=refused.what())
    line.view.point_done(row)


def _fail_rest(line: _Line, error: ServemarkError) -> None:
    """Every point without a result learns why; the first of them is the one that met the fault."""
    line.outcome.error = error
    now = utc_now()
    failed = [f for f in line.folders.values() if f.path not in line.outcome.done]
    if failed and "log" in error.values:  # the growing log is settled there when the engine has ended
        error.values["log"] = str(failed[0].final_log(Path(str(error.values["log"]))))
    for concurrency, folder in line.folders.items():
        if folder.path not in line.outcome.done:
            folder.fail(error, now)
            line.view.point_failed(concurrency, error)


def _drop_live_logs(line: _Line) -> None:
    for folder in line.folders.values():
        folder.drop_live_log()


def _note_others(line: _Line) -> None:
    """Runs of other lines that are alive on this home now share the machine with ours."""
    for info in list_runs(line.home.runs, newest=20):
        if info.state is RunState.RUNNING and info.path not in line.outcome.folders:
            line.others.add(info.run_id)
