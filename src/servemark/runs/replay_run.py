"""One replay against a server that somebody else runs: folder, replay, row, store; as `line` does for an arm."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from servemark.base.canonical import content_hash
from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import make_folder
from servemark.base.home import Home
from servemark.launch.engines.protocol import EngineCounters
from servemark.metrics.request import Stall
from servemark.replay.arrivals import Arrivals
from servemark.replay.client import Client, run
from servemark.replay.loop import LoopPlan, Shard
from servemark.replay.merging import merge_records
from servemark.replay.open_loop import OpenPlan
from servemark.replay.outcome import ReplayOutcome
from servemark.replay.playing import Go, Ready
from servemark.replay.processes import ProcessReplay
from servemark.replay.profiles import SEMANTICS_ID, Profile
from servemark.replay.progress import ProgressSnapshot
from servemark.replay.records_io import RecordWriter, read_records
from servemark.replay.run import ReplayPlan, replay
from servemark.replay.shard_process import ShardJob
from servemark.replay.stop import StopSignal
from servemark.replay.target import Target
from servemark.results.build import RowInputs, build_row
from servemark.results.measures import longest_stalls, only_ok, stalls_of
from servemark.results.replay_figures import questions_of, replay_figures
from servemark.results.row import ResultRow
from servemark.results.serialize import write_result
from servemark.results.summary_file import summarise_file
from servemark.runs.collect import hashes, ingest, loop_figures
from servemark.runs.folder import RunFolder
from servemark.runs.gpu_power import NAME as GPU_METRICS
from servemark.runs.gpu_power import GpuPowerSampler, measured_window
from servemark.runs.host import host_facts, package_versions, versions
from servemark.runs.manifest import new_line_id, run_id, utc_now
from servemark.runs.replay_text import SOURCES, ReplayText, replay_text
from servemark.runs.server_questions import Server
from servemark.traces.describe import describe
from servemark.traces.open import TraceOptions, open_workload
from servemark.traces.text import TextMaker
from servemark.traces.theory import theoretical_hit
from servemark.traces.types import Workload

SUITE = "replay"
INTERRUPT = "interrupt"
SHOWN_STALLS = 5
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What is to be replayed. `arrivals` None is a closed loop of `concurrency` live session trees. Profile
    fields hold what the command line left or changed; `limits` is the service-level objective."""

    target: Target
    spec: str
    trace: TraceOptions
    profile: Profile
    concurrency: int
    arrivals: Arrivals | None
    max_requests: int | None
    max_in_flight: int | None
    processes: int
    gpus: int | None
    tokenizer: str = "auto"
    """A path, or one of `replay_text.SOURCES`."""
    ramp_s: float | None = None
    """Seconds over which the lanes of a closed loop start; None: at most one, by their number."""
    limits: dict[str, float] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def asked_concurrency(self) -> int | None:
        """Live session trees that were asked for; an open loop asks for none."""
        return self.concurrency if self.arrivals is None else None

    def options(self) -> dict[str, object]:
        """Everything that shapes what is sent, JSON-ready; goes into manifest, identity and row."""
        return {
            "semantics": SEMANTICS_ID,
            "profile": {k: v for k, v in asdict(self.profile).items() if k != "validity"},
            "concurrency": self.asked_concurrency,
            "arrivals": None if self.arrivals is None else str(self.arrivals),
            "max_requests": self.max_requests,
            "max_in_flight": self.max_in_flight,
            "processes": self.processes,
            "protocol": self.target.protocol,
            "endpoints": len(self.target.urls),
            "sticky": self.target.sticky,
            "affinity": self.target.affinity,
            "retries": self.target.retries,
            "tokenizer": self.tokenizer if self.tokenizer in SOURCES else "file",
            **({} if self.ramp_s is None else {"ramp_s": self.ramp_s}),
        }


@dataclass(slots=True)
class ReplayResult:
    """A finished replay: its folder, its row, why the store refused it, if it did, and its longest stalls with the
    id of the request that each is in."""

    folder: Path
    row: ResultRow
    store_error: ServemarkError | None
    stalls: tuple[tuple[str, Stall], ...] = ()


def make_plan(request: ReplayRequest, salt: str, workload: Workload, shard: Shard) -> ReplayPlan:
    """The plan of one process; picklable by `functools.partial`."""
    profile = request.profile
    if request.arrivals is not None:
        return OpenPlan(
            workload, request.arrivals, profile.cache_bust, salt, seed=profile.seed,
            ignore_eos=profile.ignore_eos, stream=profile.stream, duration_s=profile.duration_s,
            max_requests=request.max_requests, grace_s=profile.grace_s,
            max_in_flight=request.max_in_flight, validity=profile.validity, shard=shard,
        )  # fmt: skip
    return LoopPlan(
        workload, request.concurrency, profile.cache_bust, salt, seed=profile.seed,
        ignore_eos=profile.ignore_eos, stream=profile.stream, replies=profile.replies,
        duration_s=profile.duration_s, max_requests=request.max_requests, grace_s=profile.grace_s,
        idle_caps=profile.idle_caps, start_share=profile.start_share, start_seed=profile.seed,
        pressure_requests=profile.pressure_requests, warmup_grace_s=profile.warmup_grace_s,
        validity=profile.validity, ramp_s=request.ramp_s, shard=shard,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Watched:
    """What was noted around the replay: when it began (wall clock, and monotonic seconds), where text lengths come from,
    the server's own counters on both sides, the last signal, the wall clock at the client's zero."""

    started_utc: str
    begun: float
    text: ReplayText
    before: EngineCounters | None
    after: EngineCounters | None
    signal_number: int | None
    wall_zero: float


def run_replay(
    request: ReplayRequest, home: Home, on_progress: Callable[[ProgressSnapshot], None] | None = None
) -> ReplayResult:
    """Replay and keep. Ctrl-C once drains and makes a partial result, twice gives up what is in flight.

    Raises ServemarkError; the folder then says why there is no result.
    """
    workload = open_workload(request.spec, request.trace)
    server = Server.of(request.target)
    make_folder(home.runs)  # a home that cannot be written to is told before anything is sent
    text = replay_text(request.target, request.tokenizer, server, workload)
    line_id = new_line_id("replay-" + request.target.model.rstrip("/").rpartition("/")[2][:32])
    identity = _identity(request, workload)
    name = run_id(line_id, request.asked_concurrency)
    started = utc_now()
    described = describe(workload)  # reads every session: once is enough
    manifest = _manifest(request, workload, described, identity, line_id, name, started)
    stop = StopSignal()
    tell = None if on_progress is None else partial(_told, on_progress, stop)
    with Signals(stop) as signals, RunFolder.create(home.runs / name, manifest) as folder:
        try:
            begun = time.monotonic()
            before: list[EngineCounters | None] = []
            read = partial(_read_into, before, server)
            zero_ns = time.monotonic_ns()
            wall_zero = time.time() - (time.monotonic_ns() - zero_ns) / 1e9
            with GpuPowerSampler(folder.file(GPU_METRICS), _gpus_here(request)):
                outcome = _replayed(request, workload, text.maker, line_id, folder, stop, tell, read, zero_ns)
            after = server.counters() if before and before[0] is not None else None
            facts = Watched(
                started, begun, text, before[0] if before else None, after, signals.last, wall_zero
            )
            folder.release_reserve()
            row, stalls = _row(request, workload, described, identity, manifest, outcome, folder, facts)
        except ServemarkError as error:
            folder.fail(error, utc_now())
            raise
        except BaseException as error:
            bug = ServemarkError("runs.bug", Layer.RESULTS, problem=f"{type(error).__name__}: {error}")
            folder.fail(bug, utc_now())
            raise
        return ReplayResult(folder.path, row, ingest(home, row, folder.path), stalls)


def _gpus_here(request: ReplayRequest) -> int:
    """GPUs that serve and are this host's: as many as were named, where every server is on the loopback."""
    here = all(_LOOPBACK.fullmatch(urlsplit(url).hostname or "") for url in request.target.urls)
    return request.gpus or 0 if here else 0


def _told(on_progress: Callable[[ProgressSnapshot], None], stop: StopSignal, now: ProgressSnapshot) -> None:
    on_progress(now if stop.mode is None else replace(now, stopping=True))


def _read_into(found: list[EngineCounters | None], server: Server) -> None:
    found.append(server.counters())


class Signals:
    """While inside, the first signal drains and the second ends now. Does nothing outside the main thread."""

    def __init__(self, stop: StopSignal) -> None:
        self._stop = stop
        self._old: dict[int, object] = {}
        self.last: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)  # type: ignore[arg-type]

    def _note(self, number: int, *_: object) -> None:
        self.last = number
        self._stop.request("now" if self._stop.mode else "drain", INTERRUPT)


def _replayed(  # noqa: PLR0917 - all that one replay needs
    request: ReplayRequest,
    workload: Workload,
    text: TextMaker,
    salt: str,
    folder: RunFolder,
    stop: StopSignal,
    on_progress: Callable[[ProgressSnapshot], None] | None,
    at_window: Callable[[], None],
    zero_ns: int,
) -> ReplayOutcome:
    """`at_window` is called once, between the warm-up and the window; it may take a second. `zero_ns`: the monotonic
    clock's value from which times count."""
    records = folder.file("requests.jsonl")
    plan = make_plan(request, salt, workload, Shard())
    if request.processes == 1:

        async def here() -> ReplayOutcome:
            with RecordWriter(records) as writer:
                async with Client(request.target, zero_ns=zero_ns) as client:

                    async def begin(ready: Ready) -> Go:
                        await asyncio.to_thread(at_window)
                        return Go(client.now_s(), ready.first_offset_s)

                    return await replay(plan, client, text, writer.write, stop, on_progress, begin)

        return run(here())
    planned = (
        plan.planned
        if isinstance(plan, OpenPlan)
        else (None if plan.duration_s is not None else plan.max_requests or workload.requests)
    )
    if isinstance(plan, LoopPlan) and plan.start_share is not None and plan.max_requests is None:
        planned = None  # turns before the start points are left out: the shards count
    job = ShardJob(
        partial(open_workload, request.spec, request.trace),
        partial(make_plan, request, salt),
        request.target,
        text,
        zero_ns,
        request.concurrency,
        planned,
        request.profile.idle_caps.system_s if request.arrivals is None else None,
        request.profile.duration_s,
    )
    parts = [folder.file(f"requests.{n}.jsonl") for n in range(request.processes)]
    try:
        several = ProcessReplay(
            job, request.processes, parts.__getitem__, stop, on_progress, at_window=at_window
        )
        return several.run()
    finally:
        merge_records(parts, records)


def _identity(request: ReplayRequest, workload: Workload) -> dict[str, object]:
    return {
        "kind": "replay",
        "model": request.target.model,
        "urls": list(request.target.urls),
        "scenario": {"dataset": workload.id, "name": workload.name, **request.options()},
    }


def _declared(request: ReplayRequest) -> dict[str, object]:
    return {"model": request.target.model, "url": ", ".join(request.target.urls), "gpus": request.gpus}


def _manifest(  # noqa: PLR0917 - written once
    request: ReplayRequest,
    workload: Workload,
    described: dict[str, object],
    identity: dict[str, object],
    line_id: str,
    name: str,
    created: str,
) -> dict[str, object]:
    counted = request.profile.duration_s is None and request.max_requests is None
    return {
        "run_id": name,
        "line_id": line_id,
        "created_utc": created,
        "suite": SUITE,
        "arm": request.target.model,
        "concurrency": request.asked_concurrency,
        "point_id": content_hash(identity, 16),
        "series_id": content_hash({k: v for k, v in identity.items() if k != "urls"}, 16),
        "identity": identity,
        "declared": _declared(request),
        "workload": described,
        "cache_state": {"kind": "marked", "marker_scope": request.profile.cache_bust},
        "expected": {
            "requests": workload.requests
            if counted and request.profile.start_share is None
            else request.max_requests,
            "duration_s": request.profile.duration_s,
            "evals": [],
            "files": ["requests.jsonl", "result.json"],
            "line_runs": [name],
        },
        "inputs": {},
        "host": host_facts(),
        "packages": package_versions(),
        "versions": versions(),
        "command": list(request.command),
        "pid": os.getpid(),
    }


def _row(  # noqa: PLR0917 - all that a row is made from
    request: ReplayRequest,
    workload: Workload,
    described: dict[str, object],
    identity: dict[str, object],
    manifest: dict[str, object],
    outcome: ReplayOutcome,
    folder: RunFolder,
    facts: Watched,
) -> tuple[ResultRow, tuple[tuple[str, Stall], ...]]:
    records = folder.file("requests.jsonl")
    seen = summarise_file(records, questions_of(outcome, request.limits))
    stopped = outcome.stop_reason == INTERRUPT
    if stopped and not seen.measured:
        number = facts.signal_number or signal.SIGINT
        raise ServemarkError(
            "runs.replay_stopped_early", Layer.INTERRUPT, exit_code=128 + number,
            signal=signal.Signals(number).name, count=seen.records,
        )  # fmt: skip
    if not stopped and not seen.ok:
        ended, kind, detail = seen.last_bad or ("-", None, None)
        raise ServemarkError(
            "runs.replay_none_answered", Layer.ENGINE, count=seen.records,
            outcome=ended, kind=kind or "-", detail=(detail or "-")[:200],
        )  # fmt: skip
    figures = replay_figures(
        outcome, seen, arrivals=request.arrivals,
        profile=request.profile.name, options=request.options(),
        validity=request.profile.validity,
    )  # fmt: skip
    whole = request.profile.duration_s is None and request.max_requests is None
    theory = theoretical_hit(workload, request.profile.cache_bust) if whole else None
    row = build_row(
        RowInputs(
            run_id=str(manifest["run_id"]), line_id=str(manifest["line_id"]),
            point_id=str(manifest["point_id"]), series_id=str(manifest["series_id"]),
            suite=SUITE, arm=request.target.model, concurrency=request.asked_concurrency,
            started_utc=facts.started_utc, finished_utc=utc_now(), identity=identity,
            declared=_declared(request),
            observed={
                "host": host_facts(), "packages": package_versions(),
                **measured_window(outcome, seen, facts.wall_zero),
                "text_lengths": facts.text.facts(record for _, record in read_records(records)),
            },
            workload=described,
            cache_state={"kind": "marked", "marker_scope": request.profile.cache_bust},
            asked_model=request.target.model, gpus_deployed=request.gpus, planned_requests=outcome.planned, seen=seen,
            loop=loop_figures(outcome, seen, None),
            theoretical=theory.tokens if theory else None,
            theoretical_blocks=theory.blocks if theory else None,
            counters_before=facts.before, counters_after=facts.after,
            phases_s={"replay": outcome.window_s, "warmup": max(0.0, time.monotonic() - facts.begun - outcome.window_s)},
            files=hashes(folder), versions=versions(),
            status="partial" if outcome.partial else "complete", replayed=figures,
        )
    )  # fmt: skip
    write_result(folder.file("result.json"), row)
    return row, _longest(records) if seen.stalls else ()


def _longest(records: Path) -> tuple[tuple[str, Stall], ...]:
    """The longest stalls of ok requests, with the request that each is in."""
    stalled = (record for _, record in read_records(records) if stalls_of(record))
    found = longest_stalls(only_ok(stalled))
    return tuple((record.id, stall) for record, stall in found[:SHOWN_STALLS])
