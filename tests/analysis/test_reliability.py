"""Reliability: sums with their denominators, intervals, reasons; published rows, sweeps and runs."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from servemark.analysis.reliability import (
    PUBLISHED,
    RUN,
    SWEEP,
    Outcome,
    ReliabilityView,
    published_outcomes,
    reliability,
    sweep_outcomes,
    wilson,
)
from servemark.runs.folder import RunInfo, RunState
from servemark.runs.outcomes import outcome_of, run_outcomes
from servemark.store.database import Store
from servemark.store.raw_files import RawFiles
from servemark.store.sweep_rows import (
    AttemptEnd,
    AttemptState,
    PointState,
    SweepAttempt,
    SweepPoint,
    SweepRow,
    SweepState,
)
from servemark.store.sweeps import SweepStore

PUBLISHED_ROWS = (
    Path(__file__).resolve().parents[3]
    / "shared"
    / "data"
    / "results"
    / "published-2026-06"
    / "reliability.json"
)


def cells(view: ReliabilityView, row: int = 0) -> dict[str, tuple[int, int]]:
    return {cell.window: (cell.ok, cell.total) for cell in view.rows[row].cells}


def test_windows_count_back_from_the_newest_day() -> None:
    """Newest day the 30th: 3 days are 28 to 30, 7 days 24 to 30, 30 days from the 1st on."""
    days = [("2026-01-01", 9), ("2026-04-01", 7), ("2026-04-24", 5), ("2026-04-28", 3), ("2026-04-30", 1)]
    made = [Outcome(PUBLISHED, "h100", day, ok, ok + 1) for day, ok in days]
    made.append(Outcome(PUBLISHED, "h100", "2026-05-09", 0, 0))
    view = reliability(made)
    assert cells(view) == {"3d": (4, 6), "7d": (9, 12), "1m": (16, 20), "3m": (16, 20), "all": (25, 30)}
    assert view.until == {PUBLISHED: "2026-04-30"}
    assert view.unexplained == 5
    assert "5 jobs" in view.notes[0]
    assert [(day.day, day.ok, day.total) for day in view.rows[0].days][-1] == ("2026-04-30", 1, 2)


def test_no_job_is_no_share_and_sources_are_never_summed() -> None:
    made = [
        Outcome(PUBLISHED, "b200", "2026-01-01", 1, 1),
        Outcome(PUBLISHED, "b200", "2026-06-01", 0, 0),
        Outcome(PUBLISHED, "gb200", "2026-06-01", 5, 10),
        Outcome(RUN, "b200", "2026-06-01", 0, 1, "engine", "reliability.died"),
    ]
    view = reliability(made)
    assert [(row.source, row.hardware) for row in view.rows] == [
        (RUN, "b200"),
        (PUBLISHED, "b200"),
        (PUBLISHED, "gb200"),
    ]
    none = view.rows[1].cells[0]
    assert (none.total, none.share, none.low, none.text) == (0, None, None, "no job")
    assert view.rows[0].cells[0].share == 0.0
    assert "0 of 1" in view.rows[0].cells[0].text
    assert reliability([]).rows == ()


def test_the_interval_is_wilsons() -> None:
    """Published examples: 0 of 10 gives 0 to 0.2775, 10 of 10 the mirror, 81 of 263 gives 0.2553 to 0.3662 (Newcombe
    1998, method 3, without continuity correction)."""
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=5e-5)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=5e-5)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_reasons_are_counted_by_layer_and_said_in_words(lang: str) -> None:
    """A known message with its values; words that are no key stay as they are; values that do not fit do no harm."""
    made = [
        Outcome(RUN, "b200", "2026-06-01", 0, 1, "replay", "analysis.card.empty", {}),
        Outcome(RUN, "b200", "2026-06-03", 0, 1, "replay", "analysis.card.empty", {}),
        Outcome(RUN, "b200", "2026-06-02", 0, 1, "engine", "<b>out of memory</b>", {}),
        Outcome(RUN, "b200", "2026-06-02", 0, 1, "engine", "analysis.card.name", {"other": "{0}"}),
    ]
    view = reliability(made, lang)
    assert [(reason.layer, reason.count) for reason in view.reasons] == [
        ("replay", 2),
        ("engine", 1),
        ("engine", 1),
    ]
    assert view.reasons[0].last == "2026-06-03"
    assert view.reasons[0].text == {"en": "the card names no GPU", "zh": "该卡没有列出任何 GPU"}[lang]
    assert {reason.text for reason in view.reasons[1:]} == {"<b>out of memory</b>", "analysis.card.name"}
    assert view.unexplained == 0
    msgspec.json.encode(msgspec.to_builtins(view))


def stored(folder: Path, body: bytes, day: str = "2026-01-01") -> tuple[Store, RawFiles]:
    """A store with one imported file that no mapping makes points of, as `import` leaves it."""
    raw = RawFiles(folder / "raw")
    store = Store.open(folder / "store.sqlite")
    sha256, size = raw.keep(io.BytesIO(body))
    store._db.execute(
        "INSERT INTO import_source (sha256, name, bytes, added_utc, importer, mapping_version, hints, gates)"
        " VALUES (?, 'reliability.json', ?, ?, 'inferencex', 1, '{}', '')",
        (sha256, size, day),
    )
    store._db.execute(
        "INSERT INTO import_row (source_id, ordinal, status, reason, reason_values)"
        " SELECT id, 0, 'unmapped', 'results.import_no_result_rows', '{\"kind\":\"reliability\"}'"
        " FROM import_source WHERE sha256 = ?",
        (sha256,),
    )
    store._db.commit()
    return store, raw


def test_published_rows_are_read_from_the_kept_bytes(tmp_path: Path) -> None:
    """Rows that make no sense are passed over; of two snapshots the newer counts alone."""
    good = {"hardware": "h100", "date": "2026-06-01", "n_success": 3, "total": 4}
    bad: list[object] = [
        {**good, "total": 2},
        {**good, "date": "soon"},
        {**good, "n_success": True},
        7,
        {**good, "hardware": ""},
    ]
    store, raw = stored(tmp_path, json.dumps([good, *bad]).encode())
    store.close()
    newer = [good, {**good, "date": "2026-06-02", "n_success": 1, "total": 1}]
    store, raw = stored(tmp_path, json.dumps(newer).encode())
    store.close()
    store, raw = stored(tmp_path, b"[[[[")
    with store:
        found, problems = published_outcomes(store, raw)
    assert [(one.day, one.ok, one.total) for one in found] == [("2026-06-01", 3, 4), ("2026-06-02", 1, 1)]
    assert problems == ["reliability.json"]


@pytest.mark.corpus
def test_real_published_rows_sum_up(tmp_path: Path) -> None:
    """Sums over all time equal those of the file, summed here without the code under test; hardware without a job on the
    last three days has no share there."""
    if not PUBLISHED_ROWS.exists():
        pytest.skip("the published rows are not here")
    body = PUBLISHED_ROWS.read_bytes()
    ok: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in json.loads(body):
        ok[row["hardware"]] += row["n_success"]
        total[row["hardware"]] += row["total"]
    store, raw = stored(tmp_path, body)
    with store:
        view = reliability(published_outcomes(store, raw)[0])
    assert {row.hardware: (row.cells[-1].ok, row.cells[-1].total) for row in view.rows} == {
        name: (ok[name], total[name]) for name in total
    }
    assert next(row for row in view.rows if row.hardware == "mi325x").cells[0].share is None


def test_sweeps_count_attempts_that_ended_by_themselves(tmp_path: Path) -> None:
    """Done, failed with its layer, lost; a stopped one says nothing."""
    now = "2026-06-01T00:00:00Z"
    failure: dict[str, object] = {"layer": "engine", "key": "analysis.card.empty", "values": {}}
    points = [
        SweepPoint(
            n, n, f"p{n}", f"s{n}", f"a/t@{n}", "/suite", "a", "t", n, "b300-dsxe", 8, False, None, None, PointState.WAITING,
        )
        for n in range(1, 5)
    ]  # fmt: skip
    with SweepStore.open(tmp_path) as store:
        store.create(SweepRow("s1", now, None, SweepState.RUNNING, 1, {}, {}), points)
        ends = (AttemptState.DONE, AttemptState.FAILED, AttemptState.LOST, AttemptState.STOPPED)
        for number, state in enumerate(ends, 1):
            begun = SweepAttempt(
                number, number, f"line-{number}", AttemptState.RUNNING, now, numbers=(number,)
            )
            store.begin("s1", [begun], [])
            after = replace(points[number - 1], attempt=number, failure=failure if number == 2 else None)
            store.end("s1", [AttemptEnd(number, state, "2026-06-02T00:00:00Z", 1.0, "exit 1", (after,))])
        found = sweep_outcomes(store)
    assert [(one.ok, one.total, one.layer) for one in found] == [
        (1, 1, None),
        (0, 1, "engine"),
        (0, 1, "lost"),
    ]
    assert {(one.source, one.hardware, one.day) for one in found} == {(SWEEP, "b300", "2026-06-02")}


def test_runs_count_by_their_state(tmp_path: Path) -> None:
    manifest: dict[str, object] = {
        "created_utc": "2026-06-01T10:00:00Z",
        "declared": {"hardware": "cluster:h200-x"},
    }
    failure: dict[str, object] = {"layer": "launch", "key": "k", "values": {"a": 1}}
    info = RunInfo("20260601-100000-a-c4", tmp_path, RunState.COMPLETE, manifest, None)
    done = outcome_of(info)
    assert done == Outcome(RUN, "h200", "2026-06-01", 1, 1)
    failed = outcome_of(replace(info, state=RunState.FAILED, failure=failure))
    assert failed == Outcome(RUN, "h200", "2026-06-01", 0, 1, "launch", "k", {"a": 1})
    damaged = outcome_of(replace(info, state=RunState.DAMAGED, manifest=None))
    assert damaged is not None
    assert (damaged.hardware, damaged.day, damaged.layer) == ("unknown", "2026-06-01", "damaged")
    for state in (RunState.RUNNING, RunState.INTERRUPTED):
        assert outcome_of(replace(info, state=state)) is None
    assert run_outcomes(tmp_path / "none") == []
