"""A home with points made by hand, and the server over it: in this process for single questions, else as a process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from servemark.base.home import Home
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.base import Given, Importer
from servemark.results.importers.registry import importers
from servemark.results.point import (
    Execution,
    Figure,
    Mapped,
    Point,
    PointIdentity,
    Precision,
    RoleTopology,
    Scenario,
)
from servemark.store.database import Store
from servemark.store.found_files import Found, find
from servemark.store.intake import Intake, take_in
from servemark.store.raw_files import RawFiles
from servemark.web.app import App, create_app
from servemark.web.guard import Rules
from servemark.web.site import Site

BASE = "http://127.0.0.1:8765"
OWN = {"x-servemark": "1"}


def row(conc: int, **changes: object) -> dict[str, Any]:
    """One published row on 4 GPUs: TPOT is (10 + conc) ms, so interactivity is 1000 / (10 + conc); lengths are 0.9 of 1024
    in the mean, and conc requests at a time give conc * 921.6 / E2EL output tokens a second. No point dominates another."""
    tpot = (10 + conc) / 1000
    e2el = 0.2 + tpot * 920.6
    metrics = {
        f"{stat}_{name}": value
        for stat in ("mean", "median", "p99")
        for name, value in (("ttft", 0.2), ("tpot", tpot), ("itl", tpot), ("e2el", e2el))
    }
    output = conc * 921.6 / e2el / 4
    made = {
        "hardware": "b200",
        "framework": "sglang",
        "model": "dsr1",
        "precision": "fp8",
        "spec_method": "none",
        "disagg": False,
        "is_multinode": False,
        "prefill_tp": 4,
        "prefill_ep": 1,
        "prefill_dp_attention": False,
        "prefill_num_workers": 0,
        "decode_tp": 4,
        "decode_ep": 1,
        "decode_dp_attention": False,
        "decode_num_workers": 0,
        "num_prefill_gpu": 4,
        "num_decode_gpu": 4,
        "isl": 1024,
        "osl": 1024,
        "conc": conc,
        "metrics": metrics
        | {"tput_per_gpu": output * 2, "input_tput_per_gpu": output, "output_tput_per_gpu": output},
        "workers": None,
        "date": "2026-05-01",
        "run_url": "https://example.org/actions/runs/1001",
    }
    return made | changes


def rows(**changes: object) -> bytes:
    """Five loads of one configuration, as a file."""
    return json.dumps([row(conc, **changes) for conc in (4, 8, 16, 32, 64)]).encode()


def fill(home: Path, data: bytes, name: str = "rows.json") -> None:
    """Import bytes with the importers and gates that are installed."""
    where = Home(home)
    path = home.parent / name
    path.write_bytes(data)
    intake = Intake(RawFiles(where.raw), importers(), judge_all, gates_version())
    with Store.open(where.store) as store, path.open("rb") as stream:
        for found in find(str(path), where.raw, stream):
            assert isinstance(found, Found)
            report = take_in(store, intake, found)
            assert report.whole, report
    path.unlink()


def fill_points(home: Path, **names: str) -> None:
    """Two points whose model, hardware, engine, image or run are any text, as if some tool's importer had let them
    through."""
    where = Home(home)
    run = names.pop("run", "r1")
    identity = {"model": "m", "hardware": "b200", "engine": "sglang"} | names

    def read(_: Given) -> Iterator[Mapped]:
        for number, conc in enumerate((4, 8)):
            named = PointIdentity(
                **identity,  # type: ignore[arg-type]
                scenario=Scenario("fixed-seq-len", isl=1024, osl=1024),
                concurrency=conc,
                precision=Precision("fp8", "fp8"),
                topology=(RoleTopology("aggregated", 1, 8, 8, ep=8),),
            )
            figures = {
                "tpot_s.p50": Figure((10 + conc) / 1000, "rows/1", "/a"),
                "ttft_s.p50": Figure(0.2, "rows/1", "/b"),
            }
            figures["total_tokens_per_s_per_gpu"] = Figure(conc * 20.0, "rows/1", "/c")
            point = Point(
                named, Execution(run, 1, "2026-05-01"), figures, "rows", 1, "complete", gpus_deployed=8
            )
            yield Mapped(number, "mapped", point)

    importer = Importer("rows", 1, "rows", lambda _: 1.0, read)
    intake = Intake(RawFiles(where.raw), (importer,), judge_all, gates_version())
    with Store.open(where.store) as store:
        report = take_in(store, intake, Found("hostile.json", 2, lambda: io.BytesIO(b"{}")))
        assert report.whole, report


def app_of(home: Path, rules: Rules | None = None, *, allow_writes: bool = False) -> App:
    """The application in this process."""
    return create_app(Site(Home(home), allow_writes=allow_writes), rules)


def ask(app: App, url: str, method: str = "GET", client: str = "127.0.0.1", **more: Any) -> httpx.Response:  # noqa: ANN401 - as httpx takes them
    """One request; the application's own errors are answers, as over a socket."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(client, 4711))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=60) as each:
            return await each.request(method, url, **more)

    return asyncio.run(asked())


@contextmanager
def served(home: Path, *options: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(URL without its last slash, process) of a real server."""
    argv = [
        sys.executable,
        "-m",
        "servemark",
        "serve",
        "--json",
        "--home",
        str(home),
        "--port",
        str(port),
        *options,
    ]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, child.stderr.read() if child.stderr else b""
        url = json.loads(line)["url"].rstrip("/")
        wait_until_up(url)
        yield url, child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.communicate()


def wait_until_up(url: str) -> None:
    """The socket listens before the program answers; this asks until it does."""
    deadline = time.monotonic() + 20
    while True:
        try:
            httpx.get(f"{url}/api/v1/metrics", timeout=10)
            return
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
