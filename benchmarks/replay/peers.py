"""Our verb `replay` beside other clients in one run: processor per streamed chunk, memory, and reported TTFT.

Every client sends the same closed loop of chat requests to fakesse (see bench.py), which knows the truth. Each runs
twice: with one short request, which costs what starting costs, and with the load. Net processor time is the difference;
it is user and system time of the whole process tree. Peers are given as paths of what is installed elsewhere, because
their dependencies exclude one another:

    python -m benchmarks.replay.peers --mini PYTHON --aiperf BIN --agentx BIN --guidellm BIN --tokenizer FOLDER --streams 256

PYTHON has aiohttp, orjson and uvloop; FOLDER holds a tokenizer that the peers can load (tokenizer.json).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.replay.bench import FAKESSE, MODES, server

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Load:
    """One run of a client."""

    url: str
    streams: int
    requests: int
    tokens: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a process tree: processor seconds, wall seconds, the largest sum of resident memory seen, in MiB."""

    cpu_s: float
    wall_s: float
    rss_mib: float


@dataclass(frozen=True, slots=True)
class Row:
    """One client in one mode. TTFT is what the client reports and what the server emitted, in ms."""

    client: str
    mode: str
    streams: int
    chunks: int
    start_cpu_s: float
    first_request_s: float
    net_us_per_chunk: float
    wall_s: float
    rss_mib: float
    ttft_ms: tuple[float | None, float | None]
    true_ttft_ms: tuple[float | None, float | None]


def servemark(load: Load) -> list[str]:
    """The verb itself: text made, requests sent, each record written, the row built and stored."""
    argv = [
        sys.executable,
        "-m",
        "servemark",
        "replay",
        f"random:isl=100,osl={load.tokens}",
        "--url",
        load.url,
    ]
    argv += ["--model", "fake", "--concurrency", str(load.streams), "--requests", str(load.requests)]
    return [*argv, "--processes", "1", "--home", str(load.folder), "--json"]


def mini(python: str) -> Callable[[Load], list[str]]:
    """The bare aiohttp loop."""

    def argv(load: Load) -> list[str]:
        script = str(FAKESSE / "mini_aiohttp.py")
        words = [python, script, "--url", load.url, "--streams", str(load.streams)]
        return [*words, "--requests", str(load.requests), "--tokens", str(load.tokens)]

    return argv


def aiperf(program: str, tokenizer: str) -> Callable[[Load], list[str]]:
    """AIPerf, and its agentic fork, which has the same command line."""

    def argv(load: Load) -> list[str]:
        words = [
            program,
            "profile",
            "--model",
            "fake",
            "--url",
            load.url,
            "--endpoint-type",
            "chat",
            "--streaming",
        ]
        words += ["--tokenizer", tokenizer, "--synthetic-input-tokens-mean", "100", "--ui", "none"]
        words += ["--no-gpu-telemetry", "--no-server-metrics", "--concurrency", str(load.streams)]
        words += ["--request-count", str(load.requests), "--output-tokens-mean", str(load.tokens)]
        return [*words, "--num-dataset-entries", "64", "--artifact-dir", str(load.folder / "out")]

    return argv


def guidellm(program: str, tokenizer: str) -> Callable[[Load], list[str]]:
    """GuideLLM with its concurrent profile."""

    def argv(load: Load) -> list[str]:
        words = [program, "run", "--backend", f"kind=openai_http,target={load.url},model=fake"]
        words += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}"]
        words += ["--profile", f"kind=concurrent,streams={load.streams}"]
        words += ["--constraint", f"kind=max_requests,count={load.requests}"]
        words += ["--data", f"kind=synthetic_text,prompt_tokens=100,output_tokens={load.tokens}"]
        return [*words, "--output", f"kind=json,path={load.folder / 'guidellm.json'}"]

    return argv


def watched(argv: Sequence[str], cwd: Path) -> tuple[Cost, str]:
    """Run it as the only child of this process, with everything that it leaves behind reaped here."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    most = [0.0]
    done = threading.Event()
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    with (cwd / "stdout").open("w+") as out, (cwd / "stderr").open("w+") as err:
        process = subprocess.Popen(
            argv, stdout=out, stderr=err, cwd=cwd, env=environment, start_new_session=True
        )
        watcher = threading.Thread(target=_watch_memory, args=(process.pid, most, done))
        watcher.start()
        code = process.wait()
        done.set()
        watcher.join()
        wall_s = time.monotonic() - begun
        _reap_others(process.pid)
        out.seek(0)
        text = out.read()
        if code:
            err.seek(0)
            raise SystemExit(f"{argv[0]} ended with {code}:\n{text[-2000:]}\n{err.read()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu_s, wall_s, most[0]), text


def _reap_others(session: int) -> None:
    """Wait for what the client left behind, which became our children; the server, also our child, goes on."""
    for pid in _session(session):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _watch_memory(pid: int, most: list[float], done: threading.Event) -> None:
    while not done.wait(0.1):
        most[0] = max(most[0], sum(_rss_mib(one) for one in _session(pid)))


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader or int(fields[1]) == leader:
                found.append(int(entry.name))
    return found


def _rss_mib(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
    except (OSError, IndexError):
        return 0.0


def reported(client: str, load: Load, text: str) -> tuple[float | None, float | None]:
    """TTFT p50 and p99 in ms as the client itself reports them."""
    if client == "servemark":
        metric = json.loads(text)["distributions"]["ttft_s"]
        return metric["p50"] * 1e3, metric["p99"] * 1e3
    if client == "mini_aiohttp":
        seen = json.loads(text)
        return seen["ttft_p50_s"] * 1e3, seen["ttft_p99_s"] * 1e3
    if client in ("aiperf", "agentx"):
        metric = json.loads((load.folder / "out" / "profile_export_aiperf.json").read_text())[
            "time_to_first_token"
        ]
        return metric["p50"], metric["p99"]
    body = json.loads((load.folder / "guidellm.json").read_text())
    metric = body["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]
    return metric["median"], metric["percentiles"]["p99"]


def measure(client: str, argv: Callable[[Load], list[str]], mode_name: str, args: argparse.Namespace) -> Row:
    """One client: its start alone, then the load."""
    mode = MODES[mode_name]
    paced = ("--itl-ms", str(args.interval_ms)) if mode_name == "steady" else ()
    costs = []
    for streams, requests, tokens in ((1, 1, 2), (args.streams, args.streams * args.rounds, args.tokens)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with server((*mode.server, *paced), folder / "truth.csv", 0 if args.pin else None) as url:
                load = Load(url, streams, requests, tokens, folder)
                begun = time.monotonic()
                cost, text = watched(argv(load), folder)
                with urllib.request.urlopen(f"{url}/__stats", timeout=10) as reply:
                    stats = json.loads(reply.read())
                costs.append((cost, stats, float(stats["t_firstreq_mono"]) - begun))
                if requests > 1:
                    ttft = reported(client, load, text)
    (start, start_stats, first_s), (full, stats, _) = costs
    chunks = int(stats["chunks"])
    return Row(
        client,
        mode_name,
        args.streams,
        chunks,
        start.cpu_s,
        first_s,
        (full.cpu_s - start.cpu_s) / max(1, chunks - int(start_stats["chunks"])) * 1e6,
        full.wall_s,
        full.rss_mib,
        ttft,
        (stats.get("ttft_p50"), stats.get("ttft_p99")),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows for people; the factor is against servemark in the same mode and round."""
    heads: tuple[str, ...] = (
        "client",
        "mode",
        "streams",
        "chunks",
        "first request s",
        "start CPU s",
        "net us/chunk",
        "x ours",
        "MiB",
    )
    heads += ("TTFT reported p50/p99 ms", "TTFT true p50/p99 ms")
    lines = [heads]
    ours: dict[str, float] = {}
    for row in rows:
        if row.client == "servemark":
            ours[row.mode] = row.net_us_per_chunk
        factor = row.net_us_per_chunk / ours[row.mode] if row.mode in ours else None
        lines.append(
            (
                row.client,
                row.mode,
                str(row.streams),
                str(row.chunks),
                f"{row.first_request_s:.2f}",
                f"{row.start_cpu_s:.2f}",
                f"{row.net_us_per_chunk:.1f}",
                "-" if factor is None else f"{factor:.1f}",
                f"{row.rss_mib:.0f}",
                " / ".join("-" if v is None else f"{v:.1f}" for v in row.ttft_ms),
                " / ".join("-" if v is None else f"{v:.1f}" for v in row.true_ttft_ms),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mini", metavar="PYTHON", help="a Python with aiohttp, orjson and uvloop")
    parser.add_argument("--aiperf", metavar="BIN")
    parser.add_argument("--agentx", metavar="BIN", help="the aiperf program of agentx-harness")
    parser.add_argument("--guidellm", metavar="BIN")
    parser.add_argument("--tokenizer", metavar="FOLDER")
    parser.add_argument("--mode", choices=[*MODES, "both"], default="both")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2, help="requests a stream")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--interval-ms", type=float, default=20.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--pin", action="store_true", help="server on core 0, clients on the last core")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if shutil.which("make") is None:
        raise SystemExit("make and a C compiler are needed to build the fake server")
    if not args.tokenizer and (args.aiperf or args.agentx or args.guidellm):
        raise SystemExit("--tokenizer FOLDER is needed for aiperf, agentx and guidellm")
    subprocess.run(["make", "-s", "-C", str(FAKESSE)], check=True)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    clients: dict[str, Callable[[Load], list[str]]] = {"servemark": servemark}
    if args.mini:
        clients["mini_aiohttp"] = mini(args.mini)
    if args.aiperf:
        clients["aiperf"] = aiperf(args.aiperf, args.tokenizer)
    if args.agentx:
        clients["agentx"] = aiperf(args.agentx, args.tokenizer)
    if args.guidellm:
        clients["guidellm"] = guidellm(args.guidellm, args.tokenizer)
    modes = list(MODES) if args.mode == "both" else [args.mode]
    rows = [
        measure(client, argv, mode, args)
        for mode in modes
        for _ in range(args.repeat)
        for client, argv in clients.items()
    ]
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
