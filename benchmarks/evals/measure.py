"""What the evaluation runner costs beside the requests: CPU per sample and memory, as the number of samples grows.

The sender answers at once, so all that is measured is ours: prompts, judging, statistics, and every sample written to a
file. Each size runs in a process of its own. `uv run python -m benchmarks.evals.measure [--items 10000,100000]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from servemark.evals.arithmetic import arithmetic
from servemark.evals.runner import run_task
from servemark.evals.samples import SampleRecord, SampleWriter, read_samples
from servemark.evals.statistics import statistics_of
from servemark.evals.tasks import EvalItem, EvalPrompt, EvalTask
from servemark.replay.record import RequestRecord

CONCURRENCY = 16


def peak_mb() -> float:
    """Peak resident memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def many(items: int) -> EvalTask:
    """The arithmetic task, its items again and again under names of their own."""
    base = arithmetic()
    made = tuple(
        EvalItem(f"{n:07d}", each.kind, each.question, each.expected)
        for n, each in ((n, base.items[n % len(base.items)]) for n in range(items))
    )
    return EvalTask("many", "1", base.preamble, made, base.max_tokens, base.stop, base.judge)


def one(items: int) -> dict[str, float]:
    """One size, in this process."""
    task = many(items)
    start = peak_mb()

    async def send(prompt: EvalPrompt) -> RequestRecord:
        await asyncio.sleep(0)
        made = RequestRecord(
            prompt.item, prompt.item, 0, "eval", outcome="ok", finish_reason="stop", text="The answer is 42."
        )
        made.start_s, made.end_s, made.input_tokens, made.output_tokens = 0.0, 0.1, 220, 6
        return made

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.jsonl"
        with SampleWriter(path) as writer:

            def note(sample: SampleRecord, done: int, expected: int) -> None:
                writer.write(sample)

            cpu, wall = time.process_time(), time.perf_counter()
            outcome = asyncio.run(run_task(task, send, CONCURRENCY, note, keep=0))
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert outcome.ended == "complete"
        grown = peak_mb() - start
        read = time.process_time()
        assert statistics_of(items, read_samples(path)) == outcome.statistics
        read = time.process_time() - read
        size = path.stat().st_size / 1e6
    return {
        "items": items,
        "cpu_ms_per_sample": round(1000 * cpu / items, 4),
        "wall_s": round(wall, 2),
        "peak_grown_mb": round(grown, 1),
        "file_mb": round(size, 1),
        "read_cpu_ms_per_sample": round(1000 * read / items, 4),
    }


def main() -> None:
    """Every size, each in a fresh process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", default="1000,10000,100000")
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write(json.dumps(one(options.one)) + "\n")
        return
    for items in options.items.split(","):
        subprocess.run([sys.executable, "-m", "benchmarks.evals.measure", "--one", items], check=True)


if __name__ == "__main__":
    main()
