"""Workload ids: the plain form is pinned, and everything that shapes what is sent changes them."""

from __future__ import annotations

from dataclasses import replace

from servemark.base.canonical import content_hash
from servemark.traces.identity import workload_id
from servemark.traces.types import Message, Segment, Session, SubAgent, Turn

MESSAGE = Message("user", (Segment("x", 3),))
TURN = Turn((MESSAGE,), 5, 0.5)
PLAIN = Session("a", (TURN,))


def test_the_plain_form_is_pinned() -> None:
    """Written out by hand: what a session without sub-agents, times and tools has hashed to from the first."""
    digest = content_hash(["user", [["x", 3]]])
    assert workload_id([PLAIN]) == content_hash([["a", [[[digest], 5, 0.5]]]])


def test_everything_that_shapes_what_is_sent_changes_the_id() -> None:
    child = SubAgent("c", (TURN,), 0)
    variants = [
        PLAIN,
        replace(PLAIN, start_s=0.0),
        replace(PLAIN, turns=(replace(TURN, at_s=0.0),)),
        replace(PLAIN, turns=(replace(TURN, tools=b"[]"),)),
        replace(PLAIN, turns=(replace(TURN, output_tokens=None),)),
        replace(PLAIN, turns=(Turn((Message("user", raw=b"{}"),), 5, 0.5),)),
        replace(PLAIN, turns=(Turn((Message("user", raw=b"{}", raw_tokens=3),), 5, 0.5),)),
        replace(PLAIN, children=(child,)),
        replace(PLAIN, children=(replace(child, joins_turn=1),)),
        replace(PLAIN, children=(replace(child, delay_s=1.0),)),
        replace(PLAIN, children=(replace(child, children=(child,)),)),
    ]
    assert len({workload_id([v]) for v in variants}) == len(variants)
