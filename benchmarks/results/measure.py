"""Summarise a large file of request records: seconds, and the peak memory of every process.

    python benchmarks/results/measure.py [--requests 100000] [--chunks 100] [--processes 0] [--keep FILE]

The file is made from a seed: sessions of ten turns, replies of about 20 ms a chunk with jitter and a few long gaps.
Each measurement is a fresh interpreter; start-up and imports are inside its seconds and told apart.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEED = 1


def make(path: Path, requests: int, chunks: int) -> None:
    """Write the file."""
    from servemark.replay.record import RequestRecord  # noqa: PLC0415 - measured
    from servemark.replay.records_io import encode_record  # noqa: PLC0415 - measured

    rng = random.Random(SEED)
    with path.open("wb") as stream:
        for number in range(requests):
            start = number * 0.01
            at = start + rng.lognormvariate(-1.5, 0.5)
            times = []
            for _ in range(chunks):
                times.append(at)
                at += 1.5 if rng.random() < 1e-5 else max(0.0, rng.gauss(0.02, 0.002))
            session, turn = divmod(number, 10)
            record = RequestRecord(
                id=f"s{session}/{turn}", session=f"s{session}", turn=turn, phase="measured", lane=number % 64,
                intended_send_s=start, start_s=start + 0.0001, first_byte_s=times[0], first_text_s=times[0],
                end_s=times[-1] + 0.001, chunk_s=times, requested_output_tokens=chunks,
                expected_input_tokens=1000, input_tokens=1010, output_tokens=chunks, cached_tokens=500,
                tokens_origin="usage", outcome="ok", http_status=200, finish_reason="stop",
            )  # fmt: skip
            stream.write(encode_record(record))


def measure(path: Path, processes: int | None) -> None:
    """Inside the fresh interpreter: print one line of JSON."""
    begun = time.perf_counter()
    from servemark.results.summary import Questions  # noqa: PLC0415 - measured
    from servemark.results.summary_file import summarise_file  # noqa: PLC0415 - measured

    imported = time.perf_counter()
    seen = summarise_file(path, Questions(((100.0, 900.0),), {"ttft_s": 2.0, "tpot_s": 0.05}), processes)
    read = time.perf_counter()
    found = seen.distributions()
    seen.with_failures()
    seen.live_sessions()
    done = time.perf_counter()
    own, child = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(
        json.dumps(
            {
                "import_s": round(imported - begun, 2),
                "read_s": round(read - imported, 2),
                "figures_s": round(done - read, 2),
                "cpu_s": round(own.ru_utime + own.ru_stime + child.ru_utime + child.ru_stime, 2),
                "peak_mib": own.ru_maxrss // 1024,
                "peak_mib_largest_other": child.ru_maxrss // 1024,
                "requests": seen.ok,
                "gaps": found["chunk_gap_s"].n,
                "gap_p99_s": found["chunk_gap_s"].p99,
            }
        )
    )


def main() -> None:
    """Make the file and measure one process, then as many as the program would take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is not None:
        measure(asked.inside, asked.processes or None)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.jsonl"
        make(path, asked.requests, asked.chunks)
        print(f"{asked.requests} requests of {asked.chunks} chunks, {path.stat().st_size / 1e6:.0f} MB")
        for processes, name in ((1, "one process"), (0, "as many as the program takes")):
            for _ in range(asked.repeats):
                command = [sys.executable, __file__, "--inside", str(path), "--processes", str(processes)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                print(f"{name}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
