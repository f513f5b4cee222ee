"""How fast points are judged: all gates over 10^5 made points of a published shape, against writing the same points as
canonical JSON in the same process.

Usage: python benchmarks/results/gates.py [POINTS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from servemark.results.gates.registry import GATES, judge_all
from servemark.results.point import (
    Execution,
    Figure,
    Point,
    PointIdentity,
    Precision,
    Requests,
    RoleTopology,
    Scenario,
    point_json,
)

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONFIGS = 10
JSON_POINTS = 2000
"""The peer is slow; so many points of it are enough."""
STATISTICS = {"mean": 1.0, "p50": 0.97, "p90": 1.2, "p99": 1.5, "p99.9": 1.8}


def made(n: int) -> list[Point]:
    """`n` points: runs of ten configurations at ten concurrencies, each with the figures that its load implies."""
    points = []
    for at in range(n):
        concurrency = CONCURRENCIES[at % len(CONCURRENCIES)]
        config = at // len(CONCURRENCIES) % CONFIGS
        run = at // (len(CONCURRENCIES) * CONFIGS)
        tpot = (0.008 + 0.0001 * concurrency) * (1 + config / 100 + run / 1e6)
        ttft = 0.1 + 0.001 * concurrency
        values = {"ttft_s": ttft, "tpot_s": tpot, "itl_s": tpot, "e2el_s": ttft + tpot * (0.9 * 1024 - 1)}
        total = concurrency * 0.9 * 2048 / values["e2el_s"] / 8
        figures = {
            f"{name}.{statistic}": Figure(value * factor, "made", name)
            for name, value in values.items()
            for statistic, factor in STATISTICS.items()
        }
        for name, share in (("total", 1.0), ("input", 0.5), ("output", 0.5)):
            figures[f"{name}_tokens_per_s_per_gpu"] = Figure(total * share, "made", name)
        identity = PointIdentity(
            "model",
            "gpu",
            "engine",
            Scenario("fixed-seq-len", 1024, 1024, 0.8),
            concurrency,
            image=f"image:{config}",
            precision=Precision("fp8", "fp8"),
            topology=(RoleTopology("aggregated", 1, 8, tp=8, ep=1),),
        )
        points.append(
            Point(
                identity,
                Execution(str(run), 1, "2026-01-01T00:00:00Z"),
                figures,
                "made",
                1,
                requests=Requests(10 * concurrency, 10 * concurrency, 0),
                duration_s=11 * values["e2el_s"],
                gpus_deployed=8,
            )
        )
    return points


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of one call: others use the machine as well."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    """Print seconds, microseconds a point and the ratio to the peer, of three passes each."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    points = made(n)
    print(f"{n} points, {len(GATES)} gates")
    for _ in range(3):
        judged = timed(lambda: judge_all(points))
        peer = timed(lambda: [point_json(point) for point in points[:JSON_POINTS]]) / min(n, JSON_POINTS)
        each = judged / n
        print(
            f"judged in {judged:.2f} s, {1e6 * each:.1f} us a point, {each / peer:.2f} x its canonical JSON"
        )


if __name__ == "__main__":
    main()
