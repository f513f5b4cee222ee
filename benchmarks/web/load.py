"""How long 50 readers wait for answers of a store with 100,000 points, and how much a first visit loads.

`python benchmarks/web/load.py [--points N] [--readers N] [--seconds S]` makes a store (five models with two scenarios each,
87 configurations of five loads a pair, as many nights as give the points), starts `servemark serve` on it as a process, and
asks it from another. One JSON object a part:

- `cold`: one reader asks a server that has answered nothing for the fronts of ten scenarios; every answer has to be made;
- `mixed`: readers ask about once a second for fronts of ten scenarios on six pairs of axes in two languages, facets,
  metrics, words and the page; one front in ten is one that nobody has asked for before (`made`);
- `etag`: the same, with the tags of what each reader has seen;
- `cached`: every reader asks for answers that are finished, one after the other, without a pause;
  each of them with the processor time of the server's process a request, which a busy machine does not change;
- `peer`: the same readers on a bare uvicorn that answers everything with the same bytes: what a request costs at least;
- `first_load`: bytes of the page and all that it names, as sent; and of the first front;
- `verb`: milliseconds until `servemark serve --help` has ended, and until the server answers.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servemark.results.gates.base import Verdict
from servemark.results.importers.base import Given, Importer
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
from servemark.store.found_files import Found
from servemark.store.import_types import Judged
from servemark.store.intake import Intake, take_in
from servemark.store.raw_files import RawFiles

MODELS = ("alpha", "beta", "gamma", "delta", "epsilon")
SCENARIOS = ((1024, 1024), (8192, 1024))
CONFIGS = 87
LOADS = (4, 8, 16, 32, 64)
NIGHT = len(MODELS) * len(SCENARIOS) * CONFIGS * len(LOADS)
HARDWARE = ("h100", "h200", "b200", "gb200", "mi300x", "mi355x")
ENGINES = ("vllm", "sglang", "trt-llm")
AXES = tuple(
    (x, y)
    for x in ("interactivity.p50", "ttft_s.p90", "e2el_s.p50")
    for y in ("total_tokens_per_s_per_gpu", "output_tokens_per_s_per_gpu")
)
STATISTICS = ("mean", "p50", "p90", "p99")


def night(number: int) -> Iterator[Mapped]:
    """All points of one night: the same configurations, figures that vary by 2 %."""
    rng = random.Random(number)
    ordinal = 0
    for model in MODELS:
        for isl, osl in SCENARIOS:
            for config in range(CONFIGS):
                for load in LOADS:
                    yield Mapped(ordinal, "mapped", point(number, model, (isl, osl), (config, load), rng))
                    ordinal += 1


def point(
    number: int, model: str, lengths: tuple[int, int], place: tuple[int, int], rng: random.Random
) -> Point:
    """One point with 19 figures."""
    (isl, osl), (config, load) = lengths, place
    hardware = HARDWARE[config % len(HARDWARE)]
    engine = ENGINES[config // len(HARDWARE) % len(ENGINES)]
    gpus = 2 ** (config % 4)
    speed = (1 + config % 7 / 10) * rng.gauss(1, 0.02)
    tpot, ttft = (8 + load / 4) / 1000 / speed, isl / 20_000 / speed * (1 + load / 32)
    base = {"tpot_s": tpot, "itl_s": tpot, "ttft_s": ttft, "e2el_s": ttft + tpot * osl}
    spread = {"mean": 1.05, "p50": 1.0, "p90": 1.4, "p99": 2.0}
    values = {f"{name}.{kind}": value * spread[kind] for name, value in base.items() for kind in STATISTICS}
    output = load * osl / base["e2el_s"] / gpus
    values |= {
        "output_tokens_per_s_per_gpu": output,
        "input_tokens_per_s_per_gpu": output * isl / osl,
        "total_tokens_per_s_per_gpu": output * (1 + isl / osl),
    }
    identity = PointIdentity(
        model=model,
        hardware=hardware,
        engine=engine,
        scenario=Scenario("fixed-seq-len", isl=isl, osl=osl, range_ratio=1.0),
        concurrency=load,
        precision=Precision("fp8" if config % 2 else "nvfp4", "fp8" if config % 2 else "fp4"),
        topology=(RoleTopology("aggregated", 1, gpus, gpus, ep=1 + config // 44),),
        extra={"number": config},
    )
    day = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}"
    figures = {name: Figure(value, "made/1", f"/{name}") for name, value in values.items()}
    execution = Execution(str(9000 + number), 1, day)
    return Point(identity, execution, figures, "made", 1, "complete", gpus_deployed=gpus)


def judge(points: Sequence[Point]) -> list[Judged]:
    """Every point is sound."""
    return [((), Verdict.VALID) for _ in points]


def build(home: Path, points: int) -> int:
    """Fill a store; gives the number of points."""
    raw = RawFiles(home / "raw")
    nights = max(1, round(points / NIGHT))
    with Store.open(home / "store.sqlite") as store:
        for number in range(nights):

            def read(_: Given, number: int = number) -> Iterator[Mapped]:
                return night(number)

            importer = Importer("made", 1, "made", lambda _: 1.0, read)
            data = f"night {number}".encode()
            found = Found(f"{number}.json", len(data), lambda data=data: io.BytesIO(data))  # type: ignore[misc]
            take_in(store, Intake(raw, (importer,), judge, "made:1"), found)
    return nights * NIGHT


@dataclass(slots=True)
class Seen:
    """What readers saw: seconds by kind of request, statuses, bytes."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    bytes: int = 0

    def add(self, kind: str, seconds: float, status: int, size: int) -> None:
        """One answer."""
        self.seconds.setdefault(kind, []).append(seconds)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.bytes += size

    def told(self, wall: float) -> dict[str, object]:
        """Percentiles in milliseconds."""
        every = [each for some in self.seconds.values() for each in some]
        return {
            "requests": len(every),
            "per_s": round(len(every) / wall),
            "statuses": self.statuses,
            "mb_per_s": round(self.bytes / wall / 1e6, 2),
            **percentiles(every),
            "by_kind": {kind: percentiles(some) for kind, some in self.seconds.items()},
        }


def percentiles(some: list[float]) -> dict[str, float]:
    """Nearest rank, in milliseconds."""
    ranked = sorted(some)
    place = {f"p{q:g}": ranked[min(len(ranked) - 1, int(len(ranked) * q / 100))] for q in (50, 90, 99)}
    return {name: round(value * 1e3, 2) for name, value in (place | {"max": ranked[-1]}).items()}


def urls(seed: int, fresh: float) -> Iterator[tuple[str, str]]:
    """(kind, address) as readers come by them, for ever; `fresh`: the share of fronts that nobody has asked for."""
    rng = random.Random(seed)
    while True:
        kind = rng.choices(("front", "facets", "metrics", "messages", "page"), (70, 12, 6, 6, 6))[0]
        lang = rng.choice(("en", "en", "zh"))
        if kind == "front":
            isl, osl = rng.choice(SCENARIOS)
            x, y = rng.choice(AXES)
            words = f"model={rng.choice(MODELS)}&scenario=fixed-seq-len:{isl}/{osl}&x={x}&y={y}&lang={lang}"
            made = rng.random() < fresh
            target = f"&target={rng.uniform(10, 100):.6f}" if made else ""
            yield ("made" if made else kind), f"/api/v1/front?{words}{target}"
        elif kind == "page":
            yield kind, "/"
        else:
            yield kind, f"/api/v1/{kind}?lang={lang}"


async def reader(port: int, seed: int, until: float, seen: Seen, how: How) -> None:
    """One reader on one connection, as a browser keeps it."""
    rng = random.Random(seed)
    known: dict[str, str] = {}
    incoming, outgoing = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    await asyncio.sleep(rng.random() * how.pause)
    for kind, url in urls(seed + how.seed, how.fresh):
        if time.perf_counter() > until:
            break
        tag = f"If-None-Match: {known[url]}\r\n" if how.tags and url in known else ""
        head = f"GET {url} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n{tag}\r\n"
        began = time.perf_counter()
        outgoing.write(head.encode())
        answer = (await incoming.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"\ncontent-length: (\d+)", answer)
        size = int(length[1]) if length else 0
        if size:
            await incoming.readexactly(size)
        seen.add(kind, time.perf_counter() - began, int(answer.split(" ", 2)[1]), len(answer) + size)
        found = re.search(r"\netag: ([^\r]+)", answer)
        if found:
            known[url] = found[1].replace('w/"', 'W/"')
        if how.pause:
            await asyncio.sleep(rng.uniform(0.5, 1.5) * how.pause)
    outgoing.close()


@dataclass(frozen=True, slots=True)
class How:
    """How readers ask: seconds between answers and questions in the mean, share of new fronts, with tags or without."""

    pause: float = 0.0
    fresh: float = 0.0
    tags: bool = False
    seed: int = 0


async def load(server: Server, readers: int, seconds: float, how: How) -> dict[str, object]:
    """All readers at once."""
    seen = Seen()
    began, used = time.perf_counter(), server.cpu_s()
    until = began + seconds
    await asyncio.gather(*(reader(server.port, seed, until, seen, how) for seed in range(readers)))
    told = seen.told(time.perf_counter() - began)
    count = sum(seen.statuses.values())
    return {**told, "server_cpu_ms_a_request": round((server.cpu_s() - used) / count * 1e3, 3)}


async def cold(server: Server) -> dict[str, object]:
    """The first front of every scenario, one after the other."""
    times, used = [], server.cpu_s()
    for model in MODELS:
        for isl, osl in SCENARIOS:
            began = time.perf_counter()
            await get(server.port, f"/api/v1/front?model={model}&scenario=fixed-seq-len:{isl}/{osl}")
            times.append(time.perf_counter() - began)
    cpu = round((server.cpu_s() - used) / len(times) * 1e3, 1)
    return {"first_ms": round(times[0] * 1e3, 1), **percentiles(times[1:]), "server_cpu_ms_a_request": cpu}


async def warm(server: Server) -> None:
    """Ask once for everything that `mixed` asks for again."""
    for model in MODELS:
        for isl, osl in SCENARIOS:
            for x, y in AXES:
                for lang in ("en", "zh"):
                    words = f"model={model}&scenario=fixed-seq-len:{isl}/{osl}&x={x}&y={y}&lang={lang}"
                    await get(server.port, f"/api/v1/front?{words}")
    for kind in ("facets", "metrics", "messages"):
        for lang in ("en", "zh"):
            await get(server.port, f"/api/v1/{kind}?lang={lang}")


PEER = """
import socket, sys, uvicorn
body, head = b"x" * int(sys.argv[1]), [(b"content-length", sys.argv[1].encode())]
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
sock = socket.create_server(("127.0.0.1", 0))
print('{"url": "http://127.0.0.1:%d/"}' % sock.getsockname()[1], flush=True)
config = uvicorn.Config(app, http="httptools", loop="uvloop", log_level="error", access_log=False, lifespan="off")
uvicorn.Server(config).run([sock])
"""


def serve_argv(home: Path) -> list[str]:
    """The server under test."""
    return [sys.executable, "-m", "servemark", "serve", "--json", "--port", "0", "--home", str(home)]


class Server:
    """A server as a process, which says its address on its first line."""

    def __init__(self, argv: list[str]) -> None:
        began = time.perf_counter()
        self.child = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self.child.stdout is not None
        self.port = int(json.loads(self.child.stdout.readline())["url"].rstrip("/").rpartition(":")[2])
        asyncio.run(get(self.port, "/"))
        self.up_s = time.perf_counter() - began

    def cpu_s(self) -> float:
        """Processor time that the process has used."""
        parts = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it."""
        self.child.terminate()
        self.child.wait(10)


async def get(port: int, url: str) -> tuple[str, bytes]:
    """(head, body as sent) of one answer."""
    incoming, outgoing = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    outgoing.write(
        f"GET {url} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
    )
    head = (await incoming.readuntil(b"\r\n\r\n")).decode("latin-1")
    body = await incoming.read()
    outgoing.close()
    return head, body


async def first_load(port: int) -> dict[str, object]:
    """The page, what it names, and the modules that those name, each once."""
    import gzip  # noqa: PLC0415 - only here

    sizes: dict[str, int] = {}
    wanted = ["/front"]
    while wanted:
        url = wanted.pop()
        head, body = await get(port, url)
        sizes[url] = len(body)
        text = (gzip.decompress(body) if "content-encoding: gzip" in head.lower() else body).decode(
            "utf-8", "replace"
        )
        found = (
            re.findall(r'"(/static/[^"]+)"', text)
            if url == "/front"
            else re.findall(r'from "(\.[^"]+)"', text)
        )
        for each in found:
            parts = each if each.startswith("/") else _joined(url, each)
            if parts not in sizes and parts not in wanted:
                wanted.append(parts)
    _, front = await get(
        port, f"/api/v1/front?model=alpha&scenario=fixed-seq-len:{SCENARIOS[0][0]}/{SCENARIOS[0][1]}"
    )
    return {"files": len(sizes), "bytes": sum(sizes.values()), "front_of_435_points": len(front)}


def _joined(url: str, relative: str) -> str:
    parts = url.split("/")[:-1]
    for each in relative.split("/"):
        if each == "..":
            parts.pop()
        elif each != ".":
            parts.append(each)
    return "/".join(parts)


def verb() -> float:
    """Seconds of `servemark serve --help`, the best of three."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "servemark", "serve", "--help"], check=True, capture_output=True
        )
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Every part."""
    parser = argparse.ArgumentParser(description="Load of the page's server")
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--home", type=Path, help="a folder that keeps the store for the next time")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        home = asked.home or Path(made)
        if not (home / "store.sqlite").exists():
            home.mkdir(parents=True, exist_ok=True)
            say("store", points=build(home, asked.points), bytes=(home / "store.sqlite").stat().st_size)
        server = Server(serve_argv(home))
        try:
            say("verb", help_ms=round(verb() * 1e3), up_ms=round(server.up_s * 1e3))
            many, long = asked.readers, asked.seconds
            say("cold", **asyncio.run(cold(server)))
            asyncio.run(warm(server))
            say("mixed", **asyncio.run(load(server, many, long, How(pause=1.0, fresh=0.1))))
            say(
                "etag",
                **asyncio.run(load(server, many, long, How(pause=1.0, fresh=0.1, tags=True, seed=1000))),
            )
            say("cached", **asyncio.run(load(server, many, long, How())))
            peer = Server([sys.executable, "-c", PEER, "19000"])
            try:
                say("peer", **asyncio.run(load(peer, many, long, How())))
            finally:
                peer.close()
            say("first_load", **asyncio.run(first_load(server.port)))
        finally:
            server.close()


def say(part: str, **found: object) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps({"part": part, "load_average": os.getloadavg()[0], **found}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
