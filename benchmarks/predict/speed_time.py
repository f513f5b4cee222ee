"""How long the speed model takes: a fit of 200 configurations, one arm's prediction, and writing and reading the fit.

    python benchmarks/predict/speed_time.py [CONFIGURATIONS]

Made points: five loads each. Seconds are of processor time, beside one inversion of a 1,000 x 1,000 matrix in the same run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from servemark.predict.calibration import read_calibration, write_calibration
from servemark.predict.speed import SpeedModel
from servemark.predict.speed_points import FitPoint
from servemark.predict.speed_types import ConfigFacts

LOADS = (4, 16, 64, 256, 512)
ARM = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def points(configurations: int) -> list[FitPoint]:
    """A straight form with 2 % of noise."""
    rng = np.random.default_rng(1)
    found = []
    for config in range(configurations):
        facts = ConfigFacts(
            "model", f"gpu{config % 7}", f"engine{config % 3}", "fp8", None, f"tp{config}", 8, False, build="b",
            experts=256, top_k=8,
        )  # fmt: skip
        for load in LOADS:
            tpot = (0.008 + 2e-4 * load) * (1 + config % 5 / 10) * float(np.exp(rng.normal(0, 0.02)))
            isl = (1024, 8192)[config % 2]
            values = {"tpot": tpot, "service": tpot * 1.05, "e2el": tpot * 1.04, "ttft": 0.1 + 1e-3 * load}
            ref = f"p:{config}:{load}"
            found.append(FitPoint(ref, facts, "r", "2026-01-01", load, isl, 1024, values, 8))  # type: ignore[arg-type]
    return found


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Print one line a step."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    some = points(count)
    square = np.random.default_rng(2).normal(size=(1000, 1000))
    peer = timed(lambda: np.linalg.inv(square))
    made: list[SpeedModel] = []

    def fit() -> None:
        model = SpeedModel.of_chosen(some)
        made.append(model)
        len(model.scores)

    print(f"fit of {count} configurations, {len(some)} points, all residuals: {timed(fit):.2f} s")
    model = made[0]
    facts = replace(some[0].facts)

    def arm(which: SpeedModel) -> None:
        for load in ARM:
            which.predict(facts, load, 1024, 1024)

    print(f"one arm, {len(ARM)} loads: {timed(lambda: arm(model)):.3f} s")
    with tempfile.TemporaryDirectory() as folder:
        path = write_calibration(model, Path(folder))
        read: list[SpeedModel] = []
        print(
            f"calibration read: {timed(lambda: read.append(read_calibration(path))):.3f} s, {path.stat().st_size} bytes"
        )
        print(f"first arm after reading: {timed(lambda: arm(read[0])):.3f} s")
    print(f"one inversion of 1,000 x 1,000: {peer:.3f} s")


if __name__ == "__main__":
    main()
