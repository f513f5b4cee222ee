"""What a recipe's own `sbatch_directives` and `srun_options` become; the example values are of published recipes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.launch.recipes import HEAD, TAIL, deployment_of

from servemark.base.errors import ServemarkError
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.catalog.nodes import Problem
from servemark.catalog.recipe import read_recipe
from servemark.cli.main import run_cli
from servemark.launch.allocation import AllocationRequest, NodeGroup
from servemark.launch.script import directive
from servemark.launch.slurm_commands import SlurmCommands
from servemark.launch.slurm_options import recipe_directives, recipe_options, sbatch_argv

BODY = """
engine: {type: vllm}
roles:
  aggregated: {nodes: 1, workers: 1, gpus: 8, args: {tensor-parallel-size: 8}}
sbatch_directives: {cpus-per-task: "144", mem: "0", comment: "a \\"b\\" # c", contiguous: true, exclusive: false}
srun_options: {mem: "0", container-remap-root: ""}
"""


def test_blocks_become_options(tmp_path: Path) -> None:
    """An empty value and true are the option alone, false is nothing; the fingerprint knows nothing of them."""
    found = deployment_of(tmp_path, BODY)
    assert found.sbatch_options == (
        "--cpus-per-task=144",
        "--mem=0",
        '--comment=a "b" # c',
        "--contiguous",
    )
    assert found.srun_options == ("--mem=0", "--container-remap-root")
    plain = deployment_of(tmp_path, BODY.partition("sbatch_directives")[0])
    assert plain.fingerprint() == found.fingerprint() and plain.sbatch_options == ()


@pytest.mark.parametrize("block", ["sbatch_directives", "srun_options"])
@pytest.mark.parametrize("value", ["[a, b]", "{a: 1}", "[]"])
def test_a_value_of_parts_is_a_problem(tmp_path: Path, block: str, value: str) -> None:
    """Left out it would take the nodes that the recipe did not mean, and nobody would know."""
    path = tmp_path / "recipe.yaml"
    path.write_text(f"{HEAD}{BODY.partition('sbatch')[0]}{block}: {{mem: {value}}}{TAIL}", encoding="utf-8")
    problems: list[Problem] = []
    read_recipe(path, "recipe.yaml", problems)
    assert [(each.key, each.values["field"]) for each in problems] == [("catalog.wrong_type", f"{block}.mem")]


def test_sbatch_gets_them_before_the_sites_own(tmp_path: Path) -> None:
    """Of an option that is given twice sbatch takes the last: the operator's word stands."""
    cluster = LaunchCluster(name="c", launcher="slurm", scratch=tmp_path, sbatch=("--mem=64G",))
    request = AllocationRequest(
        "r", (NodeGroup("all", 1),), 60, 1.0, sbatch_options=("--mem=0", "--segment=1")
    )
    argv = sbatch_argv(cluster, request, ["s"], tmp_path / "log", (24, 5))
    assert argv[-4:] == ["--mem=0", "--segment=1", "--mem=64G", "s"]
    with pytest.raises(ServemarkError, match="segment"):
        sbatch_argv(cluster, request, ["s"], tmp_path / "log", (22, 5))


@pytest.mark.parametrize(
    "option",
    [
        "--nodes=9",
        "--gpus=1",
        "--time=1",
        "--output=/etc/x",
        "--partition=p",
        "--account=a",
        "--wrap=id",
        "--mem=0\n--x",
    ],
)
def test_what_is_not_a_recipes_to_say(option: str) -> None:
    """Refused by name: the plan or the clusters file says it."""
    with pytest.raises(ServemarkError) as caught:
        recipe_directives((option,))
    assert caught.value.key == "launch.slurm_directive" and option[:7] in caught.value.what()


def test_an_option_forges_no_line() -> None:
    """What a recipe says is told on one line of its own message."""
    with pytest.raises(ServemarkError) as caught:
        recipe_directives(("--mem=0\nerror [input]: all is lost\x1b[2J",))
    assert not any(ord(letter) < 32 for letter in caught.value.what())


def test_a_command_line_that_is_too_long_is_not_asked_again() -> None:
    """Linux takes at most 128 KiB a word: said at once, where a silent controller is asked for a minute."""
    reply = SlurmCommands(patience_s=60.0).ask(["true", "--comment=" + "x" * 200_000])
    assert (reply.rc, reply.transient) == (126, False) and "too long" in reply.reason


def test_options_of_containers_only_in_one() -> None:
    """Outside an image pyxis would be told to do nothing with nothing."""
    own = ("--mem=0", "--container-remap-root", "--no-container-remap-root")
    assert recipe_options(own, contained=False) == ["--mem=0"] and recipe_options(own) == list(own)


def test_a_directive_is_one_word(tmp_path: Path) -> None:
    """sbatch reads double quotes and backslashes within them as a shell does."""
    assert directive("--mem=0") == "--mem=0" and directive("--contiguous") == "--contiguous"
    for value in ('a "b" # c', "it's", "a\\b $(id)"):
        assert shlex.split(directive(f"--comment={value}")) == [f"--comment={value}"]


MASTER = """
tiny:
  image: pypi#xllamacpp:2026.10.11549
  model: HuggingFaceTB/SmolLM2-135M-Instruct
  model-prefix: smollm2
  runner: cluster:local
  precision: q4_1
  framework: llamacpp
  multinode: true
  scenarios:
    agentic-coding:
    - search-space:
      - spec-decoding: none
        kv-offloading: none
        conc-list: [1]
        prefill: {num-worker: 1, tp: 1, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE=recipes/tiny.yaml"]}
        decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}
"""
RECIPE = """
schema: 2
name: tiny
model: {path: "embedded:smollm2-135m-instruct-q4_1", container: "pypi#xllamacpp:2026.10.11549", precision: q4_1}
engine: {type: llamacpp}
health_check: {max_attempts: 60, interval_seconds: 1}
roles:
  aggregated: {workers: 1, gpus: 0, args: {ctx-size: 4096, parallel: 2, cache-ram: 0}}
benchmark: {type: servemark, workload: work.yaml, evals: []}
"""
CLUSTERS = "launch: {west: {launcher: slurm, partition: cpu, sbatch: ['--qos=high']}}\n"


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    """A suite of one arm whose recipe says something to Slurm, and a clusters file."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "suite.yaml").write_text("name: s\nmasters: [master.yaml]\nrecipe-roots: [recipes]\n")
    (tmp_path / "master.yaml").write_text(MASTER)
    (tmp_path / "work.yaml").write_text(
        "kind: agentic\nseed: 7\nsessions: 1\nturns: [1, 1]\nsystem_tokens: 24\ntools_tokens: 24\n"
        "first_user_tokens: [8, 16]\ntool_result_tokens: {median: 16, sigma: 0.3, min: 8, max: 32}\n"
        "output_tokens: {median: 8, sigma: 0, min: 8, max: 8}\nthink_s: {median: 0.05, sigma: 0.1, cap: 0.1}\n"
    )
    (tmp_path / "recipes" / "tiny.yaml").write_text(RECIPE + BODY.partition("gpus: 8")[2].partition("\n")[2])
    (tmp_path / "clusters.yaml").write_text(CLUSTERS)
    return tmp_path


def test_script_and_dry_run_show_them(arm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script's head, its srun lines of workers alone, and what `--dry-run` says for people and machines."""
    where = ("--cluster", "west", "--clusters", str(arm / "clusters.yaml"))
    assert run_cli(["run", f"{arm}:tiny@1", "--script", "--lang", "en", *where]) == 0
    said = capsys.readouterr().out
    assert "#SBATCH --cpus-per-task=144\n" in said and '#SBATCH --comment="a \\"b\\" # c"\n' in said
    assert said.index("--cpus-per-task=144") < said.index("#SBATCH --qos=high")
    assert " --mem=0 ${IMAGE:+--container-remap-root} ${IMAGE:+" in said
    assert run_cli(["run", f"{arm}:tiny@1", "--dry-run", "--json", *where]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["slurm_options"]["srun"] == ["--mem=0", "--container-remap-root"]
    assert body["steps"][0]["command"].count("--mem=0") == 2  # the step's own, and the recipe's
    assert run_cli(["run", f"{arm}:tiny@1", "--dry-run", "--json", "--cluster", "local"]) == 0
    assert json.loads(capsys.readouterr().out)["slurm_options"] is None


@pytest.mark.parametrize("how", ["--script", "--dry-run"])
def test_a_contradiction_is_refused_before_anything(
    arm: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """How many nodes is what the plan counts."""
    recipe = arm / "recipes" / "tiny.yaml"
    recipe.write_text(recipe.read_text().replace("contiguous: true", "nodes: 3"))
    where = ("--cluster", "west", "--clusters", str(arm / "clusters.yaml"))
    assert run_cli(["run", f"{arm}:tiny@1", how, "--lang", "en", *where]) == 2
    assert "--nodes=3" in capsys.readouterr().err


def test_a_cluster_of_too_few_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shipped disaggregated suite takes two nodes, the cluster says that it has one: refused before it is asked."""
    (tmp_path / "c.yaml").write_text(CLUSTERS.replace("partition: cpu", "partition: cpu, nodes: 1"))
    where = ("--cluster", "west", "--clusters", str(tmp_path / "c.yaml"))
    assert (
        run_cli(
            [
                "run",
                "disaggregated-cpu:smollm2-q4-cpu-llamacpp-agentic-mooncake-disagg-1p1d@1",
                "--dry-run",
                "--json",
                *where,
            ]
        )
        == 2
    )
    assert json.loads(capsys.readouterr().out)["error"]["key"] == "runs.too_few_nodes"
