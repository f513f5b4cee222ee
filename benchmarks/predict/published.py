"""How far off the speed model is on published rows that it is not shown, by class.

    python benchmarks/predict/published.py FOLDER [--seeds 20] [--first-seed 0] [--json OUT]

FOLDER holds `benchmarks.json` and `benchmarks-history.json` as published. Both are imported through the normal importer and
gates into a temporary store; only points that gates let pass are used. Lines are the points of one configuration in one run;
those with three or more concurrencies are split. A seed draws which half of the deployments (with their lengths) is held
out; the other half is whole. Whatever would give a held-out point away is held out with it: the same deployment and lengths
at the same concurrency (for the highest ones: at or above it) in every run and build. The model's class of each held-out
point is its own verdict; figures are means over seeds of each seed's mean, median and 90th percentile of the relative error
|predicted / measured - 1|.

`all at once` holds out the alternate concurrencies of every line together: hardly any curve is left to learn bends from.
Coverage is the share of measured figures inside the stated 90 % interval, beside the central 95 % of a binomial distribution
with as many points as a seed has on average.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from servemark.analysis.measured import Measured, of_stored
from servemark.predict.conformal import binomial_band
from servemark.predict.speed import SpeedModel
from servemark.predict.speed_points import FitPoint, choose
from servemark.predict.speed_types import E2EL, TOTAL_PER_GPU, TPOT, TTFT
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.registry import importers
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.intake import Intake, take_in
from servemark.store.points import PointFilter, load_points
from servemark.store.raw_files import RawFiles

FILES = ("benchmarks.json", "benchmarks-history.json")
METRICS = {"throughput/GPU": TOTAL_PER_GPU, "TPOT": TPOT, "E2EL": E2EL, "TTFT": TTFT}
QUANTITY = {TPOT: "tpot", TTFT: "ttft", E2EL: "e2el", TOTAL_PER_GPU: "service"}
ANCHORS = {
    "alternate": "TPOT 4.6 / 2.4 (139 configurations), 5.9 / 3.3 (11); throughput 6.0 / 2.2, 5.6 / 3.2",
    "two highest": "TPOT 11.1 / 6.2; throughput 9.2 / 5.9",
    "other shape": "TPOT 9.3 / 6.1 (1k/1k), 17.1 / 9.1 (1k/8k), 40.4 / 30.4 (8k/1k); throughput 10.0 / 5.9, 12.6 / 8.6, "
    "34.8 / 27.6",
    "one anchor": "TPOT 20.2 / 15.0; throughput 24.1 / 14.8",
}
"""Mean / median relative error in per cent that the physical form alone reaches when each configuration is fitted by itself:
on 3,607 rows of another collection (139 configurations) and on 43 rows of this one (11)."""

Held = tuple[FitPoint, float, float | None, float | None, float | None, str]
"""(point, measured, predicted, low, high, class) of one metric."""


def imported(folder: Path) -> list[Measured]:
    """All points of both files, through a store that is gone afterwards."""
    with tempfile.TemporaryDirectory() as made, Store.open(Path(made) / "store.sqlite") as store:
        intake = Intake(RawFiles(Path(made) / "raw"), importers(), judge_all, gates_version())
        for name in FILES:
            path = folder / name
            take_in(store, intake, Found(str(path), path.stat().st_size, lambda path=path: path.open("rb")))  # type: ignore[misc]
        return [of_stored(each) for each in load_points(store, PointFilter())]


def arm_of(point: FitPoint) -> str:
    """A deployment at its lengths, whatever the run or build."""
    return f"{point.facts.key}/{point.isl}/{point.osl}"


def lines_of(points: Iterable[FitPoint]) -> list[list[FitPoint]]:
    """Points of one configuration in one run, those with three or more concurrencies."""
    found: dict[tuple[str, str], list[FitPoint]] = defaultdict(list)
    for point in points:
        found[point.curve, point.run].append(point)
    return [line for line in found.values() if len({p.concurrency for p in line}) >= 3]


def half(names: Iterable[str], rng: random.Random) -> set[str]:
    """Half of the names."""
    ordered = sorted(set(names))
    return set(rng.sample(ordered, len(ordered) // 2))


Split = tuple[list[FitPoint], list[FitPoint]]
"""(points to fit, points to predict)."""


def alternate(points: Sequence[FitPoint], rng: random.Random, *, every: bool = False) -> Split:
    """Every second concurrency between the ends of a line."""
    lines = lines_of(points)
    arms = {arm_of(line[0]) for line in lines}
    drawn = arms if every else half(arms, rng)
    gone: set[tuple[str, int]] = set()
    for line in lines:
        if arm_of(line[0]) in drawn:
            loads = sorted({p.concurrency for p in line})
            gone |= {(arm_of(line[0]), load) for load in loads[1:-1][::2]}
    asked = [p for line in lines for p in line if (arm_of(p), p.concurrency) in gone]
    return [p for p in points if (arm_of(p), p.concurrency) not in gone], asked


def all_at_once(points: Sequence[FitPoint], rng: random.Random) -> Split:
    """As `alternate`, of all lines together."""
    return alternate(points, rng, every=True)


def highest(points: Sequence[FitPoint], rng: random.Random, count: int = 1) -> Split:
    """The highest concurrencies of a line."""
    lines = lines_of(points)
    drawn = half((arm_of(line[0]) for line in lines), rng)
    cut: dict[str, int] = {}
    for line in lines:
        if (arm := arm_of(line[0])) in drawn:
            loads = sorted({p.concurrency for p in line})
            cut[arm] = min(cut.get(arm, loads[-count]), loads[-count])
    asked = [p for line in lines for p in line if p.concurrency >= cut.get(arm_of(p), sys.maxsize)]
    return [p for p in points if p.concurrency < cut.get(arm_of(p), sys.maxsize)], asked


def two_highest(points: Sequence[FitPoint], rng: random.Random) -> Split:
    """As `highest`, of two; a line of three has one point left."""
    return highest(points, rng, 2)


def other_shape(points: Sequence[FitPoint], rng: random.Random) -> Split:
    """One of a deployment's lengths, where two or more points of others are left."""
    shapes: dict[str, set[str]] = defaultdict(set)
    for point in points:
        shapes[point.facts.key].add(arm_of(point))
    many = [key for key, arms in shapes.items() if len(arms) > 1]
    gone = {rng.choice(sorted(shapes[key])) for key in sorted(half(many, rng))}
    return [p for p in points if arm_of(p) not in gone], [p for p in points if arm_of(p) in gone]


def one_anchor(points: Sequence[FitPoint], rng: random.Random) -> Split:
    """All of a deployment but one measured point."""
    some: dict[str, list[FitPoint]] = defaultdict(list)
    for point in points:
        some[point.facts.key].append(point)
    drawn = half((key for key, each in some.items() if len(each) > 1), rng)
    kept = {rng.choice(some[key]).ref for key in sorted(drawn)}
    gone = {p.ref for key in drawn for p in some[key] if p.ref not in kept}
    return [p for p in points if p.ref not in gone], [p for p in points if p.ref in gone]


def unseen(points: Sequence[FitPoint], rng: random.Random) -> Split:
    """A fifth of the deployments, wholly."""
    keys = sorted({p.facts.key for p in points})
    gone = set(rng.sample(keys, len(keys) // 5))
    return [p for p in points if p.facts.key not in gone], [p for p in points if p.facts.key in gone]


SPLITS: dict[str, Callable[[Sequence[FitPoint], random.Random], Split]] = {
    "alternate": alternate,
    "all at once": all_at_once,
    "highest": highest,
    "two highest": two_highest,
    "other shape": other_shape,
    "one anchor": one_anchor,
    "none": unseen,
}


def measured_value(point: FitPoint, metric: str) -> float | None:
    """The measured figure of a metric."""
    value = point.values.get(QUANTITY[metric])  # type: ignore[call-overload]
    if value is None:
        return None
    if metric == E2EL:
        return float(value * point.osl)
    if metric == TOTAL_PER_GPU:
        return (
            point.concurrency * (point.isl + point.osl) / (value * point.osl * point.gpus)
            if point.gpus
            else None
        )
    return float(value)


def predicted(model: SpeedModel, asked: Sequence[FitPoint]) -> dict[str, list[Held]]:
    """What the model says of points that it was not shown, by metric."""
    found: dict[str, list[Held]] = defaultdict(list)
    for point in asked:
        facts = point.facts if point.facts.build else replace(point.facts, run=point.run)
        answer = model.predict(facts, point.concurrency, point.isl, point.osl)
        for name, metric in METRICS.items():
            value = measured_value(point, metric)
            figure = answer[metric]
            if value is not None:
                found[name].append((point, value, figure.value, figure.low, figure.high, figure.klass))
    return found


def errors(held: Sequence[Held]) -> dict[str, float]:
    """Of one seed: per cent and share."""
    off = sorted(100 * abs(value / truth - 1) for _, truth, value, *_ in held if value is not None)
    inside = [
        low <= truth <= high for _, truth, _, low, high, _ in held if low is not None and high is not None
    ]
    found = {"n": float(len(held)), "points": float(len(off))}
    if off:
        found |= {
            "mean": statistics.fmean(off),
            "median": statistics.median(off),
            "p90": off[int(0.9 * (len(off) - 1))],
        }
    if inside:
        found["inside"] = statistics.fmean(inside)
    return found


def run(points: Sequence[FitPoint], seeds: range, splits: Sequence[str]) -> list[dict[str, object]]:
    """One row for each split, class and metric."""
    rows: list[dict[str, object]] = []
    for split in splits:
        seen: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
        for seed in seeds[:1] if split == "all at once" else seeds:
            fit, asked = SPLITS[split](points, random.Random(seed))
            for metric, held in predicted(SpeedModel.of_chosen(fit), asked).items():
                for klass in {each[-1] for each in held}:
                    seen[klass, metric].append(errors([each for each in held if each[-1] == klass]))
        for (klass, metric), some in sorted(seen.items()):
            rows.append({"split": split, "class": klass, "metric": metric, **summed(some)})
            sys.stdout.write(row_text(rows[-1]) + "\n")
            sys.stdout.flush()
    return rows


def summed(some: Sequence[dict[str, float]]) -> dict[str, object]:
    """Means over seeds, and the verdict on coverage."""
    found: dict[str, object] = {"seeds": len(some)}
    for name in ("n", "points", "mean", "median", "p90", "inside"):
        values = [each[name] for each in some if name in each]
        found[name] = statistics.fmean(values) if values else None
    band = binomial_band(0.9, round(statistics.fmean(each["n"] for each in some)))
    found["band"] = band
    inside = found["inside"]
    judged = band is not None and isinstance(inside, float)
    found["coverage"] = (
        ("inside" if band[0] <= inside <= band[1] else "outside")
        if judged and band and isinstance(inside, float)
        else "not judged"
    )
    return found


def row_text(row: dict[str, object]) -> str:
    """One line of the table."""

    def number(name: str, scale: float = 1.0) -> str:
        value = row[name]
        return f"{value * scale:.1f}" if isinstance(value, float) else "-"

    band = row["band"]
    said = f"{100 * band[0]:.0f}-{100 * band[1]:.0f}" if isinstance(band, tuple) else "-"
    return (
        f"| {row['split']} | {row['class']} | {row['metric']} | {number('n')} | {number('mean')} | {number('median')} | "
        f"{number('p90')} | {number('inside', 100)} | {said} | {row['coverage']} |"
    )


def main() -> None:
    """Print a Markdown table, the anchors and the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--split", action="append", choices=tuple(SPLITS))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    chosen = choose(imported(asked.folder))
    lines = lines_of(chosen.points)
    print(
        f"{len(chosen.points)} points, left out {chosen.left_out}, {len(lines)} lines with three or more concurrencies"
    )
    print(
        "| held out | class | metric | n a seed | mean % | median % | p90 % | inside % | band % | coverage |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    begun = time.process_time()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    rows = run(chosen.points, seeds, asked.split or tuple(SPLITS))
    print(f"{time.process_time() - begun:.0f} s of processor time")
    for name, said in ANCHORS.items():
        print(f"physical form alone, {name}: {said}")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
