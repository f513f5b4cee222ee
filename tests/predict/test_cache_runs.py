"""Runs of blocks against single blocks: the same hits, evictions, bytes and occupancy after every request; and prompts
that are planned once against the walk that makes them block by block."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.predict.assumed_times import AssumedTimes
from servemark.predict.blocks import BlockMaker, requests_of
from servemark.predict.cache import CacheConfig, Deployment
from servemark.predict.cache_pool import LruPool, as_ids
from servemark.predict.cache_runs import BlockRuns, RunPool, part_of, runs_of
from servemark.predict.closed_loop import simulate
from servemark.predict.sim_rules import Deployment as Engines
from servemark.predict.sim_rules import ReplayRules
from servemark.predict.types import CacheRequest
from servemark.traces.agentic_tree import TreeRecipe
from servemark.traces.open import TraceOptions, open_workload
from servemark.traces.types import CacheBust, Workload
from servemark.traces.write import write_made


class RandomTree:
    """Prompts that go on from the front of earlier ones, numbered by hand: each new block takes the next number."""

    def __init__(self, rng: random.Random, longest: int) -> None:
        self._rng = rng
        self._longest = longest
        self._next = 0
        self._known: list[list[int]] = [[]]

    def prompt(self) -> list[int]:
        """Blocks of a prompt; sometimes numbers lie far apart, as those of other sessions between them do."""
        before = self._rng.choice(self._known[-12:] if self._rng.random() < 0.8 else self._known)
        ids = before[: self._rng.randint(0, len(before))] if self._rng.random() < 0.4 else list(before)
        new = self._rng.randint(0, self._longest)
        if self._rng.random() < 0.15:
            self._next += self._rng.choice([1, 5, 16_000])
        ids += range(self._next, self._next + new)
        self._next += new
        self._known.append(ids)
        return ids


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([None, 7, 40, 300]), st.integers(1, 60))
def test_a_pool_of_runs_is_a_pool_of_blocks(seed: int, capacity: int | None, longest: int) -> None:
    """Up to four prompts in use at once, replies, look-ups and touches of parts."""
    rng = random.Random(seed)
    tree = RandomTree(rng, longest)
    runs, blocks = RunPool(capacity, most=10**6), LruPool(capacity)
    running: list[tuple[list[int], int, int]] = []
    for _ in range(80):
        if running and (len(running) == 4 or rng.random() < 0.45):
            ids, kept, spare = running.pop(rng.randrange(len(running)))
            runs.unpin(runs_of(ids), kept, spare)
            blocks.unpin(as_ids(ids), kept, spare)
        elif rng.random() < 0.2:  # as a lower tier is used: from the middle of a prompt on
            ids = tree.prompt()
            at, stop = rng.randint(0, len(ids)), rng.randint(0, len(ids))
            part = part_of(runs_of(ids), at, stop)
            assert runs.prefix(part) == blocks.prefix(as_ids(ids[at:stop]))
            assert runs.touch(part) == blocks.touch(as_ids(ids[at:stop]))
        else:
            ids, reply = tree.prompt(), rng.randint(0, 6)
            kept = rng.randint(0, reply)
            assert runs.room(runs_of(ids), reply) == blocks.room(as_ids(ids), reply)
            assert runs.prefix(runs_of(ids)) == (here := blocks.prefix(as_ids(ids)))
            found, new = runs.pin(runs_of(ids), reply)
            assert (found, new) == (here, blocks.pin(as_ids(ids), reply))
            running.append((ids, kept, reply - kept))
        for name in ("used", "free", "evicted", "overcommitted"):
            assert getattr(runs, name) == getattr(blocks, name)


def played(cache: Deployment, requests: list[CacheRequest], seed: int) -> list[object]:
    """What a cache says of requests of which several run at once: after each one, all that it counts."""
    rng = random.Random(seed)
    running: list[CacheRequest] = []
    said: list[object] = []
    for at, request in enumerate(requests):
        while running and (len(running) > 3 or rng.random() < 0.5 or not cache.room(request)):
            cache.end(running.pop(rng.randrange(len(running))), at)
        said.append((cache.begin(request, at), cache.counts.to_json(), dict(cache.held_tokens())))
        running.append(request)
    return said


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from([1, 3, 16]), st.sampled_from([0, 90, 400, None]),
    st.sampled_from([0, 60, 500, None]), st.sampled_from([0, 200, 900]), st.sampled_from([1, 2]),
)  # fmt: skip
def test_all_tiers_say_the_same(  # noqa: PLR0917 - what is drawn
    seed: int, size: int, gpu: int | None, dram: int | None, store: int, workers: int
) -> None:
    """GPU pool, host cache, store and workers, in blocks of several sizes with partial last ones."""
    rng = random.Random(seed)
    tree = RandomTree(rng, 12)
    requests = []
    for number in range(60):
        ids = tree.prompt() or [0]
        half = size > 1 and rng.random() < 0.5
        tokens = len(ids) * size + (1 if half else 0)
        blocks = [*ids, -1 - number] if half else ids
        requests.append(
            CacheRequest(f"t{rng.randrange(3)}", "", number, blocks, size, tokens, rng.randint(0, 40))
        )
    config = CacheConfig(
        block_tokens=size, gpu_tokens=gpu and gpu * size, dram_tokens=dram and dram * size,
        store_tokens=store * size, workers=workers, token_bytes=3.5, lease_s=10.0,
    )  # fmt: skip
    said = played(Deployment(config), requests, seed)
    assert said == played(Deployment(config, by_block=True), requests, seed)


@pytest.mark.parametrize("by_block", [True, False])
def test_a_prompt_without_tokens_hits_nothing(by_block: bool) -> None:
    """No token of it is found, and no block of it is sought."""
    cache = Deployment(CacheConfig(block_tokens=16, dram_tokens=160, store_tokens=160), by_block=by_block)
    hit = cache.begin(CacheRequest("t", "", 0, [], 16, 0, 5), 0.0)
    assert (hit.gpu_tokens, hit.dram_tokens, hit.store_tokens, cache.counts.looked_up_blocks) == (0, 0, 0, 0)


def made(folder: Path, **recipe: float) -> Workload:
    """A generated agentic trace with sub-agents and compactions."""
    path = folder / "trees.jsonl"
    write_made(TreeRecipe(**recipe), path, "weka")  # type: ignore[arg-type]
    return open_workload(path)


def truncated(folder: Path, seed: int) -> Workload:
    """Sessions of several turns in a Mooncake trace, whose last block is hashed although it is not whole."""
    rng = random.Random(seed)
    rows, said = [], [[0]]
    for number in range(60):
        ids = list(rng.choice(said[-8:]))[: rng.randint(1, 9)] + [
            10 * number + i for i in range(rng.randint(1, 4))
        ]
        said.append(ids)
        tokens = 512 * len(ids) - rng.choice([0, 100, 300])
        rows.append({"timestamp": number, "input_length": tokens, "output_length": 5, "hash_ids": ids})
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_workload(path, TraceOptions(scale_lengths=rng.choice([1.0, 0.3])))


class Walking(BlockMaker):
    """Walks every prompt, whether or not its session shares blocks with others."""

    def plan(self, session: object) -> None:
        """Nothing is planned."""


def classes(requests: list[CacheRequest]) -> list[list[int]]:
    """Numbers renamed in the order in which they come: what is equal stays so, and nothing else is."""
    names: dict[int, int] = {}
    return [[names.setdefault(number, len(names)) for number in request.blocks] for request in requests]


@pytest.mark.parametrize("scope", ["none", "session", "request"])
@pytest.mark.parametrize("size", [1, 16, 64, 100, 1024])
def test_planned_prompts_are_those_of_the_walk(tmp_path: Path, size: int, scope: CacheBust) -> None:
    """Equal blocks are equal, others are not, lengths and distinct tokens are the same; and planned prompts are few
    runs, which is what they are for."""
    for workload in (made(tmp_path, sessions=3, seed=3, scale=0.05), truncated(tmp_path, 4)):
        makers = BlockMaker(size, cache_bust=scope), Walking(size, cache_bust=scope)
        planned, walked = (
            [r for s in workload.sessions for t in (s.id, f"{s.id}#2") for each in m.streams(s, t).values() for r in each]
            for m in makers
        )  # fmt: skip
        assert classes(planned) == classes(walked)
        assert [replace(r, blocks=()) for r in planned] == [replace(r, blocks=()) for r in walked]
        assert makers[0].distinct_tokens == makers[1].distinct_tokens
        for request in planned:
            if isinstance(request.blocks, BlockRuns):
                assert len(request.blocks.runs) <= 12
                assert len(request.blocks) == len(list(request.blocks)) == len(as_ids(request.blocks))
                assert request.blocks[-1] == list(request.blocks)[-1]


@pytest.mark.parametrize("seed", [3, 11])
def test_a_replay_over_runs_is_one_over_blocks(tmp_path: Path, seed: int) -> None:
    """The whole simulation, its times included, over a cache that is too small: every request to the last digit."""
    workload = made(tmp_path, sessions=6, seed=seed, scale=0.1)
    times = AssumedTimes(overhead_s=0.004, stream_s=1e-5, context_s_per_token=2e-9, prefill_s_per_token=4e-6)
    config = CacheConfig(block_tokens=16, gpu_tokens=60_000, dram_tokens=40_000, token_bytes=10.0)
    rules = ReplayRules(5, max_requests=250, start_share=(0.25, 0.75), pressure_requests=1)
    runs = [
        simulate(
            workload, Deployment(config, by_block=by_block), times, rules,
            Engines(load_bytes_per_s=1e9), keep_requests=True,
        )
        for by_block in (False, True)
    ]  # fmt: skip
    assert runs[0] == runs[1] and 0.3 < (runs[0].hits.share or 0) < 0.97


def test_more_runs_than_memory_holds_are_refused() -> None:
    """Blocks that are no neighbours are a run each."""
    pool = RunPool(None, most=160)
    pool.touch([(2 * i, 2 * i + 1) for i in range(10)])
    with pytest.raises(ServemarkError) as error:
        pool.touch([(100, 101)])
    assert error.value.key == "predict.cache.too_many_blocks"


def test_blocks_of_a_whole_trace_are_runs(tmp_path: Path) -> None:
    """A trace that shares blocks between sessions is walked: its numbers are runs all the same."""
    for request in requests_of(truncated(tmp_path, 1), 128):
        full = request.input_tokens // 128
        assert len(runs_of(request.blocks[:full])) <= full
