"""`servemark compare`: sides of every kind, exit codes, and outputs that hostile names cannot spoil."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.cli.compare_sides import side_of
from servemark.cli.import_files import intake_of
from servemark.cli.main import run_cli
from servemark.cli.text_table import columns_of

HOSTILE = "<img src=x onerror=alert(1)> | `x` [a](http://b) @all \x1b[31m\u202e"


def rows(
    rate: float, *, model: str = "m", run: str = "r", day: str = "20260501", loads: int = 4
) -> list[dict[str, object]]:
    """Results as vLLM's tool writes them, one a load; all are made here."""
    return [
        {
            "date": f"{day}-120000", "backend": "vllm", "model_id": model, "tokenizer_id": model,
            "num_prompts": 100 * c, "max_concurrency": c, "duration": 100.0, "completed": 100 * c,
            "total_input_tokens": 100_000 * c, "total_output_tokens": 50_000 * c,
            "request_throughput": 1.0 * c, "output_throughput": rate * c, "total_token_throughput": 3 * rate * c,
            "mean_ttft_ms": 100.0 + c, "median_ttft_ms": 100.0 + c, "p99_ttft_ms": 200.0 + c,
            "mean_tpot_ms": 10.0 + c, "median_tpot_ms": 10.0 + c, "p99_tpot_ms": 20.0 + c,
            "mean_itl_ms": 10.0, "median_itl_ms": 10.0, "p99_itl_ms": 20.0,
            "mean_e2el_ms": 5000.0, "median_e2el_ms": 5000.0, "p99_e2el_ms": 6000.0,
            "request_rate": "inf", "burstiness": 1.0, "label": run,
        }
        for c in (1, 2, 4, 8)[:loads]
    ]  # fmt: skip


@pytest.fixture(name="home")
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("SERVEMARK_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return home


def write(path: Path, some: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(some))
    return path


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = run_cli(["compare", *map(str, words), "--lang", "en"])
    out = capsys.readouterr()
    return code, out.out + out.err


HINTS = ("--set", "hardware=h100", "--set", "gpus=8")


def test_two_files_and_exit_codes(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half the throughput is worse at any noise that is assumed (15 %); 1 % is nothing."""
    a, near = write(tmp_path / "a.json", rows(100)), write(tmp_path / "n.json", rows(101))
    half = write(tmp_path / "h.json", rows(40))
    for b, fail_on, code in (
        (half, "worse", 1), (half, "any", 1), (half, "none", 0), (near, "any", 0), (a, "any", 0),
    ):  # fmt: skip
        assert told(capsys, a, b, "--fail-on", fail_on, *HINTS)[0] == code, (b, fail_on)
    assert told(capsys, half, a, "--fail-on", "worse", *HINTS)[0] == 0
    assert told(capsys, half, a, "--fail-on", "any", *HINTS)[0] == 1
    assert not home.exists(), "files are read and not stored"


def test_json_says_all(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.json", rows(100)), write(tmp_path / "b.json", rows(40, loads=3))
    _, out = told(capsys, a, b, "--json", *HINTS)
    view = json.loads(out)
    assert view["verdict"] == "worse"
    assert len(view["pairs"]) == 3
    assert [each["reason"] for each in view["left_a"]] == [
        "the other side has no such configuration at this load"
    ]
    (rate,) = [m for m in view["metrics"] if m["address"] == "total_tokens_per_s_per_gpu"]
    assert rate["mean_percent"] == pytest.approx(-60)
    (line, *_) = view["curves"]
    assert line["kind"] == "line" and line["mean_percent"] == pytest.approx(-60)


def test_a_terminal_of_80_columns(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.json", rows(100)), write(tmp_path / "b.json", rows(40))
    for lang in ("en", "zh"):
        run_cli(["compare", str(a), str(b), *HINTS, "--lang", lang])
        out = capsys.readouterr().out
        assert "●" in out and "○" in out
        assert max(map(columns_of, out.splitlines())) <= 80


def test_markdown_is_safe_and_short(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model's name that tries to be markup, a link, a mention, a table cell, a terminal's command."""
    a, b = (
        write(tmp_path / "a.json", rows(100, model=HOSTILE)),
        write(tmp_path / "b.json", rows(40, model=HOSTILE)),
    )
    code, out = told(capsys, a, b, "--markdown", *HINTS)
    assert code == 0
    assert len(out) < 6000
    assert "\\<img" in out and "\\[a\\](http" in out and "\\@all" in out
    assert not re.search(r"(?<!\\)<(?!details|/details|summary|/summary)", out)
    assert "\x1b" not in out and "\u202e" not in out
    assert len({line.count(" | ") for line in out.splitlines() if line.startswith("| ")}) <= 2
    assert "\x1b" not in told(capsys, a, b, *HINTS)[1]


def test_a_commit(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files of a commit against the working tree; no checkout, and no option can be smuggled in."""
    repository = tmp_path / "suite"
    write(repository / "results" / "a.json", rows(100))

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True
        )

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    write(repository / "results" / "a.json", rows(40))
    write(repository / "results" / "new.json", rows(1, model="other"))
    by_path = told(capsys, f"HEAD:{repository}/results", repository / "results", "--json", *HINTS)
    assert by_path[0] == 0
    assert json.loads(by_path[1])["verdict"] == "worse"
    assert json.loads(by_path[1])["pairs"][0]["a_refs"] != json.loads(by_path[1])["pairs"][0]["b_refs"]
    for side in (
        f"--output=x:{repository}",
        f"nosuch:{repository}",
        f"HEAD:{repository}/none",
        "HEAD~99:x",
        "a:b",
    ):
        code, out = told(capsys, "--", side, repository / "results")
        assert code == 2, (side, out)
        assert "Traceback" not in out
    assert not (tmp_path / "x").exists()
    for side, key in (("HEAD:/etc/passwd", "compare.outside"), ("HEAD:/etc/../etc/hosts", "compare.outside")):
        code, out = told(capsys, side, repository / "results", "--json")  # no word of `plan` and its options
        assert code == 2 and json.loads(out)["error"]["key"] == key, out


def test_the_store_by_selection_date_and_run(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two days, two kinds of hardware: by date the newest up to a day; by selection the named field may differ."""
    for day, rate, hardware in (
        ("2026-05-01", 100, "h100"),
        ("2026-05-09", 40, "h100"),
        ("2026-05-09", 300, "h200"),
    ):
        name = write(tmp_path / f"{day}-{hardware}.json", rows(rate, day=day.replace("-", "")))
        said = [
            "--set",
            f"hardware={hardware}",
            "--set",
            f"date={day}",
            "--set",
            f"run={day}-{hardware}",
            "--set",
            "gpus=8",
        ]
        assert run_cli(["import", str(name), *said]) == 0
    capsys.readouterr()
    code, out = told(capsys, "@2026-05-03", "@2026-05-10", "hardware=h100", "--json")
    view = json.loads(out)
    assert (code, view["verdict"], len(view["pairs"])) == (0, "worse", 4)
    assert (
        told(capsys, "@2026-05-03", "@2026-05-03..2026-05-10", "hardware=h100", "--fail-on", "worse")[0] == 1
    )
    code, out = told(capsys, "hardware=h100", "hardware=h200", "--json")
    view = json.loads(out)
    assert (view["verdict"], {pair["level"] for pair in view["pairs"]}) == ("better", {"fields"})
    assert view["pairs"][0]["changed"][0]["field"] == "hardware"
    code, out = told(capsys, "run=2026-05-01-h100", "2026-05-09-h200")
    assert code == 1
    assert "--by hardware" in out
    assert told(capsys, "2026-05-01-h100", "2026-05-09-h100", "--fail-on", "worse")[0] == 1


@pytest.mark.parametrize(
    "side",
    [
        "",
        "nosuch",
        "@",
        "@2026-13-01",
        "@..",
        "colour=red",
        "hardware=h100",
        "\x00",
        "a" * 5000,
        "hardware=h100 colour=1",
        "latest",
    ],
)
def test_what_is_no_side(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], side: str) -> None:
    good = write(tmp_path / "a.json", rows(100))
    code, out = told(capsys, side, good, *HINTS)
    assert code == 2
    assert "next" in out


def test_files_without_results(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "empty").mkdir()
    good = write(tmp_path / "a.json", rows(100))
    assert told(capsys, tmp_path / "bad.json", good)[0] == 2
    assert told(capsys, tmp_path / "empty", good)[0] == 2
    mixed = write(tmp_path / "mixed" / "a.json", rows(100))
    (mixed.parent / "b.json").write_text("[1")
    code, out = told(capsys, good, mixed.parent, *HINTS)
    assert code == 0
    assert "b.json" in "".join(out.split()), "a long path is broken over lines"


BAD = (
    ("--by", "scenario"),
    ("--by", "x"),
    ("--metric", "x"),
    ("--metric", "window_s"),
    ("--x", "window_s"),
    ("--set", "x=1"),
)


@pytest.mark.parametrize(("option", "value"), BAD)
def test_bad_options(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    good = write(tmp_path / "a.json", rows(100))
    assert told(capsys, good, good, option, value, *HINTS)[0] == 2


def test_runs_of_this_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two lines of one arm by their ids, `latest`, and one run of a line by its own."""
    make = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))["make_point"]
    for line in ("20261201-100000-made-aaaaaa", "20261202-100000-made-bbbbbb"):
        for concurrency in (1, 2):
            make(home / "runs", concurrency, line=line)
    code, out = told(capsys, "20261201-100000-made-aaaaaa", "latest", "--json")
    view = json.loads(out)
    assert (code, len(view["pairs"]), view["problems"]) == (0, 2, [])
    assert (view["a_label"], view["b_label"]) == (
        "20261201-100000-made-aaaaaa",
        "20261202-100000-made-bbbbbb",
    )
    assert any(each["address"].startswith("eval_score") for each in view["pairs"][0]["judged"])
    one = told(capsys, "20261201-100000-made-aaaaaa-c2", "latest", "--json")
    assert len(json.loads(one[1])["pairs"]) == 1
    itself = told(capsys, "latest", "latest", "--fail-on", "any", "--json")
    assert (itself[0], json.loads(itself[1])["verdict"]) == (0, "same")


def test_an_empty_side_is_none_and_not_the_whole_store(tmp_path: Path) -> None:
    """`compare "$BASE" after.json` with BASE unset must say so."""
    home = Home(tmp_path)
    for empty in ("", " "):
        with pytest.raises(ServemarkError) as found:
            side_of(empty, (), home, intake_of(home, ()))
        assert found.value.key == "compare.no_side"
