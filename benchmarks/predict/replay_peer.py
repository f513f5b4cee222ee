"""A peer whose step times are known exactly: continuous batching over HTTP, and the speed model's way through it.

    python -m benchmarks.predict.replay_peer [--law decode|prefill|queue]

The peer decodes all streams in steps of a + b*B + c*(context of all) + p*(prompt tokens in the step) seconds, with at most
`CHUNK` prompt tokens a step, `SLOTS` requests at once, and a cache that keeps all that it has seen of a session. A generated
agentic trace is replayed against it at three concurrencies by this project's own client, what was measured is given to the
speed model as points of a store would be, and the replay is simulated with the step times that it fits, at those loads and
at others that are replayed afterwards. Simulated beside measured; exit code 1 when throughput or the mean of TPOT or of
end-to-end time is more than `ALLOWED` off. Steps are slept on an absolute schedule; `late` says by how much they came late.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from benchmarks.predict.replay_truth import Real, replayed, report

from servemark.analysis.measured import Measured, of_point
from servemark.metrics.percentiles import percentile
from servemark.predict.agentic import deployment_times
from servemark.predict.cache import build
from servemark.predict.cache_config import CacheConfig
from servemark.predict.closed_loop import simulate
from servemark.predict.fit_points import fit_points
from servemark.predict.sim_rules import Deployment, ReplayRules
from servemark.predict.speed import SpeedModel
from servemark.results.point import Execution, Figure, Point, PointIdentity, Precision, RoleTopology, Scenario
from servemark.traces.generator import generate
from servemark.traces.recipe import AgenticRecipe
from servemark.traces.types import Segment, Workload

CHUNK = 512
ALLOWED = 0.15
MEASURED, HELD_OUT = (1, 3, 8), (2, 5)


@dataclass(frozen=True, slots=True)
class Law:
    """Seconds: a step's own, of each stream, of each token of context, of each prompt token; requests at once."""

    a: float
    b: float
    c: float
    p: float
    slots: int = 64

    def step_s(self, streams: int, context: float, prompt: int) -> float:
        """One step."""
        return self.a + self.b * streams + self.c * context + self.p * prompt


LAWS: Mapping[str, Law] = {
    "decode": Law(0.02, 0.004, 1e-6, 1e-5),
    "prefill": Law(0.01, 0.0005, 0.0, 3e-4),
    "queue": Law(0.02, 0.002, 0.0, 1e-4, slots=4),
}
RECIPE = {
    "seed": 7,
    "sessions": 16,
    "turns": [3, 5],
    "system_tokens": 80,
    "tools_tokens": 120,
    "first_user_tokens": [20, 60],
    "tool_result_tokens": {"median": 100, "sigma": 0.6, "min": 20, "max": 300},
    "output_tokens": {"median": 24, "sigma": 0.5, "min": 8, "max": 60},
    "think_s": {"median": 0.3, "sigma": 0.8, "cap": 2},
}


class Words:
    """As many words as a segment has tokens, its own."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        return " ".join(f"{segment.id}.{number}" for number in range(segment.tokens))


@dataclass(slots=True)
class _Request:
    prompt: int
    left: int
    """Prompt tokens that are still to be computed."""
    cached: int
    wanted: int
    made: int = 0
    tokens: asyncio.Queue[bool] = field(default_factory=asyncio.Queue)


class _Peer:
    def __init__(self, law: Law) -> None:
        self.law = law
        self.waiting: list[_Request] = []
        self.running: list[_Request] = []
        self.seen: dict[str, int] = {}
        self.wake = asyncio.Event()
        self.late: list[float] = []

    async def steps(self) -> None:
        """Step after step while anything runs."""
        due = time.monotonic()
        while True:
            if not (self.running or self.waiting):
                self.wake.clear()
                await self.wake.wait()
                due = time.monotonic()
            while self.waiting and len(self.running) < self.law.slots:
                self.running.append(self.waiting.pop(0))
            decoding = [r for r in self.running if not r.left]
            budget, carried = CHUNK, 0
            for request in self.running:
                part = min(request.left, budget)
                budget -= part
                carried += part
                request.left -= part
            due += self.law.step_s(len(decoding), sum(r.prompt + r.made for r in decoding), carried)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.late.append(max(0.0, time.monotonic() - due))
            for request in list(self.running):
                if request.left:
                    continue
                request.made += 1
                last = request.made >= request.wanted
                request.tokens.put_nowait(last)
                if last:
                    self.running.remove(request)

    def take(self, body: Mapping[str, object]) -> _Request:
        """A request, with what is cached of it: whole messages from the front, as words."""
        key, prompt, cached, known = "", 0, 0, True
        for message in body["messages"]:  # type: ignore[attr-defined]
            words = len(message["content"].split())
            key = f"{hash((key, message['content']))}"
            prompt += words
            known = known and key in self.seen
            cached = prompt if known else cached
            self.seen[key] = prompt
        cached = min(cached, prompt - 1)
        made = _Request(prompt, prompt - cached, cached, int(body["max_tokens"]))  # type: ignore[call-overload]
        self.waiting.append(made)
        self.wake.set()
        return made

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request after the other."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = next(
                    int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")
                )
                request = self.take(json.loads(await reader.readexactly(size)))
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                last = False
                while not last:
                    last = await request.tokens.get()
                    choice = {
                        "index": 0,
                        "delta": {"content": "x "},
                        "finish_reason": "length" if last else None,
                    }
                    _event(writer, json.dumps({"choices": [choice]}))
                    await writer.drain()
                usage = {
                    "prompt_tokens": request.prompt,
                    "completion_tokens": request.made,
                    "total_tokens": request.prompt + request.made,
                    "prompt_tokens_details": {"cached_tokens": request.cached},
                }
                _event(writer, json.dumps({"choices": [], "usage": usage}))
                _event(writer, "[DONE]")
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    body = f"data: {data}\n\n".encode()
    writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")


def _serve(law: Law, pipe: Connection) -> None:
    async def main() -> None:
        peer = _Peer(law)
        server = await asyncio.start_server(peer.answer, "127.0.0.1", 0, limit=2**26)
        pipe.send(server.sockets[0].getsockname()[1])
        steps = asyncio.create_task(peer.steps())
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        steps.cancel()
        pipe.send((len(peer.late), percentile(peer.late, 50), percentile(peer.late, 99)))

    asyncio.run(main())


@contextmanager
def peer(law: Law) -> Iterator[str]:
    """A running peer; its base URL."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(law, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
        ours.send(None)
        steps, half, most = ours.recv()
        print(f"    {steps} steps, late p50 {1000 * half:.2f} ms, p99 {1000 * most:.2f} ms")
    finally:
        process.kill()
        process.join()


def measured(load: int, real: Real, prompt_tokens: float, output_tokens: float) -> Measured:
    """What a store would have of the replay."""
    identity = PointIdentity(
        model="peer",
        hardware="peer",
        engine="vllm",
        scenario=Scenario("agentic-coding", dataset="peer"),
        concurrency=load,
        image="peer",
        precision=Precision("fp8", "fp8"),
        topology=(RoleTopology("aggregated", 1, 1, tp=1),),
    )
    figures = {
        "tpot_s.p50": percentile(real.tpot, 50) or 0.0,
        "tpot_s.mean": sum(real.tpot) / len(real.tpot),
        "ttft_s.p50": percentile(real.ttft, 50) or 0.0,
        "ttft_s.mean": sum(real.ttft) / len(real.ttft),
        "e2el_s.p50": percentile(real.e2el, 50) or 0.0,
        "output_tokens_per_s_per_gpu": real.output_tokens / real.window_s,
        "total_tokens_per_s_per_gpu": (real.output_tokens + prompt_tokens * real.ok) / real.window_s,
        "input_tokens.mean": prompt_tokens,
        "output_tokens.mean": output_tokens,
        "cache_hit_usage": real.cached_share or 0.0,
    }
    stated = {name: Figure(value, "made", name) for name, value in figures.items()}
    point = Point(identity, Execution("run", 1, "2026-01-01T00:00:00Z"), stated, "peer", 1, gpus_deployed=1)
    return of_point(point, f"peer:{load}", "valid")


def workload_of() -> tuple[Workload, float, float]:
    """The trace, and the mean tokens of its prompts and replies."""
    workload = generate(AgenticRecipe.from_mapping(RECIPE))
    turns = [turn for session in workload.sessions for _, turns in session.streams() for turn in turns]
    prompt = sum(turn.input_tokens or 0 for turn in turns) / len(turns)
    return workload, prompt, sum(turn.output_tokens or 0 for turn in turns) / len(turns)


def against(name: str) -> bool:
    """One law; whether all held."""
    law = LAWS[name]
    workload, prompt, output = workload_of()
    print(f"\n== {name}: {law}; prompts of {prompt:.0f} tokens on average, replies of {output:.0f}")
    reals: dict[int, Real] = {}
    for load in (*MEASURED, *HELD_OUT):
        with peer(law) as url:
            reals[load] = replayed(url, workload, ReplayRules(load), Words())
    points = [measured(load, reals[load], prompt, output) for load in MEASURED]
    model = SpeedModel.fit(fit_points(points))
    fitted = model.step_times(model.points[0].facts)
    print(f"  fitted: {fitted}")
    deployment = Deployment(max_running=law.slots, prefills_at_once=None)
    times = deployment_times(fitted, points, deployment)
    if isinstance(times, str):
        print(f"  no step times: {times}")
        return False
    good = True
    for load, real in sorted(reals.items()):
        cache = build(CacheConfig(block_tokens=1, gpu_tokens=None))
        run = simulate(workload, cache, times, ReplayRules(load), deployment, keep_requests=True)
        kind = "fitted to" if load in MEASURED else "held out"
        found = {row.name: row.off for row in report(f"{name}, {load} lanes ({kind})", run, real)}
        judged = ("output tok/s", "tpot mean ms", "e2el mean ms")
        good &= all(abs(found[each] or 0.0) <= ALLOWED for each in judged)
    return good


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--law", choices=sorted(LAWS), action="append")
    args = parser.parse_args()
    held = [against(name) for name in args.law or LAWS]  # all of them, also after one that did not hold
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
