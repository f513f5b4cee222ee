"""`predict`, `plan --prune`, `plan --summary` and `sweep start --plan` over a store whose curves follow a known law."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.base.messages import set_language
from servemark.cli.main import run_cli
from servemark.runs.sweep_control import chosen_points, create
from servemark.runs.sweep_plan import SweepOptions
from servemark.runs.sweep_status import read_status, why
from servemark.store.sweep_rows import PointState

MADE = runpy.run_path(str(Path(__file__).parents[1] / "predict" / "made_home.py"))
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Four measured curves."""
    found: Path = MADE["made_home"](tmp_path / "home")
    return found


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two arms."""
    found: Path = MADE["made_suite"](tmp_path / "suite")
    return found


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command line on the home: (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLUMNS", "110")

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = run_cli([*words, "--home", str(tmp_path / "home")])
        finally:
            set_language(None)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_predict_says_figure_interval_and_class(home: Path, suite: Path, cli: Cli) -> None:
    """Between measured loads the figure is within 3 % of the law, and the interval holds it; at a measured load it is the
    measurement; outside, the class says so."""
    code, out, _ = cli("predict", f"{suite}:good", "--at", "16,32,512", "--json")
    assert code == 0
    points = {each["concurrency"]: each for each in json.loads(out)["topologies"][0]["points"]}
    middle = {each["metric"]: each for each in points[32]["figures"]}
    speed, rate = middle["tpot_s.p50"], middle["total_tokens_per_s_per_gpu"]
    assert points[32]["class"] == "interpolated"
    assert points[32]["nearest"]["level"] == "exact"
    assert speed["value"] == pytest.approx(MADE["tpot"](8, 32), rel=0.03)
    assert rate["value"] == pytest.approx(MADE["total_per_gpu"](8, 32), rel=0.03)
    assert rate["low"] <= rate["value"] <= rate["high"]
    assert rate["residuals"] >= 9
    assert points[16]["measured"] and not points[32]["measured"]
    assert points[512]["class"] == "extrapolated_concurrency"


def test_why_names_points_and_what_each_moves(
    suite: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The point at 64 is 20 % slower than its curve's law. All points of the curve stand with what they gave; the influence
    of each is how far the figure at 32 of a store without it lies from that of a store with it."""
    monkeypatch.setitem(MADE["LAWS"], 8, (0.012, 0.00012))
    slow = MADE["point"](8, 64)
    monkeypatch.undo()
    loads = [(gpus, load) for gpus in MADE["LAWS"] for load in MADE["MEASURED"]]
    points = {each: slow if each == (8, 64) else MADE["point"](*each) for each in loads}

    def asked(*without: tuple[int, int]) -> tuple[float, list[dict[str, object]]]:
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        MADE["FILL"](tmp_path / "home", [one for each, one in points.items() if each not in without])
        code, out, _ = cli("predict", f"{suite}:good", "--at", "32", "--why", "--json")
        assert code == 0
        (point,) = json.loads(out)["topologies"][0]["points"]
        throughput, speed = point["why"]
        assert (throughput["metric"], speed["metric"]) == ("output_tokens_per_s_per_gpu", "tpot_s.p50")
        return next(each["value"] for each in point["figures"] if each["metric"] == "tpot_s.p50"), speed[
            "used"
        ]

    value, used = asked()
    own = {each["concurrency"]: each for each in used if each["role"] == "curve"}
    law = {load: MADE["tpot"](8, load) for load in MADE["MEASURED"]} | {64: 1.2 * MADE["tpot"](8, 64)}
    assert {load: each["value"] for load, each in own.items()} == pytest.approx(law)
    changes = {load: asked((8, load))[0] / value - 1 for load in (4, 16, 64, 256)}
    assert changes[64] < -0.08
    assert {load: own[load]["influence"] for load in changes} == pytest.approx(changes, abs=0.02)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_predict_in_words(home: Path, suite: Path, cli: Cli, lang: str) -> None:
    """A table within the terminal, the nearest configuration in a sentence, unlisted loads named."""
    code, out, err = cli("predict", f"{suite}:good", "--at", "32,48", "--lang", lang)
    assert (code, err) == (0, "")
    assert ("between measured" if lang == "en" else "实测之间") in out
    assert ("c1, c4, c16, c64, c256" if lang == "en" else "c1\u3001c4\u3001c16\u3001c64\u3001c256") in out
    assert "48" in out


def test_nothing_measured_is_said_and_is_no_success(suite: Path, cli: Cli, home: Path) -> None:
    """Another model than any measured one: exit 1, a sentence, never a figure; without a store as well."""
    text = (suite / "configs" / "b200-master.yaml").read_text(encoding="utf-8")
    (suite / "configs" / "b200-master.yaml").write_text(
        text.replace("deepseek-ai/DeepSeek-R1", "somebody/Unknown-7B"), encoding="utf-8"
    )
    code, out, _ = cli("predict", f"{suite}:good", "--json")
    body = json.loads(out)
    assert code == 1
    assert all(each["figures"] == [] and each["cannot"] for each in body["topologies"][0]["points"])
    code, out, _ = cli("predict", f"{suite}:good")
    assert code == 1
    assert "cannot say" in out


def test_an_unmeasured_deployment_has_no_figure(home: Path, suite: Path, cli: Cli) -> None:
    """TP32 of the same model was never measured: class none, no value in JSON, a rank and a band in the table."""
    path = suite / "configs" / "b200-master.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("tp: 8", "tp: 32"), encoding="utf-8")
    _, out, _ = cli("predict", f"{suite}:good", "--json")
    points = json.loads(out)["topologies"][0]["points"]
    assert {each["class"] for each in points} == {"none"}
    assert all(figure["value"] is None for each in points for figure in each["figures"])
    _, out, _ = cli("predict", f"{suite}:good")
    assert "nothing measured" in out or "cannot" in out


@pytest.mark.parametrize("at", ["0", "x", "1,,2", "-4", "99999999", ",".join(map(str, range(1, 80)))])
def test_bad_loads_are_refused(home: Path, suite: Path, cli: Cli, at: str) -> None:
    code, _, err = cli("predict", f"{suite}:good", f"--at={at}")
    assert code == 2
    assert "error" in err


def test_prune_lets_go_what_cannot_reach_the_front(home: Path, suite: Path, cli: Cli) -> None:
    """`poor` is beaten everywhere by `good` at 256 (see made_home): its three middle loads go, one of them runs anyway; both
    ends of both arms and all of `good` run."""
    code, out, _ = cli("plan", str(suite), "--prune", "--json")
    assert code == 0
    body = json.loads(out)
    runs, gone = ({each["selector"] for each in body[name]} for name in ("points", "pruned"))
    assert len(gone) == 2
    assert gone < {f"poor/agg1xtp4@{load}" for load in (8, 32, 128)}
    assert {f"poor/agg1xtp4@{load}" for load in (1, 256)} < runs
    assert {f"good/agg1xtp8@{load}" for load in MADE["PLANNED"]} < runs
    kept = [each for each in body["points"] if each["prune"]["key"] == "plan.prune.anyway"]
    assert len(kept) == 1
    assert all("cannot reach the front" in each["prune"]["said"] for each in body["pruned"])
    assert body["summary"]["total"]["points"] == 8
    _, everything, _ = cli("plan", str(suite), "--prune", "--prune-share", "0", "--json")
    assert len(json.loads(everything)["pruned"]) == 3
    _, text, _ = cli("plan", str(suite), "--prune", "--list")
    assert all(name in text for name in gone)


def test_another_image_lets_nothing_go(tmp_path: Path, suite: Path, cli: Cli) -> None:
    """Measured with an older image: what the new one changes is in no interval, so everything runs."""
    MADE["made_home"](tmp_path / "home", image="lmsysorg/sglang:v0")
    _, out, _ = cli("plan", str(suite), "--prune", "--json")
    body = json.loads(out)
    assert body["pruned"] == []
    assert {each["prune"]["key"] for each in body["points"]} == {"plan.prune.version", "plan.prune.extreme"}


def test_summary_says_hours_cost_and_front(home: Path, suite: Path, cli: Cli) -> None:
    """A fixed-length point takes (10 + 2) x E2EL: `good` at 256 12 x 36.5 s; all on one card's price of a B200."""
    (home / "rates").mkdir()
    (home / "rates" / "ours.yaml").write_text(
        "schema: 1\nname: ours\ndate: 2026-11-01\ncurrency: USD\n"
        "gpus:\n  b200: {usd-per-gpu-hour: 3.6, price-source: contract}\n",
        encoding="utf-8",
    )
    _, out, _ = cli("plan", str(suite), "--prune", "--json")
    found = json.loads(out)["summary"]["predicted"]
    rows = json.loads(out)["points"]
    expected = 0.0
    for row in rows:
        e2el = 0.05 + 1024 * MADE["tpot"](row["gpus"], row["concurrency"])
        expected += row["gpus"] * (0.25 + 12 * e2el / 3600)
    assert found["hours"]["value"] == pytest.approx(expected, rel=0.02)
    assert found["hours"]["predicted_points"] == len(rows)
    assert found["hours"]["dollars"][0] == pytest.approx(3.6 * found["hours"]["value"])
    (front,) = found["fronts"]
    assert {each[0].partition("/")[0] for each in front["points"]} == {"good"}
    _, text, _ = cli("plan", str(suite), "--summary")
    assert "ours@2026-11-01" in text and "Expected front" in text
    assert "Interactivity p50" in text and "interactivity.p50" not in text, "labels and units, not addresses"


def test_plan_without_a_store_is_as_before(suite: Path, cli: Cli) -> None:
    """No store: a summary says nothing of predictions, and --prune says why nothing goes."""
    code, out, err = cli("plan", str(suite), "--summary")
    assert (code, err) == (0, "")
    assert "Predictions" not in out
    code, out, err = cli("plan", str(suite), "--prune", "--json")
    assert code == 0
    assert "no store" in err
    assert json.loads(out)["pruned"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("--prune-share", "0.2"),
        ("--prune-also", "none"),
        ("--prune", "--format", "reference"),
        ("--prune", "--prune-share", "2"),
        ("--card", "example-coreweave-on-demand"),
    ],
)
def test_contrary_words_are_refused(suite: Path, cli: Cli, words: tuple[str, ...]) -> None:
    code, _, err = cli("plan", str(suite), *words)
    assert code == 2
    assert err


def pruned_quickstart(cli: Cli, path: Path) -> dict[str, object]:
    """The shipped plan with its middle point let go."""
    _, out, _ = cli("plan", "quickstart", "--json")
    body: dict[str, list[dict[str, object]]] = json.loads(out)
    values = {
        "x": "a",
        "y": "b",
        "x_best": 1.0,
        "y_best": 2.0,
        "x_bar": 3.0,
        "y_bar": 4.0,
        "by": "m",
        "klass": "interpolated",
        "level": 0.9,
    }
    reason = {"runs": False, "key": "plan.prune.measured", "said": "words", "values": values}
    gone = [each | {"prune": reason} for each in body["points"] if each["concurrency"] == 2]
    body["points"] = [each for each in body["points"] if each["concurrency"] != 2]
    body["pruned"] = gone
    path.write_text(json.dumps(body), encoding="utf-8")
    return dict(body)


def test_a_sweep_takes_a_pruned_plan(tmp_path: Path, cli: Cli) -> None:
    """What was let go is skipped with its reason in the reader's language, is no canary, is not retried with the failed
    ones, and runs when it is named."""
    pruned_quickstart(cli, tmp_path / "plan.json")
    where = Home(tmp_path / "home")
    made = create(where, SweepOptions(plan=str(tmp_path / "plan.json"), canary=True))
    points = {each.concurrency: each for each in read_status(where, made).points}
    assert [points[c].state for c in (1, 2, 4)] == [
        PointState.WAITING,
        PointState.SKIPPED,
        PointState.WAITING,
    ]
    failure = points[2].failure
    assert failure is not None and failure["layer"] == "predict"
    assert "cannot reach the front" in why(failure) and "between measured points" in why(failure)
    set_language("zh")
    assert "实测点之间" in why(failure) and "interpolated" not in why(failure)
    set_language("en")
    assert points[1].canary
    every = list(points.values())
    assert points[2].number not in chosen_points(every, (), failed=True)
    assert chosen_points(every, (points[2].selector,), failed=False) == [points[2].number]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"points": 1, "pruned": []}',
        b'{"points": [5], "pruned": []}',
        b'{"points": [{"point_id": ""}], "pruned": []}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"points": [], "pruned": [{"point_id": "x", "prune": {"key": "plan.prune.measured", "values": {}}}]}',
    ],
)
def test_a_bad_plan_is_refused(tmp_path: Path, cli: Cli, content: bytes) -> None:
    """No JSON, other JSON, other points than the suite's."""
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(ServemarkError) as caught:
        create(Home(tmp_path / "home"), SweepOptions(plan=str(tmp_path / "plan.json"), suite="quickstart"))
    assert caught.value.exit_code == 2
    assert caught.value.key in {"runs.sweep.bad_plan", "runs.sweep.other_plan"}


def test_a_reason_from_elsewhere_is_told_in_its_own_words(tmp_path: Path, cli: Cli) -> None:
    """A key that is not ours, placeholders that are missing, control characters."""
    body = pruned_quickstart(cli, tmp_path / "plan.json")
    gone = body["pruned"]
    assert isinstance(gone, list)
    for said in (
        {"key": "cli.help", "values": {}, "said": "because \x1b[31mred"},
        {"key": "plan.prune.measured", "values": {"x": 1}, "said": "because"},
        {"key": 5, "values": [], "said": None},
    ):
        gone[0]["prune"] = said
        (tmp_path / "plan.json").write_text(json.dumps(body), encoding="utf-8")
        made = create(Home(tmp_path / "home"), SweepOptions(plan=str(tmp_path / "plan.json")))
        (point,) = [p for p in read_status(Home(tmp_path / "home"), made).points if p.concurrency == 2]
        assert point.failure is not None
        assert "\x1b" not in why(point.failure)
        assert why(point.failure).startswith(("because", "plan --prune"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"points": 20', '"points": 1e400'),
        lambda text: text.replace('"points": 20', '"points": NaN'),
        lambda text: text.replace("[[", f"[[{'9' * 400}, 1], [", 1),
        lambda text: text.replace("[[", "[[1e300, 1], [", 1),
        lambda text: text.replace("[[", "[[0.1, Infinity], [", 1),
        lambda text: text.replace('"fit": "', '"fit": "../'),
        lambda text: text[:50],
    ],
)
def test_damaged_residuals_are_made_again(
    home: Path, suite: Path, cli: Cli, damage: Callable[[str], str]
) -> None:
    """Numbers beyond floats, beyond reason, a path for a name, half a file: the same answer as before, and a whole file."""
    kept = home / "cache" / "predict-residuals.json"
    _, said, _ = cli("predict", f"{suite}:good", "--json")
    whole = kept.read_text(encoding="utf-8")
    assert damage(whole) != whole
    kept.write_text(damage(whole), encoding="utf-8")
    assert cli("predict", f"{suite}:good", "--json") == (0, said, "")
    assert kept.read_text(encoding="utf-8") == whole


def test_a_home_that_keeps_nothing_still_predicts(home: Path, suite: Path, cli: Cli) -> None:
    """A folder where residuals belong, then a file where their folder belongs, then the calibration gone."""
    _, said, _ = cli("predict", f"{suite}:good", "--json")
    kept = home / "cache" / "predict-residuals.json"
    kept.unlink()
    kept.mkdir()
    assert cli("predict", f"{suite}:good", "--json") == (0, said, "")
    kept.rmdir()
    kept.parent.rmdir()
    kept.parent.write_text("", encoding="utf-8")
    assert cli("predict", f"{suite}:good", "--json") == (0, said, "")
    kept.parent.unlink()
    assert cli("predict", f"{suite}:good", "--json") == (0, said, "")
    (calibration,) = (home / "calibrations").iterdir()
    calibration.unlink()
    assert cli("predict", f"{suite}:good", "--json") == (0, said, "")
    assert calibration.is_file()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("workers=4097", "nothing that can be changed"),
        ("workers=999999999999", "nothing that can be changed"),
        ("segment=1e30GiB", "nothing that can be changed"),
        ("gpu-tokens=1", "llama.cpp keeps a prompt a slot"),
    ],
)
def test_a_change_that_cannot_be_is_refused(cli: Cli, change: str, said: str) -> None:
    """Before anything is simulated, or as the reason why nothing was."""
    code, out, err = cli("predict", "quickstart@1", "--what-if", change)
    assert code in {1, 2}
    assert said in out + err


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400])
def test_numbers_of_a_forged_plan_are_told_in_its_words(tmp_path: Path, cli: Cli, number: float) -> None:
    """No sentence is made of them, nor of its placeholders."""
    body = pruned_quickstart(cli, tmp_path / "plan.json")
    gone = body["pruned"]
    assert isinstance(gone, list)
    gone[0]["prune"]["values"] = dict.fromkeys(gone[0]["prune"]["values"], number)
    (tmp_path / "plan.json").write_text(json.dumps(body), encoding="utf-8")
    made = create(Home(tmp_path / "home"), SweepOptions(plan=str(tmp_path / "plan.json")))
    (point,) = [p for p in read_status(Home(tmp_path / "home"), made).points if p.concurrency == 2]
    assert point.failure == {"layer": "predict", "what": "words"}


def test_a_plan_that_lets_everything_go_starts_nothing(tmp_path: Path, cli: Cli) -> None:
    """Whatever the reasons are called."""
    body = pruned_quickstart(cli, tmp_path / "plan.json")
    gone, points = body["pruned"], body["points"]
    assert isinstance(gone, list) and isinstance(points, list)
    body["pruned"] = [each | {"prune": {"key": "x", "said": "because"}} for each in points] + gone
    body["points"] = []
    (tmp_path / "plan.json").write_text(json.dumps(body), encoding="utf-8")
    code, _, err = cli("sweep", "start", "--plan", str(tmp_path / "plan.json"), "--rehearse")
    assert code == 2
    assert "lets every point go" in err
    body["root"] = "a" * 100_000
    (tmp_path / "plan.json").write_text(json.dumps(body), encoding="utf-8")
    code, _, err = cli("sweep", "start", "--plan", str(tmp_path / "plan.json"), "--rehearse")
    assert code == 2
    assert "no such folder" in err and "--suite" in err and len(err) < 1000


def test_the_suite_of_a_plan_is_said(tmp_path: Path, cli: Cli) -> None:
    """Its folder comes out of the file: named before anything runs, and refused where it is not here (a plan of another
    machine), with the option that names another."""
    body, plan = pruned_quickstart(cli, tmp_path / "plan.json"), tmp_path / "plan.json"
    code, _, err = cli("sweep", "start", "--plan", str(plan), "--rehearse")
    assert code == 0 and f"suite: {body['root']}, as {plan} names it" in err
    plan.write_text(json.dumps(body | {"root": str(tmp_path / "moved")}), encoding="utf-8")
    code, _, err = cli("sweep", "start", "--plan", str(plan), "--rehearse")
    assert code == 2 and str(tmp_path / "moved") in err and "--suite SUITE" in err
    code, _, err = cli("sweep", "start", "--plan", str(plan), "--suite", "quickstart", "--rehearse")
    assert code == 0 and "as" not in err.splitlines()[0]
