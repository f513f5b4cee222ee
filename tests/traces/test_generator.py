"""Generated workloads: the shape of an agent's sessions, and the same bytes everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from servemark.traces.generator import generate
from servemark.traces.recipe import AgenticRecipe

RECIPE: dict[str, object] = {
    "seed": 7,
    "sessions": 3,
    "turns": [3, 5],
    "system_tokens": 50,
    "tools_tokens": 80,
    "first_user_tokens": [10, 20],
    "tool_result_tokens": {"median": 30, "sigma": 0.8, "min": 5, "max": 60},
    "output_tokens": {"median": 12, "sigma": 0.5, "min": 4, "max": 24},
    "think_s": {"median": 2.4, "sigma": 1.2, "cap": 5},
    "think_scale": 0.5,
}
KNOWN_ID = "1822e7021b257eb0be6317d11b82d9e420c2f66a742d35695dc1af1da027642b"


def recipe(**changes: object) -> AgenticRecipe:
    """The recipe above with changes."""
    return AgenticRecipe.from_mapping({**RECIPE, **changes})


def test_context_grows_by_the_recorded_reply_and_a_tool_result() -> None:
    workload = generate(recipe())
    assert len(workload.sessions) == 3
    for session in workload.sessions:
        assert 3 <= len(session.turns) <= 5
        first = session.turns[0]
        assert [m.role for m in first.messages] == ["system", "user"]
        assert first.messages[0] == workload.sessions[0].turns[0].messages[0]
        assert first.messages[0].segments[0].tokens == 50
        assert first.messages[0].segments[1].tokens == 80
        assert first.think_s == 0
        for before, turn in zip(session.turns, session.turns[1:], strict=False):
            assert turn.messages[:-2] == before.messages
            reply, result = turn.messages[-2:]
            assert (reply.role, result.role) == ("assistant", "user")
            assert reply.segments[0].tokens == before.output_tokens
            assert 5 <= result.segments[0].tokens <= 60
            assert turn.output_tokens is not None
            assert 4 <= turn.output_tokens <= 24
            assert 0 < turn.think_s <= 2.5
        last = session.turns[-1]
        assert last.input_tokens is not None
        assert last.output_tokens is not None
        assert last.input_tokens + last.output_tokens <= recipe().worst_context_tokens


def test_segments_of_one_id_have_one_length() -> None:
    """Equal id and tokens mean equal text; here an id alone must be enough, in one workload and across
    seeds."""
    lengths: dict[str, set[int]] = {}
    for seed in (1, 2):
        for session in generate(recipe(seed=seed)).sessions:
            for turn in session.turns:
                for message in turn.messages:
                    for segment in message.segments:
                        lengths.setdefault(segment.id, set()).add(segment.tokens)
    assert all(len(found) == 1 for found in lengths.values())
    other = generate(recipe(system_tokens=51)).sessions[0].turns[0].messages[0].segments[0].id
    assert other not in lengths


def test_more_sessions_change_no_earlier_one() -> None:
    assert generate(recipe(sessions=9)).sessions[:3] == generate(recipe()).sessions
    assert generate(recipe(seed=8)).sessions != generate(recipe()).sessions


def test_no_tools_and_one_turn() -> None:
    workload = generate(recipe(tools_tokens=0, turns=[1, 1]))
    assert [len(s.turns) for s in workload.sessions] == [1, 1, 1]
    assert len(workload.sessions[0].turns[0].messages[0].segments) == 1


def test_think_scale_zero_sends_at_once() -> None:
    workload = generate(recipe(think_scale=0))
    assert {t.think_s for s in workload.sessions for t in s.turns} == {0.0}


def test_source_makes_it_again() -> None:
    workload = generate(recipe())
    made = workload.source["recipe"]
    assert isinstance(made, dict)
    assert generate(AgenticRecipe.from_mapping(json.loads(json.dumps(made)))) == workload


def test_same_id_in_every_process() -> None:
    """The id is written down here: a change of it is a change of the workload and needs a new
    GENERATOR_ID."""
    code = (
        "import json,sys; from servemark.traces.generator import generate;"
        "from servemark.traces.recipe import AgenticRecipe;"
        "print(generate(AgenticRecipe.from_mapping(json.loads(sys.argv[1]))).id)"
    )
    for seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(RECIPE)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == KNOWN_ID
