"""`servemark sweep` from outside: the plan's own points, one schema for machines, a table that fits, clear refusals."""

from __future__ import annotations

import json
import os
import runpy
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.base.home import Home
from servemark.base.messages import set_language
from servemark.cli.main import run_cli
from servemark.cli.sweep_view import status_lines
from servemark.cli.text_table import columns_of
from servemark.runs.sweep_control import create
from servemark.runs.sweep_plan import SweepOptions
from servemark.runs.sweep_status import read_status
from servemark.store.sweep_rows import PointState

MADE = runpy.run_path(str(Path(__file__).with_name("sweep_commands.py")))
SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "sweep.schema.json"
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command line on a home of the test's own: (exit code, stdout, stderr)."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = run_cli([*words, "--home", str(tmp_path / "home")])
        finally:
            set_language(None)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def check(value: object, schema: dict[str, object], where: str = "$") -> None:
    """The part of JSON Schema that our schema uses."""
    if "anyOf" in schema:
        kinds = schema["anyOf"]
        assert isinstance(kinds, list)
        if value is None:
            assert {"type": "null"} in kinds, where
            return
        schema = kinds[0]
    if "enum" in schema:
        assert value in schema["enum"], where  # type: ignore[operator]
    kind: dict[str, type | tuple[type, ...]] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    if "type" in schema:
        assert isinstance(value, kind[str(schema["type"])]), f"{where}: {value!r}"
    if isinstance(value, dict):
        fields = schema["properties"]
        assert isinstance(fields, dict)
        assert set(value) == set(fields), where
        for name, each in value.items():
            check(each, fields[name], f"{where}.{name}")
    if isinstance(value, list):
        for number, each in enumerate(value):
            check(each, schema["items"], f"{where}[{number}]")  # type: ignore[arg-type]


def test_a_rehearsal_has_the_points_of_the_plan_and_fits_the_schema(cli: Cli, tmp_path: Path) -> None:
    """Same ids as `plan` shows, in one unit; everything done, nothing under runs/."""
    code, out, _ = cli("sweep", "start", "quickstart", "--rehearse", "--json")
    assert code == 0
    body = json.loads(out)
    suite = Path(__file__).resolve().parents[2] / "suites" / "quickstart"
    planned = json.loads(cli("plan", str(suite), "--json")[1])
    assert {p["point_id"] for p in body["points"]} == {p["point_id"] for p in planned["points"]}
    assert {p["recipe_fingerprint"] for p in body["points"]} == {
        p["recipe"]["fingerprint"] for p in planned["points"]
    }
    assert [point["unit"] for point in body["points"]] == [1, 1, 1]
    assert body["counts"]["done"] == body["total"] == 3
    assert not (tmp_path / "home" / "runs").exists()
    check(body, json.loads(SCHEMA.read_text(encoding="utf-8")))
    status = json.loads(cli("sweep", "status", "--json")[1])
    assert status == body
    listed = json.loads(cli("sweep", "list", "--json")[1])
    assert (listed["sweep_id"], listed["state"], listed["counts"]["done"]) == (body["sweep_id"], "done", 3)


def test_canary_alone_and_by_point(cli: Cli) -> None:
    """The smallest point (concurrency 1) is a unit of its own and goes first; --by-point makes three units."""
    body = json.loads(cli("sweep", "start", "quickstart", "--rehearse", "--canary", "--json")[1])
    assert [(p["concurrency"], p["unit"], p["canary"]) for p in body["points"]] == [
        (1, 1, True),
        (2, 2, False),
        (4, 2, False),
    ]
    body = json.loads(cli("sweep", "start", "quickstart@2,4", "--rehearse", "--by-point", "--json")[1])
    assert [(p["concurrency"], p["unit"]) for p in body["points"]] == [(2, 1), (4, 2)]
    chosen = cli("sweep", "start", "quickstart", "--rehearse", "--canary-point", "quickstart@4", "--json")[1]
    assert [p["concurrency"] for p in json.loads(chosen)["points"]] == [4, 1, 2]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["status"], "runs.sweep.none_yet"),
        (["start", "quickstart@1,3"], "runs.sweep.matches_nothing"),
        (["start", "quickstart/nope"], "runs.sweep.matches_nothing"),
        (["start", "quickstart", "--canary-point", "quickstart"], "runs.sweep.canary_choice"),
        (["start", "quickstart", "--cluster", "nope"], None),
        (["start", "quickstart", "--secret", "SERVEMARK_NO_SUCH"], None),
        (["start", "quickstrat", "--suite", "quickstart"], "plan.no_match_near"),
        (["retry", "latest"], "cli.sweep.retry_what"),
    ],
)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_bad_use(cli: Cli, tmp_path: Path, words: list[str], key: str | None, lang: str) -> None:
    """Exit code 2, what and what next in the chosen language, and nothing was made."""
    code, out, _ = cli("sweep", *words, "--json", "--lang", lang)
    error = json.loads(out)["error"]
    assert code == 2
    assert key is None or error["key"] == key
    assert error["what"] and error["next"]
    assert not (tmp_path / "home" / "sweeps").exists()


def test_local_is_this_machine(cli: Cli) -> None:
    """As for `run`: where no clusters file gives the name to another, `local` needs none."""
    code, out, _ = cli("sweep", "start", "quickstart@1", "--rehearse", "--cluster", "local", "--json")
    assert code == 0 and len(json.loads(out)["points"]) == 1


def test_names_of_sweeps_and_points(cli: Cli) -> None:
    """Unknown and ambiguous ones are told with what there is."""
    for _ in range(2):
        cli("sweep", "start", "quickstart", "--rehearse", "--json")
    assert json.loads(cli("sweep", "status", "nope", "--json")[1])["error"]["key"] == "runs.sweep.unknown"
    assert json.loads(cli("sweep", "status", "2", "--json")[1])["error"]["key"] == "runs.sweep.ambiguous"
    for words, key in (
        (["resume", "latest"], "over"),
        (["pause", "latest"], "over"),
        (["cancel", "latest"], "over"),
    ):
        assert json.loads(cli("sweep", *words, "--json")[1])["error"]["key"] == f"runs.sweep.{key}"
    error = json.loads(cli("sweep", "retry", "latest", "quickstart@77", "--json")[1])["error"]
    assert error["key"] == "runs.sweep.no_point"
    code, out, _ = cli("sweep", "retry", "latest", "2", "--json")
    assert (code, [p["attempts"] for p in json.loads(out)["points"]]) == (0, [1, 2, 1])
    assert cli("sweep", "retry", "latest", "--failed")[0] == 0


def test_changed_files(cli: Cli, make_suite: Callable[..., Path], tmp_path: Path) -> None:
    """A comment changes no point; another argument of the engine does, and the point is not run as what it was."""
    home, suite = Home(tmp_path / "home"), make_suite()
    recipe = suite / "recipes" / "tiny.yaml"
    create(home, SweepOptions(selectors=(f"{suite}:tiny@1",), rehearse=True))
    recipe.write_text("# a remark\n" + recipe.read_text(encoding="utf-8"), encoding="utf-8")
    assert cli("sweep", "resume", "latest")[0] == 0
    create(home, SweepOptions(selectors=(f"{suite}:tiny@1",), rehearse=True))
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("4096", "8192"), encoding="utf-8")
    code, out, _ = cli("sweep", "resume", "latest", "--json")
    failure = json.loads(out)["points"][0]["failure"]
    assert (code, failure["key"], failure["layer"]) == (1, "runs.sweep.changed", "input")
    assert str(recipe) in failure["what"]
    recipe.unlink()
    create_failed = cli("sweep", "start", f"{suite}:tiny@1", "--json")
    assert create_failed[0] == 2


def test_a_point_without_a_recipe_is_skipped_with_the_reason(
    cli: Cli, make_suite: Callable[..., Path]
) -> None:
    """Two arms, one of which is launched by a script of its own."""
    suite = make_suite()
    master = suite / "master.yaml"
    text = master.read_text(encoding="utf-8")
    other = text.replace("tiny:\n", "scripted:\n").replace(
        'additional-settings: ["CONFIG_FILE=recipes/tiny.yaml"]', ""
    )
    other = other.replace("ep: 1, dp-attn: false, }", "ep: 1, dp-attn: false}")
    master.write_text(text + other, encoding="utf-8")
    code, out, _ = cli("sweep", "start", "--suite", str(suite), "--rehearse", "--json")
    body = json.loads(out)
    assert code == 0, out
    assert body["counts"]["done"] == body["counts"]["skipped"] == 2
    assert {p["failure"]["key"] for p in body["points"] if p["state"] == "skipped"} == {"catalog.no_recipe"}


def test_in_the_background(cli: Cli) -> None:
    """The process is on its own, and the sweep ends without this one."""
    code, out, _ = cli("sweep", "start", "quickstart", "--rehearse", "--detach", "--json")
    assert code == 0
    assert json.loads(out)["pid"] != os.getpid()
    deadline = time.monotonic() + 30
    while (state := json.loads(cli("sweep", "status", "--json")[1])["state"]) != "done":
        assert time.monotonic() < deadline, state
        time.sleep(0.05)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_table_fits_the_terminal(tmp_path: Path, lang: str, columns: int) -> None:
    """Long names, failures with long reasons and letters that steer a terminal; ETA is said to be unknown at first."""
    make_sweep, control = MADE["make_sweep"], MADE["control"]
    MADE["ENDS"]["a-very-long-arm-name-" * 5] = "exit 3"
    sweep = make_sweep(tmp_path, ["a-very-long-arm-name-" * 5, "ok", "\x1b[2Jok"], canary=2)
    set_language(lang)
    try:
        before = read_status(Home(tmp_path), sweep)
        assert before.eta_s() is None
        assert before.state == "stopped"
        MADE["ENDS"]["\x1b[2Jok"] = "exit 0"
        control(tmp_path, sweep).resume()
        after = read_status(Home(tmp_path), sweep)
        drawn = [line for line, _ in status_lines(after, columns, None)]
    finally:
        set_language(None)
    assert max(columns_of(line) for line in drawn) <= columns
    assert not any("\x1b" in line for line in drawn)
    assert any(line.startswith("    [engine] unknown argument") for line in drawn)
    assert after.count(PointState.FAILED) == 1


def test_the_rest_of_the_time(tmp_path: Path) -> None:
    """By hand: two done at 10 s each, one running for 4 s, three waiting, two lanes: (6 + 30) / 2 = 18 s."""
    from dataclasses import replace

    from servemark.runs.sweep_status import SweepStatus
    from servemark.store.sweep_rows import AttemptState, SweepAttempt

    row = MADE["make_sweep"](tmp_path, ["ok"] * 6, max_parallel=2)
    status = read_status(Home(tmp_path), row)
    order = [PointState.DONE, PointState.DONE, PointState.RUNNING, *[PointState.WAITING] * 3]
    points = tuple(replace(point, state=state) for point, state in zip(status.points, order, strict=True))
    began = "2026-01-01T00:00:00Z"
    done = [
        SweepAttempt(n, n, "l", AttemptState.DONE, began, began, 10.0, "exit 0", (), (n,)) for n in (1, 2)
    ]
    running = SweepAttempt(3, 3, "l", AttemptState.RUNNING, began, numbers=(3,))
    now = SweepStatus(row, "running", ("h", "1"), points, (*done, running), 1767225604.0)
    assert now.eta_s() == pytest.approx(18.0)
    assert replace(now, attempts=(running,)).eta_s() is None
    assert replace(now, state="pausing").eta_s() == pytest.approx(3.0)
