"""How fast files come in and latest lines go out, and how large the store is a point.

Rows are shaped like published fixed-length results: 35 figures, an identity of 12 parts. `python benchmarks/store/measure.py
[POINTS…]` builds a store of each size in a temporary folder, in files of 21,750 rows, and prints one JSON object a size.
"Import" is everything after the importer's own mapping: hash, compressed raw bytes, keys, encoding, insert, latest lines.
With `--importer FILE` a real file is imported through the importers and gates that are installed, stage by stage.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from servemark.results.gates.base import Verdict
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.base import Given, Importer
from servemark.results.importers.registry import importers
from servemark.results.point import (
    Execution,
    Figure,
    Mapped,
    Point,
    PointIdentity,
    Precision,
    Requests,
    RoleTopology,
    Scenario,
)
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.import_types import Judged
from servemark.store.intake import Intake, take_in
from servemark.store.points import PointFilter, load_points
from servemark.store.raw_files import RawFiles

PER_FILE = 21_750
"""Five whole nights."""
STATISTICS = ("mean", "p50", "p90", "p99", "p99.9", "std")
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2el_s")
CONFIGS = 870
"""Configurations with five loads each: ten times the latest points of one published model."""
LOADS = (4, 8, 16, 32, 64)


def figures(rng: random.Random) -> dict[str, float]:
    """24 latencies and 11 rates, as a published row has them."""
    made = {f"{name}.{kind}": rng.lognormvariate(-2, 1) for name in LATENCIES for kind in STATISTICS}
    return made | {f"rate_{number}": rng.lognormvariate(5, 1) for number in range(11)}


def point(number: int, values: dict[str, float]) -> Point:
    """The point with this number: loads within configurations within nights."""
    load, config, night = number % 5, number // 5 % CONFIGS, number // 5 // CONFIGS
    identity = PointIdentity(
        model=f"model-{config // 87}",
        hardware=("b200", "h200", "mi355x")[config % 3],
        engine="sglang",
        engine_version="0.5.6",
        scenario=Scenario("fixed-seq-len", isl=1024, osl=1024, range_ratio=0.8),
        concurrency=LOADS[load],
        image=f"lmsysorg/sglang:v0.5.6-cu129-amd64-{config % 29}",
        precision=Precision("nvfp4", "fp4"),
        topology=(RoleTopology("aggregated", 1, 8, 8, ep=8, dp_attention=bool(config % 2)),),
        recipe_fingerprint=f"{config:032x}",
    )
    date = f"{2024 + night // 336}-{night // 28 % 12 + 1:02d}-{night % 28 + 1:02d}"
    run = Execution(str(10**10 + night), 1, date, url=f"https://example.org/runs/{10**10 + night}")
    found = {name: Figure(value, "fixed-seq/1", f"/metrics/{name}") for name, value in values.items()}
    return Point(identity, run, found, "bench", 1, requests=Requests(planned=640, ok=640), gpus_deployed=8)


def judge(points: Sequence[Point]) -> list[Judged]:
    """No gates: the store alone is measured."""
    return [((), Verdict.VALID)] * len(points)


def importer(first: int) -> Importer:
    """Points made beforehand, so that mapping costs nothing here."""
    gc.disable()  # as an import itself does; these are many objects without cycles
    rng = random.Random(first)
    some = [figures(rng) for _ in range(200)]
    made = [Mapped(i, "mapped", point(first + i, some[i % 200])) for i in range(PER_FILE)]

    def read(given: Given) -> Iterator[Mapped]:
        return iter(made)

    return Importer("bench", 1, "points of this benchmark", lambda given: 1.0, read)


def raw_bytes(first: int) -> bytes:
    """Bytes of the size that such rows have as JSON, 1.7 kB a row."""
    rng = random.Random(first)
    some = [json.dumps({"hw": "b200", "conc": 8, **figures(rng)}).encode() for _ in range(500)]
    return b"\n".join(some[i % 500] + str(first + i).encode() for i in range(PER_FILE))


def build(home: Path, points: int) -> tuple[float, int]:
    """(CPU seconds of imports, raw bytes kept); CPU time, for a machine that others use as well."""
    seconds = 0.0
    raw = RawFiles(home / "raw")
    with Store.open(home / "store.sqlite") as store:
        for first in range(0, points, PER_FILE):
            data = raw_bytes(first)
            intake = Intake(raw, (importer(first),), judge)
            begin = time.process_time()
            take_in(store, intake, Found(f"{first}.json", len(data), lambda data=data: io.BytesIO(data)))  # type: ignore[misc]
            seconds += time.process_time() - begin
    return seconds, sum(path.stat().st_size for _, path in raw.all())


def timed(home: Path, wanted: PointFilter, times: int = 7) -> tuple[float, int]:
    """(median CPU milliseconds of one query with one figure of each point read, points)."""
    took, count = [], 0
    for _ in range(times):
        with Store.open(home / "store.sqlite", read_only=True) as store:
            begin = time.process_time()
            count = sum(one.value("ttft_s.p90") is not None for one in load_points(store, wanted))
            took.append((time.process_time() - begin) * 1e3)
    return statistics.median(took), count


def measure(points: int) -> dict[str, object]:
    """One size."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        seconds, raw = build(home, points)
        with Store.open(home / "store.sqlite") as store:
            store.query("PRAGMA wal_checkpoint(TRUNCATE)")
        size = (home / "store.sqlite").stat().st_size
        one_model, some = timed(home, PointFilter(latest=True, model="model-3"))
        whole, all_latest = timed(home, PointFilter(latest=True))
        return {
            "points": points,
            "import_rows_per_cpu_s": round(points / seconds),
            "store_bytes_per_point": round(size / points),
            "raw_bytes_per_point": round(raw / points),
            "latest_of_a_model_ms": round(one_model, 1),
            "latest_of_a_model_points": some,
            "latest_of_all_ms": round(whole, 1),
            "latest_of_all_points": all_latest,
        }


def real(path: Path) -> dict[str, object]:
    """A real file, stage by stage: mapping alone, mapping and gates, everything."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        size = path.stat().st_size
        found = Found(str(path), size, lambda: path.open("rb"))
        took: dict[str, object] = {}
        rows = 0
        with Store.open(home / "store.sqlite") as store:
            for name, each, target in (
                ("mapped_and_encoded", judge, None),
                ("and_judged", judge_all, None),
                ("and_kept", judge_all, store),
            ):
                intake = Intake(RawFiles(home / "raw"), importers(), each, gates_version())
                begin = time.process_time()
                report = take_in(target, intake, found)
                seconds = time.process_time() - begin
                rows = sum(report.kept.rows.values()) if report.kept else 0
                took[f"{name}_rows_per_cpu_s"] = round(rows / seconds)
        return {"file": path.name, "bytes": size, "rows": rows, **took}


def main() -> None:
    """Print one JSON object a size."""
    asked = argparse.ArgumentParser()
    asked.add_argument("points", nargs="*", type=int)
    asked.add_argument("--importer", type=Path)
    given = asked.parse_args()
    if given.importer:
        print(json.dumps(real(given.importer)))
    for points in given.points or ([] if given.importer else [100_000]):
        print(json.dumps(measure(points)), flush=True)


if __name__ == "__main__":
    main()
