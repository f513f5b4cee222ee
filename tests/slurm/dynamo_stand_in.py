"""Stand-ins for what a Dynamo job starts: `etcd`, `nats-server`, `dynamo.vllm` and `dynamo.frontend`, told by their name.

They speak to each other as the real ones must: a worker needs NATS, the store's master and etcd before it registers,
and the front end is healthy only when the workers that WANTED counts have registered. What each saw of its place (node,
GPUs, address, time) stands in etcd. Standard library only.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

Answer = tuple[int, bytes]


def flag(argv: list[str], name: str) -> str:
    """The word after a flag."""
    return argv[argv.index(name) + 1]


def place(url: str) -> tuple[str, int]:
    """Host and port of a URL or of host:port."""
    host, _, port = url.rpartition("//")[2].partition("/")[0].rpartition(":")
    return host, int(port)


def serve(at: tuple[str, int], answer: Callable[[str, bytes], Answer]) -> None:
    """Answer every request with what `answer(path, body)` gives, for ever."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET  # noqa: N815 - the name that http.server looks for

    http.server.ThreadingHTTPServer(at, Handler).serve_forever()


def ask(url: str, body: bytes | None = None) -> bytes:
    """A request past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, body, timeout=5) as reply:
        found: bytes = reply.read()
        return found


def etcd(argv: list[str]) -> None:
    """Keeps what is posted to /register."""
    kept: list[object] = []

    def answer(path: str, body: bytes) -> Answer:
        if path == "/register":
            kept.append(json.loads(body))
        return 200, json.dumps(kept).encode()

    serve(place(flag(argv, "--listen-client-urls")), answer)


def nats(argv: list[str]) -> None:
    """Listens on its own port, and answers on the one for its health."""
    text = Path(flag(argv, "-c")).read_text(encoding="utf-8")
    said = dict(re.findall(r'^(\w+): "?([^"\n]+)"?$', text, re.MULTILINE))
    listener = socket.create_server((said["host"], int(said["port"])))
    serve(place(said["http"]), lambda path, body: (200, str(listener.fileno()).encode()))


def worker(argv: list[str]) -> None:
    """Reaches what it depends on, takes its time, registers, then serves its health."""
    env = os.environ
    for needed in (env["NATS_SERVER"], env["MOONCAKE_MASTER"]):
        socket.create_connection(place(needed), timeout=5).close()
    time.sleep(1.0)
    store = json.loads(Path(env["MOONCAKE_CONFIG_PATH"]).read_text(encoding="utf-8"))
    seen = {
        "role": flag(argv, "--disaggregation-mode"),
        "node": socket.gethostname(),
        "address": env["VLLM_HOST_IP"],
        "port": int(env["DYN_SYSTEM_PORT"]),
        "gpus": env["CUDA_VISIBLE_DEVICES"],
        "store": [store["global_segment_size"], store["protocol"], store["master_server_address"]],
        "huge": env["MC_STORE_USE_HUGEPAGE"],
        "time": time.time(),
    }
    ask(env["ETCD_ENDPOINTS"] + "/register", json.dumps(seen).encode())
    serve((env["VLLM_HOST_IP"], int(env["DYN_SYSTEM_PORT"])), lambda path, body: (200, b"ok"))


def frontend(argv: list[str]) -> None:
    """Healthy when all workers are there; /instances says who they are, and when and where the front end began."""
    began, wanted = time.time(), json.loads(os.environ["WANTED"])

    def answer(path: str, body: bytes) -> Answer:
        found = json.loads(ask(os.environ["ETCD_ENDPOINTS"] + "/instances"))
        roles = [one["role"] for one in found]
        ready = all(roles.count(role) == count for role, count in wanted.items())
        said = {
            "began": began,
            "node": socket.gethostname(),
            "mode": flag(argv, "--router-mode"),
            "workers": found,
        }
        return (200 if ready else 503), json.dumps(said).encode()

    serve((flag(argv, "--http-host"), int(flag(argv, "--http-port"))), answer)


PROGRAMS = {"etcd": etcd, "nats-server": nats, "dynamo.vllm": worker, "dynamo.frontend": frontend}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[2:])
