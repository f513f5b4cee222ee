"""One process of the store probe: `master ARGV…` becomes a program that ends with its parent; else a store client.

A client reads one job from stdin, sets up a real store over TCP, puts and gets objects, and writes one JSON line.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1
OBJECT_BYTES = 4 << 20
OBJECTS = 4


def main(arguments: list[str]) -> int:
    """Start a master in this process, or do one client's job."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if arguments[:1] == ["master"]:
        os.execv(arguments[1], arguments[1:])  # noqa: S606 - the death signal survives exec
    job = json.loads(sys.stdin.readline())
    answer = client(job["master"], job["segment_bytes"], job["buffer_bytes"])
    # The library logs to both streams: the answer is the line that begins with the mark.
    sys.stdout.write("\n" + MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


MARK = "servemark-store "


def client(master: str, segment_bytes: int, buffer_bytes: int) -> dict[str, object]:
    """Set up, move a few objects, close. Times in seconds; `rc` is the store's own code, 0 for success."""
    store_module: Any = importlib.import_module("mooncake.store")
    store = store_module.MooncakeDistributedStore()
    begun = time.perf_counter()
    try:
        rc = store.setup("127.0.0.1", "P2PHANDSHAKE", segment_bytes, buffer_bytes, "tcp", "", master)
    except MemoryError as error:
        return {"rc": -1, "reason": f"MemoryError: {error}"}
    answer: dict[str, object] = {"rc": rc, "setup_s": time.perf_counter() - begun}
    if rc != 0:
        return answer
    data = [os.urandom(OBJECT_BYTES) for _ in range(min(OBJECTS, segment_bytes // OBJECT_BYTES // 2))]
    begun = time.perf_counter()
    put = [store.put(f"servemark-{number}", value) for number, value in enumerate(data)]
    answer["put_s"] = time.perf_counter() - begun
    begun = time.perf_counter()
    got = [store.get(f"servemark-{number}") for number in range(len(data))]
    answer["get_s"] = time.perf_counter() - begun
    answer |= {"moved_bytes": sum(map(len, data)), "put_rc": put, "equal": got == data}
    begun = time.perf_counter()
    store.close()
    answer["close_s"] = time.perf_counter() - begun
    return answer


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
