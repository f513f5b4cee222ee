"""A store of made points: what a real import does, without a file of any tool."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.analysis.made_points import IDENTITY

from servemark.results.gates.base import GateFinding, Severity, Verdict
from servemark.results.importers.base import Given, Importer
from servemark.results.point import Eval, Execution, Figure, Mapped, Point, PointIdentity, Requests
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.import_types import Judged
from servemark.store.intake import Intake, take_in
from servemark.store.raw_files import RawFiles

BAD_GATE = GateFinding(
    "superseded", Severity.QUARANTINE, {"attempt": 1, "later": 2, "finished": "2026-01-02"}
)


def a_point(
    figures: dict[str, float],
    *,
    identity: PointIdentity = IDENTITY,
    run: str = "r1",
    at: str = "2026-01-01",
    evals: tuple[Eval, ...] = (),
) -> Point:
    """One point of eight GPUs."""
    stated = {name: Figure(value, "made", name) for name, value in figures.items()}
    execution = Execution(run=run, started_utc=at)
    requests = Requests(ok=9, error=0)
    return Point(identity, execution, stated, "made", 1, requests=requests, gpus_deployed=8, evals=evals)


def fill(home: Path, points: Sequence[Point], quarantined: Sequence[int] = ()) -> Path:
    """The home of a new store with these points in one file; those at `quarantined` are."""

    def read(given: Given) -> Iterator[Mapped]:
        return iter([Mapped(number, "mapped", point) for number, point in enumerate(points)])

    def judge(some: Sequence[Point]) -> list[Judged]:
        bad = [points[number] for number in quarantined]
        return [((BAD_GATE,), Verdict.QUARANTINED) if each in bad else ((), Verdict.VALID) for each in some]

    intake = Intake(
        RawFiles(home / "raw"), (Importer("made", 1, "made points", lambda given: 1.0, read),), judge
    )
    body = repr(points).encode()
    with Store.open(home / "store.sqlite") as store:
        take_in(store, intake, Found("made.json", len(body), lambda: io.BytesIO(body)))
    return home
