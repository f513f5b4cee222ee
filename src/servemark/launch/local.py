"""The launcher for this machine: one worker at a time, on loopback, watched until it is ready."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import make_folder
from servemark.launch import failure
from servemark.launch.engines.protocol import EngineAdapter, EngineRequest
from servemark.launch.ports import require_free
from servemark.launch.process import ExitStatus, RunningWorker, start_worker

_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_PAUSE_SHARE = 0.05
"""Of the time waited so far: the measured seconds are at most so much too long."""
_TICK_S = 0.5
_WORKING_WINDOW_S = 5.0
"""An engine counts as working when its log grew or it used the CPU within the last so many seconds."""
_WORKING_CPU_SHARE = 0.02
"""Of one CPU: an idle server's timers use less, one that loads a model uses more."""
_LOG_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ReadyTick:
    """What is known while an engine starts. Absent figures are None."""

    elapsed_s: float
    working: bool
    log_bytes: int
    cpu_s: float | None
    rss_bytes: int | None
    last_line: str | None


class Watched(Protocol):
    """What is looked at while something starts: a worker of this host, or any launcher's step."""

    @property
    def started_s(self) -> float:
        """Monotonic seconds."""

    def log_size(self) -> int:
        """Bytes of the log."""

    def log_tail(self, max_bytes: int = 8192) -> str:
        """The log's end."""

    def cpu_seconds(self) -> float | None:
        """CPU time so far."""

    def rss_bytes(self) -> int | None:
        """Resident bytes."""


class Activity:
    """Tells a slow start apart from a silent one."""

    def __init__(self, worker: Watched) -> None:
        self.worker = worker
        self.log_bytes = 0
        self.cpu_s: float | None = None
        self.rss_bytes: int | None = None
        self._looked_s = worker.started_s
        self._last_sign_s = worker.started_s

    def look(self) -> None:
        """Sample now; cheap enough for twice a second."""
        now, size, cpu = time.monotonic(), self.worker.log_size(), self.worker.cpu_seconds()
        used = cpu - (self.cpu_s or 0.0) if cpu is not None else 0.0
        if size > self.log_bytes or used > _WORKING_CPU_SHARE * max(now - self._looked_s, 0.01):
            self._last_sign_s = now
        self._looked_s, self.log_bytes = now, size
        self.cpu_s = cpu if cpu is not None else self.cpu_s
        self.rss_bytes = self.worker.rss_bytes()

    def silent_s(self) -> float:
        """Seconds since the last sign of work."""
        return time.monotonic() - self._last_sign_s

    def tick(self) -> ReadyTick:
        """The sample as a value for a progress line."""
        lines = [line for line in map(failure.printable, self.worker.log_tail(2048).splitlines()) if line]
        return ReadyTick(
            elapsed_s=time.monotonic() - self.worker.started_s,
            working=self.silent_s() < _WORKING_WINDOW_S,
            log_bytes=self.log_bytes,
            cpu_s=self.cpu_s,
            rss_bytes=self.rss_bytes,
            last_line=lines[-1] if lines else None,
        )


class LocalLauncher:
    """Starts engines as guarded processes of this host. Holds no state of its own beside a counter of the
    kernel."""

    def __init__(self) -> None:
        self._oom_kills = failure.oom_kill_count()

    def start(
        self, adapter: EngineAdapter, request: EngineRequest, log_path: Path, work_dir: Path
    ) -> RunningWorker:
        """Check everything that can be checked, then start; the engine is not ready yet (see `wait_ready`).

        Raises ServemarkError: layer install, model or input from the adapter; layer launch for an address
        that is not loopback, a port that is taken, or a program that cannot be started; layer home for the
        folders.
        """
        base_url = loopback_url(request.host, request.port)
        adapter.check_installed()
        command = adapter.command(request)
        require_free(request.port, request.host)
        make_folder(work_dir)
        make_folder(log_path.parent)
        return start_worker(
            command.argv,
            {**request.env, **command.env},
            base_url=base_url,
            log_path=log_path,
            work_dir=work_dir,
        )

    def wait_ready(
        self,
        worker: RunningWorker,
        adapter: EngineAdapter,
        request: EngineRequest,
        budget_s: float,
        *,
        on_tick: Callable[[ReadyTick], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> float:
        """Block until the worker can serve; seconds since its start. An exit is noticed at once, not at a
        poll.

        `on_tick` is called about twice a second, `cancelled` before every probe. Raises ServemarkError:
        launch.engine_exited… (see `exit_error`), launch.not_ready_working or launch.not_ready_silent when
        `budget_s` is over, launch.other_server, launch.cancelled (layer interrupt). The worker is not stopped
        here.
        """
        deadline = worker.started_s + budget_s
        activity, next_tick_s = Activity(worker), time.monotonic() + _TICK_S
        while True:
            if (status := worker.poll()) is not None:
                raise self.exit_error(worker, adapter, status)
            if cancelled is not None and cancelled():
                raise ServemarkError("launch.cancelled", Layer.INTERRUPT)
            if self._ask(worker, adapter, request):
                return time.monotonic() - worker.started_s
            now = time.monotonic()
            if now >= next_tick_s:
                next_tick_s = now + _TICK_S
                activity.look()
                if on_tick is not None:
                    on_tick(activity.tick())
            if now >= deadline:
                activity.look()
                raise _not_ready(worker, activity, budget_s)
            pause_s = min(max(_PAUSE_SHARE * (now - worker.started_s), _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
            worker.wait(min(pause_s, max(deadline - now, 0.0)))

    def _ask(self, worker: RunningWorker, adapter: EngineAdapter, request: EngineRequest) -> bool:
        """The adapter's probe. A foreign server on our port usually means that ours is about to say so and
        end."""
        try:
            return adapter.ready(worker.base_url, request)
        except ServemarkError:
            status = worker.wait(1.0)
            if status is None:
                raise
            raise self.exit_error(worker, adapter, status) from None

    def exit_error(self, worker: RunningWorker, adapter: EngineAdapter, status: ExitStatus) -> ServemarkError:
        """The error for an engine that ended by itself, at start or later.

        Key `launch.engine_exited`, or `launch.engine_exited.KIND` when the log (through the adapter) or the
        signal shows a known cause; values `status`, `seconds` since the start, `log`, `lines` (first relevant
        lines).
        """
        log = worker.log_head(_LOG_BYTES)
        if worker.log_size() > _LOG_BYTES:
            log += "\n" + worker.log_tail(_LOG_BYTES)
        key, values = self._cause(adapter, status, log)
        lines = failure.relevant_lines(log)
        values |= {
            "status": str(status),
            "seconds": f"{time.monotonic() - worker.started_s:.1f}",
            "log": str(worker.log_path),
            "lines": "\n".join(f"    {line}" for line in lines) or "    -",
        }
        return ServemarkError(key, Layer.ENGINE, exit_code=1, where=None, **values)

    def _cause(self, adapter: EngineAdapter, status: ExitStatus, log: str) -> tuple[str, dict[str, object]]:
        if status == ExitStatus():
            return "launch.engine_exited.unseen", {}
        oom_kills: int | None = None
        now = failure.oom_kill_count()
        if now is not None and self._oom_kills is not None:
            oom_kills = now - self._oom_kills
        kind = failure.signal_kind(status, oom_kills=oom_kills)
        # SIGKILL says more than any line; an abort, on the contrary, is explained by the log if by anything.
        if kind in ("oom_killed", "killed", "illegal_instruction"):
            return f"launch.engine_exited.{kind}", {}
        hint = adapter.failure_hint(log)
        if hint is not None:
            return hint
        return (f"launch.engine_exited.{kind}" if kind else "launch.engine_exited"), {}


def loopback_url(host: str, port: int) -> str:
    """`http://host:port` of a loopback address; raises ServemarkError (input) for any other host."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    raise input_error("launch.not_loopback", host=str(host)[:80])


def _not_ready(worker: RunningWorker, activity: Activity, budget_s: float) -> ServemarkError:
    tick = activity.tick()
    key = "launch.not_ready_working" if tick.working else "launch.not_ready_silent"
    return ServemarkError(
        key,
        Layer.ENGINE,
        budget=f"{budget_s:g}",
        silent=f"{activity.silent_s():.1f}",
        cpu="?" if tick.cpu_s is None else f"{tick.cpu_s:.1f}",
        log_bytes=tick.log_bytes,
        last_line=tick.last_line or "-",
        log=str(worker.log_path),
    )
