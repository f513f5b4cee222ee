"""A job as one sbatch script for people: to read, or to run by hand. Plain bash, nothing of servemark's is needed.

Node addresses and folders are known on the cluster only; they stand in the job as tokens and become variables of the
script. Everything else is quoted word by word. Secrets are asked for by name and taken from the environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from servemark.launch.allocation import AllocatedNode
from servemark.launch.job import STAGES, Job, PlannedStep
from servemark.launch.secret_env import check_names

WORK, LOGS = Path("/@WORK@"), Path("/@LOGS@")
_TOKEN = re.compile(r"/@(WORK|LOGS)@|@ADDR([0-9]{1,5})@")


@dataclass(frozen=True, slots=True)
class ScriptSite:
    """What a cluster adds to a script: options of sbatch (each one word that begins with `--`) and pyxis' mounts, used
    where MOUNTS is not set."""

    options: tuple[str, ...] = ()
    mounts: str = ""
    whole_nodes: bool = True


def stand_in(number: int, gpus: int) -> AllocatedNode:
    """A node of the script: its address is a token."""
    return AllocatedNode(f"node{number}", "all", f"@ADDR{number}@", tuple(range(gpus)))


def word(text: str) -> str:
    """One word of bash that means exactly `text`, tokens replaced by the script's variables."""
    parts, at = [], 0
    for found in _TOKEN.finditer(text):
        if found.start() > at:
            parts.append(shlex.quote(text[at : found.start()]))
        parts.append(f'"${{{found[1]}}}"' if found[1] else f'"${{ADDR[{found[2]}]}}"')
        at = found.end()
    if at < len(text) or not text:
        parts.append(shlex.quote(text[at:]))
    return "".join(parts)


def sbatch_script(
    job: Job,
    *,
    name: str,
    nodes: int,
    gpus: int,
    time_limit_s: int,
    ready_budget_s: float,
    secrets: Sequence[str] = (),
    image: str | None = None,
    huge_pages: int = 0,
    site: ScriptSite | None = None,
    srun_options: Sequence[str] = (),
) -> str:
    """The whole script. It starts the steps stage by stage, waits for each, and ends all when one ends.

    Nodes are taken whole, with all of their memory and CPUs, as runs take them: a job that says nothing gets one CPU of
    each and a share of the memory. `site` is what a cluster asks for beside that, `srun_options` what the recipe gives its
    own steps.

    `image` is what the recipe names. Where it lies is known on the cluster only: the script enters what IMAGE names,
    with MOUNTS, through pyxis' options, and says so when IMAGE is not set.

    `huge_pages`: free pages of 2 MiB that every node must have before anything starts; the script refuses to go on
    with fewer, and names the node and the command. HUGE_PAGES in its environment overrides the number, 0 skips it.

    Ranks of a worker over several nodes are started by what MPI names, `pmix` when it is not set.

    Arguments of the script are a command that is run once all is ready, with SERVEMARK_URL and SERVEMARK_MODEL set;
    without them it serves until its time is over.
    """
    check_names(secrets)
    site = ScriptSite() if site is None else site
    lines = [*_head(name, nodes, gpus, time_limit_s, site), *_prologue(secrets), *_image(image, site)]
    if huge_pages:
        lines += _huge_pages(huge_pages)
    for stage in STAGES:
        steps = job.stage(stage)
        if steps:
            lines.append(f"# {stage}")
        for step in steps:
            lines += _start(step, srun_options)
        for step in steps:
            if step.process.probe is not None:
                url = word(step.process.probe.base_url + step.process.probe.path)
                lines.append(f"await {shlex.quote(step.name)} {url} {int(ready_budget_s)}")
        if steps:
            lines.append("")
    lines += [
        f"export SERVEMARK_URL={word(job.front.base_url)} SERVEMARK_MODEL={word(job.served_name)}",
        'echo "ready: $SERVEMARK_URL serves $SERVEMARK_MODEL"',
        'if [ "$#" -gt 0 ]; then "$@"; exit; fi',
        'wait -n "${PIDS[@]}"',
        'echo "a step has ended; its log is in $LOGS" >&2',
        "exit 1",
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, nodes: int, gpus: int, time_limit_s: int, site: ScriptSite) -> list[str]:
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:80]
    minutes = max(1, -(-time_limit_s // 60))
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={safe}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
    ]
    if gpus:
        lines.append(f"#SBATCH --gres=gpu:{gpus}")  # after --gpus-per-node no step may say --gres=none
    if site.whole_nodes:
        lines += ["#SBATCH --exclusive", "#SBATCH --mem=0"]
    lines += [f"#SBATCH {directive(option)}" for option in site.options]
    return [*lines, f"#SBATCH --time={minutes}", "#SBATCH --no-requeue", f"#SBATCH --output={safe}-%j.out"]


def directive(option: str) -> str:
    """An option as a line of `#SBATCH` takes it. sbatch cuts such a line at blanks and at `#`, and reads quotes and
    backslashes itself."""
    if re.fullmatch(r"[A-Za-z0-9_.,:;/=@%+\-\[\]*&|()]+", option):
        return option
    name, mark, value = option.partition("=")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{mark}"{escaped}"'


def _prologue(secrets: Sequence[str]) -> list[str]:
    lines = ["set -euo pipefail", ""]
    for secret in secrets:
        lines += [f': "${{{secret}:?export {secret} before sbatch}}"', f"export {secret}"]
    return [
        *lines,
        'mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "ADDR=()",
        'for node in "${NODES[@]}"; do',
        "  found=$(getent ahostsv4 \"$node\" | awk 'NR == 1 { print $1 }') || true",
        '  ADDR+=("${found:-$node}")',
        "done",
        'LOGS="$PWD/servemark-$SLURM_JOB_ID"',
        'WORK="$LOGS/work"',
        'mkdir -p "$LOGS" "$WORK"',
        "PIDS=()",
        "finish() {",
        "  trap - EXIT",
        '  [ "${#PIDS[@]}" -eq 0 ] || kill "${PIDS[@]}" 2>/dev/null || true',
        "  wait || true",
        '  rm -rf "$WORK"',
        "}",
        "trap finish EXIT",
        "trap 'exit 143' TERM",
        "trap 'exit 130' INT",
        "await() {  # name, URL, seconds",
        "  local end=$((SECONDS + $3)) pid",
        '  until curl -fsS --noproxy "*" --max-time 2 -o /dev/null "$2" 2>/dev/null; do',
        '    for pid in "${PIDS[@]}"; do',
        '      kill -0 "$pid" 2>/dev/null || { echo "a step ended while $1 started; see $LOGS" >&2; exit 1; }',
        "    done",
        '    [ "$SECONDS" -lt "$end" ] || { echo "$1 was not ready after $3 s; see $LOGS/$1.log" >&2; exit 1; }',
        "    sleep 1",
        "  done",
        '  echo "$1 is ready"',
        "}",
        "",
    ]


def _image(image: str | None, site: ScriptSite) -> list[str]:
    if image is None:
        return ["IMAGE= MOUNTS=", ""]
    return [
        'IMAGE="${IMAGE:-}" MOUNTS="${MOUNTS:-}"',
        f"RECIPE_IMAGE={word(image)}",
        'if [ -z "$IMAGE" ]; then',
        '  echo "IMAGE is not set: steps run outside the image of the recipe, $RECIPE_IMAGE" >&2',
        *(['elif [ -z "$MOUNTS" ]; then', f"  MOUNTS={word(site.mounts)}"] if site.mounts else []),
        "fi",
        "",
    ]


def _huge_pages(pages: int) -> list[str]:
    """The look at every node's pool, on all nodes at once."""
    return [
        "# every node's free huge pages of 2 MiB: a store that finds one too few does not start",
        f'HUGE_PAGES="${{HUGE_PAGES:-{pages}}}"',
        'if [ "$HUGE_PAGES" -gt 0 ]; then',
        '  srun --overlap --mem=0 --nodes="${#NODES[@]}" --ntasks="${#NODES[@]}" --gres=none \\',
        f'    sh -c {shlex.quote(_LOOK)} sh "$HUGE_PAGES"',
        "fi",
        "",
    ]


_LOOK = """
free=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages) || free=0
[ "$free" -ge "$1" ] && exit
echo "preflight: $(hostname) has $free free huge pages of 2 MiB and needs $1:" >&2
echo "sudo sysctl -w vm.nr_hugepages=$1 && cat /proc/sys/vm/nr_hugepages" >&2
exit 1
"""


def _start(step: PlannedStep, srun_options: Sequence[str]) -> list[str]:
    number = step.node.name.removeprefix("node")
    lines = [f"mkdir -p {word(str(step.work_dir))}"]
    for name, text in step.process.files.items():
        lines.append(f"mkdir -p {word(str(step.config_dir))}")
        lines.append(f"printf '%s' {word(text)} > {word(str(step.config_dir / name))}")
    env = dict(step.env)
    if step.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, step.gpus))
    numbers = [number, *(node.name.removeprefix("node") for node in step.also)]
    tasks = step.process.tasks
    nodelist = ",".join(f"${{NODES[{one}]}}" for one in numbers)
    srun = f'srun --overlap --mem=0 --cpu-bind=none --nodes={len(numbers)} --ntasks={tasks} --nodelist="{nodelist}"'
    if tasks > 1:
        srun += f' --ntasks-per-node={-(-tasks // len(numbers))} --kill-on-bad-exit=1 --mpi="${{MPI:-pmix}}"'
    srun += f" --chdir={word(str(step.work_dir))} --output={word(str(step.log_path))}"
    srun += " --gres=none" if not step.gpus else ""
    if step.stage != "services":
        for option in srun_options:
            quoted = shlex.quote(option)
            # pyxis' own options mean nothing outside an image
            srun += f" ${{IMAGE:+{quoted}}}" if "container-" in option.partition("=")[0] else f" {quoted}"
        srun += ' ${IMAGE:+--container-image="$IMAGE"} ${MOUNTS:+--container-mounts="$MOUNTS"}'
    words = [
        word(part) for part in ("env", *(f"{k}={v}" for k, v in sorted(env.items())), *step.process.argv)
    ]
    body = " \\\n  ".join([srun, *words])
    return [f"# {step.name}", *lines, f"{body} &", "PIDS+=($!)"]
