"""`servemark replay` as a process, against the C server of benchmarks/, whose times are known."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.replay_servers import Verb, environment, free_port

from servemark.results.serialize import read_result
from servemark.runs.folder import RunState, inspect

SOURCE = Path(__file__).resolve().parents[2] / "benchmarks" / "replay" / "fakesse"
Start = Callable[..., str]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C server, compiled; skipped where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the fake server with")
    made = tmp_path_factory.mktemp("fakesse") / "fakesse"
    subprocess.run(
        [compiler, "-O2", "-o", made, SOURCE / "fakesse.c", "-lm"], check=True, capture_output=True
    )
    return made


@pytest.fixture
def fakesse(program: Path) -> Iterator[Start]:
    """Call it with the server's options; gives its URL."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> str:
        url = f"http://127.0.0.1:{(port := free_port())}"
        running.append(
            subprocess.Popen(
                [program, "--port", str(port), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        for _ in range(200):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
                return url
            time.sleep(0.02)
        raise AssertionError("the fake server did not start")

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def verb(tmp_path: Path) -> Verb:
    """The verb with a home of its own."""
    return Verb(tmp_path / "home")


FIXED = ("--ttft-ms", "60", "--itl-ms", "4")
WORK = "random:isl=40,osl=10,requests=12"


def test_happy_path(fakesse: Start, verb: Verb) -> None:
    """12 requests of 10 tokens: the model is asked for, the row holds the server's known times (first token
    after 60 ms, then one every 4 ms), the run is complete and its files are hashed."""
    code, out, err = verb.run("--url", fakesse(*FIXED), "--concurrency", "3", WORK)
    assert (code, err) == (0, ""), (out, err)
    assert "complete: 12 ok, 0 errors" in out and "TTFT" in out
    row = verb.row
    assert row["status"] == "complete" and row["arm"] == "fake" and row["concurrency"] == 3
    assert (row["counts"]["planned"], row["counts"]["ok"]) == (12, 12)
    assert row["tokens"]["output"] == 120
    assert row["distributions"]["ttft_s"]["p50"] == pytest.approx(0.060, abs=0.02)
    assert row["distributions"]["tpot_s"]["p50"] == pytest.approx(0.004, abs=0.002)
    assert row["distributions"]["e2el_s"]["p50"] == pytest.approx(0.060 + 9 * 0.004, abs=0.03)
    assert row["replayed"]["mode"] == "closed" and row["replayed"]["arrivals"] is None
    assert {r["outcome"] for r in verb.records} == {"ok"} and len(verb.records) == 12
    (folder,) = verb.folders
    assert inspect(folder).state is RunState.COMPLETE
    assert {"manifest.json", "requests.jsonl"} <= set(read_result(folder).files)


def test_json_is_the_row(fakesse: Start, verb: Verb) -> None:
    """`--json` prints the signed row, one line, and nothing else."""
    code, out, err = verb.run("--url", fakesse(*FIXED), "--json", WORK)
    assert (code, err) == (0, "")
    assert json.loads(out) == verb.row
    assert out.count("\n") == 1


def test_several_targets_share_the_requests(fakesse: Start, verb: Verb) -> None:
    """Two URLs by turns: six of twelve each; the records say which."""
    urls = [arg for _ in range(2) for arg in ("--url", fakesse(*FIXED))]
    code, out, err = verb.run(*urls, "--concurrency", "2", WORK)
    assert code == 0, (out, err)
    by_endpoint = [r["endpoint"] for r in verb.records]
    assert (by_endpoint.count(0), by_endpoint.count(1)) == (6, 6)
    assert verb.row["identity"]["urls"] == urls[1::2]


@pytest.mark.parametrize(("limit", "good"), [("0.5", 12), ("0.03", 0)])
def test_goodput(fakesse: Start, verb: Verb, limit: str, good: int) -> None:
    """The first token comes after 60 ms: all are within 500 ms and none within 30 ms."""
    code, out, err = verb.run("--url", fakesse(*FIXED), "--slo", f"ttft_s={limit}", WORK)
    assert code == 0, (out, err)
    slo = verb.row["replayed"]["slo"]
    assert (slo["good"], slo["ended"]) == (good, 12)
    assert slo["limits"] == {"ttft_s": float(limit)}
    assert "goodput" in out


def test_two_processes(fakesse: Start, verb: Verb) -> None:
    """Every request once, six a process, one file of records, figures from all of them."""
    url = fakesse(*FIXED)
    code, out, err = verb.run("--url", url, "--processes", "2", "--concurrency", "4", WORK)
    assert (code, err) == (0, ""), (out, err)
    records = verb.records
    assert len({r["id"] for r in records}) == 12
    assert sorted(r["process"] for r in records) == [0] * 6 + [1] * 6
    row = verb.row
    assert row["counts"]["ok"] == 12 and row["distributions"]["ttft_s"]["n"] == 12
    assert [p["sent"] for p in row["replayed"]["processes"]] == [6, 6]
    (folder,) = verb.folders
    assert not list(folder.glob("requests.*.jsonl"))


@pytest.mark.parametrize("law", ["poisson:40", "constant:80", "ramp:20-60"])
def test_open_loop_says_its_law(fakesse: Start, verb: Verb, law: str) -> None:
    """No concurrency anywhere: the row holds the law, the peak in flight under its own name, and its run is
    named after neither."""
    ended = ("--duration", "0.5") if law.startswith("ramp") else ("--requests", "12")
    code, out, err = verb.run("--url", fakesse(*FIXED), "--arrivals", law, *ended, WORK)
    assert code == 0, (out, err)
    row = verb.row
    assert row["concurrency"] is None and row["replayed"]["mode"] == "open"
    kind, _, rate = law.partition(":")
    found = row["replayed"]["arrivals"]
    assert (found["law"], found["kind"]) == (law, kind)
    assert found["rate_per_s"] == float(rate.partition("-")[0])
    assert found["end_rate_per_s"] == (60 if kind == "ramp" else None)
    assert row["replayed"]["max_in_flight"] >= 1
    assert row["identity"]["scenario"]["arrivals"] == law
    assert row["run_id"].endswith("-open")
    assert not any(w["code"] == "concurrency_not_reached" for w in row["warnings"])


def test_two_rates_are_two_points_and_all_readers_cope(fakesse: Start, verb: Verb) -> None:
    """show, show METRIC, --why, runs and report of two open loops; other point ids, no "concurrency 1"."""
    url = fakesse(*FIXED)
    for law in ("constant:50", "constant:100"):
        code, out, err = verb.run("--url", url, "--arrivals", law, WORK)
        assert code == 0, (out, err)
    first, second = (json.loads((f / "result.json").read_text()) for f in verb.folders)
    assert first["point_id"] != second["point_id"]
    again = verb.run("--url", url, "--arrivals", "constant:50", "--json", WORK)
    assert json.loads(again[1])["point_id"] == first["point_id"]

    def said(*args: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "servemark", *args, "--home", str(verb.home)], env=environment(),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code and "Traceback" not in done.stderr, done
        return done.stdout

    name = first["run_id"]
    shown = said("show", name)
    assert "constant:50" in shown and "concurrency" not in shown.split("Each")[0].lower().replace(
        "achieved concurrency", ""
    )
    assert "no concurrency" in said("show", name, "concurrency", code=1)
    assert "open loop" in said("show", name, "--lang", "en")
    assert "开环" in said("show", name, "--lang", "zh")
    said("show", name, "ttft_s.p50", "--why")
    listed = [json.loads(line) for line in said("runs", "--json").splitlines()]
    assert [run["concurrency"] for run in listed] == [None] * 3
    page = Path(said("report", name).split(" (")[0].strip())
    assert "constant:50" in page.read_text(encoding="utf-8")


def test_live_view_on_a_terminal_only(fakesse: Start, verb: Verb) -> None:
    """On a terminal: counts, rate, p50 and p90 of TTFT and ITL, errors, ETA while it runs. Elsewhere stderr
    stays empty (see the other tests)."""
    script = shutil.which("script")
    if script is None:
        pytest.skip("no `script` to make a terminal with")
    url = fakesse("--ttft-ms", "100", "--itl-ms", "10")
    command = (
        f"{sys.executable} -m servemark replay --home {verb.home} --url {url} --tokenizer words --requests 30"
    )
    done = subprocess.run(
        [script, "-qec", f"{command} --lang en {WORK}", "/dev/null"], capture_output=True, text=True,
        check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    live = done.stdout
    for word in ("in flight", "0 errors", "tok/s", "req/s", "ETA", "TTFT p50", "p90", "ITL p50", "/30 done"):
        assert word in live, live


def test_unknown_options_are_told(verb: Verb) -> None:
    """A limit that is none, a law that is none, a profile that is none: exit code 2, one line, no folder."""
    for args, word in (
        (("--slo", "ttft=2"), "ttft=2"),
        (("--arrivals", "poison:4"), "poison:4"),
        (("--profile", "agentics"), "agentics"),
        (("--protocol", "grpc"), "grpc"),
        (("--processes", "0"), "0"),
        (("--tokenizer", "/no/such/file"), "/no/such/file"),
    ):
        code, out, err = verb.run("--url", f"http://127.0.0.1:{free_port()}", "--model", "m", *args, WORK)
        assert code == 2 and word in err and out == "", (args, code, out, err)
    assert verb.folders == []


def gaps(tmp_path: Path) -> Path:
    """Two weka sessions of two turns, 20 s apart in their records."""
    folder = tmp_path / "trace"
    folder.mkdir()
    for name in ("a", "b"):
        turns = [
            {
                "t": 20.0 * n, "type": "s", "model": "m", "in": 64 * (n + 1), "out": 5, "api_time": 0.1,
                "hash_ids": list(range(n + 1)), "input_types": [], "output_types": [], "stop": "end_turn",
            }
            for n in range(2)
        ]  # fmt: skip
        session = {
            "id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 0,
            "system_tokens": 0, "requests": turns,
        }  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(session))
    return folder


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("scope", ["system", "tree"])
def test_idle_caps(fakesse: Start, verb: Verb, tmp_path: Path, processes: str, scope: str) -> None:
    """Think times of about 20 s under a cap of 0.5 s, a session a lane: the second turns follow half a second
    after the last reply. Across processes the system's timers are moved alike, once all are idle."""
    code, out, err = verb.run(
        "--url", fakesse(*FIXED), f"--{scope}-idle-cap", "0.5", "--processes", processes, "--concurrency", "2",
        str(gaps(tmp_path)),
    )  # fmt: skip
    assert (code, err) == (0, ""), (out, err)
    replayed = verb.row["replayed"]
    assert replayed["options"]["profile"]["idle_caps"][f"{scope}_s"] == 0.5
    shifts = replayed["shifts"]
    assert {s["scope"] for s in shifts} == {scope}
    assert len(shifts) == (1 if (scope, processes) == ("system", "1") else 2)
    if scope == "system":
        assert len({round(s["shift_s"], 6) for s in shifts}) == 1
    records = verb.records
    for name in ("a", "b"):
        first, second = sorted((r for r in records if r["session"] == name), key=lambda r: r["turn"])
        assert 0.4 < second["start_s"] - first["end_s"] < 2.5
    # the system is idle from its last reply on: no second turn before that and the cap
    if scope == "system":
        last = max(r["end_s"] for r in records if r["turn"] == 0)
        assert min(r["start_s"] for r in records if r["turn"] == 1) > last + 0.4


def test_idle_caps_of_a_profile_are_its_own(verb: Verb, tmp_path: Path) -> None:
    """agentx has 300 s a tree and 10 s for the system; the command line changes one, `none` takes one away.
    What is no cap is refused, and an open loop has none."""
    work = ("--url", "http://127.0.0.1:1", "--model", "m", str(gaps(tmp_path)))

    def caps(*args: str) -> object:
        code, out, err = verb.run(*work, "--dry-run", "--json", *args)
        assert code == 0, err
        return json.loads(out)["options"]["profile"]["idle_caps"]

    assert caps() == {"tree_s": None, "system_s": None}
    assert caps("--profile", "agentx") == {"tree_s": 300.0, "system_s": 10.0}
    assert caps("--profile", "agentx", "--system-idle-cap", "2") == {"tree_s": 300.0, "system_s": 2.0}
    assert caps("--profile", "agentx", "--tree-idle-cap", "none") == {"tree_s": None, "system_s": 10.0}
    for args in (("--system-idle-cap", "nan"), ("--tree-idle-cap", "-1"), ("--tree-idle-cap", "x")):
        assert verb.run(*work, *args)[0] == 2
    assert verb.run(*work, "--arrivals", "constant:5", "--tree-idle-cap", "3")[0] == 2
