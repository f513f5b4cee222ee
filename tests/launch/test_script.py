"""The sbatch script: bash accepts it, and what srun receives is word for word what the job says.

The script is run by a real bash; srun, scontrol, getent and curl are small programs that note what they are given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.launch.recipes import deployment_of
from tests.launch.test_real_recipes import recipes

from servemark.base.errors import ServemarkError
from servemark.launch.job import Job, JobPlace, build_job
from servemark.launch.placement import nodes_of, place
from servemark.launch.script import LOGS, WORK, sbatch_script, stand_in

NOTE = """#!{python}
import json, os, sys
with open(os.environ["NOTES"] + f"/{{os.getpid()}}", "w") as stream:
    json.dump(sys.argv[1:], stream)
"""
STUBS = {
    "scontrol": "#!/bin/sh\nprintf 'alpha\\nbeta\\n'\n",
    "getent": "#!/bin/sh\ncase $2 in alpha) echo 10.9.0.1 STREAM;; *) exit 2;; esac\n",
    "curl": "#!/bin/sh\nexit 0\n",
    "srun": NOTE,
}
NASTY = """
engine: {type: vllm}
frontend: {type: dynamo}
roles:
  prefill:
    nodes: 1
    workers: 1
    gpus: 8
    args:
      tensor-parallel-size: 8
      chat-template: "$(touch pwned) `id` \\"'; exit 3 #"
      note: "a\\nb  c\\\\ %j *"
    env: {X_NOTE: "it's $HOME"}
  decode: {nodes: 1, workers: 1, gpus: 8, args: {tensor-parallel-size: 8}}
"""


def script_and_job(folder: Path, body: str, secrets: Sequence[str] = ()) -> tuple[str, Job]:
    """The script of a recipe, and the same job."""
    deployment = deployment_of(folder, body)
    return render(deployment, secrets)


def render(deployment: object, secrets: Sequence[str] = ()) -> tuple[str, Job]:
    """Script and job of a deployment."""
    nodes = nodes_of(place(deployment))  # type: ignore[arg-type]
    ports = iter(range(20_000, 65_000))
    where = JobPlace(
        nodes=[stand_in(n, 8) for n in range(nodes)],
        ports=lambda _, count: [next(ports) for _ in range(count)],
        work_root=WORK,
        log_root=LOGS,
        bind="node",
    )
    job = build_job(deployment, where, run_id="r", served_name="m")  # type: ignore[arg-type]
    text = sbatch_script(
        job,
        name="x",
        nodes=nodes,
        gpus=8,
        time_limit_s=600,
        ready_budget_s=5,
        secrets=secrets,
        image="reg#a/b:1",
    )
    return text, job


def bash(
    folder: Path, script: str, *words: str, env: Mapping[str, str] | None = None
) -> tuple[int, str, list[list[str]]]:
    """Exit status, standard error and what each srun was given."""
    stubs, notes = folder / "bin", folder / "notes"
    for made in (stubs, notes):
        made.mkdir()
    for name, text in STUBS.items():
        (stubs / name).write_text(
            text.replace("{python}", sys.executable).replace("{{", "{").replace("}}", "}")
        )
        (stubs / name).chmod(0o755)
    (folder / "job.sh").write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["bash", str(folder / "job.sh"), *words],
        cwd=folder,
        env={"PATH": f"{stubs}:{os.environ['PATH']}", "NOTES": str(notes), "SLURM_JOB_ID": "7",
             "SLURM_JOB_NODELIST": "x", "HOME": "/home/nobody", **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr, [json.loads(note.read_text()) for note in sorted(notes.iterdir())]


def test_srun_receives_what_the_job_says(tmp_path: Path) -> None:
    """Quotes, expansions and newlines of a recipe stay text; addresses and folders are the cluster's own."""
    script, job = script_and_job(tmp_path, NASTY)
    status, err, given = bash(tmp_path, script, "sleep", "1")
    assert status == 0, err
    assert not (tmp_path / "pwned").exists() and len(given) == len(job.steps)
    logs = str(tmp_path / "servemark-7")
    swap = {"@ADDR0@": "10.9.0.1", "@ADDR1@": "beta", "/@WORK@": f"{logs}/work", "/@LOGS@": logs}

    def real(text: str) -> str:
        for token, value in swap.items():
            text = text.replace(token, value)
        return text

    for step in job.steps:
        expected = [real(word) for word in step.process.argv]
        found = [words for words in given if words[-len(expected) :] == expected]
        assert len(found) == 1, step.name
        words = found[0]
        assert f"--nodelist={'alpha' if step.node.name == 'node0' else 'beta'}" in words
        assert {f"{name}={real(value)}" for name, value in step.env.items()} <= set(words)
        assert ("--gres=none" in words) == (not step.gpus)
        assert not any(word.startswith("--container") for word in words)
    nats = next(step for step in job.steps if step.name == "nats")
    assert (Path(logs) / "config" / "nats" / "nats.conf").read_text() == real(nats.process.files["nats.conf"])
    assert "outside the image of the recipe, reg#a/b:1" in err
    assert not (Path(logs) / "work").exists()  # what steps write while they run goes with them


def test_image_and_mounts_come_from_the_cluster(tmp_path: Path) -> None:
    """Workers and router enter the image; services run on the host, as their programs are not in it."""
    script, job = script_and_job(tmp_path, NASTY)
    env = {"IMAGE": "/images/a b.sqsh", "MOUNTS": "/models:/models"}
    status, err, given = bash(tmp_path, script, "sleep", "1", env=env)
    assert status == 0 and "outside the image" not in err
    inside = [words for words in given if "--container-image=/images/a b.sqsh" in words]
    assert len(inside) == sum(step.stage != "services" for step in job.steps)
    assert all("--container-mounts=/models:/models" in words for words in inside)


def test_ranks_of_one_program(tmp_path: Path) -> None:
    """A worker over two nodes is one srun of all its ranks; MPI names what starts them."""
    roles = "roles:\n  aggregated: {nodes: 2, workers: 1, gpus: 16, args: {tensor_parallel_size: 16}}\n"
    script, _ = script_and_job(tmp_path, "engine: {type: trtllm}\nfrontend: {type: trtllm_serve}\n" + roles)
    status, err, given = bash(tmp_path, script, "sleep", "1", env={"MPI": "pmi2"})
    assert status == 0, err
    (words,) = [one for one in given if "trtllm-llmapi-launch" in one]
    wanted = {"--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--nodelist=alpha,beta", "--mpi=pmi2"}
    assert wanted <= set(words)


def test_a_secret_is_asked_for_by_name(tmp_path: Path) -> None:
    """Nothing starts without it, and its value is nowhere in the script."""
    script, _ = script_and_job(tmp_path, NASTY, ["HF_TOKEN"])
    status, err, given = bash(tmp_path, script, "true")
    assert status != 0 and "HF_TOKEN" in err and given == []
    with pytest.raises(ServemarkError, match="no valid name"):
        script_and_job(tmp_path, NASTY, ['A}"; touch x; : "${B'])


@pytest.mark.corpus
def test_bash_accepts_the_script_of_every_real_recipe(tmp_path: Path) -> None:
    """`bash -n` over all of them at once: each is a function body of one file."""
    bodies: list[str] = []
    for _, deployment in recipes():
        try:
            script, _ = render(deployment)
        except ServemarkError:
            continue
        bodies.append(f"f{len(bodies)}() {{\n{script}}}\n")
    whole = tmp_path / "all.sh"
    whole.write_text("".join(bodies), encoding="utf-8")
    done = subprocess.run(["bash", "-n", str(whole)], capture_output=True, text=True, timeout=60, check=False)
    assert len(bodies) > 400 and done.returncode == 0, done.stderr[:500]
