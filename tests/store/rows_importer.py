"""A small real importer for these tests: JSON lines of flat rows, shaped like published aggregates (seconds, conc, tp)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from servemark.base.errors import Layer, ServemarkError
from servemark.results.gates.base import GateFinding, Severity, Verdict
from servemark.results.importers.base import Given, Importer
from servemark.results.point import (
    Execution,
    Figure,
    Mapped,
    Point,
    PointIdentity,
    Precision,
    RoleTopology,
    Scenario,
    Status,
)

MODELS = {"dsr1", "gptoss"}
STATISTICS = ("mean", "median", "p90", "p99", "p99.9", "std")


def detect(given: Given) -> float:
    """Every line is an object with `conc`."""
    return 0.9 if given.head.lstrip().startswith(b'{"conc"') else 0.0


def point_of(row: dict[str, object], version: int, source: str = "rows") -> Point:
    """One row as a point; figures are whatever begins with tput or a statistic."""
    figures = {}
    for name, value in row.items():
        if isinstance(value, float):
            figures[name] = Figure(
                value * (1000 if version > 1 and name == "ttft" else 1), "rows/1", f"/{name}"
            )
    conc = row["conc"]
    assert isinstance(conc, int)
    identity = PointIdentity(
        model=str(row["model"]),
        hardware=str(row.get("hw", "b200")),
        engine="sglang",
        scenario=Scenario("fixed-seq-len", isl=1024, osl=1024, range_ratio=0.8),
        concurrency=conc,
        image=str(row.get("image", "lmsysorg/sglang:v0.5.6")),
        precision=Precision("nvfp4", "fp4"),
        topology=(RoleTopology("aggregated", 1, 8, 8, ep=8),),
    )
    execution = Execution(
        str(row["run"]), int(str(row.get("attempt", 1))), str(row.get("date", "2026-06-01"))
    )
    status: Status = "partial" if row.get("partial") else "complete"
    return Point(identity, execution, figures, source, version, status, gpus_deployed=8)


def reading(version: int) -> Importer:
    """The importer; version 2 says TTFT in other units."""

    def read(given: Given) -> Iterator[Mapped]:
        with given.open() as stream:
            for ordinal, line in enumerate(stream):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ServemarkError(
                        "store.import.unreadable", Layer.RESULTS, path="x", reason="json"
                    ) from error
                if row.get("model") not in MODELS:
                    yield Mapped(
                        ordinal,
                        "unmapped",
                        None,
                        line,
                        "store.row.unknown_format",
                        {"model": row.get("model")},
                    )
                    continue
                yield Mapped(ordinal, "mapped", point_of(row, version), line)

    return Importer("rows", version, "rows of these tests", detect, read)


def judge(points: Sequence[Point]) -> list[tuple[tuple[GateFinding, ...], Verdict]]:
    """A TTFT above 100 s is quarantined; a point that is alone in its run gets a warning."""
    runs: dict[str, int] = {}
    for point in points:
        runs[point.execution.run] = runs.get(point.execution.run, 0) + 1
    said = []
    for point in points:
        found = []
        if (point.value("ttft") or 0) > 100:
            found.append(GateFinding("slow", Severity.QUARANTINE, {"ttft": point.value("ttft")}))
        if runs[point.execution.run] == 1:
            found.append(GateFinding("alone", Severity.WARNING, {"points": 1}))
        worst = Verdict.QUARANTINED if any(f.gate == "slow" for f in found) else Verdict.WARNINGS
        said.append((tuple(found), worst if found else Verdict.VALID))
    return said


def line(conc: int, run: str, **more: object) -> bytes:
    """One row as a line of a file."""
    row = {"conc": conc, "run": run, "model": "dsr1", "tput": 30.5 * conc, "ttft": 0.25, **more}
    return json.dumps(row).encode() + b"\n"
