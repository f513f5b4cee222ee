"""Start a real Mooncake master and client over TCP on loopback and time set-up at three sizes."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from servemark.preflight.facts import MIB, HostFacts
from servemark.preflight.finding import Command, Finding, Saying, Verdict, say, seconds, size
from servemark.preflight.needs import Needs
from servemark.preflight.read_devices import read_mooncake
from servemark.preflight.sizes import allowed, steps, too_large
from servemark.preflight.store_child import MARK

BUFFER_BYTES = 16 * MIB
MASTER_SECONDS = 15.0
CLIENT_SECONDS = 60.0
CHILD = (sys.executable, "-P", "-m", "servemark.preflight.store_child")


def store_finding(
    facts: HostFacts, needs: Needs | None, asked: str, progress: Callable[[str], None]
) -> Finding:
    """One finding. ServemarkError (exit 2) when the size is no size or more than is safe here."""
    sizes = steps(asked, facts)
    most, reason = allowed(facts)
    if sizes[-1] + BUFFER_BYTES > most:
        raise too_large(sizes[-1] + BUFFER_BYTES, most, reason)
    binary = master_binary()
    if binary is None:
        command = Command(f"{sys.executable} -m pip install mooncake-transfer-engine-non-cuda")
        why = (say("preflight.probe_store.install"),)
        return Finding(
            "probe_store", "unknown", say("preflight.probe_store.absent"), None, why, (command,), {}
        )
    del needs  # TCP set-up says nothing of registration: nothing is compared
    try:
        with master(binary) as (address, up_s):
            runs = []
            for length in sizes:
                progress(f"store {size(length)}")
                runs.append({"segment_bytes": length, **client_run(address, length)})
    except MasterDownError as error:
        said = say("preflight.probe_store.no_master", reason=str(error))
        return Finding("probe_store", "fail", said, facts={"master": str(error)})
    return _finding(runs, up_s)


def master_binary() -> Path | None:
    """The master's program inside the installed package; None when Mooncake is not installed."""
    spec = importlib.util.find_spec("mooncake")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, "mooncake_master")
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


class MasterDownError(Exception):
    """The master ended, or never listened."""


@contextmanager
def master(binary: Path) -> Iterator[tuple[str, float]]:
    """A master on free loopback ports: (its address, seconds until it listened). Always ended afterwards."""
    ports = _free_ports(2)
    command = [*CHILD, "master", str(binary), f"-rpc_port={ports[0]}", f"-metrics_port={ports[1]}"]
    begun = time.monotonic()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, after the program that writes to it
    process = subprocess.Popen(
        [*command, "-rpc_address=127.0.0.1"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    try:
        while not _listens(ports[0]):
            if process.poll() is not None:
                raise MasterDownError(_last_words(log) or f"exit {process.returncode}")
            if time.monotonic() - begun > MASTER_SECONDS:
                raise MasterDownError(f"{MASTER_SECONDS:g} s")
            time.sleep(0.02)
        yield f"127.0.0.1:{ports[0]}", time.monotonic() - begun
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def _last_words(log: IO[bytes]) -> str | None:
    """The last line of a log that names an error, else its last line; at most 200 characters."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - 64 * 1024))
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("E") or "rror" in line]
    said = (named or lines or [""])[-1]
    return "".join(letter if letter.isprintable() else " " for letter in said)[-200:] or None


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(0.2)
        return one.connect_ex(("127.0.0.1", port)) == 0


def client_run(address: str, segment_bytes: int) -> dict[str, object]:
    """One store client in a process of its own: what it measured, or {"rc", "reason"}."""
    job = {"master": address, "segment_bytes": segment_bytes, "buffer_bytes": BUFFER_BYTES}
    # The recipe's own switches must not reach this client: it is the release that is probed, over plain TCP.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONCAKE_"))}
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, after the program that writes to it
    child = subprocess.Popen(
        list(CHILD),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environ,
    )
    try:
        output, _ = child.communicate(json.dumps(job).encode() + b"\n", timeout=CLIENT_SECONDS)
    except subprocess.TimeoutExpired:
        return {"rc": None, "reason": f"more than {CLIENT_SECONDS:g} s"}
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
        words = _last_words(log)
        log.close()
    for line in output.decode("utf-8", "replace").splitlines():
        if line.startswith(MARK):
            answer: dict[str, object] = json.loads(line.removeprefix(MARK))
            return answer if answer["rc"] == 0 else {"reason": words, **answer}
    return {"rc": None, "reason": words or f"exit {child.returncode}"}


def _finding(runs: list[dict[str, object]], up_s: float) -> Finding:
    said: list[Saying] = []
    for run in runs:
        length, taken = int(str(run["segment_bytes"])), run.get("setup_s")
        if run["rc"] == 0 and isinstance(taken, float):
            said.append(say("preflight.probe_store.one", size=size(length), seconds=seconds(taken)))
        else:
            reason = run.get("reason") or f"rc {run['rc']}"
            said.append(say("preflight.probe_store.failed", size=size(length), reason=reason))
    package = next(iter(read_mooncake()), None)
    found = say(
        "preflight.probe_store.found",
        package=package.package if package else "mooncake",
        version=package.version if package else "?",
        master=seconds(up_s),
        setups=said,
    )
    failed = any(run["rc"] != 0 for run in runs)
    differs = any(run.get("equal") is False for run in runs)
    why = [say("preflight.probe_store.differs")] if differs else []
    why += _moved(runs)
    why.append(say("preflight.probe_store.scope"))
    verdict: Verdict = "fail" if failed or differs else "ok"
    plain: dict[str, object] = {"master_up_s": up_s, "runs": runs}
    return Finding("probe_store", verdict, found, None, tuple(why), (), plain)


def _moved(runs: list[dict[str, object]]) -> list[Saying]:
    total = [0.0, 0.0, 0.0]
    for run in runs:
        values = [run.get(name) for name in ("moved_bytes", "put_s", "get_s")]
        if run.get("equal") is True and all(isinstance(value, (int, float)) for value in values):
            total = [held + float(str(value)) for held, value in zip(total, values, strict=True)]
    if not all(total):
        return []
    moved, put_s, get_s = total
    return [
        say(
            "preflight.probe_store.moved", bytes=size(moved), put=size(moved / put_s), get=size(moved / get_s)
        )
    ]
