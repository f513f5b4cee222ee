"""Slurm command lines as argv lists: `sbatch` for an allocation, `srun` for a step, containers through pyxis options.

A recipe is untrusted: of its own srun options only those that choose resources inside the allocation are taken, and a
container mounts nothing outside the cluster's declared roots.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.printable import one_line
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocationRequest, Container, Mount, NodeGroup, StepRequest
from servemark.launch.process import checked_env

STEP_SCRIPT = Path(__file__).with_name("slurm_step.sh")
MARK_ENV = "SERVEMARK_STEP_MARK"
"""Every process of a step inherits it; the sweep of a node finds by it what left its step's process tree."""
RECIPE_OPTIONS = frozenset(
    {
        "mem",
        "mem-per-cpu",
        "mem-per-gpu",
        "cpus-per-task",
        "cpus-per-gpu",
        "cpu-bind",
        "mem-bind",
        "gpu-bind",
        "gres",
        "gpus",
        "gpus-per-task",
        "gpus-per-node",
        "mpi",
        "hint",
        "distribution",
        "exact",
        "threads-per-core",
        "network",
        "container-writable",
        "container-readonly",
        "container-remap-root",
        "no-container-remap-root",
        "container-mount-home",
        "no-container-mount-home",
        "container-entrypoint",
        "no-container-entrypoint",
        "container-name",
        "oom-kill-step",
        "wait",
    }
)
RECIPE_DIRECTIVES = frozenset(
    {
        "comment",
        "constraint",
        "contiguous",
        "core-spec",
        "cpu-freq",
        "cpus-per-gpu",
        "cpus-per-task",
        "distribution",
        "exclusive",
        "gpu-freq",
        "hint",
        "mem",
        "mem-bind",
        "mem-per-cpu",
        "mem-per-gpu",
        "network",
        "segment",
        "spread-job",
        "switches",
        "threads-per-core",
        "tmp",
        "wait-all-nodes",
    }
)
"""What a recipe may say to sbatch: the kind of nodes and the share of them. How many nodes and GPUs, how long, where the
output goes comes from the plan; partition, account, quality of service and which nodes from the clusters file."""
_CONTAINER = re.compile(r"--(no-)?container-")
STEP_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
"""What a step inherits of the launcher's environment beside its own variables."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_SEGMENT_SINCE = (23, 11)


def job_name(run_id: str) -> str:
    """The job's name, by which leftovers are found; ServemarkError (input) for an id that Slurm could misread."""
    if not _RUN_ID.match(run_id):
        raise input_error("launch.run_id", run_id=run_id[:80])
    return f"servemark-{run_id}"


def components(groups: Sequence[NodeGroup]) -> list[list[NodeGroup]]:
    """Groups of like hardware together: each list is one component of the job, in the order of its first group."""
    found: dict[tuple[object, ...], list[NodeGroup]] = {}
    for group in groups:
        found.setdefault((group.partition, group.constraint, group.gpus), []).append(group)
    return list(found.values())


def sbatch_argv(
    cluster: LaunchCluster,
    request: AllocationRequest,
    script: Sequence[str],
    log: Path,
    version: tuple[int, int],
) -> list[str]:
    """`sbatch … [: …] SCRIPT ARGUMENTS…`: one component a kind of hardware; never requeued.

    Raises ServemarkError (input) for an option that this Slurm does not know yet.
    """
    own = recipe_directives(request.sbatch_options)
    for option in (*own, *cluster.sbatch):
        if option.startswith("--segment") and version < _SEGMENT_SINCE:
            raise input_error(
                "launch.slurm_segment",
                option=one_line(option[:120]),
                have="{}.{:02}".format(*version),
                since="{}.{:02}".format(*_SEGMENT_SINCE),
                cluster=cluster.name,
            )
    argv = ["sbatch", "--parsable"]
    for index, groups in enumerate(components(request.groups)):
        if index:
            argv.append(":")
        argv += ["--no-requeue", f"--job-name={job_name(request.run_id)}", f"--output={log}", "--export=ALL"]
        argv += [f"--nodes={sum(group.nodes for group in groups)}", "--ntasks-per-node=1"]
        argv.append(f"--time={max(1, math.ceil(request.time_limit_s / 60))}")
        argv += _component(cluster, groups[0])
        excluded = dict.fromkeys((*cluster.exclude_nodes, *request.exclude_nodes))
        if excluded:
            argv.append(f"--exclude={','.join(excluded)}")
        argv += [*own, *cluster.sbatch]  # of an option that is given twice sbatch takes the last: the site's
    return [*argv, *script]


def _component(cluster: LaunchCluster, group: NodeGroup) -> list[str]:
    argv = []
    partition = group.partition or cluster.partition
    if partition:
        argv.append(f"--partition={partition}")
    if cluster.account:
        argv.append(f"--account={cluster.account}")
    if group.constraint:
        argv.append(f"--constraint={group.constraint}")
    if group.gpus and cluster.gpu_request != "none":
        spelled = "--gres=gpu:" if cluster.gpu_request == "gres" else "--gpus-per-node="
        argv.append(f"{spelled}{group.gpus}")
    if cluster.exclusive:
        # Without it a job gets one CPU of each node, and shares the node with others' load.
        argv += ["--exclusive", "--mem=0"]
    return argv


def exported(request: StepRequest, mark: str) -> dict[str, str]:
    """The variables of a step's own; ServemarkError (input) for names that cannot be (values never appear)."""
    own = {**request.env, **request.secret_env, MARK_ENV: mark}
    checked_env(own)
    return own


def step_argv(
    cluster: LaunchCluster, request: StepRequest, job_id: str, het_group: int | None, mark: str
) -> list[str]:
    """`srun … sh -c STEP_SCRIPT … PROGRAM …`. Values of variables are not in it: `--export` gives names only."""
    own = exported(request, mark)
    names = dict.fromkeys((*(name for name in STEP_ENV if name in os.environ), *own))
    nodes = [request.node.name, *(node.name for node in request.also)]
    argv = ["srun", f"--jobid={job_id}", "--overlap", "--mem=0", f"--nodes={len(nodes)}"]
    argv += [f"--ntasks={request.tasks}"]
    if request.tasks > 1:
        argv.append(f"--ntasks-per-node={-(-request.tasks // len(nodes))}")
        argv.append("--kill-on-bad-exit=1")  # ranks wait for each other for ever
        if cluster.mpi is not None:
            argv.append(f"--mpi={cluster.mpi}")
    argv += [f"--nodelist={','.join(nodes)}", f"--job-name={request.name}", "--input=none"]
    argv.append(f"--export={','.join(names)}")
    if het_group is not None:
        argv.append(f"--het-group={het_group}")
    if request.cpus is not None:
        argv.append(f"--cpus-per-task={request.cpus}")
    elif not any("cpu-bind" in option for option in (*cluster.srun, *request.srun_options)):
        # One task would otherwise be bound to one CPU by some clusters' defaults.
        argv.append("--cpu-bind=none")
    argv += container_options(cluster, request.container, own)
    argv += cluster.srun
    argv += recipe_options(request.srun_options, contained=request.container is not None)
    gpus = "all" if request.gpus is None else ",".join(str(one) for one in request.gpus) or "none"
    inside = request.container is None or any(
        mount.source == request.work_dir for mount in request.container.own
    )
    folder = str(request.work_dir) if inside else ""
    script = STEP_SCRIPT.read_text(encoding="utf-8")
    return [*argv, "--", "/bin/sh", "-c", script, "servemark-step", folder, gpus, *request.argv]


def recipe_options(options: Sequence[str], *, contained: bool = True) -> list[str]:
    """The recipe's own srun options, those of pyxis only for a step in a container; ServemarkError (input) for one that
    may not be set there."""
    found = _allowed(options, RECIPE_OPTIONS, "launch.slurm_option")
    return [option for option in found if contained or not _CONTAINER.match(option)]


def recipe_directives(options: Sequence[str]) -> list[str]:
    """The recipe's own sbatch options, or ServemarkError (input) for one that is the plan's or the cluster's to say."""
    return _allowed(options, RECIPE_DIRECTIVES, "launch.slurm_directive")


def _allowed(options: Sequence[str], known: frozenset[str], key: str) -> list[str]:
    for option in options:
        name = option.removeprefix("--").partition("=")[0]
        if not option.startswith("--") or name not in known or not option.isprintable():
            raise input_error(key, option=one_line(option[:120]), known=", ".join(sorted(known)))
    return list(options)


def container_options(cluster: LaunchCluster, container: Container | None, own: dict[str, str]) -> list[str]:
    """pyxis options for a step's container; ServemarkError (input) for a mount outside the declared roots."""
    if container is None:
        return []
    argv = [f"--container-image={_text(container.image)}", "--no-container-mount-home"]
    argv.append("--no-container-entrypoint")
    mounts = []
    for mount in container.mounts:
        _within(cluster, mount.source)
        mounts.append(_mounted(mount))
    mounts += [_mounted(mount) for mount in container.own]
    if mounts:
        argv.append(f"--container-mounts={','.join(mounts)}")
    if container.workdir is not None:
        argv.append(f"--container-workdir={_text(container.workdir)}")
    if own:
        # Without it the image's own values would win over the recipe's.
        argv.append(f"--container-env={','.join(own)}")
    return argv


def _mounted(mount: Mount) -> str:
    return f"{_text(mount.source)}:{_text(mount.target)}{':ro' if mount.read_only else ''}"


def _within(cluster: LaunchCluster, source: Path) -> None:
    """Both as written and with links followed (where the launcher sees the path), it must lie below a root."""
    written = posixpath.normpath(str(source))
    real = os.path.realpath(written)
    for path in (written, real):
        if not any(Path(path).is_relative_to(root) for root in _roots(cluster, real=path is real)):
            raise input_error(
                "launch.mount_outside",
                path=str(source)[:200],
                cluster=cluster.name,
                roots=", ".join(str(root) for root in cluster.mounts) or "—",
            )


def _roots(cluster: LaunchCluster, *, real: bool) -> list[str]:
    return [os.path.realpath(root) if real else str(root) for root in cluster.mounts]


def _text(path: Path | str) -> str:
    """A path as Slurm's comma- and colon-parted option takes it."""
    text = str(path)
    if not text.startswith("/") or not text.isprintable() or re.search(r"[,:]", text):
        raise input_error("launch.mount_text", path=text[:200])
    return text


def allocation_refused(reason: str, cluster: LaunchCluster) -> ServemarkError:
    """The error for an allocation that Slurm refused at once."""
    return ServemarkError("launch.slurm_refused", Layer.ALLOCATION, reason=reason, cluster=cluster.name)
