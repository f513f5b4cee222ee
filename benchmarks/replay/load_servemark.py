"""Our client under load, as a run uses it: closed loop, full JSON decoding, every record written to a file.

Started by bench.py in a process of its own, so that its processor time is its own. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

from servemark.replay.client import Client, Target, run
from servemark.replay.loop import LoopPlan, run_closed_loop
from servemark.replay.records_io import RecordWriter
from servemark.replay.stop import StopSignal
from servemark.traces.types import Message, Segment, Session, Turn, Workload


class PlainText:
    """Every segment's text is its number of letters: what the prompt says does not matter here."""

    def text(self, segment: Segment) -> str:
        """`segment.tokens` letters."""
        return "x" * segment.tokens


def workload(streams: int, requests: int, tokens: int, body: int) -> Workload:
    """One session a stream, each with its share of the requests, without think time."""
    message = Message("user", (Segment("prompt", body),))
    turns = tuple(Turn((message,), tokens) for _ in range(max(1, requests // streams)))
    return Workload("bench", "bench", tuple(Session(f"s{n}", turns) for n in range(streams)))


async def load(args: argparse.Namespace) -> dict[str, object]:
    """Run the whole load and summarise it."""
    plan = LoopPlan(
        workload(args.streams, args.requests, args.tokens, args.body),
        args.streams,
        "none",
        "bench",
        ramp_s=0.0 if args.burst else None,
    )
    zero_ns = time.monotonic_ns()
    with RecordWriter(Path(args.records)) as writer:
        async with Client(Target(args.url, "fake"), zero_ns=zero_ns) as client:
            outcome = await run_closed_loop(plan, client, PlainText(), writer.write, StopSignal())
    return {
        "zero_ns": zero_ns,
        "cpu_s": outcome.health.cpu_s,
        "wall_s": outcome.window_s,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "max_in_flight": outcome.max_in_flight,
        "lag_p50_s": outcome.health.lag_p50_s,
        "lag_p99_s": outcome.health.lag_p99_s,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--body", type=int, default=1000, help="bytes of prompt")
    parser.add_argument("--records", required=True, help="file for the request records")
    parser.add_argument("--burst", action="store_true", help="start all streams at once")
    print(json.dumps(run(load(parser.parse_args()))))


if __name__ == "__main__":
    main()
