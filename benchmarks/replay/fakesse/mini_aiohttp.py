"""The client to compare with: the least that aiohttp, uvloop and orjson can do with a chat stream.

A closed loop of workers that stamps each read, decodes each event and keeps the gaps; no records, no time
limits, no tolerance for anything unusual. Needs aiohttp, orjson and uvloop. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

aiohttp: Any = importlib.import_module("aiohttp")
orjson: Any = importlib.import_module("orjson")
uvloop: Any = importlib.import_module("uvloop")


@dataclass(slots=True)
class Seen:
    """What all workers saw, in seconds."""

    chunks: int = 0
    ttft: list[float] = field(default_factory=list)
    interval: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


async def worker(post: Callable[..., Any], url: str, left: list[int], body: bytes, seen: Seen) -> None:
    """Send requests one after the other while there are any left."""
    clock = time.perf_counter
    loads = orjson.loads
    while left:
        left.pop()
        start = clock()
        first = last = 0.0
        count = 0
        buffer = b""
        async with post(url, data=body, headers={"content-type": "application/json"}) as reply:
            async for data in reply.content.iter_any():
                at = clock()
                buffer += data
                *events, buffer = buffer.split(b"\n\n")
                for event in events:
                    if not event.startswith(b"data: {"):
                        continue
                    choices = loads(event[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        if count:
                            seen.gaps.append(at - last)
                        else:
                            first = at
                        last = at
                        count += 1
        seen.chunks += count
        seen.ttft.append(first - start)
        if count > 1:
            seen.interval.append((last - first) / (count - 1))


async def load(args: argparse.Namespace) -> dict[str, object]:
    """Run the whole load and summarise it."""
    body = (
        b'{"model":"fake","stream":true,"stream_options":{"include_usage":true},"max_tokens":%d,'
        b'"messages":[{"role":"user","content":"%s"}]}' % (args.tokens, b"x" * args.body)
    )
    url = f"{args.url}/v1/chat/completions"
    seen = Seen()
    left = [0] * args.requests
    connector = aiohttp.TCPConnector(limit=0)
    no_limit = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=no_limit, read_bufsize=2**16) as session:
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(worker(session.post, url, left, body, seen) for _ in range(args.streams)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "chunks": seen.chunks,
        "cpu_s": cpu,
        "wall_s": wall,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ttft_p50_s": middle(seen.ttft, 0.5),
        "ttft_p99_s": middle(seen.ttft, 0.99),
        "gap_p50_s": middle(seen.gaps, 0.5),
        "gap_p99_s": middle(seen.gaps, 0.99),
    }


def middle(values: list[float], q: float) -> float | None:
    """The value at quantile `q`; None for none."""
    return sorted(values)[int(q * (len(values) - 1))] if values else None


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--body", type=int, default=1000, help="bytes of prompt")
    print(json.dumps(uvloop.run(load(parser.parse_args()))))


if __name__ == "__main__":
    main()
