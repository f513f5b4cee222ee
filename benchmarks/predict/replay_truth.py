"""Simulated replays beside real ones of the same trace by the same rules.

    python -m benchmarks.predict.replay_truth                 # against fakesse: stated times, no queue
    python -m benchmarks.predict.replay_truth --engine        # against the embedded engine (extra `local`)

fakesse is a server in C that answers on a fixed schedule (built with make on first use), so that what differs is the replay
rules alone. Against the engine the step times are measured first, with a few requests of other prompts, and the rest is
predicted. Real replays are this project's own client; exit code 1 when throughput or a median against fakesse is more than
3 % off, or a hit share against the engine more than two points.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.replay.bench import FAKESSE, server

from servemark.metrics.percentiles import percentile
from servemark.metrics.request import e2el_s, tpot_s, ttft_s
from servemark.predict.assumed_times import fixed_times
from servemark.predict.closed_loop import simulate
from servemark.predict.sim_result import SimulatedRun
from servemark.predict.sim_rules import Deployment, ReplayRules
from servemark.replay.client import Client, Target, run
from servemark.replay.loop import LoopOutcome, LoopPlan, run_closed_loop
from servemark.replay.record import RequestRecord
from servemark.replay.stop import StopSignal
from servemark.replay.timeline import IdleCaps
from servemark.traces.agentic_tree import TreeRecipe
from servemark.traces.open import open_workload
from servemark.traces.types import Segment, Workload
from servemark.traces.write import write_made

TTFT_S, TOKEN_S = 0.060, 0.004
ALLOWED = 0.03


class Names:
    """A segment's text is its id: fakesse does not read it."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        return segment.id


@dataclass(frozen=True, slots=True)
class Real:
    """A real replay's figures, as `SimulatedRun` has them."""

    ok: int
    cut_off: int
    window_s: float
    output_tokens: int
    ttft: list[float]
    tpot: list[float]
    e2el: list[float]
    starts: dict[tuple[str, str, int], float]
    idle_cut_s: float
    max_in_flight: int
    cached_share: float | None


def replayed(url: str, workload: Workload, rules: ReplayRules, text: object, **target: object) -> Real:
    """Replay for real by the same rules."""
    plan = LoopPlan(
        workload,
        rules.concurrency or 1,
        rules.cache_bust,
        "truth",
        think_scale=rules.think_scale,
        ramp_s=rules.ramp_s,
        duration_s=rules.duration_s,
        max_requests=rules.max_requests,
        grace_s=rules.grace_s,
        idle_caps=rules.idle_caps,
        start_share=rules.start_share,
        start_seed=rules.start_seed,
        pressure_requests=rules.pressure_requests,
        seed=1,
    )
    records: list[RequestRecord] = []

    async def main() -> LoopOutcome:
        async with Client(Target(url, "fake", idle_timeout_s=120)) as client:
            return await run_closed_loop(plan, client, text, records.append, StopSignal())  # type: ignore[arg-type]

    outcome = run(main())
    measured = [r for r in records if r.phase == "measured"]
    ok = [r for r in measured if r.outcome == "ok"]
    end_s = outcome.window_end_s
    inside = sum(
        (r.output_tokens or 0) * sum(at <= end_s for at in r.chunk_s) / len(r.chunk_s)
        for r in measured
        if r.chunk_s
    )
    cached = [r.cached_tokens for r in ok if r.cached_tokens is not None]
    prompt = [r.input_tokens for r in ok if r.cached_tokens is not None and r.input_tokens is not None]
    return Real(
        len(ok),
        sum(r.outcome == "cancelled" for r in measured),
        outcome.window_s,
        round(inside),
        [v for r in ok if (v := ttft_s(r)) is not None],
        [v for r in ok if (v := tpot_s(r)) is not None],
        [v for r in ok if (v := e2el_s(r)) is not None],
        {
            (r.session, r.agent or "", r.turn): r.start_s - outcome.window_start_s
            for r in measured
            if r.start_s is not None
        },
        sum(move.shift_s for move in outcome.shifts),
        outcome.max_in_flight,
        sum(cached) / sum(prompt) if prompt and sum(prompt) else None,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One case: simulated, real, and how far apart."""

    name: str
    simulated: float | None
    real: float | None

    @property
    def off(self) -> float | None:
        """Simulated / real - 1."""
        return self.simulated / self.real - 1 if self.simulated is not None and self.real else None


def rows(simulated: SimulatedRun, real: Real) -> list[Row]:
    """The figures side by side."""
    found = [
        Row("requests", simulated.ok, real.ok),
        Row("cut off", simulated.cut_off, real.cut_off),
        Row("window s", simulated.window_s, real.window_s),
        Row("output tok/s", simulated.value("output_tokens_per_s"), real.output_tokens / real.window_s),
        Row("max in flight", simulated.max_in_flight, real.max_in_flight),
        Row("idle cut s", simulated.idle_cut_s, real.idle_cut_s),
        Row("hit share", simulated.hits.share, real.cached_share),
    ]
    for name, values, theirs in (
        ("ttft", simulated.ttft_s, real.ttft),
        ("tpot", simulated.tpot_s, real.tpot),
        ("e2el", simulated.e2el_s, real.e2el),
    ):
        ours = None if values is None else 1000 * values.mean
        found.append(Row(f"{name} mean ms", ours, 1000 * sum(theirs) / max(1, len(theirs))))
        for q in (50, 90):
            found.append(
                Row(f"{name} p{q} ms", 1000 * getattr(values, f"p{q}"), 1000 * (percentile(theirs, q) or 0))
            )
    return found


def order(simulated: SimulatedRun, real: Real, start_s: float) -> dict[str, float]:
    """Of the requests that both sent: how far their starts are apart, and the share of neighbours in the same order."""
    ours = {(r.session, r.stream, r.turn): r.start_s - start_s for r in simulated.requests}
    both = sorted(set(ours) & set(real.starts), key=lambda key: real.starts[key])
    apart = [abs(ours[key] - real.starts[key]) for key in both]
    pairs = list(pairwise(both))
    same = sum(ours[a] <= ours[b] for a, b in pairs) / max(1, len(pairs))
    return {
        "both": len(both),
        "only one": len(set(ours) ^ set(real.starts)),
        "start p50 s": percentile(apart, 50) or 0.0,
        "start max s": max(apart, default=0.0),
        "order": same,
    }


def report(name: str, simulated: SimulatedRun, real: Real) -> list[Row]:
    """Print one case."""
    found = rows(simulated, real)
    print(f"\n{name}")
    for row in found:
        shown = ["-" if v is None else f"{v:.4g}" for v in (row.simulated, row.real)]
        off = "" if row.off is None else f"{100 * row.off:+.2f} %"
        print(f"  {row.name:14} simulated {shown[0]:>9}  real {shown[1]:>9}  {off}")
    placed = order(simulated, real, simulated.start_s)
    print("  " + ", ".join(f"{key} {value:.4g}" for key, value in placed.items()))
    return found


def cases() -> dict[str, ReplayRules]:
    """Rules that are compared."""
    return {
        "once, 4 lanes": ReplayRules(4, max_requests=600),
        "20 s, 8 lanes, start points, warm-up, idle caps": ReplayRules(
            8,
            duration_s=20.0,
            grace_s=0.5,
            start_share=(0.25, 0.75),
            pressure_requests=2,
            idle_caps=IdleCaps(tree_s=3.0, system_s=0.5),
        ),
        "20 s, 2 lanes, system cap 50 ms": ReplayRules(
            2,
            duration_s=20.0,
            grace_s=0.5,
            start_share=(0.0, 1.0),
            idle_caps=IdleCaps(tree_s=1.0, system_s=0.05),
        ),
    }


def made(folder: Path, **recipe: float) -> Workload:
    """A generated agentic trace."""
    path = folder / "trees.jsonl"
    write_made(TreeRecipe(**recipe), path, "weka")  # type: ignore[arg-type]
    return open_workload(path)


def against_fakesse(client_s: float) -> bool:
    """All cases; False when a figure is further off than allowed."""
    subprocess.run(["make", "-s", "-C", str(FAKESSE)], check=True)
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workload = made(folder, sessions=24, seed=11, scale=0.02, think_scale=0.02)
        options = ("--ttft-ms", str(1000 * TTFT_S), "--itl-ms", str(1000 * TOKEN_S))
        for case, rules in cases().items():
            with server(options, folder / "log.csv", None) as url:
                real = replayed(url, workload, rules, Names())
            simulated = simulate(
                workload,
                None,
                fixed_times(TTFT_S, TOKEN_S),
                replace(rules, client_s=client_s),
                Deployment(prefills_at_once=None, max_running=100_000),
                keep_requests=True,
            )
            found = {row.name: row.off for row in report(case, simulated, real)}
            judged = ("output tok/s", "ttft p50 ms", "tpot p50 ms", "e2el p50 ms")
            good &= all(abs(found[name] or 0.0) <= ALLOWED for name in judged)
    return good


def main(argv: Sequence[str] | None = None) -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", action="store_true", help="against the embedded engine")
    parser.add_argument("--client-ms", type=float, default=1.0, help="what the client adds to each turn")
    args = parser.parse_args(argv)
    if args.engine:
        from benchmarks.predict.replay_engine import against_engine  # noqa: PLC0415

        return 0 if against_engine() else 1
    return 0 if against_fakesse(args.client_ms / 1000) else 1


if __name__ == "__main__":
    raise SystemExit(main())
