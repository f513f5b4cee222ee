"""`servemark run --script`: what a cluster adds, and ports that nobody has twice. The Kimi-K3 arm is the shipped one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servemark.cli.main import run_cli

SUITE = Path(__file__).resolve().parents[2] / "suites" / "kimi-k3-b300"
ARM = f"{SUITE}:kimik3-fp4-b300-dynamo-vllm-agentic-dspark-mooncake-dcp8-disagg-1p1d@48"
MINE = """
launch:
  west:
    launcher: slurm
    partition: gpu
    account: bench
    exclude-nodes: [n7, n9]
    sbatch: ["--qos=high"]
    mounts: [/lustre/models]
    model-paths: {moonshotai/Kimi-K3: /lustre/models/K3}
"""


def script(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """The script that is printed."""
    assert run_cli(["run", ARM, "--script", "--lang", "en", *more]) == 0
    return capsys.readouterr().out


def test_nodes_are_taken_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A job that does not ask gets one CPU of each node and a share of its memory, where 1.5 TiB are mapped."""
    said = script(capsys)
    head = said[: said.index("set -euo")]
    assert "#SBATCH --exclusive\n" in head and "#SBATCH --mem=0\n" in head and "--partition" not in head
    assert (
        said.count("srun --overlap --mem=0 --cpu-bind=none") == 6
    )  # three services, two workers, the router
    assert "  moonshotai/Kimi-K3 \\\n  --served-model-name" in said


def test_a_cluster_adds_what_is_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Expected lines are those of the clusters file, in sbatch's and pyxis' spelling."""
    (tmp_path / "c.yaml").write_text(MINE)
    said = script(capsys, "--cluster", "west", "--clusters", str(tmp_path / "c.yaml"))
    head = said[: said.index("set -euo")]
    for option in ("--partition=gpu", "--account=bench", "--exclude=n7,n9", "--qos=high"):
        assert f"#SBATCH {option}\n" in head
    assert "  MOUNTS=/lustre/models:/lustre/models\n" in said
    assert said.count("  --model \\\n  /lustre/models/K3 \\\n") == 2


def test_a_cluster_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for name, word in (("b300-dsx", "did you mean b300-dsxe"), ("local", "is this machine")):
        assert run_cli(["run", ARM, "--script", "--cluster", name, "--lang", "en"]) == 2
        assert word in capsys.readouterr().err


@pytest.mark.parametrize("how", ["--script", "--dry-run"])
def test_a_port_that_was_chosen_is_nobody_elses(capsys: pytest.CaptureFixture[str], how: str) -> None:
    """20000 is the first stand-in, which etcd would have; the front end listens there and etcd elsewhere."""
    assert run_cli(["run", ARM, how, "--no-evals", "--port", "20000", "--lang", "en"]) == 0
    said = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
    assert "--http-port 20000" in said
    listen = re.search(r"--listen-client-urls http://\S*?:(\d+) ", said)
    assert listen is not None and listen[1] == "20001"


@pytest.mark.parametrize("how", [["--script"], ["--render", "kubernetes"]])
def test_what_scores_need_is_not_left_out_in_silence(
    capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    """The arm forces 3.36 tokens a step: comments in what is rendered and one line on stderr say that accuracy needs another
    start, and by which settings; an arm that forces nothing says nothing."""
    assert run_cli(["run", ARM, *how, "--lang", "en"]) == 0
    out, err = capsys.readouterr()
    said = [line for line in out.splitlines()[:8] if line.startswith("# ")]
    assert "forces an acceptance length" in said[0] and said[0].removeprefix("# ") == err.strip()
    assert any("synthetic_acceptance_length: 3.36 → —" in line for line in said)
    assert run_cli(["run", "quickstart", "--script", "--lang", "en"]) == 0
    out, err = capsys.readouterr()
    assert "acceptance" not in out and err == ""
