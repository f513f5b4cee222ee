"""The verbs around imports, through the command line: import, export, runs, show, doctor, prune."""

from __future__ import annotations

import csv
import io
import json
import os
import runpy
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servemark.cli.main import run_cli

ROWS = runpy.run_path(str(Path(__file__).parents[1] / "store" / "rows_importer.py"))
MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))
line = ROWS["line"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, with the tests' importer and gates as the only ones."""
    monkeypatch.setattr("servemark.results.importers.registry.importers", lambda: (ROWS["reading"](1),))
    monkeypatch.setattr("servemark.results.gates.registry.judge_all", ROWS["judge"])
    monkeypatch.setenv("SERVEMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two points of one run, one of them too slow, and a model that is not known."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line(4, "r1") + line(8, "r1", ttft=200.0) + line(4, "r1", model="new"))
    return path


def told(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    """(exit code, stdout)."""
    code = run_cli([str(each) for each in argv])
    return code, capsys.readouterr().out


def test_one_line_a_file_and_its_reasons(home: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, because a row was not mapped; in both languages; the second time the bytes are the same."""
    code, out = told(capsys, "import", file, "--dry-run")
    assert (code, home.exists()) == (1, False)
    assert "would be: 2 mapped, 1 unmapped" in out
    code, out = told(capsys, "import", file)
    assert code == 1
    assert out.splitlines() == [
        f"{file}: rows · 2 mapped, 1 unmapped",
        "  points quarantined: 1",
        "  1 unmapped: its format is not known",
    ]
    code, out = told(capsys, "import", file, "--lang", "zh")
    assert "相同的字节已存在" in out
    told(capsys, "runs", "--lang", "en")  # the language stays with the process
    code, out = told(capsys, "import", file, "--json")
    found = json.loads(out)
    assert (found["outcome"], found["rows"]) == ("same", {"mapped": 2, "unmapped": 1})


def test_show_says_where_a_figure_comes_from(
    home: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Point, figure, file, hash, place, mapping, gate with its numbers; changed bytes are told."""
    told(capsys, "import", file)
    _, out = told(capsys, "export", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["concurrency"], row["ttft"], row["verdict"]) for row in rows] == [
        ("4", "0.25", "valid"),
        ("8", "200.0", "quarantined"),
    ]
    key, sha256 = rows[1]["point_key"], rows[1]["file"]
    code, out = told(capsys, "show", key)
    assert code == 0
    assert "quarantined" in out
    code, out = told(capsys, "show", f"{sha256[:8]}:1", "ttft", "--why", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["value"], found["at"], found["row"], found["sha256"]) == (200.0, "/ttft", 1, sha256)
    assert found["gates"] == [{"gate": "slow", "severity": "quarantine", "values": {"ttft": 200.0}}]
    assert told(capsys, "show", key, "nothing")[0] == 1
    raw = Path(found["raw"])
    raw.write_bytes(b"x")
    code, out = told(capsys, "show", key, "ttft", "--why")
    assert code == 1
    assert "CHANGED" in out
    code, out = told(capsys, "doctor", "--json")
    kinds = {each["kind"]: each for each in map(json.loads, out.splitlines())}
    assert code == 1
    assert kinds["raw_changed"]["broken"]
    assert kinds["gate_quarantine"]["count"] == 1
    assert not kinds["left_out"]["broken"]


def test_runs_lists_both_kinds(home: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of this home, and imported ones by source."""
    MADE["make_point"](home / "runs", 1)
    told(capsys, "import", file)
    _, out = told(capsys, "runs", "--json")
    own, imported = map(json.loads, out.splitlines())
    assert own["state"] == "complete"
    assert (imported["source"], imported["run"], imported["points"], imported["usable"]) == (
        "rows",
        "r1",
        2,
        1,
    )
    assert len(told(capsys, "runs", "--json", "--source", "servemark")[1].splitlines()) == 1
    assert "r1" in told(capsys, "runs", "--source", "rows")[1]
    assert told(capsys, "runs", "--source", "nobody")[0] == 0


def test_an_export_comes_back(
    home: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole store through a file, and chosen points through another."""
    told(capsys, "import", file)
    assert told(capsys, "export", "-o", tmp_path / "all.jsonl")[0] == 0
    other = tmp_path / "other"
    assert told(capsys, "import", tmp_path / "all.jsonl", "--home", other)[0] == 0
    _, mine = told(capsys, "export")
    _, theirs = told(capsys, "export", "--home", other)
    assert mine == theirs
    assert told(capsys, "export", "--json", "--valid", "-o", tmp_path / "some.jsonl")[0] == 0
    third = tmp_path / "third"
    assert told(capsys, "import", tmp_path / "some.jsonl", "--home", third)[0] == 0
    (row,) = csv.DictReader(io.StringIO(told(capsys, "export", "--csv", "--home", third)[1]))
    assert (row["concurrency"], row["ttft"], row["run"]) == ("4", "0.25", "r1")
    assert told(capsys, "export", "--csv", "-o", tmp_path / "no" / "where.csv")[0] == 1


def test_parquet(home: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With pyarrow a table; without it what to install, and no file."""
    told(capsys, "import", file)
    out = tmp_path / "a.parquet"
    code = run_cli(["export", "--parquet", "-o", str(out)])
    try:
        import pyarrow.parquet as pq
    except ImportError:
        assert code == 2
        assert "servemark[parquet]" in capsys.readouterr().err
        assert not out.exists()
    else:
        assert pq.read_table(out).column("concurrency").to_pylist() == [4, 8]


def test_prune_takes_what_nothing_names(
    home: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old blob without a file goes, a young one stays; attempts only when asked for; a dry run is one."""
    (tmp_path / "2.jsonl").write_bytes(line(4, "r1", attempt=2))
    told(capsys, "import", file, tmp_path / "2.jsonl")
    for name, age in (("aa", 7200.0), ("bb", 0.0)):
        (home / "raw" / name).mkdir(exist_ok=True)
        blob = home / "raw" / name / ("0" * 62 + ".gz")
        blob.write_bytes(b"x")
        os.utime(blob, (time.time() - age,) * 2)
    assert json.loads(told(capsys, "prune", "--dry-run", "--json")[1])["blobs"] == 1
    assert (home / "raw" / "aa").exists()
    gone = json.loads(told(capsys, "prune", "--json")[1])
    assert (gone["blobs"], gone["points"]) == (1, 0)
    assert ((home / "raw" / "aa").exists(), (home / "raw" / "bb").exists()) == (False, True)
    assert (
        json.loads(told(capsys, "prune", "--keep", "0", "--older-than", "2026-05-01", "--json")[1])["points"]
        == 0
    )
    assert json.loads(told(capsys, "prune", "--keep", "0", "--json")[1])["points"] == 1
    assert told(capsys, "prune", "--older-than", "yesterday")[0] == 2
    assert told(capsys, "doctor")[0] == 0


def test_a_sound_home_and_a_broken_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Failed runs and results that are not in the store are findings; a changed file of a run is broken."""
    folder = MADE["make_point"](home / "runs", 1)
    MADE["make_failed"](home / "runs", 2)
    assert told(capsys, "doctor")[0] == 0
    (folder / "requests.jsonl").write_bytes(b"changed")
    code, out = told(capsys, "doctor", "--json")
    kinds = {json.loads(each)["kind"] for each in out.splitlines()}
    assert code == 1
    assert kinds == {"run_without_result", "run_changed"}


def test_a_newer_store_is_left_alone(home: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A clear message, and the store is as it was."""
    told(capsys, "import", file)
    db = sqlite3.connect(home / "store.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = (home / "store.sqlite").read_bytes()
    assert run_cli(["import", str(file)]) == 1
    assert "newer servemark" in capsys.readouterr().err
    assert told(capsys, "doctor")[0] == 1
    assert (home / "store.sqlite").read_bytes() == before


def test_bad_use(home: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and a sentence."""
    for argv in (
        ["prune"],
        ["import"],
        ["import", "--remap", str(file)],
        ["import", "--remap"],
        ["import", str(file), "--format", "nobody"],
        ["import", str(file), "--set", "hardware"],
        ["import", "nowhere.json"],
        ["export", "--parquet"],
    ):
        assert run_cli(argv) == 2, argv
        assert capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk(home: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was there before stays whole, nothing half of the new file, and the message says so."""
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(home)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        assert told(capsys, "import", file)[0] == 1
        _, before = told(capsys, "export", "--csv")
        big = tmp_path / "big.jsonl"
        big.write_bytes(b"".join(line(1 + i, f"r{i}", **{f"m{i % 50}": i / 7}) for i in range(6000)))
        assert run_cli(["import", str(big)]) == 1
        said = capsys.readouterr().err
        assert "space" in said or "full" in said, said
        assert told(capsys, "export", "--csv")[1] == before
        assert not list((home / "raw").glob(".*.tmp"))
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_stdin_of_a_process(home: Path, file: Path) -> None:
    """Through a real pipe, with the importers that are installed."""
    environment = {**os.environ, "SERVEMARK_HOME": str(home)}
    argv = [sys.executable, "-m", "servemark", "import", "-", "--json"]
    done = subprocess.run(argv, input=b"no format at all", capture_output=True, env=environment, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["rows"] == {"unmapped": 1}
    shutil.rmtree(home)


def test_a_hint_that_no_importer_takes_is_refused(
    file: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the pen must not be ignored without a word."""
    assert run_cli(["import", str(file), "--set", "hardwear=h200"]) == 2
    assert "hardwear" in capsys.readouterr().err and not home.exists()


def test_a_store_that_cannot_be_read_is_no_success(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`runs` lists the folders all the same, says what is wrong, and ends with 1; as JSON too."""
    home.mkdir()
    (home / "store.sqlite").write_bytes(b"no database at all, but long enough to be looked at" * 40)
    for more in ((), ("--json",)):
        assert run_cli(["runs", *more]) == 1
        assert "store.sqlite" in capsys.readouterr().err


def test_names_of_files_stay_on_one_line(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name with a line feed and escapes cannot print a line of ours, wherever it is shown."""
    folder = tmp_path / "in"
    folder.mkdir()
    good = folder / "a\nother.json: rows \u00b7 9 mapped\x1b[31m\u202e.jsonl"
    good.write_bytes(line(4, "r1\n=x\x1b[31m"))
    (folder / "l\nink\x1b").symlink_to(good)
    shown = [told(capsys, "import", folder)[1]]
    key = next(csv.DictReader(io.StringIO(told(capsys, "export", "--csv")[1])))["point_key"]
    shown += [
        told(capsys, "show", key)[1],
        told(capsys, "show", key, "ttft", "--why")[1],
        told(capsys, "runs")[1],
    ]
    for blob in (home / "raw").glob("*/*.gz"):
        blob.write_bytes(b"x")
    shown.append(told(capsys, "doctor")[1])
    run_cli(["import", str(folder / "no\nthing\x1b")])
    shown.append(capsys.readouterr().err)
    for out in shown:
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert not any(each.startswith(("other.json", "=x", "ink", "thing")) for each in out.splitlines()), (
            out
        )
    assert len(shown[0].splitlines()) == 4


def test_a_run_folder_is_checked_however_it_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """FOLDER and FOLDER/result.json alike; the result.json of another tool is not held to a manifest.json beside it."""
    records = MADE["make_point"](tmp_path / "elsewhere", 1) / "requests.jsonl"
    records.write_bytes(records.read_bytes().replace(b"ok", b"no", 1))
    said = []
    for argument in (records.parent, records.parent / "result.json"):
        code, out = told(capsys, "import", argument, "--json")
        assert (code, json.loads(out)["outcome"]) == (1, "refused")
        said.append(json.loads(out)["error"]["key"])
    assert said[0] == said[1]
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    (other / "result.json").write_bytes(line(4, "r1"))
    assert told(capsys, "import", other / "result.json")[0] == 0


def test_rows_that_repeat_within_a_file(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file's repeat is not said to have come in another file, and another file's is."""
    path = tmp_path / "twice.jsonl"
    path.write_bytes(line(4, "r1") * 2)
    _, out = told(capsys, "import", path)
    assert "1 superseded: the same point stands in this file more than once" in out
    path.write_bytes(line(4, "r1").replace(b": ", b":  "))
    assert "the same point came in another file" in told(capsys, "import", path)[1]


def test_show_says_where_it_looked(home: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A home of points without runs is not told to run something first."""
    told(capsys, "import", file)
    for name in ("nope", "abcd1234", "0" * 64 + ":3"):
        for argv in (["show", name], ["show", name, "ttft", "--why"]):
            assert run_cli(argv) == 2
            said = capsys.readouterr().err
            assert f"no run, line or point '{name}'" in said
            assert "servemark export --csv" in said


@pytest.mark.parametrize("emptied", [True, False])
def test_doctor_misses_a_lost_store(
    home: Path, file: Path, capsys: pytest.CaptureFixture[str], emptied: bool
) -> None:
    """Kept bytes without the store that named them are broken; what the message advises brings the points back."""
    told(capsys, "import", file)
    for each in home.glob("store.sqlite*"):
        each.unlink()
    if emptied:
        (home / "store.sqlite").touch()
    code, out = told(capsys, "doctor", "--json")
    (found,) = [json.loads(each) for each in out.splitlines()]
    assert (code, found["kind"], found["count"]) == (1, "store_lost", 1)
    data = subprocess.run(["gunzip", "-c", found["names"][0]], check=True, capture_output=True).stdout
    file.write_bytes(data)
    told(capsys, "import", file)
    assert told(capsys, "doctor")[0] == 0


def test_a_run_that_came_back_in_an_export_is_among_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Doctor does not call it missing, and what it advises for one that is works."""
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setenv("SERVEMARK_HOME", str(first))
    MADE["make_point"](first / "runs", 1)
    kinds = [json.loads(each)["kind"] for each in told(capsys, "doctor", "--json")[1].splitlines()]
    assert kinds == ["no_store"]
    told(capsys, "import", first / "runs")
    told(capsys, "export", "-o", tmp_path / "all.jsonl")
    monkeypatch.setenv("SERVEMARK_HOME", str(second))
    shutil.copytree(first / "runs", second / "runs")
    told(capsys, "import", tmp_path / "all.jsonl")
    kinds = [json.loads(each)["kind"] for each in told(capsys, "doctor", "--json")[1].splitlines()]
    assert not {"run_not_in_store", "result_without_run"} & set(kinds)
    db = sqlite3.connect(second / "store.sqlite")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("DELETE FROM run")
    db.execute("DELETE FROM raw_row")
    db.commit()
    db.close()
    _, out = told(capsys, "doctor")
    assert f"servemark import {second / 'runs'}" in out
    told(capsys, "import", second / "runs")
    assert "not in the store" not in told(capsys, "doctor")[1]
