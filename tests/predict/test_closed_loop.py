"""The simulated replay: times worked out by hand, laws that hold for every run, and what cannot be simulated."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.base.messages import text
from servemark.predict.assumed_times import AssumedTimes, fixed_times, no_time
from servemark.predict.cache import CacheConfig, build
from servemark.predict.closed_loop import simulate
from servemark.predict.sim_result import SimulatedRequest, SimulatedRun
from servemark.predict.sim_rules import Deployment, ReplayRules, rules_of
from servemark.predict.types import PrefixCache, StepTimes
from servemark.replay.arrivals import parse_arrivals
from servemark.replay.profiles import PROFILES
from servemark.replay.timeline import IdleCaps
from servemark.traces.types import Message, Segment, Session, SubAgent, Turn, Workload

FREE = Deployment(prefills_at_once=None, max_running=10_000)


def turns(
    name: str, count: int, *, prompt: int = 100, output: int = 11, think_s: float = 0.0
) -> tuple[Turn, ...]:
    """Each prompt goes on from the one before it by `prompt` tokens."""
    parts: list[Message] = []
    made = []
    for number in range(count):
        parts.append(Message("user", (Segment(f"{name}{number}", prompt),)))
        made.append(Turn(tuple(parts), output, think_s if number else 0.0))
    return tuple(made)


def workload(*sessions: Session) -> Workload:
    """A workload of these."""
    return Workload("w", "w", sessions)


def one(count: int = 3, **options: float) -> Workload:
    """One session without sub-agents."""
    return workload(Session("s", turns("m", count, **options)))  # type: ignore[arg-type]


def played(
    given: Workload,
    rules: ReplayRules,
    times: StepTimes | None = None,
    deployment: Deployment = FREE,
    cache: PrefixCache | None = None,
) -> SimulatedRun:
    """With every request kept; TTFT 1 s and 0.1 s a token unless told otherwise."""
    return simulate(given, cache, times or fixed_times(1.0, 0.1), rules, deployment, keep_requests=True)


def of(run: SimulatedRun, stream: str) -> list[SimulatedRequest]:
    """One stream's requests by turn."""
    return sorted((r for r in run.requests if r.stream == stream), key=lambda r: (r.session, r.turn))


def test_one_session_by_hand() -> None:
    """A turn takes 1 s + 10 tokens of 0.1 s; 0.5 s of thinking between two: ends at 2, 4.5 and 7 s. An unbounded cache has
    0, 100 and 200 of 100, 200 and 300 tokens."""
    run = played(one(think_s=0.5), ReplayRules(1))
    assert [r.start_s for r in run.requests] == pytest.approx([0, 2.5, 5])
    assert [r.end_s for r in run.requests] == pytest.approx([2, 4.5, 7])
    assert [r.cached_tokens for r in run.requests] == [0, 100, 200]
    assert run.window_s == pytest.approx(7)
    assert run.value("tpot_s.p50") == pytest.approx(0.1)
    assert run.value("interactivity.p50") == pytest.approx(10)
    assert run.value("output_tokens_per_s") == pytest.approx(33 / 7)
    assert run.hits.share == pytest.approx(300 / 600)
    assert run.wait_share == 0


def test_joins_background_and_lanes_by_hand() -> None:
    """Joined j (2 turns) starts 0.2 s after turn 0's end at 2 and ends at 6.2; main turn 1 goes then, to 8.2. Background b
    (4 turns from 2) ends at 10; the lane takes the next tree only then."""
    tree = Session(
        "a",
        turns("m", 2),
        (
            SubAgent("j", turns("j", 2), 0, delay_s=0.2, joins_turn=1),
            SubAgent("b", turns("b", 4), 0),
        ),
    )
    run = played(workload(tree, Session("n", turns("n", 1))), ReplayRules(1))
    assert [r.start_s for r in of(run, "j")] == pytest.approx([2.2, 4.2])
    assert of(run, "b")[-1].end_s == pytest.approx(10)
    main = of(run, "")
    assert [(r.session, round(r.start_s, 6)) for r in main] == [("a", 0), ("a", 6.2), ("n", 10)]
    assert run.max_live_trees == 1
    assert run.max_in_flight == 2


def test_start_point_by_hand() -> None:
    """Recorded sends at 0, 10, 20 and 30 s, t* drawn at 15: turn 1 warms up, turn 2 is measured first, at the window's
    start, since offsets count from the earliest one."""
    made = tuple(replace(t, at_s=10.0 * n, think_s=1.0 if n else 0.0) for n, t in enumerate(turns("m", 4)))
    run = played(workload(Session("s", made)), ReplayRules(1, start_share=(0.5, 0.5), max_requests=2))
    assert run.warm_ups == 1
    assert [(r.turn, r.start_s - run.start_s) for r in run.requests] == [(2, 0), (3, pytest.approx(3.0))]


def test_recycled_lanes_begin_at_turn_0() -> None:
    """After the first pass the session comes again from its first turn under another name."""
    run = played(one(2), ReplayRules(1, start_share=(1.0, 1.0), max_requests=3))
    assert [(r.session, r.turn) for r in run.requests] == [("s", 1), ("s#2", 0), ("s#2", 1)]


def test_idle_caps_by_hand() -> None:
    """100 s of thinking: a tree cap of 5 s cuts 95 s from each of two gaps, a system cap of 2 s 98 s."""
    for caps, cut, window in (
        (IdleCaps(tree_s=5.0), 190, 16),
        (IdleCaps(system_s=2.0), 196, 10),
        (IdleCaps(), 0, 206),
    ):
        run = played(one(think_s=100.0), ReplayRules(1, idle_caps=caps))
        assert run.idle_cut_s == pytest.approx(cut)
        assert run.window_s == pytest.approx(window)


def test_duration_grace_and_window_by_hand() -> None:
    """Turns of 2 s: a window of 5.4 s holds 11 + 11 tokens and 5 of the third reply, whose first token comes at 5 s; with
    a grace of 0.3 s it is cut off, with 2 s it ends."""
    rules = ReplayRules(1, duration_s=5.4, grace_s=0.3)
    run = played(one(20), rules)
    assert (run.ok, run.cut_off, run.sent) == (2, 1, 3)
    assert run.window_s == pytest.approx(5.4)
    assert run.output_tokens == 27
    longer = played(one(20), replace(rules, grace_s=2.0))
    assert (longer.ok, longer.cut_off) == (3, 0)
    assert longer.output_tokens == 27


def test_processor_sharing_by_hand() -> None:
    """Two streams of one worker whose step takes 0.1 s a stream: a alone for 1 s, both for 2 s, then the longer alone.
    a: 21 tokens from 0, b: 11 tokens from 1 s on. Alone a gains 10 in 1 s, together 5 a second each: both end at 3 s."""
    times = AssumedTimes(stream_s=0.1)
    a = Session("a", (Turn((Message("user", (Segment("a", 10),)),), 21),))
    b = Session("b", (Turn((Message("user", (Segment("b", 10),)),), 11),))
    run = played(workload(a, b), ReplayRules(2, ramp_s=1.0), times)
    assert {r.session: r.end_s for r in run.requests} == pytest.approx({"a": 3.0, "b": 3.0})


def test_growing_context_by_hand() -> None:
    """A step takes 10 us a token of context: from 1,000 to 1,100 tokens 100 steps take 100 x 1,050 x 10 us."""
    given = workload(Session("a", (Turn((Message("user", (Segment("a", 1000),)),), 101),)))
    run = played(given, ReplayRules(1), AssumedTimes(context_s_per_token=1e-5))
    assert run.window_s == pytest.approx(1.05)


def test_the_warm_up_fills_the_cache() -> None:
    """Recorded sends a second apart, t* at 1.5 s: turn 1 (200 tokens) warms up, so turn 2 finds 12 blocks of 16."""
    made = tuple(replace(t, at_s=float(n)) for n, t in enumerate(turns("m", 4)))
    rules = ReplayRules(1, start_share=(0.5, 0.5))
    run = played(workload(Session("s", made)), rules, cache=build(CacheConfig(block_tokens=16)))
    assert [(r.turn, r.cached_tokens) for r in run.requests] == [(2, 192), (3, 288)]


def test_prefills_wait_and_waits_are_counted() -> None:
    """Two prompts of 1 s at once on a worker that computes one at a time: the second waits 1 s."""
    two = workload(*(Session(n, turns(n, 1, output=1)) for n in "ab"))
    run = played(two, ReplayRules(2, ramp_s=0.0), deployment=Deployment())
    assert [r.end_s for r in run.requests] == pytest.approx([1, 2])
    assert [r.waited_s for r in run.requests] == pytest.approx([0, 1])
    assert run.wait_share == pytest.approx(1 / 3)
    assert run.first_wait_share == pytest.approx(1 / 3)


def test_full_pool_and_running_limit_make_requests_wait() -> None:
    """111 tokens each: a pool of 150 holds one, so the second begins when the first has ended at 2 s."""
    two = workload(*(Session(n, turns(n, 1)) for n in "ab"))
    for deployment in (replace(FREE, kv_tokens=150), replace(FREE, max_running=1)):
        run = played(two, ReplayRules(2, ramp_s=0.0), deployment=deployment)
        assert [r.end_s for r in run.requests] == pytest.approx([2, 4])
        assert run.workers[0].peak_running == 1


def test_disaggregated_by_hand() -> None:
    """Prefill 1 s, then 100 tokens of 1 MB at 100 MB/s: 1 s; 11 tokens of 0.1 s from there, the first seen one step on.
    The second prompt is computed while the first is sent, and its KV waits for nothing."""
    two = workload(*(Session(n, turns(n, 1)) for n in "ab"))
    deployment = Deployment(decode_workers=1, kv_bytes_per_token=1e6, transfer_bytes_per_s=1e8)
    run = played(two, ReplayRules(2, ramp_s=0.0), deployment=deployment)
    first, second = run.requests
    assert (first.first_s, first.end_s) == pytest.approx((2.1, 3.1))
    assert (second.first_s, second.end_s) == pytest.approx((3.1, 4.1))
    assert [w.role for w in run.workers] == ["prefill", "decode"]


def test_open_loop_by_hand() -> None:
    """Two requests a second of 2 s each, whatever is in flight; with a cap of one each waits for the one before."""
    four = workload(*(Session(str(n), turns(str(n), 1)) for n in range(4)))
    rules = ReplayRules(None, arrivals=parse_arrivals("constant:2"))
    assert [r.start_s for r in played(four, rules).requests] == pytest.approx([0, 0.5, 1, 1.5])
    capped = played(four, replace(rules, max_in_flight=1))
    assert [r.start_s for r in capped.requests] == pytest.approx([0, 2, 4, 6])
    assert capped.max_in_flight == 1


def test_cache_is_asked_in_order_and_bounded() -> None:
    """A cache of blocks without end finds what the unbounded rule says; one of 64 tokens finds nothing, since a prompt has
    at least 100."""
    given = workload(*(Session(n, turns(n, 4, prompt=96)) for n in "ab"))
    rules = ReplayRules(2)
    ideal = played(given, rules)
    whole = played(given, rules, cache=build(CacheConfig(block_tokens=16)))
    assert [r.cached_tokens for r in whole.requests] == [r.cached_tokens for r in ideal.requests]
    with pytest.raises(ServemarkError) as caught:
        played(given, rules, cache=build(CacheConfig(block_tokens=16, gpu_tokens=64)))
    assert caught.value.key == "predict.replay.pool_too_small"


def test_prefill_workers_wait_for_their_cache() -> None:
    """A pool of 448 tokens holds the longest prompt (4 x 96) and its reply, and no second one: all the same everything is
    played, by workers of both kinds and by prefill workers, and waits are counted."""
    given = workload(*(Session(n, turns(n, 4, prompt=96)) for n in "abc"))
    for decoders in (0, 1):
        deployment = Deployment(decode_workers=decoders, kv_bytes_per_token=1e6, transfer_bytes_per_s=1e8)
        cache = build(CacheConfig(block_tokens=16, gpu_tokens=448))
        run = played(given, ReplayRules(3, ramp_s=0.0), deployment=deployment, cache=cache)
        assert (run.ok, run.cut_off) == (12, 0)
        assert run.wait_share is not None
        assert run.wait_share > 0.3


def trees(seed: int, sessions: int) -> Workload:
    """Random trees: sub-agents that join or not, and one level more below."""
    draw = random.Random(seed)

    def stream(name: str) -> tuple[Turn, ...]:
        return turns(
            name, draw.randint(1, 5), prompt=draw.randint(1, 200), output=draw.randint(1, 30),
            think_s=draw.choice([0.0, 0.3, 40.0]),
        )  # fmt: skip

    def agent(name: str, parent: int, depth: int) -> SubAgent:
        after = draw.randint(-1, parent - 1)
        joins = draw.choice([None, min(parent, after + 1 + draw.randint(0, 2))])
        own = stream(name)
        below = (
            tuple(agent(f"{name}.{n}", len(own), depth - 1) for n in range(draw.randint(0, 1)))
            if depth
            else ()
        )
        return SubAgent(name, own, after, draw.choice([0.0, 0.1]), joins, below)

    made = []
    for number in range(sessions):
        main = stream(f"m{number}")
        agents = tuple(agent(f"a{n}", len(main), 1) for n in range(draw.randint(0, 3)))
        made.append(Session(f"s{number}", main, agents))
    return workload(*made)


DEPLOYMENTS = (
    Deployment(),
    Deployment(max_running=2, kv_tokens=2000),
    Deployment(workers=2, routing="round_robin"),
    Deployment(
        workers=2, decode_workers=1, kv_bytes_per_token=1e5, transfer_bytes_per_s=1e8, decode_kv_tokens=2000
    ),
)
TIMES = AssumedTimes(
    overhead_s=0.01, stream_s=0.002, context_s_per_token=1e-6, prompt_s=0.05, prefill_s_per_token=1e-4
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5), st.sampled_from(DEPLOYMENTS), st.booleans()
)
def test_laws(seed: int, sessions: int, lanes: int, deployment: Deployment, capped: bool) -> None:
    """Whatever the tree: every turn is sent once, in order, after what it waits for; no wait is negative, no more trees live
    than lanes; workers compute exactly the tokens that no cache had; equal arguments give equal runs."""
    given_load = trees(seed, sessions)
    caps = IdleCaps(tree_s=5.0, system_s=1.0) if capped else IdleCaps()
    rules = ReplayRules(lanes, idle_caps=caps)
    run = played(given_load, rules, TIMES, deployment)
    assert run.ok == run.sent == given_load.requests
    assert run.max_live_trees <= min(lanes, sessions)
    assert run.lane_live_s <= min(lanes, sessions) * run.window_s + 1e-6
    assert sum(w.prefill_tokens for w in run.workers) == sum(
        r.input_tokens - r.cached_tokens for r in run.requests
    )
    ends = [w for w in run.workers if w.role != "prefill"]
    assert sum(w.output_tokens for w in ends) == sum(r.output_tokens for r in run.requests)
    assert sum(w.requests for w in ends) == run.ok
    assert all(0 <= w.busy_s <= run.window_s + 1e-6 for w in run.workers)
    at = {(r.session, r.stream, r.turn): r for r in run.requests}
    for r in run.requests:
        assert r.waited_s >= 0
        assert r.start_s <= r.first_s <= r.end_s
        before = at.get((r.session, r.stream, r.turn - 1))
        assert before is None or before.end_s <= r.start_s + 1e-9
    for session in given_load.sessions:
        _check_joins(session, at)
    assert played(given_load, rules, TIMES, deployment) == run


def _check_joins(session: Session, at: dict[tuple[str, str, int], SimulatedRequest]) -> None:
    """A joined sub-agent has ended, its own joined children included, before the turn that waits for it is sent."""

    def end_of(agent: SubAgent) -> float:
        own = max(at[session.id, agent.id, n].end_s for n in range(len(agent.turns)))
        return max([own, *(end_of(c) for c in agent.children if c.joins_turn is not None)])

    def check(name: str, count: int, children: Sequence[SubAgent]) -> None:
        for child in children:
            if child.joins_turn is not None and child.joins_turn < count:
                assert end_of(child) <= at[session.id, name, child.joins_turn].start_s + 1e-9
            check(child.id, len(child.turns), child.children)

    check("", len(session.turns), session.children)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(DEPLOYMENTS))
def test_profile_laws(seed: int, lanes: int, deployment: Deployment) -> None:
    """With start points, warm-up, pressure, caps, passes and a window that ends by time."""
    rules = replace(rules_of(PROFILES["agentx"], lanes), duration_s=30.0, grace_s=1.0)
    given_load = trees(seed, 3)
    run = played(given_load, rules, TIMES, deployment)
    assert run.sent == run.ok + run.cut_off
    assert run.max_live_trees <= lanes
    assert run.window_s == pytest.approx(30)
    assert all(run.start_s <= r.start_s < run.start_s + 30 for r in run.requests)
    assert run == played(given_load, rules, TIMES, deployment)


@dataclass(frozen=True, slots=True)
class Broken:
    """Times of a model that went wrong."""

    prefill: float = 0.1
    step: float = 0.1
    accepted: float = 1.0

    def prefill_s(self, new_tokens: int, cached_tokens: int, decoding: int) -> float:
        """See StepTimes."""
        return self.prefill

    def step_s(self, decoding: int, context_tokens: float, prefill_tokens: float) -> float:
        """See StepTimes."""
        return self.step

    def tokens_per_step(self) -> float:
        """See StepTimes."""
        return self.accepted


UNKNOWN = workload(Session("s", (Turn((Message("user", raw=b"{}"),), 5),)))
ENDLESS = workload(Session("s", (Turn((Message("user", (Segment("a", 1),)),), None),)))


@pytest.mark.parametrize(
    ("key", "call"),
    [
        ("replay.bad_concurrency", lambda: ReplayRules(0)),
        ("predict.replay.one_load", lambda: ReplayRules(None)),
        ("predict.replay.bad_rule", lambda: ReplayRules(1, grace_s=math.nan)),
        ("predict.replay.bad_rule", lambda: Deployment(kv_tokens=0)),
        ("predict.replay.bad_routing", lambda: Deployment(routing="best")),  # type: ignore[arg-type]
        ("predict.replay.bad_assumed", lambda: AssumedTimes(overhead_s=math.nan)),
        ("predict.replay.no_requests", lambda: played(workload(), ReplayRules(1))),
        (
            "predict.replay.no_requests",
            lambda: played(workload(Session("s", ())), ReplayRules(1, duration_s=9.0)),
        ),
        ("predict.replay.unknown_length", lambda: played(UNKNOWN, ReplayRules(1))),
        ("predict.replay.unknown_length", lambda: played(ENDLESS, ReplayRules(1))),
        (
            "predict.replay.pool_too_small",
            lambda: played(one(), ReplayRules(1), deployment=replace(FREE, kv_tokens=99)),
        ),
        ("predict.replay.bad_time", lambda: played(one(), ReplayRules(1), Broken(prefill=math.nan))),
        ("predict.replay.bad_time", lambda: played(one(), ReplayRules(1), Broken(step=-1.0))),
        ("predict.replay.bad_time", lambda: played(one(), ReplayRules(1), Broken(accepted=0.0))),
        ("predict.replay.no_time_passes", lambda: played(one(), ReplayRules(1, duration_s=1.0), no_time())),
        ("replay.bad_think", lambda: played(one(think_s=math.inf), ReplayRules(1))),
        (
            "predict.replay.other_workers",
            lambda: played(one(), ReplayRules(1), cache=build(CacheConfig(block_tokens=16, workers=3))),
        ),
    ],
)
def test_what_cannot_be_simulated(key: str, call: object) -> None:
    """A message in both languages, at once."""
    with pytest.raises(ServemarkError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.key == key
    assert caught.value.what("en") != caught.value.what("zh")
    assert caught.value.next_step("en")


def test_an_engine_without_time_plays_a_finite_trace() -> None:
    """To its end; replies of one token have no TPOT, and no rate comes of a window without length."""
    run = played(one(5, output=1), ReplayRules(1), no_time())
    assert (run.ok, run.tpot_s, run.window_s) == (5, None, 0)
    assert run.value("output_tokens_per_s") is None


class Lazy(Sequence[Session]):
    """A million sessions that are made when they are asked for."""

    def __len__(self) -> int:
        return 1_000_000

    def __iter__(self) -> Iterator[Session]:
        raise AssertionError("nobody reads a whole trace")

    def __getitem__(self, index: int) -> Session:  # type: ignore[override]
        return Session(f"s{index}", turns("m", 3, think_s=0.1))


def test_a_trace_longer_than_memory_is_read_as_it_is_needed() -> None:
    """Only the sessions that were played are read."""
    run = played(Workload("w", "w", Lazy(), requests_known=3_000_000), ReplayRules(8, max_requests=300))
    assert run.ok == 300


def test_every_variant_and_finding_has_words() -> None:
    """Names in `replay_sensitivity` are ends of message keys."""
    from servemark.predict.replay_sensitivity import rule_changes, sensitivity

    rules = replace(rules_of(PROFILES["agentx"], 2), duration_s=60.0)
    found = sensitivity(trees(1, 3), lambda: build(CacheConfig(block_tokens=16)), TIMES, rules, Deployment())
    names = {v.name for v in found.variants} | {n for n, _ in rule_changes(ReplayRules(1))}
    for lang in ("en", "zh"):
        assert all(text(f"predict.replay.variant.{name}", lang) for name in names)
        assert all(
            text(f"predict.replay.dominates_{side}", lang, metric="m", rules=1, engine=1)
            for side in ("rules", "engine", "neither")
        )
    assert found.dominates is not None
    assert found.rules_spread == max(abs(v.change or 0) for v in found.variants if v.side == "rules")
