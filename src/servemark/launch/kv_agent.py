"""A worker of the embedded engine that can hand KV to another: the engine's process with a Mooncake client in it.

Run as a script: `python -P kv_agent.py ENGINE_CHILD CONFIG KV_CONFIG`. It mounts a segment of the store (as engines
with an embedded store do), listens on a port of its own, and then becomes the engine's child script. It imports the
standard library and `mooncake.store` only.

The control port speaks HTTP with JSON bodies:

    POST /put   {"file": F, "key": K, "bytes": N}   slot file F of N bytes -> object K; F is removed
    POST /get   {"file": F, "key": K}   object K -> slot file F; K is removed from the store once its lease allows
    POST /drop  {"file": F}             remove slot file F
    GET  /counters                      {"store_put_bytes": ..., ...}: counts, bytes and seconds since the start

Answers carry `bytes` and `seconds`; a failure is status 500 (507 for a full disk or store) with an `error` text.
"""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MAX_BODY = 4096
_NO_SPACE = -200
"""Mooncake's code for a store without room; it begins to evict then, so that a second try may succeed."""
_TRIES, _PAUSE_S = 40, 0.05
_VMSTAT = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_stall",
    "compact_fail",
    "compact_success",
    "htlb_buddy_alloc_success",
    "htlb_buddy_alloc_fail",
)


class StoreError(Exception):
    """The store or the disk refused; `full` when for want of room."""

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full


def vmstat() -> dict[str, int]:
    """The kernel's counters of huge pages and compaction, of the whole host; empty where they cannot be read."""
    found = {}
    try:
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name in _VMSTAT:
                found[name] = int(value)
    except (OSError, ValueError):
        return {}
    return found


def segment_pages(size: int) -> dict[str, int]:
    """What backs the mapping of this process that is nearest above `size` bytes: page size and huge page bytes."""
    best: dict[str, int] = {}
    current: dict[str, int] = {}
    try:
        with open("/proc/self/smaps", encoding="ascii", errors="replace") as lines:  # noqa: PTH123 - a stream
            for line in lines:
                name, _, rest = line.partition(":")
                if name in ("Size", "KernelPageSize", "AnonHugePages", "Private_Hugetlb", "Rss"):
                    current[name] = int(rest.split()[0]) * 1024
                elif name == "VmFlags":
                    if size <= current.get("Size", 0) and current["Size"] < best.get("Size", 1 << 62):
                        best = current
                    current = {}
    except (OSError, ValueError, IndexError):
        return {}
    return (
        {
            "page_bytes": best["KernelPageSize"],
            "anon_huge_bytes": best.get("AnonHugePages", 0),
            "hugetlb_bytes": best.get("Private_Hugetlb", 0),
            "resident_bytes": best.get("Rss", 0),
        }
        if best
        else {}
    )


class Agent:
    """One client of the store and one folder of slot files."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.folder = Path(config["slot_folder"])
        self.folder.mkdir(parents=True, exist_ok=True)
        self.counters: dict[str, float] = {
            f"store_{verb}_{what}": 0
            for verb in ("put", "get")
            for what in ("count", "bytes", "seconds", "failures")
        }
        self.facts: dict[str, object] = {}
        self._lock = threading.Lock()
        self._spent: deque[str] = deque()
        self._mount(config)
        threading.Thread(target=self._remove_spent, daemon=True).start()

    def _mount(self, config: dict[str, Any]) -> None:
        """Join the store; what it took and what backs the segment are facts for the row."""
        from mooncake.store import (  # type: ignore[import-untyped]  # noqa: PLC0415 - heavy
            MooncakeDistributedStore,
        )

        before, begun = vmstat(), time.monotonic()
        self.store = MooncakeDistributedStore()
        code = self.store.setup(
            config["hostname"],
            config["metadata_server"],
            config["segment_bytes"],
            config["buffer_bytes"],
            config["protocol"],
            config["device"],
            config["master"],
        )
        seconds = time.monotonic() - begun
        if code != 0:
            sys.exit(
                f"error: the store could not be set up: Mooncake code {code} (master {config['master']})"
            )
        after = vmstat()
        self.facts = {
            "store_setup_s": round(seconds, 4),
            "segment_bytes": config["segment_bytes"],
            "protocol": config["protocol"],
            **segment_pages(config["segment_bytes"]),
            "vmstat_before": before,
            "vmstat_after": after,
        }
        print(f"servemark: store set up in {seconds:.3f} s", json.dumps(self.facts), flush=True)

    def path(self, name: object) -> Path:
        """A slot file by its bare name; StoreError for anything that could leave the folder."""
        if (
            not isinstance(name, str)
            or not name
            or len(name) > 200
            or "/" in name
            or "\0" in name
            or name[0] == "."
        ):
            raise StoreError("bad file name")
        return self.folder / name

    def put(self, name: object, key: str, expected: object) -> int:
        """Slot file -> object; its size in bytes. A file shorter than the engine says met a full disk."""
        path = self.path(name)
        try:
            data = path.read_bytes()
        finally:
            path.unlink(missing_ok=True)
        if isinstance(expected, int) and len(data) != expected:
            raise StoreError(f"slot file has {len(data)} of {expected} bytes: is the disk full?", full=True)
        code = 0
        for _ in range(_TRIES):
            code = self.store.put(key, data)
            if code != _NO_SPACE:
                break
            time.sleep(_PAUSE_S)
        if code != 0:
            raise StoreError(
                f"put of {len(data)} bytes failed with Mooncake code {code}", full=code == _NO_SPACE
            )
        return len(data)

    def get(self, name: object, key: str) -> int:
        """Object -> slot file; its size in bytes."""
        path = self.path(name)
        data = self.store.get(key)
        if not data:
            raise StoreError("get found no object: evicted, or the master is gone")
        try:
            path.write_bytes(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise StoreError(
                f"slot file cannot be written: {os.strerror(error.errno or 0)}", full=full
            ) from error
        self._spent.append(key)
        return len(data)

    def _remove_spent(self) -> None:
        """Take used objects out of the store; one under lease is tried again later, and eviction is the last resort."""
        while True:
            time.sleep(1.0)
            for _ in range(len(self._spent)):
                key = self._spent.popleft()
                if self.store.remove(key) == -706:  # OBJECT_HAS_LEASE
                    self._spent.append(key)

    def timed(self, verb: str, body: dict[str, Any]) -> dict[str, object]:
        """Do `put` or `get` and count it."""
        key = body.get("key")
        if not isinstance(key, str) or not 0 < len(key) <= 200:
            raise StoreError("bad key")
        begun = time.monotonic()
        try:
            name = body.get("file")
            size = self.put(name, key, body.get("bytes")) if verb == "put" else self.get(name, key)
        except (StoreError, OSError):
            self._count(verb, failures=1)
            raise
        seconds = time.monotonic() - begun
        self._count(verb, count=1, bytes=size, seconds=seconds)
        return {"bytes": size, "seconds": round(seconds, 6)}

    def _count(self, verb: str, **amounts: float) -> None:
        with self._lock:
            for what, amount in amounts.items():
                self.counters[f"store_{verb}_{what}"] += amount


class Handler(BaseHTTPRequestHandler):
    """HTTP in front of an Agent."""

    protocol_version = "HTTP/1.1"
    agent: Agent

    def do_GET(self) -> None:
        """/counters."""
        if self.path == "/counters":
            free = os.statvfs(self.agent.folder)
            disk = {"disk_free_bytes": free.f_bavail * free.f_frsize}
            self._answer(200, {**self.agent.counters, **disk, "facts": self.agent.facts})
        else:
            self._answer(404, {"error": "no such path"})

    def do_POST(self) -> None:
        """/put, /get, /drop."""
        try:
            size = int(self.headers.get("Content-Length") or -1)
            if not 0 <= size <= MAX_BODY:
                self.close_connection = True
                self._answer(413, {"error": "bad length"})
                return
            body = json.loads(self.rfile.read(size))
            if not isinstance(body, dict):
                raise StoreError("body is no object")
            if self.path == "/drop":
                self.agent.path(body.get("file")).unlink(missing_ok=True)
                self._answer(200, {})
            elif self.path in ("/put", "/get"):
                self._answer(200, self.agent.timed(self.path[1:], body))
            else:
                self._answer(404, {"error": "no such path"})
        except StoreError as error:
            print(f"error: store {self.path[1:]}: {error}", flush=True)
            self._answer(507 if error.full else 500, {"error": str(error)})
        except (ValueError, OSError, RecursionError) as error:
            print(f"error: store {self.path[1:]}: {error}", flush=True)
            self._answer(500, {"error": f"{type(error).__name__}: {error}"[:300]})

    def _answer(self, status: int, value: dict[str, object]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: one request a prompt would drown the engine's own log."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


def main() -> None:
    """Join the store, open the control port, become the engine."""
    child, config, kv = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    Handler.agent = Agent(kv)
    try:
        server = _Server((kv["host"], kv["port"]), Handler)
    except OSError as error:
        sys.exit(f"error: bind() failed on {kv['host']}:{kv['port']}: {error.strerror}")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()
    sys.argv = [child, config]
    runpy.run_path(child, run_name="__main__")


if __name__ == "__main__":
    main()
