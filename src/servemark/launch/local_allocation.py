"""The launcher of this host: an allocation is this machine, a step is a process group under its guard.

Nothing outlives the process that allocated: each guard ends its step, and removes the step's working folder, when
its launcher is gone by whatever cause, kill -9 included.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import disk_error, make_folder
from servemark.launch import guard
from servemark.launch.allocation import AllocatedNode, Allocation, AllocationRequest, Step, StepRequest
from servemark.launch.ports import free_port
from servemark.launch.process import ExitStatus, RunningWorker, start_worker

RUN_ENV = "SERVEMARK_RUN"
"""Every process of a run carries its id in this variable."""
HIDDEN = "***"
_MAX_STOPPERS = 16


class LocalStep:
    """A step on this host. `worker` is the guarded process; the working folder goes when the step has gone."""

    def __init__(self, request: StepRequest, worker: RunningWorker, *, owns_folder: bool) -> None:
        self.name = request.name
        self.node = request.node
        self.log_path = request.log_path
        self.started_s = worker.started_s
        self.worker = worker
        self._request = request
        self._owns_folder = owns_folder

    @property
    def pid(self) -> int:
        """Process id of the program itself."""
        return self.worker.pid

    def poll(self) -> ExitStatus | None:
        """How it ended, None while it runs."""
        return self.worker.poll()

    def wait(self, timeout_s: float) -> ExitStatus | None:
        """Wait at most so long; returns at once when it ends."""
        return self.worker.wait(timeout_s)

    def stop(self, grace_s: float | None = None) -> ExitStatus:
        """End the whole tree, remove the working folder that was made for it."""
        status = self.worker.stop(self._request.grace_s if grace_s is None else grace_s)
        if self._owns_folder:
            shutil.rmtree(self._request.work_dir, ignore_errors=True)
        return status

    def log_size(self) -> int:
        """Bytes of the log so far."""
        return self.worker.log_size()

    def log_head(self, max_bytes: int = 65536) -> str:
        """The log's first bytes as text."""
        return self.worker.log_head(max_bytes)

    def log_tail(self, max_bytes: int = 8192) -> str:
        """The log's last bytes as text."""
        return self.worker.log_tail(max_bytes)

    def cpu_seconds(self) -> float | None:
        """CPU time of the step's processes so far."""
        return self.worker.cpu_seconds()

    def rss_bytes(self) -> int | None:
        """Resident bytes of the step's processes."""
        return self.worker.rss_bytes()


class LocalAllocation:
    """This host for one run. Its id is made here, since no manager gives one."""

    def __init__(self, request: AllocationRequest, nodes: tuple[AllocatedNode, ...]) -> None:
        self.id = f"local-{os.getpid()}-{secrets.token_hex(4)}"
        self.nodes = nodes
        self.run_id = request.run_id
        self._steps: list[LocalStep] = []
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._released = False
        self._limit = threading.Timer(request.time_limit_s, self._time_over, (request.time_limit_s,))
        self._limit.daemon = True
        self._limit.start()

    def free_ports(self, node: AllocatedNode, count: int) -> Sequence[int]:
        """Loopback ports that are free now and that this process hands out once only."""
        return [free_port(node.address) for _ in range(count)]

    def start(self, request: StepRequest) -> LocalStep:
        """Start a step. Raises ServemarkError (layer launch, input or home) when it cannot be started."""
        if request.container is not None:
            raise input_error("launch.local_container", step=request.name, image=str(request.container.image))
        if request.also or request.tasks > 1:
            raise input_error(
                "launch.local_ranks", step=request.name, tasks=request.tasks, nodes=1 + len(request.also)
            )
        if self._released or self._lost is not None:
            raise ServemarkError(
                "launch.allocation_gone", Layer.ALLOCATION, step=request.name, reason=self._lost or "-"
            )
        owns = not request.work_dir.exists()
        make_folder(request.log_path.parent)
        try:
            request.work_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise disk_error(error, request.work_dir) from error
        try:
            worker = start_worker(
                request.argv,
                {**_given_env(request), **request.secret_env, RUN_ENV: self.run_id},
                base_url="",
                log_path=request.log_path,
                work_dir=request.work_dir,
                grace_s=min(request.grace_s, 2.0),
                remove_work_dir=owns,
            )
        except BaseException:  # also an interrupt must leave no folder behind
            if owns:
                shutil.rmtree(request.work_dir, ignore_errors=True)
            raise
        step = LocalStep(request, worker, owns_folder=owns)
        with self._lock:
            self._steps.append(step)
        return step

    def lost(self) -> str | None:
        """Why the allocation is gone: its time limit; None while it stands."""
        return self._lost

    def lost_nodes(self) -> tuple[str, ...]:
        """None: the node is this host."""
        return ()

    def settle(self, step: Step) -> None:
        """At once: a step's end says nothing of this host."""

    def work_root(self, default: Path) -> Path:
        """As given: this host is the node."""
        return default

    def clean(self) -> None:
        """Nothing: each step removes its own folder."""

    def facts(self) -> dict[str, object]:
        """Launcher, id and this host."""
        nodes = [{"name": node.name, "address": node.address, "group": node.group} for node in self.nodes]
        return {"launcher": "local", "id": self.id, "nodes": nodes}

    def release(self) -> None:
        """End every step, newest first in time of starting but all at once in effect; may be called twice."""
        self._released = True
        self._limit.cancel()
        self._stop_all()

    def _time_over(self, limit_s: int) -> None:
        self._lost = f"time limit of {limit_s} s"
        self._stop_all()

    def _stop_all(self) -> None:
        with self._lock:
            steps, self._steps = list(reversed(self._steps)), []
        if steps:
            with ThreadPoolExecutor(min(len(steps), _MAX_STOPPERS)) as pool:
                list(pool.map(lambda step: step.stop(), steps))


class HostLauncher:
    """Launches on this host. `gpus`: how many it has; None counts the devices of the driver."""

    name = "local"

    def __init__(self, gpus: int | None = None) -> None:
        self.gpus = host_gpus() if gpus is None else gpus

    def allocate(
        self,
        request: AllocationRequest,
        *,
        on_wait: Callable[[float, str], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        on_id: Callable[[str], None] | None = None,
    ) -> LocalAllocation:
        """This host, at once. Raises ServemarkError (layer input) for more nodes or GPUs than it has."""
        if cancelled is not None and cancelled():
            raise ServemarkError("launch.cancelled", Layer.INTERRUPT)
        nodes = sum(group.nodes for group in request.groups)
        if nodes > 1:
            raise input_error("launch.local_nodes", nodes=nodes)
        wanted = max((group.gpus for group in request.groups), default=0)
        if wanted > self.gpus:
            raise input_error("launch.local_gpus", wanted=wanted, found=self.gpus)
        group = request.groups[0].group if request.groups else "all"
        node = AllocatedNode(socket.gethostname(), group, "127.0.0.1", tuple(range(self.gpus)))
        made = LocalAllocation(request, (node,))
        if on_id is not None:
            on_id(made.id)
        return made

    def attach(self, allocation_id: str) -> Allocation | None:
        """None: an allocation of this host ends with its launcher."""
        return None

    def leftovers(self, run_id: str) -> list[str]:
        """Processes of this user that carry the run's mark."""
        needle = f"{RUN_ENV}={run_id}".encode()
        found = []
        for pid, (_, state) in guard.process_table().items():
            with contextlib.suppress(OSError):
                if state not in "ZX" and needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
                    found.append(f"{pid} {name}")
        return found

    def describe(self, request: StepRequest) -> list[str]:
        """`env NAME=value… argv`, secrets by name only; ranks that this host does not start are said in front."""
        nodes = ",".join(node.name for node in (request.node, *request.also))
        ranks = [f"[{request.tasks} MPI ranks on {nodes}]"] if request.tasks > 1 else []
        return [*ranks, *describe_env(request), *request.argv]


def describe_env(request: StepRequest) -> list[str]:
    """The environment as words for `env`; nothing when there is none. A secret's value is never among them."""
    words = [f"{name}={value}" for name, value in sorted(_given_env(request).items())]
    words += [f"{name}={HIDDEN}" for name in sorted(request.secret_env)]
    return ["env", *words] if words else []


def _given_env(request: StepRequest) -> dict[str, str]:
    env = dict(request.env)
    if request.gpus:
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # so that a number means the same GPU to CUDA and to NVML
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in request.gpus)
    return env


def host_gpus(devices: Path = Path("/dev")) -> int:
    """NVIDIA devices that the driver shows here; 0 without a driver."""
    try:
        return sum(1 for path in devices.iterdir() if path.name[6:].isdigit() and path.name[:6] == "nvidia")
    except OSError:
        return 0
