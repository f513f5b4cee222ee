"""`servemark front` as a person or a program calls it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.made_points import IDENTITY
from tests.analysis.made_store import a_point, fill

from servemark.cli.main import run_cli
from servemark.cli.scatter import Mark, scatter
from servemark.cli.text_table import columns_of

BAD = (
    ["--x", "nothing"],
    ["--x", "concurrency"],
    ["colour=red"],
    ["--target", "nan"],
    ["--card", "none-such"],
    ["--cols", "x"],
)
BAD_NAME = "b200\x1b[31m=cmd"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """h100: (20, 900) (40, 700) (80, 300) at loads 16, 8, 4; a b200 with a hostile name: (50, 600); one without p50."""
    points = [
        a_point(
            {"tpot_s.p50": 1 / x, "total_tokens_per_s_per_gpu": y},
            identity=replace(IDENTITY, concurrency=load),
        )
        for x, y, load in ((20, 900.0, 16), (40, 700.0, 8), (80, 300.0, 4))
    ]
    other = replace(IDENTITY, hardware=BAD_NAME, concurrency=4)
    points.append(a_point({"tpot_s.p50": 1 / 50, "total_tokens_per_s_per_gpu": 600.0}, identity=other))
    points.append(a_point({"total_tokens_per_s_per_gpu": 9000.0}, identity=replace(other, concurrency=1)))
    return fill(tmp_path, points)


def call(capsys: pytest.CaptureFixture[str], home: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    code = run_cli(["front", *words, "--home", str(home), *([] if "--lang" in words else ["--lang", "en"])])
    done = capsys.readouterr()
    return code, done.out, done.err


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 60, 120])
@pytest.mark.parametrize("more", [(), ("--all-lines",), ("--no-plot",)])
def test_table_and_plot_fit(
    home: Path, capsys: pytest.CaptureFixture[str], lang: str, width: int, *, more: tuple[str, ...]
) -> None:
    """No line is wider than the terminal, and nothing that steers it comes through."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(width))
        code, out, _ = call(capsys, home, "--lang", lang, *more)
    assert code == 0
    assert max(columns_of(line) for line in out.splitlines()) <= width
    assert "\x1b" not in out
    assert ("┤" in out) == (more != ("--no-plot",))
    for figure in ("900", "700", "600", "300", "20.0", "80.0"):
        assert figure in out


def test_colour_only_on_a_terminal(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR stands for a terminal; NO_COLOR takes the colours away again; the words are the same."""
    _, plain, _ = call(capsys, home)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, coloured, _ = call(capsys, home)
    assert "\x1b[" in coloured and "\x1b[31m" not in plain
    monkeypatch.setenv("NO_COLOR", "1")
    _, bare, _ = call(capsys, home)
    assert ";5;" not in bare and "\x1b[3" not in bare.replace("\x1b[38", "\x1b[3")


def test_target_by_hand_and_exit_codes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 60: 300 was measured, 500 is the estimate between loads 8 and 4; at 90 nothing was measured: exit 1."""
    code, out, _ = call(capsys, home, "--target", "60", "hardware=h100")
    said = " ".join(out.replace("\u202f", " ").split())
    assert code == 0
    assert "gives 300 tok/s/GPU: h100 · e (TP8, concurrency 4), at 80.0 tok/s/user" in said
    assert "500 tok/s/GPU, between its points at concurrency 8 and concurrency 4" in said
    code, out, _ = call(capsys, home, "--target", "90")
    assert code == 1
    assert "No measured point reaches 90" in out
    code, out, _ = call(capsys, home, "hardware=none")
    assert code == 1
    assert "there is: model=m (fixed-seq-len:1024/1024)" in out
    for bad in BAD:
        code, _, err = call(capsys, home, *bad)
        assert code == 2, bad
        assert "Traceback" not in err
    code, _, err = call(capsys, home / "empty")
    assert code != 0
    assert err


def test_for_programs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object; CSV with every point, its reason, and no cell that a spreadsheet runs."""
    body = json.loads(call(capsys, home, "--json")[1])
    assert body["columns"]["state"].count("on") == 4
    assert body["left_out"][0]["points"] == 1
    rows = list(csv.DictReader(io.StringIO(call(capsys, home, "--csv", "--cols", "ttft_s.p50")[1])))
    assert len(rows) == 5
    lacking = [row for row in rows if row["state"] == "absent"]
    assert [row["interactivity.p50 [tok/s/user]"] for row in lacking] == [""]
    assert lacking[0]["reason"]
    assert {row["ttft_s.p50"] for row in rows} == {""}


def test_a_cost_axis_names_its_card(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The usual card is taken, and named with its date."""
    code, out, _ = call(capsys, home, "--y", "usd_per_million_total_tokens", "hardware=h100")
    assert code == 0
    assert "by the rate card" in " ".join(out.split())
    body = json.loads(call(capsys, home, "--y", "usd_per_million_total_tokens", "--json")[1])
    assert "@20" in body["card"]


def test_marks_stand_where_their_values_say() -> None:
    """The front's letters are drawn over dots; higher is above, larger is right; no room, no drawing."""
    rows = scatter(
        [Mark(0, 10, "a", True), Mark(10, 0, "b", True), Mark(0, 10, "z", False)],
        [(0, 10), (0, 0), (10, 0)],
        20,
        5,
    )
    drawn = ["".join(cell.letter for cell in row) for row in rows]
    assert drawn[0].startswith("a")
    assert drawn[-1].endswith("b")
    assert "z" not in "".join(drawn)
    assert all(line[0] in "│─" for line in drawn[1:])
    assert scatter([], [], 20, 5) == []
    assert scatter([Mark(1, 1, "a", True)], [], 5, 5) == []


def test_a_lead_within_the_noise_of_repeats_is_no_lead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """700 against 680 is a factor of 1.03, and repeats of this kind of load are taken to vary by several per cent; 700
    against 300 is beyond any of that. The page says the same, by the same noise."""
    for other, said in ((680.0, "cannot be told"), (300.0, "by a factor of 2.33.")):
        points = [
            a_point(
                {"tpot_s.p50": 1 / 40, "total_tokens_per_s_per_gpu": y},
                identity=replace(IDENTITY, hardware=hardware),
            )
            for hardware, y in (("h100", 700.0), ("b200", other))
        ]
        home = fill(tmp_path / str(other), points)
        code, out, _ = call(capsys, home, "--target", "30", "--no-plot")
        assert code == 0
        assert said in " ".join(out.split())


@pytest.mark.parametrize(("lang", "said"), [("en", "quarantined"), ("zh", "隔离")])
def test_a_run_that_gates_quarantined_whole_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lang: str, said: str
) -> None:
    """An older good run stays the latest; the newer one is counted with its gate, and alone it says why."""
    figures = {"tpot_s.p50": 0.02, "total_tokens_per_s_per_gpu": 900.0}
    points = [
        a_point(figures),
        a_point(figures, run="r2", at="2026-01-02"),
        a_point(figures, run="r0", at="2025-12-31"),
    ]
    home = fill(tmp_path, points, quarantined=(1, 2))
    code, out, _ = call(capsys, home, "--lang", lang)
    assert code == 0
    assert said in out and ("1 of 2 selected" in out or lang == "zh")
    assert "r2" in call(capsys, home, "--lang", lang, "--all-lines")[1]
    code, out, _ = call(capsys, home, "run=r2", "--lang", lang)
    assert code == 1
    assert said in out and "2026-01-02" in out and "servemark show " in out
    ref = out.partition("servemark show ")[2].split()[0]
    assert run_cli(["show", ref, "--home", str(home), "--lang", lang]) == 0
    assert said in capsys.readouterr().out
