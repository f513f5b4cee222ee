"""What every launcher offers: an allocation of nodes, and steps (processes) on them. Knows no engine and no metric.

A launcher is asked for nodes, gives an allocation, and starts steps on its nodes; releasing the allocation
ends every step. Both launchers keep the same promises, and one test module holds both to them:

* argv is a list; nothing passes through a shell.
* A step's log is one file (standard output and error in the order of arrival) that outlives the step.
* After `release`, or after the launcher's own death by any cause, no process, port or scratch folder is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from servemark.launch.process import ExitStatus


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind that are needed together. `gpus` counts GPUs of one node (0: none are asked for).

    `group` names the group; a launcher that has unlike hardware (`srun --het-group`) allocates each group from
    its own partition.
    """

    group: str
    nodes: int
    gpus: int = 0
    partition: str | None = None
    constraint: str | None = None


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """What a run asks for. `time_limit_s` ends the allocation whatever the run is doing; `wait_s` bounds the wait for
    it. `run_id` marks everything that is started, so that leftovers can be found by it."""

    run_id: str
    groups: tuple[NodeGroup, ...]
    time_limit_s: int
    wait_s: float
    exclude_nodes: tuple[str, ...] = ()
    sbatch_options: tuple[str, ...] = ()
    """The recipe's own; only a launcher of Slurm's reads them."""


@dataclass(frozen=True, slots=True)
class AllocatedNode:
    """One node: its name, the group it was asked for, and the address that other nodes and the launcher reach it by."""

    name: str
    group: str
    address: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path inside the container. Both absolute; `read_only` unless the step writes there."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """The image a step runs in: a squash file on every node, and what is mounted into it."""

    image: Path
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None
    own: tuple[Mount, ...] = ()
    """The launcher's own folders for the step, which stand in no root of the cluster."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One process on one node, or the ranks of one MPI program on several.

    `gpus` are indices on that node; None leaves the choice to the launcher (all of the
    allocation's). `critical`: the run fails when it ends by itself. Secrets go in `secret_env` and are shown nowhere."""

    name: str
    node: AllocatedNode
    argv: tuple[str, ...]
    log_path: Path
    work_dir: Path
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    gpus: tuple[int, ...] | None = None
    cpus: int | None = None
    container: Container | None = None
    critical: bool = True
    srun_options: tuple[str, ...] = ()
    grace_s: float = 5.0
    also: tuple[AllocatedNode, ...] = ()
    """Further nodes of a step whose ranks are started together."""
    tasks: int = 1
    """Ranks over all its nodes, as many on each; more than one are started as MPI ranks."""


class Step(Protocol):
    """A started step."""

    name: str
    node: AllocatedNode
    log_path: Path
    started_s: float
    """Monotonic seconds."""

    def poll(self) -> ExitStatus | None:
        """How it ended, None while it runs. Cheap enough for ten times a second."""

    def wait(self, timeout_s: float) -> ExitStatus | None:
        """Wait at most so long; returns at once when it ends."""

    def stop(self, grace_s: float | None = None) -> ExitStatus:
        """SIGTERM, then SIGKILL to the whole process tree; returns when nothing of it is left. May be called twice."""

    def log_size(self) -> int:
        """Bytes of the log so far."""

    def log_head(self, max_bytes: int = 65536) -> str:
        """The log's first bytes as text."""

    def log_tail(self, max_bytes: int = 8192) -> str:
        """The log's last bytes as text."""

    def cpu_seconds(self) -> float | None:
        """CPU time of the step's processes so far; None where it cannot be seen."""

    def rss_bytes(self) -> int | None:
        """Resident bytes of the step's processes; None where it cannot be seen."""


class Allocation(Protocol):
    """Nodes that are ours until `release`."""

    id: str
    """The manager's own id (a Slurm job id), for people and for re-attaching."""
    nodes: tuple[AllocatedNode, ...]

    def free_ports(self, node: AllocatedNode, count: int) -> Sequence[int]:
        """Ports free on that node now, different at every call of one allocation. Raises ServemarkError (layer launch)."""

    def start(self, request: StepRequest) -> Step:
        """Start a step. Raises ServemarkError (layer launch) when it cannot be started."""

    def lost(self) -> str | None:
        """Why the allocation is gone (node failure, cancelled, time limit), None while it stands."""

    def lost_nodes(self) -> tuple[str, ...]:
        """Nodes whose failure ended the allocation; empty while it stands, and when something else ended it."""

    def settle(self, step: Step) -> None:
        """A step has ended by itself: wait, bounded, until it is known whether that was the allocation's end."""

    def work_root(self, default: Path) -> Path:
        """The folder for steps' working folders: `default` where this host is the node, else one of each node's own."""

    def clean(self) -> None:
        """Remove what ended steps have left in `work_root`; steps that start later begin with nothing."""

    def facts(self) -> dict[str, object]:
        """What finds the allocation again: launcher, id, nodes, the manager's version. Plain JSON values."""

    def release(self) -> None:
        """End every step, give the nodes back, remove scratch. May be called twice and at any time."""


class Launcher(Protocol):
    """Where runs are started."""

    name: str

    def allocate(
        self,
        request: AllocationRequest,
        *,
        on_wait: Callable[[float, str], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        on_id: Callable[[str], None] | None = None,
    ) -> Allocation:
        """Block until the nodes are ours. `on_wait` gets seconds waited and the manager's reason, `on_id` the
        manager's id as soon as there is one.

        Raises ServemarkError: layer input for what can never be given (more nodes than there are), layer
        allocation for refusals and time-outs, layer interrupt when `cancelled`.
        """

    def attach(self, allocation_id: str) -> Allocation | None:
        """A live allocation of an earlier launcher by its id; None when it has ended."""

    def leftovers(self, run_id: str) -> list[str]:
        """What still runs under that run's mark, in words for people; empty when nothing does."""

    def describe(self, request: StepRequest) -> list[str]:
        """argv of what would start this step, for `--dry-run`; secrets by name only."""
