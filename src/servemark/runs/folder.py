"""A run's folder: manifest first, result last and atomic, and a lock that tells a live run from a dead one.

manifest.json         what was asked and what is expected; written before anything starts
allocation.json       where the line runs: launcher, cluster, job id, nodes; written as soon as it is known
requests.jsonl        one record a request, appended as each ends
server_metrics.jsonl  the engine's own counters, sampled
gpu_metrics.csv       power of this host's GPUs as nvidia-smi prints it, where GPUs serve
evals.json            scores and statistics of every accuracy task
samples.jsonl         every sample of them, one a line
logs/engine.log       the engine's output up to the end of this point
logs/steps/NAME.log   the same of every other step of a deployment of several; logs/steps.live while they grow
logs/engine.live.log  the same while it grows; one file for all points of the engine; gone from finished runs
failure.json          why there is no result (absent for a finished run and for a killed one)
result.json           the row; written last
lock                  held (flock) by the process that writes here; the kernel frees it, also after kill -9
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import disk_error, make_folder, write_atomic
from servemark.launch.secret_env import redact_bytes
from servemark.results.serialize import read_bounded, read_result

MANIFEST_SCHEMA = 1
FAILURE_SCHEMA = 1
LIVE_LOG = "logs/engine.live.log"
STEPS = "logs/steps"
ALLOCATION = "allocation.json"
LIVE_STEPS = "logs/steps.live"
RESERVE = ".reserve"
RESERVE_BYTES = 8192
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}\Z")
"""What a line's id may look like; a folder from elsewhere must not name a path with it."""


class RunState(StrEnum):
    """What a folder says of its run. Only `complete` and `partial` have a result."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    """It was ended early on purpose, or lost a part of its client; the result says so and is on no front."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    DIED = "died"
    """The process that ran it ended without a word (kill -9, power cut)."""
    DAMAGED = "damaged"
    """A file does not match its hash or cannot be read."""

    @property
    def has_result(self) -> bool:
        """True where there is a row to read."""
        return self in (RunState.COMPLETE, RunState.PARTIAL)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run as its folder tells it. `detail` is the failure as (message key, values)."""

    run_id: str
    path: Path
    state: RunState
    manifest: dict[str, object] | None
    failure: dict[str, object] | None


class RunFolder:
    """The writing side: one process at a time, which holds the lock from create to close."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def create(cls, path: Path, manifest: dict[str, object]) -> RunFolder:
        """Make the folder, take the lock, write the manifest. ServemarkError (layer home) when it cannot be."""
        make_folder(path.parent)
        try:
            path.mkdir()
            (path / "logs").mkdir()
            fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise disk_error(error, path) from error
        folder = cls(path, fd)
        try:
            write_json(path / "manifest.json", {"schema": MANIFEST_SCHEMA, **manifest})
            write_atomic(path / RESERVE, b"\0" * RESERVE_BYTES)  # room to say why, on a disk that fills up
        except ServemarkError:
            folder.close()
            shutil.rmtree(path, ignore_errors=True)  # without a manifest it is no run
            raise
        return folder

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the lock. Safe to call twice."""
        if self._lock_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._lock_fd)
            self._lock_fd = -1

    def file(self, name: str) -> Path:
        """A file of this run by its name in the folder."""
        return self.path / name

    def fail(self, error: ServemarkError, at_utc: str) -> None:
        """Keep why there is no result. A disk that refuses even this is left alone: the run then reads `died`."""
        body = {
            "schema": FAILURE_SCHEMA,
            "layer": str(error.layer),
            "key": error.key,
            "values": {name: _plain(value) for name, value in error.values.items()},
            "at_utc": at_utc,
        }
        self.release_reserve()
        with contextlib.suppress(ServemarkError):
            write_json(self.path / "failure.json", body)

    def release_reserve(self) -> None:
        """Give back the room that was kept for a failure's reason."""
        with contextlib.suppress(OSError):
            self.file(RESERVE).unlink(missing_ok=True)

    def discard(self) -> None:
        """Take away a run that never started."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def share_log(self, source: Path) -> None:
        """Let the log of the engine that serves several points appear here while it grows."""
        target = self.file(LIVE_LOG)
        if target == source or target.exists() or not source.exists():
            return
        with contextlib.suppress(OSError):  # without links the log is copied when the point is collected
            os.link(source, target)

    def settle_log(self, source: Path) -> None:
        """Keep the log as it is now under its final name; what the engine writes later belongs to later points."""
        target = self.file("logs/engine.log")
        try:
            if source.exists():
                write_atomic(target, redact_bytes(source.read_bytes()))
            if source != self.file(LIVE_LOG):
                self.file(LIVE_LOG).unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, target) from error

    def settle_step_logs(self, logs: Mapping[str, Path]) -> None:
        """Keep the other steps' logs as they are now."""
        for name, source in logs.items():
            target = self.file(f"{STEPS}/{name}.log")
            try:
                if source.exists():
                    target.parent.mkdir(exist_ok=True)
                    write_atomic(target, redact_bytes(source.read_bytes()))
            except OSError as error:
                raise disk_error(error, target) from error

    def final_log(self, live: Path) -> Path:
        """Where a growing log will lie when the run has ended."""
        return (
            self.file(f"{STEPS}/{live.name}")
            if live.parent.name == "steps.live"
            else self.file("logs/engine.log")
        )

    def _drop_live_steps(self) -> None:
        live, settled = self.file(LIVE_STEPS), self.file(STEPS)
        if not live.is_dir():
            return
        if not settled.exists():
            for log in live.glob("*.log"):
                _blank(log)
            live.replace(settled)
            return
        if (live / "config").is_dir():
            (live / "config").replace(settled / "config")
        shutil.rmtree(live, ignore_errors=True)

    def drop_live_log(self) -> None:
        """Settle the growing file, or take it away where there is a settled one. Call when the engine has ended."""
        with contextlib.suppress(OSError, ServemarkError):
            self._drop_live_steps()
        with contextlib.suppress(OSError, ServemarkError):
            if self.file("logs/engine.log").exists():
                self.file(LIVE_LOG).unlink(missing_ok=True)
            else:
                _blank(self.file(LIVE_LOG))
                self.file(LIVE_LOG).replace(self.file("logs/engine.log"))


def _blank(log: Path) -> None:
    """Blank the known secrets in a log that grows no more, and let others read it. Without one it is not written again,
    so that a full disk costs no log."""
    data = log.read_bytes()
    blanked = redact_bytes(data)
    if blanked != data:
        write_atomic(log, blanked)
    log.chmod(0o644)


def write_json(path: Path, value: object) -> None:
    """Indented JSON, written atomically."""
    write_atomic(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8"))


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def inspect(path: Path) -> RunInfo:
    """Read a run's state from its folder. Never raises for a folder in whatever condition."""
    try:
        return _inspected(path)
    except (OSError, RuntimeError):  # no permission, a loop of links
        return RunInfo(path.name, path, RunState.DAMAGED, None, None)


def _inspected(path: Path) -> RunInfo:
    manifest, bad_manifest = _load(path / "manifest.json")
    failure, bad_failure = _load(path / "failure.json")
    state = RunState.DIED
    if (
        bad_manifest
        or bad_failure
        or manifest is None
        or not _NAME.match(str(manifest.get("line_id", path.name)))
    ):
        state = RunState.DAMAGED
    elif (path / "result.json").exists():
        state = _of_result(path)
    elif failure is not None:
        state = RunState.INTERRUPTED if failure.get("layer") == Layer.INTERRUPT else RunState.FAILED
    elif _locked(path / "lock"):
        state = RunState.RUNNING
    elif (path / "result.json").exists():  # it ended between the two looks
        state = _of_result(path)
    return RunInfo(path.name, path, state, manifest, failure)


def _of_result(path: Path) -> RunState:
    """The state of a run that has a result, whole as it is hashed."""
    try:
        row = read_result(path / "result.json")
    except ServemarkError:
        return RunState.DAMAGED
    return RunState.COMPLETE if row.status == "complete" else RunState.PARTIAL


def _load(path: Path) -> tuple[dict[str, object] | None, bool]:
    """(content, damaged?); (None, False) when there is no such file."""
    try:
        if not path.exists():
            return None, False
        value = json.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError, RuntimeError, ServemarkError):
        return None, True
    return (value, False) if isinstance(value, dict) else (None, True)


def _locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _is_run(path: Path) -> bool:
    """A folder that a run made, in whatever condition it is now."""
    try:
        return any((path / name).exists() for name in ("manifest.json", "result.json", "lock"))
    except OSError:
        return True  # not readable: told as damaged rather than left out


def list_runs(runs: Path, newest: int | None = None) -> list[RunInfo]:
    """All runs below `<home>/runs`, oldest first (run ids begin with the time), or only the `newest` ones."""
    if not runs.is_dir():
        return []
    try:
        folders = sorted(p for p in runs.iterdir() if _is_run(p))
    except OSError as error:
        raise disk_error(error, runs) from error
    return [inspect(folder) for folder in (folders if newest is None else folders[-newest:])]


def find_run(runs: Path, name: str) -> RunInfo:
    """One run by its id, a unique beginning or ending of it, or `latest`. ServemarkError (exit 2) when there is no one."""
    known = list_runs(runs)
    if not known:
        raise input_error("runs.none_yet", home=runs.parent)
    if name == "latest":
        return known[-1]
    exact = [r for r in known if r.run_id == name]
    alike = exact or [r for r in known if r.run_id.startswith(name) or r.run_id.endswith(name)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise input_error(
            "runs.ambiguous", run=name, count=len(alike), some=", ".join(r.run_id for r in alike[:4])
        )
    raise input_error("runs.no_such_run", run=name)


def find_line(runs: Path, name: str) -> tuple[str, list[Path]]:
    """(line id, folders of its runs in order of concurrency) of a run or line named as in `find_run`."""
    known = list_runs(runs)
    lines: dict[str, list[RunInfo]] = {}
    for info in known:
        lines.setdefault(str((info.manifest or {}).get("line_id", info.run_id)), []).append(info)
    chosen = [line for line in lines if line == name] or [line for line in lines if line.endswith(name)]
    if len(chosen) == 1:
        line_id = chosen[0]
    else:
        found = find_run(runs, name)
        line_id = str((found.manifest or {}).get("line_id", found.run_id))
    members = sorted(lines[line_id], key=lambda i: _number((i.manifest or {}).get("concurrency")))
    return line_id, [info.path for info in members]


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
