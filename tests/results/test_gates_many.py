"""Judging many points: contexts, order, repetition, and rows made to break gates."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.results.sound_point import sound, with_figures, with_identity

from servemark.base.canonical import canonical_json
from servemark.results.gates.base import GateFinding, Severity, verdict_of
from servemark.results.gates.registry import (
    GATES,
    PARTS,
    Judged,
    _careful,
    configuration,
    contexts,
    judge,
    judge_all,
)
from servemark.results.gates.words import next_step, sentence
from servemark.results.point import (
    Eval,
    Execution,
    Figure,
    Memory,
    Point,
    PointIdentity,
    Requests,
    RoleTopology,
    Scenario,
    Speculation,
)

NUMBERS = st.one_of(
    st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e-320, 1e308, 8.0, 10**400]),
    st.floats(0, 1e6),
)
COUNTS = st.one_of(st.none(), st.sampled_from([0, -1, 1, 8, 64, 10**30, 10**400]))
NAMES = st.sampled_from(
    [
        *(
            f"{m}.{s}"
            for m in ("ttft_s", "tpot_s", "itl_s", "e2el_s")
            for s in ("mean", "p50", "p90", "p99.9", "max")
        ),
        "interactivity.p50",
        "interactivity.p90",
        "total_tokens_per_s",
        "total_tokens_per_s_per_gpu",
        "input_tokens_per_s_per_gpu",
        "output_tokens_per_s_per_gpu",
        "input_tokens_per_s_per_prefill_gpu",
        "output_tokens_per_s_per_decode_gpu",
        "requests_per_s",
        "gpu_power_w.mean",
        "joules_per_total_token",
        "gpus_energy_j",
        "output_tokens.mean",
        "input_tokens.mean",
        "achieved_concurrency",
        "odd.pp",
        "",
        ".p50",
    ]
)
LOOSE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=5), st.just(10**400)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["version", "p90", "median", "a", "first_s", "devices"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["stated_interactivity", "power", "workers", "version", "engine_version", "acceptance_length", "limited", "evals",
     "concurrencies", "loop_lag_p99_s", "eval_acceptance", "ranks_per_node"]
)  # fmt: skip
FREE = st.dictionaries(KEYS, LOOSE, max_size=4)
ROLES = st.builds(
    RoleTopology,
    st.sampled_from(["aggregated", "prefill", "decode"]),
    *([COUNTS] * 6),
)
IDENTITIES = st.builds(
    PointIdentity,
    st.just("m"),
    st.just("h"),
    st.just("e"),
    st.builds(
        Scenario,
        st.sampled_from(["fixed-seq-len", "agentic-coding", "unknown"]),
        COUNTS,
        COUNTS,
        st.one_of(st.none(), NUMBERS),
    ),
    COUNTS,
    engine_version=st.one_of(st.none(), st.text(max_size=4)),
    image=st.one_of(st.none(), st.just("i@sha256:abc")),
    speculation=st.one_of(
        st.none(), st.builds(Speculation, st.just("mtp"), COUNTS, st.sampled_from(["golden", None]))
    ),
    topology=st.lists(ROLES, max_size=3).map(tuple),
    extra=FREE,
)
EVALS = st.builds(Eval, st.just("t"), NUMBERS, st.just("m"), passed=st.sampled_from([None, True, False]))
POINTS = st.builds(
    Point,
    IDENTITIES,
    st.builds(Execution, st.sampled_from(["r1", "r2"]), st.integers(1, 3)),
    st.dictionaries(NAMES, st.builds(Figure, NUMBERS, st.just("d"), st.just("a")), max_size=8),
    st.just("s"),
    st.just(1),
    st.sampled_from(["complete", "partial"]),
    st.builds(Requests, *([COUNTS] * 5)),
    st.one_of(st.none(), NUMBERS),
    st.one_of(st.none(), st.tuples(NUMBERS, NUMBERS)),
    COUNTS,
    COUNTS,
    COUNTS,
    st.one_of(st.none(), st.builds(Memory, *([COUNTS] * 4))),
    st.lists(EVALS, max_size=2).map(tuple),
    FREE,
    FREE,
    FREE,
    FREE,
)  # fmt: skip


FIELDS = {
    "client": "client", "duration": "duration_s", "evals": "evals", "expected": "expected", "memory": "memory",
    "observed": "observed", "power": "figures", "requests": "requests", "telemetry": "gpus_telemetry",
}  # fmt: skip
"""A part that a gate may need -> the field that holds it."""


def told(judged: Judged) -> tuple[tuple[str, ...], str]:
    """What was said, comparable where a value is no number."""
    findings, verdict = judged
    return tuple(f"{each.gate} {each.severity} {sorted(each.values.items())!r}" for each in findings), verdict


@settings(max_examples=100, deadline=None)
@given(st.lists(POINTS, max_size=5))
def test_nothing_raises_and_all_can_be_said(points: list[Point]) -> None:
    """Whatever a row holds there is a finding of each gate, in words of both languages, and the values are JSON."""
    for findings, _ in judge_all(points):
        for finding in findings:
            for lang in ("en", "zh"):
                assert sentence(finding, lang)
                next_step(finding, lang)
            canonical_json(finding.values)


@settings(max_examples=100, deadline=None)
@given(POINTS, st.sets(st.sampled_from(PARTS)))
def test_gates_that_are_not_asked_would_have_said_the_same(point: Point, without: set[str]) -> None:
    """`Gate.idle` against asking every gate, on points that lack any parts; a part that no gate names is a mistake."""
    empty = Point(point.identity, point.execution, {}, "", 1)
    changes = {field: getattr(empty, field) for part, field in FIELDS.items() if part in without}
    bare = replace(point, **changes)
    if "speculation" in without:
        bare = with_identity(bare, speculation=None)
    if "roles" in without:
        bare = with_identity(bare, topology=bare.identity.topology[:1])
    context = next(contexts([bare]))
    asked = [_careful(gate, bare, context) for gate in GATES]
    assert told(judge(bare, context)) == told((tuple(asked), verdict_of(asked)))
    assert {gate.idle[0] for gate in GATES if gate.idle is not None} == set(PARTS)


@settings(max_examples=40, deadline=None)
@given(st.lists(POINTS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_order_and_repetition_decide_nothing(points: list[Point], random: object) -> None:
    """Judged again, and in another order, every point gets the same words."""
    first = judge_all(points)
    assert list(map(told, judge_all(points))) == list(map(told, first))
    places = list(range(len(points)))
    random.shuffle(places)  # type: ignore[attr-defined]
    shuffled = judge_all([points[at] for at in places])
    assert [told(each) for each in shuffled] == [told(first[at]) for at in places]


def by_gate(judged: Judged, gate: str) -> GateFinding:
    """One finding of many."""
    return next(finding for finding in judged[0] if finding.gate == gate)


def test_a_retry_pair() -> None:
    """405.3 and then 396.1 tok/s per GPU: the later counts though slower, wherever it stands in the list."""
    first = with_figures(sound(), total_tokens_per_s_per_gpu=263.0)
    later = replace(with_figures(sound(), total_tokens_per_s_per_gpu=257.0), execution=Execution("r1", 2))
    other_run = replace(first, execution=Execution("r2", 1))
    for points in ([first, later, other_run], [other_run, later, first]):
        verdicts = {
            id(point): by_gate(said, "superseded")
            for point, said in zip(points, judge_all(points), strict=True)
        }
        assert verdicts[id(first)].severity is Severity.QUARANTINE
        assert verdicts[id(later)].severity is not Severity.QUARANTINE
        assert verdicts[id(other_run)].severity is not Severity.QUARANTINE


def test_nine_identical_rows() -> None:
    """One row under nine folder names: each is told that it has a twin; one measurement beside them is not."""
    copies = [replace(sound(), execution=Execution(f"folder{n}")) for n in range(9)]
    single = replace(with_figures(sound(), ttft_s__p50=0.21), execution=Execution("other"))
    said = [by_gate(judged, "duplicate").severity for judged in judge_all([*copies, single])]
    assert Counter(said) == {Severity.WARNING: 9, Severity.SKIPPED: 1}


def test_lines_are_runs() -> None:
    """Concurrency 20 of another run is not of this line; of this run it is."""
    asked = sound(expected={"concurrencies": [10, 20]})
    there = with_identity(sound(), concurrency=20)
    for run, severity in (("r1", Severity.OK), ("r2", Severity.WARNING)):
        found = judge_all([asked, replace(there, execution=Execution(run))])[0]
        assert by_gate(found, "concurrencies").severity is severity


def test_evals_of_the_line() -> None:
    """A failed eval at one concurrency quarantines the line of that run, and no other run."""
    failed = sound(evals=(Eval("gsm8k", 0.875, "exact_match", passed=False),))
    sibling = with_identity(sound(), concurrency=20)
    elsewhere = replace(sibling, execution=Execution("r2"))
    said = [by_gate(judged, "eval_failed").severity for judged in judge_all([failed, sibling, elsewhere])]
    assert said == [Severity.QUARANTINE, Severity.QUARANTINE, Severity.SKIPPED]


def test_a_configuration_is_the_config_key() -> None:
    """Equal where config_key is equal, unlike where it differs, for each kind of part."""
    base = sound().identity
    changed = [
        replace(base, concurrency=20),
        replace(base, router="r"),
        replace(base, extra={"a": 1}),
        replace(base, scenario=replace(base.scenario, osl=1)),
        replace(base, topology=(*base.topology, RoleTopology("decode"))),
        replace(base, speculation=Speculation("mtp")),
        replace(base, offload=None),
    ]
    for other in changed:
        assert (configuration(other) == configuration(base)) == (other.config_key == base.config_key)


def test_attempts_stay_few() -> None:
    """A thousand repeats of one point in one run give each point no more than its twin and the latest."""
    points = [replace(sound(), execution=Execution("r", n)) for n in range(1000)]
    assert max(len(context.attempts) for context in contexts(points)) <= 3
