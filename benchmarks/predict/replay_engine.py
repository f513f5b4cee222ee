"""The embedded engine (llama.cpp with SmolLM2-135M): step times measured with prompts of their own, then replays of an
agentic workload predicted and run. Called by `replay_truth --engine`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from statistics import median

from benchmarks.predict.replay_truth import replayed, report

from servemark.base.errors import ServemarkError
from servemark.launch.engines.embedded import EmbeddedAdapter
from servemark.launch.engines.protocol import EngineRequest
from servemark.launch.ports import free_port
from servemark.predict.assumed_times import AssumedTimes
from servemark.predict.cache import CacheConfig, build
from servemark.predict.closed_loop import simulate
from servemark.predict.sim_rules import Deployment, ReplayRules
from servemark.replay.prompts import cache_bust_marker
from servemark.traces.generator import generate
from servemark.traces.random_lengths import parse_spec, random_workload
from servemark.traces.recipe import AgenticRecipe
from servemark.traces.template import measure_template
from servemark.traces.text import TextMaker, build_word_table
from servemark.traces.types import Workload

SLOTS = 4
CACHE_MIB = 8192
"""What the server's host prompt cache may hold by default."""
TOKEN_BYTES = 30 * 2 * 3 * 64 * 2
"""SmolLM2-135M in llama.cpp: layers, keys and values, heads, their size, f16."""
RECIPE = {
    "seed": 5,
    "sessions": 8,
    "turns": [2, 4],
    "system_tokens": 80,
    "tools_tokens": 60,
    "first_user_tokens": [20, 60],
    "tool_result_tokens": {"median": 60, "sigma": 0.6, "min": 20, "max": 200},
    "output_tokens": {"median": 24, "sigma": 0.6, "min": 4, "max": 80},
    "think_s": {"median": 0.5, "sigma": 0.8, "cap": 3},
}


@contextlib.contextmanager
def engine(slots: int) -> Iterator[str]:
    """A running server; its base URL."""
    adapter = EmbeddedAdapter()
    asked = EngineRequest(
        "embedded:smollm2-135m-instruct-q4_1",
        "fake",
        "127.0.0.1",
        free_port(),
        {"ctx-size": 2048 * slots, "parallel": slots, "cache-ram": CACHE_MIB},
    )
    command = adapter.command(asked)
    url = f"http://127.0.0.1:{asked.port}"
    with subprocess.Popen(
        command.argv,
        env={**os.environ, **command.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until = time.monotonic() + 60
            while not _ready(adapter, url, asked):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit("the engine did not become ready")
                time.sleep(0.1)
            yield url
        finally:
            process.kill()


def _ready(adapter: EmbeddedAdapter, url: str, asked: EngineRequest) -> bool:
    try:
        return adapter.ready(url, asked)
    except ServemarkError:
        return False


def _post(url: str, path: str, body: dict[str, object]) -> dict[str, object]:
    asked = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=120) as reply:
        found: dict[str, object] = json.load(reply)
        return found


def _prompt_tokens(url: str, messages: Sequence[tuple[str, str]]) -> int:
    listed = [{"role": role, "content": text} for role, text in messages]
    usage = _post(url, "/v1/chat/completions", {"messages": listed, "max_tokens": 1})["usage"]
    return int(usage["prompt_tokens"])  # type: ignore[index]


def step_times(url: str, maker: TextMaker) -> AssumedTimes:
    """Measured with random prompts: two lengths for the prompt's part, one and `SLOTS` streams and a long context for the
    steps'."""

    def probe(spec: str, concurrency: int) -> tuple[float, float]:
        real = replayed(url, random_workload(parse_spec(spec)), ReplayRules(concurrency, ramp_s=0.0), maker)
        return median(real.ttft), median(real.tpot) if real.tpot else 0.0

    probe("random:isl=64,osl=8,requests=2,seed=9", 1)
    short, _ = probe("random:isl=64,osl=1,requests=4,seed=1", 1)
    long, _ = probe("random:isl=384,osl=1,requests=3,seed=2", 1)
    _, one = probe("random:isl=64,osl=32,requests=3,seed=3", 1)
    _, far = probe("random:isl=512,osl=32,requests=2,seed=4", 1)
    _, many = probe(f"random:isl=64,osl=32,requests={2 * SLOTS},seed=5", SLOTS)
    token_s = max(0.0, (long - short) / 320)
    context_s = max(0.0, (far - one) / 448)
    stream_s = max(0.0, (many - one) / (SLOTS - 1) - 80 * context_s)
    times = AssumedTimes(
        overhead_s=max(0.0, one - stream_s - 80 * context_s),
        stream_s=stream_s,
        context_s_per_token=context_s,
        prompt_s=max(0.0, short - 64 * token_s),
        prefill_s_per_token=token_s,
    )
    print(f"step times: {times}")
    return times


def _mean(one: AssumedTimes, other: AssumedTimes) -> AssumedTimes:
    """The means of both."""
    return AssumedTimes(*((getattr(one, f.name) + getattr(other, f.name)) / 2 for f in fields(AssumedTimes)))


HIT_POINTS = 0.02


def against_engine() -> bool:
    """Two loads on four slots, half as many lanes as slots and twice as many, each on a server of its own: one that has
    seen the prompts before would have them in its host cache. False when a hit share is off by more than `HIT_POINTS`."""
    good = True
    workload = generate(AgenticRecipe.from_mapping(RECIPE))
    for lanes in (SLOTS // 2, 2 * SLOTS):
        with engine(SLOTS) as url:
            good &= _against(url, workload, lanes)
    return good


def _against(url: str, workload: Workload, lanes: int) -> bool:
    def tokenize(text: str) -> list[int]:
        return _post(url, "/tokenize", {"content": text})["tokens"]  # type: ignore[return-value]

    words = build_word_table(tokenize)
    maker = TextMaker(words, 1)
    marker = len(tokenize(cache_bust_marker("truth", "s")))
    template = measure_template(lambda messages: _prompt_tokens(url, messages), words[0], marker)
    before = step_times(url, maker)
    real = replayed(url, workload, ReplayRules(lanes), maker)
    times = _mean(before, step_times(url, maker))  # other work on the machine comes and goes
    host = CACHE_MIB * (1 << 20) // TOKEN_BYTES
    slots = CacheConfig(policy="llamacpp", block_tokens=1, slots=SLOTS, dram_tokens=host)
    off = []
    for name, cache in (
        ("slots and host cache", build(slots)),
        ("slots alone", build(replace(slots, dram_tokens=0))),
        ("unbounded cache", None),
    ):
        simulated = simulate(
            workload,
            cache,
            times,
            ReplayRules(lanes, client_s=0.001),
            Deployment(max_running=SLOTS, chunk_tokens=512),
            template=template,
            keep_requests=True,
        )
        report(f"{lanes} lanes on {SLOTS} slots, {name}", simulated, real)
        off.append(abs((simulated.hits.share or 0.0) - (real.cached_share or 0.0)))
    return off[0] <= HIT_POINTS
