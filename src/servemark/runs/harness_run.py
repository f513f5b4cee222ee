"""Run another harness (AIPerf, agentx) as a child: its input, command, log and artifacts kept in one folder.

HOME/harness/NAME/harness.json   what was run: argv, version, exit, sha256 of every artifact
                  input/         what the harness read
                  artifacts/     what it wrote, untouched
                  harness.log    its stdout and stderr
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import disk_error, sha256_file, write_atomic
from servemark.base.home import Home
from servemark.launch.process import ExitStatus, start_worker
from servemark.replay.harness import ARTIFACTS_NAME, INPUT_NAME, SUMMARY_NAME, HarnessJob, command_line
from servemark.replay.harness_summary import HarnessSummary, read_summary
from servemark.replay.stop import StopSignal
from servemark.runs.folder import write_json
from servemark.runs.manifest import new_line_id, utc_now
from servemark.traces.lazy_sessions import LazySessions, is_held
from servemark.traces.types import Workload

HARNESS_SCHEMA = 1
LOG_NAME = "harness.log"
VERSION_S = 60.0
GRACE_S = 15.0
"""What the harness gets to write its files when it is told to end."""
POLL_S = 0.2
UNSET = "HF_HUB_OFFLINE"
"""Whatever its value, with it the harness takes a tokenizer's folder for the name of a repository, and fails."""


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """A finished harness. `summary` None: it ended without one, and `status` says how."""

    folder: Path
    argv: tuple[str, ...]
    version: str
    summary: HarnessSummary | None
    status: str


def find_program(harness: str, given: Path | None) -> str:
    """The executable: the path that was given (a file, or a folder that holds it), else on PATH.

    Raises ServemarkError (layer install) when there is none.
    """
    places = [] if given is None else [given, given / harness, given / "bin" / harness]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return str(place.absolute())
    found = shutil.which(harness) if given is None else None
    if found is None:
        where = "PATH" if given is None else str(given)
        raise ServemarkError("runs.harness_missing", Layer.INSTALL, harness=harness, place=where)
    return found


def dry_run(job: HarnessJob, given: Path | None, home: Home) -> list[str]:
    """The command that would be run; folders are stand-ins."""
    return command_line(job, find_program(job.harness, given), home.root / "harness" / "RUN")


def run_harness(  # noqa: PLR0917 - one run's parts
    job: HarnessJob,
    workload: Workload | None,
    source: Path | None,
    given: Path | None,
    home: Home,
    stop: StopSignal,
) -> HarnessResult:
    """Run it to its end; a stop asks it to end. `workload` and `source`: the trace as opened, and its file.

    Raises ServemarkError when it cannot be started, or ends without a summary (its folder stays).
    """
    program = find_program(job.harness, given)
    folder = home.root / "harness" / new_line_id(f"{job.harness}-{job.target.model.rpartition('/')[2][:32]}")
    argv = command_line(job, program, folder)
    version = program_version(program)
    try:
        (folder / ARTIFACTS_NAME).mkdir(parents=True)
        if workload is not None and source is not None:
            write_input(job, workload, source, folder / INPUT_NAME)
    except OSError as error:
        raise disk_error(error, folder) from error
    facts: dict[str, object] = {
        "schema": HARNESS_SCHEMA, "harness": job.harness, "version": version, "argv": argv,
        "unset": [UNSET], "started_utc": utc_now(),
    }  # fmt: skip
    write_json(folder / "harness.json", facts)
    status = _to_the_end(argv, folder, stop)
    facts |= {"finished_utc": utc_now(), "exit": str(status), "files": hashes_below(folder)}
    write_json(folder / "harness.json", facts)
    path = folder / ARTIFACTS_NAME / SUMMARY_NAME
    summary = read_summary(path) if path.is_file() else None
    if summary is None:
        raise ServemarkError(
            "runs.harness_failed", Layer.REPLAY, harness=job.harness, status=str(status), log=folder / LOG_NAME,
            said=said_last(folder / LOG_NAME),
        )  # fmt: skip
    return HarnessResult(folder, tuple(argv), version, summary, str(status))


def _to_the_end(argv: list[str], folder: Path, stop: StopSignal) -> ExitStatus:
    worker = start_worker(
        ["env", "-u", UNSET, *argv],
        {},
        base_url="",
        log_path=folder / LOG_NAME,
        work_dir=folder,
        grace_s=GRACE_S,
    )
    with worker:
        while (status := worker.wait(POLL_S)) is None:
            if stop.mode is not None:
                return worker.stop(GRACE_S if stop.mode == "drain" else 0.0)
        return status


def program_version(program: str) -> str:
    """What it says its version is; "unknown" when it does not say in time."""
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(r"\d+\.\d+(?:\.\w+)*", done.stdout)
    return found.group(0)[:40] if done.returncode == 0 and found else "unknown"


def write_input(job: HarnessJob, workload: Workload, source: Path, into: Path) -> None:
    """What the harness reads: a folder of session files (it takes no file of several), or the trace's own bytes."""
    if job.trace_format != "weka":
        shutil.copyfile(source, into)
        return
    sessions = workload.sessions
    if not isinstance(sessions, LazySessions) or any(is_held(place) for place in sessions.places):
        raise input_error("runs.harness_packed", path=source)
    into.mkdir()
    for number, place in enumerate(sessions.places):
        with place.path.open("rb") as stream:
            stream.seek(place.offset)
            write_atomic(into / f"{number:06d}.json", stream.read(place.size))


def hashes_below(folder: Path) -> dict[str, dict[str, object]]:
    """SHA-256 and size of every regular file of input, artifacts and log."""
    found: dict[str, dict[str, object]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file() or name == "harness.json":
            continue
        try:
            found[name] = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        except OSError as error:
            raise disk_error(error, path) from error
    return found


def said_last(log: Path) -> str:
    """The reason that its log gives, or its last line; printable and short."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 16384))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return "-"
    plain = [re.sub(r"[^\x20-\x7e]+", " ", line).strip(" |") for line in lines]
    first = next((i for i, line in enumerate(plain) if line.startswith("Reason:")), None)
    if first is not None:  # it is set in a box, wrapped at some 60 characters
        return " ".join(line for line in plain[first : first + 5] if line)[:300]
    return next((line for line in reversed(plain) if line), "-")[:200]
