"""Made points as analysis sees them, with numbers that can be checked in the head."""

from __future__ import annotations

from dataclasses import replace

from servemark.analysis.measured import Measured, of_point
from servemark.results.point import (
    Execution,
    Figure,
    Point,
    PointIdentity,
    Precision,
    Requests,
    RoleTopology,
    Scenario,
)

IDENTITY = PointIdentity(
    model="m",
    hardware="h100",
    engine="e",
    scenario=Scenario("fixed-seq-len", 1024, 1024),
    concurrency=16,
    precision=Precision("fp8", "fp8"),
    topology=(RoleTopology("aggregated", 1, 8, tp=8),),
)


def measured(
    figures: dict[str, float],
    *,
    identity: PointIdentity = IDENTITY,
    run: str = "r1",
    at: str = "2026-01-01",
    verdict: str = "valid",
    ref: str | None = None,
    gpus: int | None = 8,
    **changes: object,
) -> Measured:
    """A point of `identity` that ran as `run` at `at`, with these figures."""
    point = Point(
        identity=identity,
        execution=Execution(run=run, started_utc=at),
        figures={name: Figure(value, "made", name) for name, value in figures.items()},
        source="made",
        mapping_version=1,
        requests=Requests(ok=100, error=0),
        gpus_deployed=gpus,
    )
    found = of_point(point, ref or f"{run}:0", verdict, official=True)
    return replace(found, **changes) if changes else found  # type: ignore[arg-type]
