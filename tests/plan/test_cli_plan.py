"""`servemark plan` as a process: output for people and machines, exit codes, languages, widths, imports."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from servemark.checks.example import write

SRC = Path(__file__).resolve().parents[2] / "src"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def run(
    *arguments: str, columns: int = 100, lang: str = "en", cwd: Path | None = None
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command line."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": str(columns), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "servemark", "--lang", lang, "plan", *arguments],
        capture_output=True, check=False, env=environment, cwd=cwd, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The shipped suite with mistakes in three files."""
    root = tmp_path / "quickstart"
    shutil.copytree(SRC.parent / "suites" / "quickstart", root)
    master = root / "configs" / "local-master.yaml"
    master.write_text(master.read_text().replace("tp: 1\n", "tp: -1\n", 1) + "second: {image: i\n")
    (root / "configs" / "clusters.yaml").write_text("labels: {}\n")
    return root


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_help_has_examples_in_both_languages(lang: str) -> None:
    """Two examples at least; every option has a text."""
    code, out, _ = run("--help", lang=lang)
    assert code == 0 and out.count("servemark plan ") >= 2
    assert "plan.option." not in out and ("示例" in out if lang == "zh" else "Examples" in out)


def test_the_shipped_suite_for_a_person() -> None:
    """A short plan is listed with its reasons; nothing on stderr; exit code 0."""
    code, out, err = run("quickstart")
    assert (code, err) == (0, "")
    assert (
        "quickstart/agg1xtp1@4" in out and "concurrency listed by the arm" in out and "cluster:local" in out
    )
    # its entry says `multinode: true` for one worker on one node: nodes are counted, not taken from that word
    assert "Kinds: 3 agentic on one node\n" in out and "multi-node" not in out
    assert "(agentic on one node)" in " ".join(out.split()) and "Recipes: 1 read (points: 3)\n" in out
    assert "priority" not in out and "has those of the point above" in out


def test_json_is_one_object_with_stable_keys() -> None:
    """Points in the order in which they run, ids of 16 hex digits, null where nothing is stated."""
    code, out, _ = run("quickstart", "--json")
    body = json.loads(out)
    assert code == 0 and set(body) == {
        "suite",
        "root",
        "summary",
        "points",
        "pruned",
        "removed",
        "diagnostics",
    }
    first = body["points"][0]
    assert first["canary"] and first["selector"] == "quickstart/agg1xtp1@1" and first["isl"] is None
    assert len(first["point_id"]) == len(first["series_id"]) == 16 and first["recipe"]["state"] == "read"
    assert first["why"] == [{"code": "listed"}, {"code": "canary", "kind": "agentic-one"}]


def test_every_problem_of_every_file_is_reported_at_once(broken: Path) -> None:
    """Both mistakes of the master with their places; exit code 2; no traceback."""
    code, out, err = run(str(broken))
    assert code == 2 and "Traceback" not in err
    assert "quickstart/configs/local-master.yaml:20:15: error: 'tp' is -1" in err
    assert "quickstart/configs/local-master.yaml:27:1: error: not valid YAML" in err
    assert "errors: 2, warnings: 0" in err and "points 0" in out
    code, out, _ = run(str(broken), "--json", lang="zh")
    found = json.loads(out)["diagnostics"]
    assert code == 2 and [(d["line"], d["column"], d["severity"]) for d in found] == [
        (20, 15, "error"),
        (27, 1, "error"),
    ]
    assert "最小允许" in found[0]["message"]


def test_the_reference_format_prints_nothing_when_a_file_is_wrong(broken: Path) -> None:
    """Half a list of work would look like a whole one."""
    code, out, err = run(str(broken), "--format", "reference")
    assert code == 2 and out == "" and "errors: 2" in err


def test_findings_give_exit_code_1(tmp_path: Path) -> None:
    """The files are sound, the cluster is unknown."""
    root = tmp_path / "q"
    shutil.copytree(SRC.parent / "suites" / "quickstart", root)
    (root / "configs" / "clusters.yaml").write_text("labels: {'cluster:locl': [x_0]}\n")
    code, _, err = run(str(root))
    assert code == 1 and "did you mean 'cluster:locl'?" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nowhere",), "no suite 'nowhere'"),
        (("quickstart", "--keys", "quikstart"), "did you mean 'quickstart'"),
        (("quickstart", "--conc", "x"), "neither a concurrency nor a range"),
        (("quickstart", "--no-evals", "--all-evals"), "contradict"),
        (("quickstart", "--changelog", "a", "b"), "needs --format reference"),
        (("quickstart", "--format", "other"), "other"),
        (("quickstart", "--changelog", "a"), "--changelog"),
        (("quickstart", "--priorities", "none.yaml"), "there is no file none.yaml"),
        (("/dev/null",), "a suite is a folder"),
        ((), "no suite"),
    ],
)
def test_bad_use_is_one_message(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    """Exit code 2, what is wrong, no traceback."""
    code, out, err = run(*arguments, cwd=tmp_path)
    assert code == 2 and text in err and "Traceback" not in err and out == ""


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.corpus
def test_lines_fit_the_terminal(columns: int, lang: str, reference_suite: Path) -> None:
    """Tables and lists keep to the width, wide characters counted twice."""
    import unicodedata

    _, out, _ = run(str(reference_suite), "--keys", "kimik3*", "--list", columns=columns, lang=lang)
    # names are never cut, so that they can be copied; a line that holds nothing else may be wider
    table = [line for line in out.splitlines() if line.strip() and "/" not in line]
    assert len(table) > 20 and all(row in out for row in ("kimik3-fp4-gb300-dynamo-vllm-agentic", "@48"))
    widths = [sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in table]
    assert max(widths) <= columns


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("full-sweep", ()),
        ("full-sweep-evals-only", ("--evals-only",)),
        ("full-sweep-all-evals", ("--all-evals",)),
        ("full-sweep-no-evals", ("--no-evals",)),
        ("test-config-all", ("--keys", "*")),
    ],
)
def test_the_verb_prints_the_reference_rows(
    name: str, arguments: tuple[str, ...], reference_suite: Path
) -> None:
    """Byte for byte."""
    code, out, err = run(str(reference_suite), "--format", "reference", *arguments)
    assert (code, err) == (0, "")
    assert out == gzip.decompress((DATA / "plan-expected" / f"{name}.json.gz").read_bytes()).decode()


@pytest.mark.corpus
def test_the_verb_prints_the_reference_buckets(reference_suite: Path) -> None:
    """From two changelog files, gzipped as they lie there; references in the metadata are what was given."""
    pair = DATA / "changelog-pairs" / "1"
    sides = [str(pair / f"{side}.yaml.gz") for side in ("base", "head")]
    code, out, err = run(str(reference_suite), "--format", "reference", "--changelog", *sides)
    expected = json.loads((DATA / "plan-expected" / "changelog-one-entry.json").read_text())
    made = json.loads(out)
    assert (code, err) == (0, "") and made["changelog_metadata"].pop("base_ref") == sides[0]
    for key in ("base_ref", "head_ref"):
        made["changelog_metadata"].pop(key, None)
        expected["changelog_metadata"].pop(key)
    assert json.dumps(made) == json.dumps(expected)


@pytest.mark.corpus
def test_changelog_and_changes_from_git(reference_suite: Path, tmp_path: Path) -> None:
    """A clone with the change of pair 1 as its last commit: buckets from two references, and a dirty tree's
    change."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "clone"
    (root / "configs").mkdir(parents=True)
    for name in ("configs/nvidia-master.yaml", "configs/amd-master.yaml", "configs/runners.yaml"):
        shutil.copyfile(reference_suite / name, root / name)
    log = root / "perf-changelog.yaml"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True)
    for side in ("base", "head"):
        log.write_bytes(gzip.decompress((DATA / "changelog-pairs" / "1" / f"{side}.yaml.gz").read_bytes()))
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", side], check=True)
    code, out, err = run(str(root), "--format", "reference", "--changelog", "HEAD~1", "HEAD")
    expected = json.loads((DATA / "plan-expected" / "changelog-one-entry.json").read_text())
    assert (code, err) == (0, "") and json.loads(out)["single_node"] == expected["single_node"]
    master = root / "configs" / "nvidia-master.yaml"
    key = "dsv4-fp4-b200-vllm-agentic-mtp"
    text = master.read_text()
    at = text.index(f"{key}:")
    master.write_text(text[:at] + text[at:].replace("426e59f", "0000000", 1))
    code, out, _ = run(str(root), "--changed-since", "HEAD", "--json")
    points = json.loads(out)["points"]
    assert {point["arm"] for point in points} == {key} and points[0]["why"][0]["fields"] == "image"


def test_a_plan_loads_no_drawing_and_no_json_library() -> None:
    """Neither rich nor msgspec; `--version` does not even load click."""
    code = (
        "import sys; from servemark.cli.main import run_cli; run_cli(['plan', 'quickstart']);"
        "print([m for m in ('rich', 'msgspec', 'jinja2', 'uvloop', 'asyncio') if m in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=environment, timeout=60
    )
    assert done.stderr.decode().strip().endswith("[]")


def test_more_nodes_than_there_are(tmp_path: Path) -> None:
    """The example's disaggregated recipe books two nodes: said where the clusters file counts one node behind its label,
    and never by the label's runners, of which each may book several."""
    counted = ("clusters.yaml", "gpus-per-node: 8}", "gpus-per-node: 8, nodes: 1}")
    out = run(str(write(tmp_path / "one", (counted,))))[1]
    assert "of 2 nodes each, where cluster:h9-lab has 1" in " ".join(out.split())
    runners = ("clusters.yaml", "[h9-lab_00, h9-lab_01]", "[h9-lab_00]")
    assert "More nodes" not in run(str(write(tmp_path / "runner", (runners,))))[1]
