"""Points for comparisons, made by hand."""

from __future__ import annotations

from servemark.analysis.measured import Measured, of_point
from servemark.results.point import (
    Eval,
    Execution,
    Figure,
    Point,
    PointIdentity,
    Requests,
    RoleTopology,
    Scenario,
    Status,
)

RATE, TPOT, TTFT = "total_tokens_per_s_per_gpu", "tpot_s.p50", "ttft_s.p50"


def point(
    run: str = "r1",
    rate: float | None = 100.0,
    *,
    interactivity: float | None = None,
    concurrency: int | None = 8,
    hardware: str = "h100",
    tp: int = 8,
    image: str | None = "img:1",
    kind: str = "fixed-seq-len",
    source: str = "tool",
    definition: str = "d1",
    verdict: str = "valid",
    status: Status = "complete",
    day: str = "2026-05-01",
    attempt: int = 1,
    evals: tuple[Eval, ...] = (),
    requests: Requests = Requests(),  # noqa: B008 - frozen
) -> Measured:
    """One point; its figures are those that are given."""
    identity = PointIdentity(
        "m", hardware, "vllm", Scenario(kind, 1024, 1024), concurrency, image=image,
        topology=(RoleTopology("aggregated", tp=tp),),
    )  # fmt: skip
    figures = {}
    if rate is not None:
        figures[RATE] = Figure(rate, definition, "/rate")
    if interactivity is not None:
        figures[TPOT] = Figure(1 / interactivity, definition, "/tpot")
    made = Point(
        identity, Execution(run, attempt, started_utc=day), figures, source, 1,
        status=status, evals=evals, requests=requests,
    )  # fmt: skip
    ref = f"{run}-{hardware}-{tp}-{image}-{source}-{attempt}:{concurrency or 0}"
    return of_point(made, ref, verdict, official=True)
