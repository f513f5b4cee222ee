"""How much processor our client uses per streamed chunk, and how far its times are from the server's own.

The server is fakesse, built here with make: it emits on a fixed schedule and logs the true moments, which
are joined with our records by request id. The client to compare with, mini_aiohttp, runs where aiohttp,
orjson and uvloop are installed.

saturated: no delay, 16 chunks a write; CPU per chunk and chunks/s of the client. steady: first token after
200 ms, then one chunk a write every --interval-ms; CPU per chunk and errors.

CPU is user and system time of the client's process from its first request on; errors are client minus
server.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from servemark.metrics.percentiles import percentile
from servemark.metrics.request import chunk_gaps_s, ttft_s
from servemark.replay.records_io import read_records

HERE = Path(__file__).resolve().parent
FAKESSE = HERE / "fakesse"
CLIENTS = ("servemark", "mini_aiohttp")


@dataclass(frozen=True, slots=True)
class Mode:
    """A schedule of the server and the size of the load: tokens a request, requests a stream."""

    server: tuple[str, ...]
    tokens: int
    rounds: int


MODES = {
    "saturated": Mode(("--ttft-ms", "0", "--itl-ms", "0", "--batch", "16"), 500, 4),
    "steady": Mode(("--ttft-ms", "200", "--keep-times", "1"), 100, 3),
}


@dataclass(frozen=True, slots=True)
class Errors:
    """Client minus server in ms, request by request and chunk by chunk (gaps: the size of the difference).

    None for clients whose times cannot be joined. `failed` counts requests that did not end well.
    """

    failed: int | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    gap_p50_ms: float | None = None
    gap_p99_ms: float | None = None
    arrival_p50_ms: float | None = None
    arrival_p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One client, one mode, one number of streams. `chunks` is what the server emitted."""

    client: str
    mode: str
    streams: int
    chunks: int
    cpu_us_per_chunk: float
    chunks_per_s: float
    rss_mib: float
    errors: Errors
    server_late_p50_ms: float
    server_late_p99_ms: float
    lag_p99_ms: float | None


@contextlib.contextmanager
def server(options: Sequence[str], log: Path, cpu: int | None) -> Iterator[str]:
    """A running fakesse; yields its base URL and stops it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [str(FAKESSE / "fakesse"), "--port", str(port), "--log", str(log), *options]
    if cpu is not None:
        argv += ["--cpu", str(cpu)]
    process = subprocess.Popen(argv)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
                break
            time.sleep(0.02)
        yield url
    finally:
        process.terminate()
        process.wait()


def measure(client: str, mode_name: str, streams: int, args: argparse.Namespace) -> Result:
    """Run one client against a fresh server."""
    mode = MODES[mode_name]
    with tempfile.TemporaryDirectory() as folder:
        log, records = Path(folder, "truth.csv"), Path(folder, "requests.jsonl")
        script = HERE / "load_servemark.py" if client == "servemark" else FAKESSE / "mini_aiohttp.py"
        paced = ("--itl-ms", str(args.interval_ms)) if mode_name == "steady" else ()
        with server((*mode.server, *paced), log, 0 if args.pin else None) as url:
            argv = [sys.executable, str(script), "--url", url, "--streams", str(streams)]
            argv += ["--requests", str(streams * mode.rounds), "--tokens", str(mode.tokens)]
            if client == "servemark":
                argv += ["--records", str(records)] + (["--burst"] if args.burst else [])
            run = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=_on_last_core if args.pin else None,
            )
            if run.returncode:
                raise SystemExit(f"{client} failed:\n{run.stderr[-3000:]}")
            seen = json.loads(run.stdout)
            with urllib.request.urlopen(f"{url}/__stats", timeout=10) as reply:
                stats = json.loads(reply.read())
            urllib.request.urlopen(f"{url}/__dump", timeout=60).close()
        errors = compare(records, log) if client == "servemark" else Errors()
    chunks = int(stats["chunks"])
    lag = seen.get("lag_p99_s")
    return Result(
        client,
        mode_name,
        streams,
        chunks,
        cpu_us_per_chunk=seen["cpu_s"] / chunks * 1e6,
        chunks_per_s=chunks / seen["wall_s"],
        rss_mib=seen["rss_mib"],
        server_late_p50_ms=stats["late_p50"],
        server_late_p99_ms=stats["late_p99"],
        lag_p99_ms=None if lag is None else lag * 1e3,
        errors=errors,
    )


def _on_last_core() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def compare(records: Path, log: Path) -> Errors:
    """Join our records with the server's log by request id; differences are client minus server, in ms."""
    csv.field_size_limit(1 << 30)
    with log.open(newline="") as stream:
        truth = {row["request_id"]: row for row in csv.DictReader(stream)}
    ttft: list[float] = []
    gaps: list[float] = []
    arrivals: list[float] = []
    failed = 0
    for _, record in read_records(records):
        row = truth.get(record.id)
        first = ttft_s(record)
        if record.outcome != "ok" or row is None or first is None:
            failed += 1
            continue
        ttft.append(first * 1e3 - float(row["ttft_ms"]))
        emitted = [int(at) / 1e6 for at in row["emitted_ns"].split()]
        if len(emitted) != len(record.chunk_s):
            continue  # the log holds no single moments in this mode
        start = record.start_s or 0.0
        arrivals += [(at - start) * 1e3 - true for at, true in zip(record.chunk_s, emitted, strict=True)]
        true_gaps = [later - earlier for earlier, later in pairwise(emitted)]
        ours = chunk_gaps_s(record)
        gaps += [abs(gap * 1e3 - true) for gap, true in zip(ours, true_gaps, strict=True)]
    return Errors(
        failed,
        percentile(ttft, 50),
        percentile(ttft, 99),
        percentile(gaps, 50),
        percentile(gaps, 99),
        percentile(arrivals, 50),
        percentile(arrivals, 99),
    )


def table(results: Sequence[Result]) -> str:
    """The results for people; a dash is a value that does not exist."""
    heads: tuple[str, ...] = (
        "client",
        "mode",
        "streams",
        "us/chunk",
        "chunks/s",
        "MiB",
        "failed",
        "ttft err p50/p99 ms",
    )
    heads += ("gap err p50/p99 ms", "arrival err p50/p99 ms", "server late p50/p99 ms", "lag p99 ms")
    rows = [heads]
    for r in results:
        rows.append(
            (
                r.client,
                r.mode,
                str(r.streams),
                f"{r.cpu_us_per_chunk:.2f}",
                f"{r.chunks_per_s:,.0f}",
                f"{r.rss_mib:.0f}",
                "-" if r.errors.failed is None else str(r.errors.failed),
                pair(r.errors.ttft_p50_ms, r.errors.ttft_p99_ms),
                pair(r.errors.gap_p50_ms, r.errors.gap_p99_ms),
                pair(r.errors.arrival_p50_ms, r.errors.arrival_p99_ms),
                pair(r.server_late_p50_ms, r.server_late_p99_ms),
                "-" if r.lag_p99_ms is None else f"{r.lag_p99_ms:.2f}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def pair(low: float | None, high: float | None) -> str:
    """Two numbers, or dashes."""
    return " / ".join("-" if value is None else f"{value:.3f}" for value in (low, high))


def usable(client: str) -> bool:
    """False, with a word on stderr, when what a client needs is not installed."""
    if client == "servemark":
        return True
    probe = [sys.executable, "-c", "import aiohttp, orjson, uvloop"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return True
    print(f"{client} is left out: aiohttp, orjson and uvloop are not all installed", file=sys.stderr)
    return False


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=[*MODES, "both"], default="both")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument(
        "--interval-ms", type=float, default=20.0, help="between chunks of a stream, when steady"
    )
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--pin", action="store_true", help="server on core 0, client on the last core")
    parser.add_argument("--burst", action="store_true", help="our client starts all streams at once")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    if shutil.which("make") is None:
        raise SystemExit("make and a C compiler are needed to build the fake server")
    subprocess.run(["make", "-s", "-C", str(FAKESSE)], check=True)
    modes = list(MODES) if args.mode == "both" else [args.mode]
    clients = [client for client in args.clients if usable(client)]
    results = [
        measure(client, mode, streams, args)
        for mode in modes
        for streams in args.streams
        for _ in range(args.repeat)
        for client in clients
    ]
    print(table(results))
    if args.json:
        args.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
