"""Raw records of a run as pages show them: bounded, honest about what is thinned out, and never misled by damage."""

from __future__ import annotations

import hashlib
import io
import json
import runpy
from pathlib import Path

import pytest

from servemark.analysis import request_view as module
from servemark.analysis.bench_records import bench_request_view, has_bench_records
from servemark.analysis.request_view import log_view, request_view, samples_view, ticks
from servemark.analysis.tracks import ENGINE_FILE, GPU_FILE, engine_tracks, gpu_tracks, track_of
from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.registry import importers
from servemark.results.serialize import SHA_KEY, row_sha256
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.imports import find_source
from servemark.store.intake import Intake, take_in
from servemark.store.points import find_points
from servemark.store.raw_files import RawFiles

MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run at concurrency 4 with failures."""
    made: Path = MADE["make_line"](tmp_path)[2]
    return made


def records(folder: Path) -> list[dict[str, object]]:
    """The measured requests, as JSON."""
    lines = (folder / "requests.jsonl").read_text().splitlines()
    return [each for line in lines if (each := json.loads(line))["phase"] == "measured"]


def test_every_request_has_its_bar_and_every_failure_its_line(folder: Path) -> None:
    """Counted against the file itself."""
    shown, raw = request_view(folder, "en"), records(folder)
    bad = [each for each in raw if each["outcome"] != "ok"]
    assert shown.lanes.total == len(raw) and shown.lanes.lanes == 4
    assert shown.failed_total == len(bad) and len(shown.failed) == len(bad)
    assert shown.lanes.ok.count(False) == sum(each["start_s"] is not None for each in bad)
    assert min(shown.lanes.start) == 0 and max(shown.lanes.end) == pytest.approx(
        shown.lanes.duration_s, abs=1e-3
    )
    lines = (folder / "requests.jsonl").read_text().splitlines()
    assert all(json.loads(lines[each.line - 1])["id"] == each.request for each in shown.failed)


def test_histograms_count_every_value(folder: Path) -> None:
    ok = [each for each in records(folder) if each["outcome"] == "ok"]
    shown = {each.metric: each for each in request_view(folder, "en").histograms}
    assert shown["output_tokens"].n == len(ok) == sum(shown["output_tokens"].counts)
    assert shown["ttft_s"].unit == "ms" and len(shown["ttft_s"].texts) == len(shown["ttft_s"].counts)


def test_a_huge_run_is_thinned_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for ten bars and fifty values: evenly chosen, all failures still drawn, nothing counted wrong."""
    monkeypatch.setattr(module, "MAX_BARS", 10)
    monkeypatch.setattr(module, "MAX_VALUES", 50)
    whole = len(records(folder))
    shown = request_view(folder, "en")
    assert 10 <= len(shown.lanes.start) <= 13 and shown.lanes.total == whole
    assert str(whole) in shown.lanes.note and str(len(shown.lanes.start)) in shown.lanes.note
    gaps = next(each for each in shown.histograms if each.metric == "chunk_gap_s")
    assert gaps.n > 50 and "one in" in gaps.note and sum(gaps.counts) < 50
    monkeypatch.setattr(module, "MAX_REQUESTS", 5)
    assert "5" in request_view(folder, "en").notes[0]


def written(folder: Path, data: bytes) -> None:
    """Other records, as if the result had been written over them."""
    (folder / "requests.jsonl").write_bytes(data)
    plain = json.loads((folder / "result.json").read_text())
    plain["files"]["requests.jsonl"] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    plain[SHA_KEY] = row_sha256(plain)
    (folder / "result.json").write_text(json.dumps(plain))


def test_a_torn_or_damaged_line_is_a_note(folder: Path) -> None:
    """What was read before it still counts; records that changed after their result are refused."""
    path = folder / "requests.jsonl"
    whole = path.read_bytes()
    written(folder, whole + b'{"id": "half')
    assert request_view(folder, "en").notes
    written(folder, whole[: len(whole) // 2].rpartition(b"\n")[0] + b"\n{}\n")
    shown = request_view(folder, "zh")
    assert shown.notes and shown.lanes.start
    written(folder, b"")
    assert request_view(folder, "en").lanes.start == ()
    path.write_bytes(whole)
    with pytest.raises(ServemarkError) as caught:
        request_view(folder, "en")
    assert caught.value.key == "results.file_changed"


def test_counters_become_rates_and_gauges_stay(tmp_path: Path) -> None:
    """100 tokens in 2 s are 50 a second; a counter that began anew leaves a gap; a constant is no track."""
    samples = [
        {"at_s": at, "counters": {"tokens_total": total, "running": run, "slots": 4}}
        for at, total, run in ((0, 0, 1), (2, 100, 3), (4, 300, 2), (6, 10, 2), (8, 30, 0))
    ]
    lines = [json.dumps(each) for each in samples]
    lines.insert(2, "not json")
    lines.insert(3, json.dumps({"at_s": float("nan"), "counters": {}}))
    (tmp_path / ENGINE_FILE).write_text("\n".join(lines) + "\n")
    group = engine_tracks(tmp_path, "en")
    assert group is not None and [track.label for track in group.tracks] == ["running", "tokens_total"]
    assert group.tracks[1].values == (None, 50.0, 100.0, None, 10.0) and group.tracks[1].unit == "a second"
    assert group.tracks[0].values == (1.0, 3.0, 2.0, 2.0, 0.0)
    assert engine_tracks(tmp_path / "none", "en") is None


def test_a_long_track_keeps_its_mean_in_few_points() -> None:
    """Ten thousand samples of a step from 0 to 10: 240 points, the step in the middle."""
    at = [float(i) for i in range(10_000)]
    track = track_of("x", "x", "W", at, [0.0] * 5000 + [10.0] * 5000)
    assert len(track.at) == 240 and track.values[0] == 0 and track.values[-1] == 10 and track.high == 10
    assert track.values[:120].count(0.0) == 120 and track.values[120:].count(10.0) == 120


def test_gpu_power_is_one_track_a_gpu_or_a_sum(tmp_path: Path) -> None:
    """Two GPUs: a track each. Nine GPUs of 100 W: one of 900 W."""
    head = "timestamp, index, power.draw [W]\n"
    rows = [f"2026/11/30 09:00:0{s}.000, {gpu}, 100.00\n" for s in range(3) for gpu in range(9)]
    (tmp_path / GPU_FILE).write_text(head + "".join(rows))
    group = gpu_tracks(tmp_path, "en")
    assert group is not None and len(group.tracks) == 1
    assert {value for value in group.tracks[0].values if value is not None} == {900.0}
    (tmp_path / GPU_FILE).write_text(head + "".join(row for row in rows if ", 0," in row or ", 1," in row))
    group = gpu_tracks(tmp_path, "en")
    assert group is not None and [track.label for track in group.tracks] == ["GPU 0", "GPU 1"]
    (tmp_path / GPU_FILE).write_text("nonsense\n")
    group = gpu_tracks(tmp_path, "en")
    assert group is not None and not group.tracks and group.note


@pytest.mark.parametrize("name", ["logs/../result.json", "/etc/passwd", "result.json", "logs/none.log", ""])
def test_no_name_leads_out_of_the_logs(folder: Path, name: str) -> None:
    with pytest.raises(ServemarkError):
        log_view(folder, name)


def test_the_end_of_a_long_log_is_shown_as_text(folder: Path) -> None:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "engine.log").write_bytes(b"x" * 200_000 + b"\nlast \x1b[31mline\xff\n")
    shown = log_view(folder, "logs/engine.log", "en")
    assert shown.text == "last \\x1b[31mline\ufffd\n" and "128" in shown.note


def test_samples_are_mixed(folder: Path) -> None:
    shown = samples_view(folder, "en", 10)
    assert len(shown.tasks[0].samples) == 10 and shown.tasks[0].samples_total == 100


@pytest.mark.parametrize(("duration", "step"), [(58.3, 10), (0.9, 0.2), (600, 100), (3700, 1000), (0, 0)])
def test_ticks_are_round(duration: float, step: float) -> None:
    """Worked out by hand: at most six steps of 1, 2 or 5."""
    found = [at for at, _ in ticks(duration)]
    assert len(found) <= 7 and (not found or found[1] == pytest.approx(step))


SAMPLES = Path(__file__).parents[1] / "results" / "samples"


@pytest.mark.parametrize(
    ("name", "ordinal"), [("sglang_bench/sglang.jsonl", 1), ("vllm_bench/detailed.json", 0)]
)
def test_requests_that_another_client_listed(tmp_path: Path, name: str, ordinal: int) -> None:
    """Details of eight requests: first tokens as listed, latencies their sums, lanes only where starts are told."""
    data = (SAMPLES / name).read_bytes()
    listed = json.loads(data.splitlines()[ordinal] if name.endswith("l") else data)
    home = Home(tmp_path / "home")
    hints = {"model": "m", "hardware": "h100"} | ({"engine": "vllm"} if name.startswith("vllm") else {})
    intake = Intake(RawFiles(home.raw), importers(), judge_all, gates_version(), hints)
    with Store.open(home.store) as store:
        assert take_in(store, intake, Found("bench.jsonl", len(data), lambda: io.BytesIO(data))).whole
        one = next(each for each in find_points(store, "") if each.ordinal == ordinal)
        source = find_source(store, one.file)
        assert source is not None and has_bench_records(source, one)
        shown = bench_request_view(RawFiles(home.raw), source, one, "en")
    starts = listed.get("start_times") or []
    assert shown is not None and bool(shown.notes) == (not starts) and len(shown.lanes.start) == len(starts)
    by_name = {each.metric: each for each in shown.histograms}
    assert by_name["ttft_s"].n == 8 and by_name["itl_s"].n == sum(map(len, listed["itls"]))
    assert by_name["ttft_s"].edges[0] == pytest.approx(1000 * min(listed["ttfts"]))
    longest = max(first + sum(gaps) for first, gaps in zip(listed["ttfts"], listed["itls"], strict=True))
    assert by_name["e2el_s"].edges[-1] == pytest.approx(1000 * longest)
