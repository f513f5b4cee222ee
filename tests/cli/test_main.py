"""The command line as its user meets it: help in two languages, mistakes, exit codes, imports that cost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from servemark.cli.main import VERBS, run_cli
from servemark.runs.manifest import new_line_id


def servemark(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "servemark", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LANG": "C.UTF-8", "COLUMNS": "100", **env},
    )


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    "verb", [*VERBS, "engine list", "engine install", "clusters check", "images import", "images prune"]
)
def test_help_has_two_examples(verb: str, lang: str) -> None:
    """Every verb: help in the language asked for, at least two examples that begin with the program's name."""
    done = servemark(*verb.split(), "--help", "--lang", lang)
    assert done.returncode == 0 and done.stderr == "", done
    if verb not in ("engine", "clusters", "images"):
        examples = [line for line in done.stdout.splitlines() if line.strip().startswith("servemark ")]
        assert len(examples) >= 2, done.stdout
    assert ("cli." in done.stdout) is False
    assert any("\u4e00" <= c <= "\u9fff" for c in done.stdout) == (lang == "zh")


def test_version_imports_nothing_else() -> None:
    """`--version` must stay fast: not even click is imported."""
    code = (
        "import sys; sys.argv = ['servemark', '--version']\n"
        "from servemark.__main__ import main; main()\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in {'click', 'rich', 'msgspec', 'yaml', 'json'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["servemark 0.1.0", "[]"]


def test_help_imports_no_room_but_base() -> None:
    """`--help` reads message catalogues and click, nothing that measures or draws."""
    code = (
        "import sys\nfrom servemark.cli.main import run_cli\nrun_cli(['--help'])\n"
        "heavy = {'rich', 'msgspec', 'httptools', 'uvloop', 'yaml', 'jinja2', 'sqlite3', 'asyncio'}\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["rnu"], "did you mean 'run'"),
        (["run"], "Missing argument"),
        (["run", "quikstart"], "did you mean 'quickstart'"),
        (["run", "quickstart@0"], "'0' is no concurrency"),
        (["run", "quickstart@1,1"], "stands twice"),
        (["run", "quickstart@3"], "is not among them"),
        (["run", "quickstart/agg9"], "no topology"),
        (["run", "quickstart:quickstrat"], "did you mean 'quickstart'"),
        (["run", ":x"], "no selector"),
        (["run", "quickstart", "--port", "0"], "port"),
        (["run", "quickstart", "--trace", "no-such-file"], "no-such-file"),
        (["explain", "ttf"], "did you mean"),
        (["show", "latest", "--why"], "--why needs a metric"),
        (["show", "nothing", "--home", "no-such-home"], "no runs"),
        (["runs", "--state", "odd"], "states are"),
        (["run", "quickstart", "--lang", "de"], "de"),
        (["run", "quickstart", "--scale-think", "nan"], "finite"),
        (["runs", "--home", "~no-such-user/x"], "home folder"),
        (["runs", "--home", __file__], "is a file"),
    ],
)
def test_mistakes(args: list[str], said: str) -> None:
    """Exit code 2, one message on stderr that names the mistake, nothing on stdout, no trace."""
    done = servemark(*args)
    assert done.returncode == 2, done
    assert said in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_errors_as_json() -> None:
    """With --json the error is an object on stdout."""
    done = servemark("run", "quikstart", "--json")
    body = json.loads(done.stdout)
    assert done.returncode == 2 and body["error"]["key"] == "catalog.no_suite_near"
    assert "quickstart" in body["error"]["next"]


def test_dry_run_starts_nothing(tmp_path: Path) -> None:
    """The plan of the shipped suite, as JSON; ids do not change from one call to the next."""
    one, two = (
        servemark("run", "quickstart", "--dry-run", "--json", "--home", str(tmp_path / "h")) for _ in "ab"
    )
    assert one.stdout == two.stdout and one.returncode == 0
    plan = json.loads(one.stdout)
    assert [p["concurrency"] for p in plan["points"]] == [1, 2, 4]
    assert len({p["point_id"] for p in plan["points"]} | {p["series_id"] for p in plan["points"]}) == 6
    assert plan["cache_state"] == {"kind": "marked", "marker_scope": "session"}
    assert all(entry["n"] >= 100 for entry in plan["evals"])
    assert not (tmp_path / "h").exists()


def test_broken_pipe_is_quiet() -> None:
    """`servemark explain | head -1` ends without a word."""
    with subprocess.Popen(
        [sys.executable, "-m", "servemark", "explain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "args", [["run", "--json"], ["run", "x", "--sessions", "0", "--json"], ["nope", "--json"]]
)
def test_bad_use_as_json(args: list[str]) -> None:
    """With --json the mistake is an object on stdout, and nothing else is."""
    done = servemark(*args)
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["what"]


def test_output_without_our_letters() -> None:
    """A terminal that is said to know ASCII only gets what it can show, not a trace."""
    done = servemark(
        "runs", "--help", "--lang", "zh", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="POSIX"
    )
    assert done.returncode == 0 and "servemark runs" in done.stdout and done.stderr == ""


def test_full_output_device() -> None:
    """A stdout that takes nothing is said in one line."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "servemark", "explain"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1 and "Traceback" not in done.stderr and "No space left" in done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-", ">/dev/full", "2>/dev/full"])
@pytest.mark.parametrize("json_too", ["", "--json"])
def test_a_mistake_keeps_its_exit_code(tmp_path: Path, closed: str, json_too: str) -> None:
    """Streams that are closed or take nothing change nothing of what a script goes by."""
    line = f'exec "$0" -m servemark trace simulate no-such-trace.jsonl {json_too} {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr


def test_work_is_done_without_a_stderr(tmp_path: Path) -> None:
    """Progress that nobody can see is none, and a file that is opened does not take the closed stream's number."""
    rows = [{"timestamp": at, "input_length": 512, "output_length": 1, "hash_ids": [1]} for at in range(3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = 'exec "$0" -m servemark trace simulate t.jsonl --json 2>&-'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and json.loads(done.stdout)["counts"]["requests"] == 3


def test_line_as_arm_key_cannot_leave_the_home() -> None:
    """Names of run folders are made of safe letters only."""
    made = new_line_id("../a/\x1b[31m é:" + "x" * 500)
    assert re.fullmatch(r"[0-9]{8}-[0-9]{6}-[A-Za-z0-9._-]{1,60}-[0-9a-f]{6}", made)


def test_a_gate_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Its name, why it is, its tolerance and where that is from; in both languages."""
    assert run_cli(["explain", "closed_loop", "--lang", "en"]) == 0
    said = capsys.readouterr().out
    assert "(closed_loop)" in said and "tolerance:" in said
    assert run_cli(["explain", "closed_loop", "--lang", "zh"]) == 0
    assert "容差" in capsys.readouterr().out
    assert (
        run_cli(["explain", "closed_loop", "--json", "--lang", "en"]) == 0
    )  # the language stays with the process
    assert json.loads(capsys.readouterr().out)["id"] == "closed_loop"
