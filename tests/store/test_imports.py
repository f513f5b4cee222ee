"""Files into the store: all or nothing, once, superseded by later attempts, mapped again; latest lines."""

from __future__ import annotations

import io
import json
import marshal
import random
import runpy
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.results.gates.base import GateFinding, Severity, Verdict
from servemark.results.point import Figure, Point, PointIdentity, Scenario
from servemark.store.backup import Restored, restore, write_backup
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.import_types import Judged
from servemark.store.intake import FileReport, Intake, map_again, take_in
from servemark.store.point_codec import Encoder, NotStorable
from servemark.store.points import PointFilter, find_points, findings_of, load_points
from servemark.store.predictions import Foretold
from servemark.store.prune import prune
from servemark.store.raw_files import RawFiles
from servemark.store.staging import Staged, _bare, _dressed

ROWS = runpy.run_path(str(Path(__file__).with_name("rows_importer.py")))
line = ROWS["line"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def intake(tmp_path: Path) -> Intake:
    """Version 1 of the tests' importer."""
    return Intake(RawFiles(tmp_path / "raw"), (ROWS["reading"](1),), ROWS["judge"], "slow:1")


def found(data: bytes, name: str = "a.jsonl") -> Found:
    """A file in memory."""
    return Found(name, len(data), lambda: io.BytesIO(data))


def put(store: Store, intake: Intake, data: bytes, name: str = "a.jsonl") -> FileReport:
    """Import bytes."""
    return take_in(store, intake, found(data, name))


def dump(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that the store says, numbers of rows left out: equal for stores that say the same."""
    db = sqlite3.connect(path)
    asks = {
        "files": "SELECT sha256, name, bytes, added_utc, importer, mapping_version, hints, gates FROM import_source",
        "rows": "SELECT s.sha256, r.ordinal, r.status, r.reason, r.reason_values FROM import_row r "
        "JOIN import_source s ON s.id = r.source_id",
        "lines": "SELECT l.line_key, c.config_key, l.source, l.run, l.date, l.points, l.usable, l.latest, c.identity "
        "FROM result_line l JOIN result_config c ON c.id = l.config_id",
        "points": "SELECT s.sha256, r.ordinal, p.point_key, l.line_key, p.concurrency, p.attempt, p.at_utc, p.status, "
        "p.verdict, p.current, p.content, f.shape, p.figures, p.stated, p.rest FROM result_point p "
        "JOIN import_row r ON r.id = p.id JOIN import_source s ON s.id = r.source_id "
        "JOIN result_line l ON l.id = p.line_id JOIN figure_shape f ON f.id = p.shape_id",
        "findings": "SELECT s.sha256, r.ordinal, g.gate, g.severity, g.finding_values FROM gate_finding g "
        "JOIN import_row r ON r.id = g.point_id JOIN import_source s ON s.id = r.source_id",
    }
    try:
        return {name: sorted(db.execute(ask).fetchall()) for name, ask in asks.items()}
    finally:
        db.close()


def test_a_point_comes_out_as_it_went_in(store: Store, intake: Intake) -> None:
    """Equal to what the importer made, keys as the point's own."""
    report = put(store, intake, line(4, "r1") + line(8, "r1", **{"p99.9_ttft": 1.5}))
    assert report.kept is not None
    assert report.kept.rows == {"mapped": 2}
    (one, two) = load_points(store, PointFilter())
    wanted = ROWS["point_of"]({"conc": 4, "run": "r1", "model": "dsr1", "tput": 122.0, "ttft": 0.25}, 1)
    assert one.point() == wanted
    assert (one.point_key, one.config_key, one.line_key) == (
        wanted.identity.point_key,
        wanted.identity.config_key,
        wanted.line_key,
    )
    assert two.value("p99.9_ttft") == 1.5
    assert one.value("p99.9_ttft") is None
    assert one.scenario == "fixed-seq-len:1024/1024"
    assert store.check() == []


@pytest.mark.parametrize(
    "identity",
    [
        PointIdentity("m", "h", "e", Scenario("random", range_ratio=1e-7), None),
        PointIdentity(
            'm\u2028\x1f"\\/é', "h", "e", Scenario("trace", dataset="d"), 3, extra={"b": [1.5, {"z": 1e20}]}
        ),
        PointIdentity(
            "m", "h", "e", Scenario("trace", range_ratio=0.25), 3, extra={"b": True, "a": None, "n": 2**63}
        ),
    ],
)
def test_fast_keys_are_the_point_s_keys(identity: PointIdentity) -> None:
    """Also where the fast JSON would write a fraction in another way than the canonical one."""
    point = Point(identity, ROWS["Execution"]("r"), {"x": Figure(1.0, "d", "/x")}, "s", 1)
    made = Encoder().encode(point)
    assert (made.point_key, made.config_key) == (identity.point_key, identity.config_key)
    assert made.line_key == point.line_key


def test_what_is_no_number_is_invalid_and_kept(store: Store, intake: Intake) -> None:
    """NaN, infinity, a load below one: the row is there with its reason, the others are points."""
    bad = line(4, "r1").replace(b"0.25", b"NaN") + line(0, "r1") + line(8, "r1").replace(b"0.25", b"Infinity")
    report = put(store, intake, bad + line(16, "r1"))
    assert report.kept is not None
    assert report.kept.rows == {"invalid": 3, "mapped": 1}
    assert [each.values["reason"] for each in report.kept.reasons] == [
        "concurrency = 0",
        "ttft = inf",
        "ttft = nan",
    ]
    point = ROWS["point_of"]({"conc": 1, "run": "r", "model": "dsr1"}, 1)
    with pytest.raises(NotStorable):
        Encoder().encode(replace(point, execution=replace(point.execution, run="\ud800")))


def test_the_same_bytes_again_change_nothing(store: Store, intake: Intake, tmp_path: Path) -> None:
    """Whatever their name."""
    put(store, intake, line(4, "r1") + line(8, "r1"))
    before = dump(store.path)
    report = put(store, intake, line(4, "r1") + line(8, "r1"), "other.jsonl")
    assert report.kept is not None
    assert (report.kept.outcome, report.kept.rows) == ("same", {"mapped": 2})
    assert dump(store.path) == before
    assert len(list(RawFiles(tmp_path / "raw").all())) == 1


def test_unknown_formats_and_models_are_kept_with_a_reason(store: Store, intake: Intake) -> None:
    """Neither dropped nor guessed; when the mapping knows more, mapping again makes points of them."""
    assert put(store, intake, b"hello").kept.rows == {"unmapped": 1}  # type: ignore[union-attr]
    report = put(store, intake, line(4, "r1") + line(8, "r1", model="new"))
    assert report.kept is not None
    assert report.kept.rows == {"mapped": 1, "unmapped": 1}
    assert report.kept.verdicts == {"warnings": 1}
    ROWS["MODELS"].add("new")
    try:
        reports = list(map_again(store, intake))
    finally:
        ROWS["MODELS"].discard("new")
    assert [each.kept.rows for each in reports if each.kept] == [{"unmapped": 1}, {"mapped": 2}]
    assert reports[1].kept is not None
    assert reports[1].kept.changed == {"added": 0, "removed": 0, "altered": 2}  # the new point, and a verdict
    assert [one.verdict for one in load_points(store, PointFilter())] == ["valid", "valid"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_later_complete_attempt_counts(store: Store, intake: Intake, order: tuple[int, int]) -> None:
    """405.3 at the first attempt, 396.1 at the second: the second, whichever file comes first; both are kept."""
    files = [line(4, "r1", tput=405.3), line(4, "r1", tput=396.1, attempt=2)]
    for place in order:
        put(store, intake, files[place], f"{place}.jsonl")
    put(store, intake, line(4, "r1", tput=1.0, attempt=3, partial=True), "3.jsonl")
    (one,) = load_points(store, PointFilter())
    assert (one.value("tput"), one.attempt) == (396.1, 2)
    assert len(list(load_points(store, PointFilter(superseded=True)))) == 3
    rows = store.query("SELECT status, reason FROM import_row ORDER BY status")
    assert rows == [("mapped", ""), *[("superseded", "store.row.later_attempt")] * 2]


def test_equal_points_of_two_files_count_once(store: Store, intake: Intake) -> None:
    """The same row under another file name and beside another row."""
    put(store, intake, line(4, "r1"))
    put(store, intake, line(4, "r1") + line(8, "r1"), "b.jsonl")
    assert [one.concurrency for one in load_points(store, PointFilter())] == [4, 8]
    assert store.query("SELECT reason FROM import_row WHERE status = 'superseded'") == [("store.row.same",)]


def test_latest_is_one_run_of_each_configuration(store: Store, intake: Intake) -> None:
    """The newest with a usable point: a quarantined or partial night does not hide the last good one, and what the
    newest lacks is not filled in from an older one."""
    put(store, intake, line(4, "old", date="2026-05-01") + line(8, "old", date="2026-05-01"), "1")
    put(store, intake, line(4, "good", date="2026-05-02") + line(16, "x", hw="h200", date="2026-01-01"), "2")
    put(store, intake, line(4, "slow", date="2026-05-03", ttft=200.0), "3")
    put(store, intake, line(4, "torn", date="2026-05-04", partial=True), "4")
    found = [(one.hardware, one.run, one.concurrency) for one in load_points(store, PointFilter(latest=True))]
    assert found == [("b200", "good", 4), ("h200", "x", 16)]
    assert [one.run for one in load_points(store, PointFilter(latest=True, hardware="h200"))] == ["x"]
    plan = "EXPLAIN QUERY PLAN SELECT id FROM result_line WHERE config_id = 1 AND latest = 1 AND source = 's'"
    assert "result_line_latest" in str(store.query(plan))


def test_what_gates_say_follows_the_points_around(store: Store, intake: Intake) -> None:
    """A point alone in its run has a warning; when another file brings the rest of the run, it has none."""
    put(store, intake, line(4, "r1"), "1")
    (one,) = load_points(store, PointFilter())
    assert one.verdict == "warnings"
    assert [(f.gate, f.values) for f in findings_of(store, one.id)] == [("alone", {"points": 1})]
    put(store, intake, line(8, "r1"), "2")
    assert [each.verdict for each in load_points(store, PointFilter())] == ["valid", "valid"]
    assert findings_of(store, one.id) == []


def test_mapping_again_with_a_newer_version(store: Store, intake: Intake, tmp_path: Path) -> None:
    """Points are made anew from the kept bytes; damaged bytes leave the store as it is and are told."""
    put(store, intake, line(4, "r1") + line(8, "r1"), "1")
    put(store, intake, line(16, "r2"), "2")
    newer = replace(intake, importers=(ROWS["reading"](2),))
    assert [each.kept.changed["altered"] for each in map_again(store, newer) if each.kept] == [2, 1]
    assert {one.value("ttft") for one in load_points(store, PointFilter())} == {250.0}
    assert {one.mapping_version for one in load_points(store, PointFilter())} == {2}
    assert [one.verdict for one in load_points(store, PointFilter(latest=True))] == []
    before = dump(store.path)
    sha256, path = next(RawFiles(tmp_path / "raw").all())
    path.write_bytes(path.read_bytes()[:-9])
    bad = next(each for each in map_again(store, newer) if each.error)
    assert bad.error is not None
    assert (bad.sha256, bad.error.key) == (sha256, "store.raw_changed")
    path.unlink()
    bad = next(each for each in map_again(store, newer) if each.error)
    assert bad.error is not None
    assert bad.error.key == "store.raw_missing"
    assert dump(store.path) == before


def test_a_damaged_file_is_one_invalid_row(store: Store, intake: Intake) -> None:
    """Truncated in the middle: nothing of it becomes a point, its bytes are kept."""
    report = put(store, intake, line(4, "r1") + line(8, "r1")[:-9])
    assert report.kept is not None
    assert report.kept.rows == {"invalid": 1}
    assert list(load_points(store, PointFilter())) == []


def test_a_mapping_that_fails_is_no_trace(store: Store, intake: Intake) -> None:
    """A row without what the importer takes for granted: kept as invalid, with the importer's name and the error."""
    report = put(store, intake, b'{"conc": 4, "model": "dsr1"}\n')
    assert report.kept is not None
    assert report.kept.reasons[0].reason == "store.row.importer_failed"
    assert report.kept.reasons[0].values == {"importer": "rows", "error": "KeyError: 'run'"}


def test_many_rows_go_through_a_spill_file(
    store: Store, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than memory should hold, in several batches: the same as at once, a run over two batches judged whole."""
    monkeypatch.setattr("servemark.store.staging.IN_MEMORY", 20)
    monkeypatch.setattr("servemark.store.staging.BATCH", 7)
    put(store, intake, b"".join(line(each + 1, f"r{each // 8}") for each in range(64)))
    points = list(load_points(store, PointFilter()))
    assert [one.concurrency for one in points] == list(range(1, 65))
    assert {one.verdict for one in points} == {"valid"}


def test_a_spilled_row_comes_back_as_it_was() -> None:
    """Every part of it, with and without a point, what was foretold included."""
    told = Foretold(
        "tpot_s.p50", "interpolated", 0.01, 0.009, 0.011, 0.9, 30, None, "2026-11-30T00:00:00Z", "f", 0.0105
    )
    bare = Staged(0, "invalid", "store.row.importer_failed", "{}", None, Verdict.QUARANTINED, ())
    whole = Staged(1, "mapped", "", "{}", None, Verdict.WARNINGS, (("gate", "warning", "{}"),), (told, told))
    for each in (bare, whole):
        spilled = marshal.dumps([_bare(each)])
        assert [_dressed(row) for row in marshal.loads(spilled)] == [each]  # noqa: S302 - as the spill file is read


@pytest.mark.parametrize("limit", [4, 8, 100])
def test_a_long_run_is_judged_by_whole_lines(
    store: Store, intake: Intake, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """3 configurations of 6 concurrencies, in turn, in a run longer than may be held at once: each point still sees the
    other five of its line; above 8 a line fits, at 4 it is cut and no try of a point is parted from another."""
    for module in ("staging", "imports"):
        monkeypatch.setattr(f"servemark.store.{module}.MAX_TOGETHER", limit)
    monkeypatch.setattr("servemark.store.staging.BATCH", 4)

    def judge(points: Sequence[Point]) -> Sequence[Judged]:
        lines = [point.line_key for point in points]
        tries = [point.identity.point_key for point in points]
        return [
            ((GateFinding("seen", Severity.WARNING, {"line": lines.count(a), "tries": tries.count(b)}),), Verdict.WARNINGS)
            for a, b in zip(lines, tries, strict=True)
        ]  # fmt: skip

    rows = [line(conc, "r1", hw=hw) for conc in (1, 2, 4, 8, 16, 32) for hw in ("b200", "h200", "mi355x")]
    put(store, replace(intake, judge=judge), b"".join([*rows, line(1, "r1", hw="h200", attempt=2)]))
    seen = store.query("SELECT finding_values FROM gate_finding")
    told = [json.loads(values) for (values,) in seen]
    assert sorted(each["tries"] for each in told) == [1] * 17 + [2, 2]
    if limit >= 8:
        assert sorted(each["line"] for each in told) == [6] * 12 + [7] * 7


def test_a_backup_is_the_same_store(store: Store, intake: Intake, tmp_path: Path) -> None:
    """Equal dump and equal raw bytes; a second time changes nothing; a truncated or altered one is refused whole."""
    put(store, intake, line(4, "r1") + line(8, "r1", model="new") + line(8, "r1", ttft=200.0), "1")
    put(store, intake, line(4, "r1", attempt=2), "2")
    put(store, intake, b"hello" * 400_000, "3")
    data = "".join(write_backup(store, intake.raw)).encode()
    raw = RawFiles(tmp_path / "other" / "raw")
    into = replace(intake, raw=raw)
    with Store.open(tmp_path / "other" / "store.sqlite") as other:
        for bad in (data[:-30], data.replace(b'"part":"', b'"part":"AAAA', 1), data[: len(data) // 2]):
            with pytest.raises(ServemarkError) as caught:
                restore(other, into, lambda bad=bad: io.BytesIO(bad), "x")  # type: ignore[misc]
            assert caught.value.key == "store.backup_damaged"
            assert other.query("SELECT count(*) FROM import_source") == [(0,)]
        assert restore(other, into, lambda: io.BytesIO(data), "x") == Restored(3, 0, 5, 0, 0)
        assert dump(other.path) == dump(store.path)
        assert restore(other, into, lambda: io.BytesIO(data), "x") == Restored(0, 3, 0, 0, 0)
        assert other.check() == []
    assert [sha for sha, _ in raw.all()] == [sha for sha, _ in intake.raw.all()]


def test_a_point_by_its_name(store: Store, intake: Intake) -> None:
    """By its key's beginning, or by file and row."""
    put(store, intake, line(4, "r1") + line(8, "r1"))
    one, two = load_points(store, PointFilter())
    assert [each.id for each in find_points(store, one.point_key[:9])] == [one.id]
    assert [each.id for each in find_points(store, f"{one.file[:8]}:1")] == [two.id]
    assert find_points(store, "ffffffffffffffff0") == []


CHILD = """
import io, runpy, sys
from pathlib import Path
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.intake import Intake, take_in
from servemark.store.raw_files import RawFiles
home, rows, name, count = Path(sys.argv[1]), runpy.run_path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
intake = Intake(RawFiles(home / "raw"), (rows["reading"](1),), rows["judge"], "slow:1")
with Store.open(home / "store.sqlite") as store:
    print("ready", flush=True)
    for file in range(count):
        data = b"".join(rows["line"](c + 1, f"{name}{file}") for c in range(400))
        take_in(store, intake, Found(f"{name}{file}", len(data), lambda: io.BytesIO(data)))
        print(file, flush=True)
print("done")
"""


def start(home: Path, name: str, count: int) -> subprocess.Popen[str]:
    """An importer of `count` files of 400 rows each, in a process of its own."""
    argv = [
        sys.executable,
        "-c",
        CHILD,
        str(home),
        str(Path(__file__).with_name("rows_importer.py")),
        name,
        str(count),
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def sound(home: Path) -> int:
    """Files in the store, after making sure that each is there with all its rows or not at all."""
    with Store.open(home / "store.sqlite", read_only=True) as store:
        ask = "SELECT s.id, count(r.id), count(p.id) FROM import_source s LEFT JOIN import_row r ON r.source_id = s.id "
        ask += "LEFT JOIN result_point p ON p.id = r.id GROUP BY s.id"
        per_file = store.query(ask)
        assert all(rows == points == 400 for _, rows, points in per_file), per_file
        assert store.check() == []
        wrong = "SELECT count(*) FROM result_line WHERE points <> 400"
        assert store.query(wrong) == [(0,)]
        raw = RawFiles(home / "raw")
        assert all(raw.check(sha) == "ok" for (sha,) in store.query("SELECT sha256 FROM import_source"))
        return len(per_file)


def test_killed_thirty_times(tmp_path: Path) -> None:
    """kill -9 at any instant: every file is in with all its rows, or not at all, and the next importer goes on."""
    rng, seen = random.Random(5), []
    for number in range(30):
        process = start(tmp_path, f"k{number}-", 50)
        time.sleep(rng.uniform(0.0, 0.12))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        seen.append(sound(tmp_path))
    assert seen == sorted(seen)
    assert seen[-1] > 0


def test_two_importers_a_reader_and_a_run_at_once(tmp_path: Path) -> None:
    """Nobody fails, nothing is lost, and the reader never sees half a file."""
    both = [start(tmp_path, name, 12) for name in ("a", "b")]
    made = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))
    folder = made["make_point"](tmp_path / "runs", 1)
    from servemark.store.rebuild import ingest_run

    with Store.open(tmp_path / "store.sqlite") as sweep:
        assert ingest_run(sweep, folder) == "added"
    while any(process.poll() is None for process in both):
        sound(tmp_path)
    for process in both:
        assert process.communicate(timeout=60)[0].endswith("done\n")
        assert process.returncode == 0
    assert sound(tmp_path) == 24


def test_lost_bytes_come_back_with_the_file(store: Store, intake: Intake) -> None:
    """What `raw_missing` advises works: the same file again puts its bytes back."""
    report = put(store, intake, line(4, "r1"))
    intake.raw.path(report.sha256).unlink()
    again = put(store, intake, line(4, "r1"))
    assert again.kept is not None
    assert again.kept.outcome == "same"
    assert intake.raw.check(report.sha256) == "ok"


def test_a_backup_that_lost_rows_or_bytes_is_refused(store: Store, intake: Intake, tmp_path: Path) -> None:
    """The counts of its end line are compared, and every file must come with its bytes."""
    put(store, intake, line(4, "r1") + line(8, "r1"), "1")
    lines = "".join(write_backup(store, intake.raw)).splitlines(keepends=True)
    rows = [number for number, each in enumerate(lines) if each.startswith('{"row"')]
    fewer = lines[: rows[0]] + lines[rows[1] :]
    bare = [each for each in lines if not each.startswith('{"raw"')]
    for name, bad in (("a", fewer), ("b", bare)):
        into = replace(intake, raw=RawFiles(tmp_path / name / "raw"))
        with Store.open(tmp_path / name / "store.sqlite") as other:
            with pytest.raises(ServemarkError) as caught:
                restore(other, into, lambda bad=bad: io.BytesIO("".join(bad).encode()), "x")  # type: ignore[misc]
            assert caught.value.key == "store.backup_damaged"
            assert other.query("SELECT count(*) FROM import_source") == [(0,)]


def test_a_changed_backup_is_not_believed(store: Store, intake: Intake, tmp_path: Path) -> None:
    """A figure, a verdict and a reason edited in the rows: the points are those of the bytes, and three rows are told. A
    newer mapping's points are told apart from that; a pruned attempt stays away."""
    put(store, intake, line(4, "r1") + line(8, "r1", ttft=200.0) + line(8, "r1", model="new"), "1")
    put(store, intake, line(16, "r1") + line(16, "r1", attempt=2), "2")
    prune(store, intake.raw, keep=0, older_than="2030-01-01", dry_run=False)
    data = "".join(write_backup(store, intake.raw))
    assert data.count('"status":"superseded"') == 1
    edited = data.replace('"value":0.25', '"value":0.01', 1).replace(
        '"verdict":"quarantined"', '"verdict":"valid"'
    )
    edited = edited.replace('"reason":"store.row.unknown_format"', '"reason":"store.row.same"')
    for name, said, version, wanted in (
        ("whole", data, 1, Restored(2, 0, 5, 0, 0)),
        ("edited", edited, 1, Restored(2, 0, 5, 0, 3)),
        ("newer", data, 2, Restored(2, 0, 5, 3, 0)),  # version 2 says TTFT in other units
    ):
        into = replace(intake, raw=RawFiles(tmp_path / name / "raw"), importers=(ROWS["reading"](version),))
        with Store.open(tmp_path / name / "store.sqlite") as other:
            assert restore(other, into, lambda said=said: io.BytesIO(said.encode()), "x") == wanted, name  # type: ignore[misc]
            if version == 1:
                assert dump(other.path) == dump(store.path)


def test_a_name_that_is_no_text_is_kept_readable(store: Store, intake: Intake) -> None:
    """A file name need not be UTF-8, and one such name does not stop an import."""
    put(store, intake, line(4, "r1"), "half\udcff.jsonl")
    assert store.query("SELECT name FROM import_source") == [("half\\xff.jsonl",)]


def test_order_of_a_point_is_no_content(store: Store, intake: Intake) -> None:
    """The same point listed in another order, as a backup brings it, has the same content."""
    put(store, intake, line(4, "r1"))
    (held,) = load_points(store, PointFilter())
    turned = replace(held.point(), figures=dict(reversed(list(held.point().figures.items()))))
    assert list(turned.figures) != list(held.point().figures)
    assert Encoder().encode(turned) == Encoder().encode(held.point())


def test_a_damaged_row_is_told(store: Store, intake: Intake) -> None:
    """Flipped bytes in packed columns are an error of the store with its place, no traceback."""
    put(store, intake, line(4, "r1"))
    with store.writing():
        store.connection.execute("UPDATE figure_shape SET shape = x'789c00'")
    with pytest.raises(ServemarkError) as caught:
        next(iter(load_points(store, PointFilter()))).point()
    assert caught.value.key == "store.damaged"
