"""The figures of a workload, by hand."""

from __future__ import annotations

import json

from servemark.traces.describe import describe
from servemark.traces.types import Message, Segment, Session, Turn, Workload


def test_figures_by_hand() -> None:
    """Inputs 10, 30, 20; outputs 5, 6, 7; one think time of 1.5 s; 10 of 60 tokens shared."""

    def prompt(*names: tuple[str, int]) -> tuple[Message, ...]:
        return (Message("user", tuple(Segment(n, t) for n, t in names)),)

    workload = Workload(
        "id",
        "name",
        (
            Session("a", (Turn(prompt(("x", 10)), 5), Turn(prompt(("x", 10), ("y", 20)), 6, 1.5))),
            Session("b", (Turn(prompt(("z", 20)), 7),)),
        ),
        {"kind": "hand"},
    )
    found = describe(workload)
    assert json.loads(json.dumps(found)) == found
    assert {k: found[k] for k in ("id", "name", "sessions", "requests", "input_tokens", "output_tokens")} == {
        "id": "id",
        "name": "name",
        "sessions": 2,
        "requests": 3,
        "input_tokens": 60,
        "output_tokens": 18,
    }
    assert found["largest_request_tokens"] == 36
    assert found["shared_share"] == 10 / 60
    assert found["shared_blocks_share"] is None
    isl, turns, think = found["isl"], found["turns"], found["think_s"]
    assert isinstance(isl, dict)
    assert isinstance(turns, dict)
    assert isinstance(think, dict)
    assert (isl["n"], isl["min"], isl["p50"], isl["max"]) == (3, 10, 20, 30)
    assert (turns["min"], turns["max"]) == (1, 2)
    assert (think["n"], think["p50"]) == (1, 1.5)


def test_an_empty_workload_has_no_figures() -> None:
    found = describe(Workload("", "", ()))
    assert found["isl"] is None
    assert found["shared_share"] is None
    assert found["largest_request_tokens"] is None
