"""How each cluster is launched on, as data: the `launch:` section of a clusters file, by cluster name.

launch:
  b300-a:
    launcher: slurm
    labels: [cluster:b300-a]        # runner labels of the suite that run here
    partition: batch
    account: bench
    gpus-per-node: 8
    dram-mib: 3000000               # MiB (2^20) of host memory of a node
    image-cache: /shared/images     # squash files, seen by every node
    mounts: [/shared/models]        # roots: a step may mount nothing else
    model-paths: {org/model: /shared/models/model}
    worker-cpus: 0-23               # local only: CPUs of the workers, so that the client keeps the others to itself
    environment: {PATH: "/opt/engine/bin:/usr/bin:/bin", PYTHONPATH: /opt/engine}   # of workers, below the recipe's own
    sbatch: ["--qos=bench"]
    srun: ["--cpu-freq=high"]
    mpi: pmix                       # how ranks of a worker over several nodes are started
    exclude-nodes: [n13]
    scratch: /tmp                   # of each node: working folders, gone after the run
    wait-s: 7200                    # at most so long for nodes
    silence-s: 60                   # a job whose launcher is silent for so long ends itself
    other-nodes: 2                  # tries on other nodes when nodes fail before the replay
    budgets-s: {images: 3600}       # time budgets of phases
    import: {command: [enroot, import, -o, "{output}", "{uri}"], digest: [enroot, digest, "{uri}"]}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.fields import Fields, nearest
from servemark.catalog.nodes import Node, Position, Problem, errors_of, problems_error
from servemark.catalog.phase_budgets import budgets_of
from servemark.catalog.recipe_parts import environment_of
from servemark.catalog.yaml_nodes import read_yaml

LAUNCHERS = ("local", "slurm")
SCRATCH = Path("/tmp")  # noqa: S108 - folders below it carry a random name and are the owner's alone
SILENCE_S = 60
"""Longer than any pause of a shared file system."""
OTHER_NODES = 2
SLURM_FIELDS = (
    "partition",
    "account",
    "sbatch",
    "srun",
    "exclude-nodes",
    "mpi",
    "scratch",
    "wait-s",
    "silence-s",
    "other-nodes",
)
GPU_REQUESTS = ("gres", "gpus-per-node", "none")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,\[\]-]{0,255}\Z")
_CPUS = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?){0,255}\Z")
_OPTION = re.compile(r"-[A-Za-z0-9-][^\0\n\r]*\Z")
_OWNED = frozenset(
    {
        "parsable",
        "no-requeue",
        "requeue",
        "job-name",
        "output",
        "error",
        "export",
        "export-file",
        "time",
        "array",
        "wait",
        "wrap",
        "test-only",
        "quiet",
        "jobid",
        "het-group",
        "overlap",
        "nodelist",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "input",
        "chdir",
        "dependency",
        "hold",
    }
)
"""Options that the launcher sets itself, or that would change what it relies on."""
_OWNED_SHORT = frozenset("JoetaWQNnwiDdHB")


@dataclass(frozen=True, slots=True)
class ImageImport:
    """How an image becomes a squash file: argv lists with `{uri}`, `{reference}` and `{output}`. `timeout_s`: seconds."""

    command: tuple[str, ...]
    digest: tuple[str, ...] = ()
    timeout_s: int = 3600
    attempts: int = 5


@dataclass(frozen=True, slots=True)
class LaunchCluster:
    """One cluster. Absent facts are None or empty; `gpus_per_node` 0 says that there are none."""

    name: str
    launcher: str
    labels: tuple[str, ...] = ()
    partition: str | None = None
    account: str | None = None
    gpus_per_node: int | None = None
    nodes: int | None = None
    """How many a job can have; None where nobody says."""
    dram_mib: int | None = None
    image_cache: Path | None = None
    mounts: tuple[Path, ...] = ()
    model_paths: tuple[tuple[str, Path], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of every worker there: where its engine lies. A recipe's own go before."""
    worker_cpus: str | None = None
    """CPUs of this host's workers, as taskset takes them; None: all that the client has."""
    sbatch: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()
    exclude_nodes: tuple[str, ...] = ()
    gpu_request: str = "gres"
    exclusive: bool = True
    image_import: ImageImport | None = None
    mpi: str | None = None
    scratch: Path = SCRATCH
    wait_s: int | None = None
    silence_s: int = SILENCE_S
    other_nodes: int = OTHER_NODES
    budgets_s: tuple[tuple[str, float], ...] = ()
    at: Position | None = None


def launch_clusters_of(root: Node, problems: list[Problem]) -> dict[str, LaunchCluster]:
    """The clusters of a file's `launch:` section; what is wrong is collected. Other sections are not looked at."""
    top = Fields(root, problems, "clusters file")
    section = top.mapping("launch", "launch")
    found: dict[str, LaunchCluster] = {}
    for name in (section.node.entries or {}) if section else ():
        if section is None:
            break
        if not _NAME.match(name):
            section.problem(section.node.key_at(name), "catalog.cluster_name", name=name[:80])
            continue
        inner = section.mapping(name, f"launch of {name}")
        if inner is not None:
            found[name] = _cluster(name, inner)
    return found


def _cluster(name: str, inner: Fields) -> LaunchCluster:
    launcher = inner.choice("launcher", LAUNCHERS, required=True) or "local"
    if launcher == "local":
        for field in SLURM_FIELDS:
            if inner.get(field) is not None:
                inner.problem(inner.at(field), "catalog.cluster_slurm_only", field=field, name=name)
    exclusive = inner.boolean("exclusive")
    cluster = LaunchCluster(
        name=name,
        launcher=launcher,
        labels=inner.texts("labels"),
        partition=_word(inner, "partition"),
        account=_word(inner, "account"),
        gpus_per_node=inner.integer("gpus-per-node", minimum=0),
        nodes=inner.integer("nodes", minimum=1),
        dram_mib=inner.integer("dram-mib", minimum=1),
        image_cache=_path(inner, "image-cache", inner.text("image-cache")),
        mounts=tuple(
            path for one in inner.texts("mounts") if (path := _path(inner, "mounts", one)) is not None
        ),
        model_paths=_model_paths(inner),
        worker_cpus=_cpus(inner, launcher),
        environment=tuple(environment_of(inner, "environment").items()),
        sbatch=_options(inner, "sbatch"),
        srun=_options(inner, "srun"),
        exclude_nodes=tuple(
            one for one in inner.texts("exclude-nodes") if _is_word(inner, "exclude-nodes", one)
        ),
        gpu_request=inner.choice("gpu-request", GPU_REQUESTS) or "gres",
        exclusive=True if exclusive is None else exclusive,
        image_import=_import(inner),
        mpi=_word(inner, "mpi"),
        scratch=_path(inner, "scratch", inner.text("scratch")) or SCRATCH,
        wait_s=inner.integer("wait-s", minimum=1),
        silence_s=inner.integer("silence-s", minimum=3) or SILENCE_S,
        other_nodes=_count(inner, "other-nodes", OTHER_NODES),
        budgets_s=budgets_of(inner, "budgets-s"),
        at=inner.node.at,
    )
    inner.no_others()
    return cluster


def _count(inner: Fields, field: str, default: int) -> int:
    found = inner.integer(field, minimum=0)
    return default if found is None else found


def _word(inner: Fields, field: str) -> str | None:
    found = inner.text(field)
    return found if found is None or _is_word(inner, field, found) else None


def _is_word(inner: Fields, field: str, value: str) -> bool:
    if _WORD.match(value):
        return True
    inner.problem(inner.at(field), "catalog.cluster_word", field=field, value=value)
    return False


def _cpus(inner: Fields, launcher: str) -> str | None:
    """`0-11,14`; Slurm binds its steps itself."""
    found = inner.text("worker-cpus")
    if found is not None and (launcher != "local" or not _CPUS.match(found)):
        inner.problem(inner.at("worker-cpus"), "catalog.cluster_cpus", value=found[:80])
        return None
    return found


def _path(inner: Fields, field: str, value: str | None) -> Path | None:
    """An absolute path without `..`, `,`, `:` or control characters (Slurm's mount syntax parts at those)."""
    if value is None:
        return None
    path = PurePosixPath(value)
    if not path.is_absolute() or ".." in path.parts or not value.isprintable() or re.search(r"[,:]", value):
        inner.problem(inner.at(field), "catalog.cluster_path", field=field, value=value)
        return None
    return Path(path)


def _model_paths(inner: Fields) -> tuple[tuple[str, Path], ...]:
    section = inner.mapping("model-paths", "model-paths")
    found = []
    for model in (section.node.entries or {}) if section else ():
        path = _path(section, model, section.text(model)) if section else None
        if path is not None:
            found.append((model, path))
    return tuple(found)


def _options(inner: Fields, field: str) -> tuple[str, ...]:
    """A list of option texts, each one argument: `--mpi=pmix`. Those that the launcher sets are refused."""
    kept = []
    for option in inner.texts(field):
        name = option.lstrip("-").partition("=")[0]
        short = not option.startswith("--")
        if not _OPTION.match(option):
            inner.problem(inner.at(field), "catalog.cluster_option", field=field, value=option)
        elif name in _OWNED or (short and name[:1] in _OWNED_SHORT):
            inner.problem(inner.at(field), "catalog.cluster_option_owned", field=field, value=option)
        else:
            kept.append(option)
    return tuple(kept)


def _import(inner: Fields) -> ImageImport | None:
    section = inner.mapping("import", "import")
    if section is None:
        return None
    if section.get("command") is None:
        section.missing("command")
    command = section.texts("command")
    for needed in ("{output}", "{uri}"):
        spoken = any(needed in part or (needed == "{uri}" and "{reference}" in part) for part in command)
        if command and not spoken:
            section.problem(section.at("command"), "catalog.cluster_import", needed=needed)
    found = ImageImport(
        command=command,
        digest=section.texts("digest"),
        timeout_s=section.integer("timeout-s", minimum=1) or 3600,
        attempts=section.integer("attempts", minimum=1) or 5,
    )
    section.no_others()
    return found if command else None


def read_launch_clusters(path: Path) -> dict[str, LaunchCluster]:
    """A file's clusters; ServemarkError (exit 2) listing everything wrong with it, each with its position."""
    if not path.is_file():
        raise input_error("catalog.no_clusters_file", path=str(path))
    root, problems = read_yaml(path, str(path))
    found = launch_clusters_of(root, problems)
    wrong = errors_of(problems)
    if wrong:
        raise problems_error(wrong)
    return found


def launch_cluster(clusters: dict[str, LaunchCluster], wanted: str, file: str) -> LaunchCluster:
    """A cluster by its name or by one of its labels; ServemarkError (exit 2) naming the nearest one."""
    if wanted in clusters:
        return clusters[wanted]
    labelled = [cluster for cluster in clusters.values() if wanted in cluster.labels]
    if len(labelled) == 1:
        return labelled[0]
    raise _unknown(clusters, wanted, file)


def _unknown(clusters: dict[str, LaunchCluster], wanted: str, file: str) -> ServemarkError:
    near = nearest(wanted, clusters)
    key = "catalog.no_cluster_near" if near else "catalog.no_cluster"
    known = ", ".join(clusters) or "—"
    return input_error(key, name=wanted[:120], near=near, known=known, file=file)
