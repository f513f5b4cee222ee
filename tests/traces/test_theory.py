"""The theoretical hit rate: cases by hand, and every workload against a plain count of token prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.traces.template import TemplateTokens
from servemark.traces.theory import TheoreticalHit, theoretical_hit
from servemark.traces.types import CacheBust, Message, Role, Segment, Session, SubAgent, Turn, Workload

SYSTEM = Message("system", (Segment("sys", 100),))


def user(name: str, tokens: int) -> Message:
    """A user message of one segment."""
    return Message("user", (Segment(name, tokens),))


def workload(*sessions: list[tuple[Message, ...]], **source: object) -> Workload:
    """Sessions of prompts."""
    made = tuple(Session(f"s{i}", tuple(Turn(p, 1) for p in prompts)) for i, prompts in enumerate(sessions))
    return Workload("w", "w", made, dict(source))


GROWING = workload(
    [
        (SYSTEM, user("a", 10)),
        (SYSTEM, user("a", 10), Message("assistant", (Segment("r", 5),)), user("b", 20)),
    ],
    [(SYSTEM, user("c", 30))],
)


@pytest.mark.parametrize(
    ("scope", "shared"),
    [
        ("none", 110 + 100),  # the second turn shares the first's 110, the second session the system's 100
        ("session", 110),  # the marker parts the sessions
        ("request", 0),
    ],
)
def test_scopes_by_hand(scope: CacheBust, shared: int) -> None:
    """Prompts of 110, 135 and 130 tokens."""
    assert theoretical_hit(GROWING, scope) == TheoreticalHit(shared / 375, None, shared, 375)


def test_template_and_marker_by_hand() -> None:
    """Opening 3 (assistant 4), closing 2, reply's opening 4, marker 6.

    Added tokens: two messages 2*5+4 = 14, four messages 3*5+6+4 = 25, so 375 + 14 + 25 + 14 = 428 in all.
    none: turn 2 shares all 124 of turn 1, its last 4 included (they open the assistant message); session 2
    shares 3 + 100 + 2 + 3 = 108. session: three markers more, 446; turn 2 shares 124 + 6; session 2 the 3
    tokens before the marker. request: only those 3, twice.
    """
    template = TemplateTokens(preamble=21, system=3, user=3, assistant=4, closing=2, generation=4, marker=6)
    assert theoretical_hit(GROWING, "none", template) == TheoreticalHit(232 / 428, None, 232, 428)
    assert theoretical_hit(GROWING, "session", template) == TheoreticalHit(133 / 446, None, 133, 446)
    assert theoretical_hit(GROWING, "request", template) == TheoreticalHit(6 / 446, None, 6, 446)
    counted = [template.prompt_tokens(t, marked=True) for s in GROWING.sessions for t in s.turns]
    assert sum(c or 0 for c in counted) == 446
    bare = Turn((user("x", 1),), 1)
    assert template.prompt_tokens(bare) == 21 + 3 + 1 + 2 + 4


def test_roles_part_equal_texts() -> None:
    """The same segment in another role is another prefix, and so is the same text cut into other messages."""
    whole = (user("sys", 100),)
    split = workload([(SYSTEM, user("a", 10))], [(user("sys", 100), user("a", 10))], [whole, whole])
    assert theoretical_hit(split).shared_tokens == 100 + 100


def test_blocks_count_whole_ones() -> None:
    """Prompts [0 1 2'] and [0 1 2], block 2 once with 76 and once with 300 tokens: of 6 blocks 2 are shared
    whole, and 76 tokens more."""

    def prompt(last: int) -> tuple[Message, ...]:
        return (Message("user", (Segment("0", 512), Segment("1", 512), Segment("2", last))),)

    hit = theoretical_hit(workload([prompt(76)], [prompt(300)], block_tokens=512))
    assert hit == TheoreticalHit(1100 / (1100 + 1324), 2 / 6, 1100, 2424)
    shorter_later = theoretical_hit(workload([prompt(300)], [prompt(76)], [prompt(200)], block_tokens=512))
    assert shorter_later.shared_tokens == 1024 + 76 + 1024 + 200


def test_nothing_is_not_zero() -> None:
    assert theoretical_hit(workload()) == TheoreticalHit(None, None, 0, 0)


SEGMENTS = st.builds(Segment, st.sampled_from("abc"), st.integers(1, 4))
ROLES: st.SearchStrategy[Role] = st.sampled_from(["system", "user", "assistant"])
MESSAGES = st.builds(Message, ROLES, st.lists(SEGMENTS, max_size=3).map(tuple))
SESSIONS = st.lists(st.lists(st.lists(MESSAGES, max_size=3).map(tuple), max_size=3), max_size=3)


@settings(max_examples=150, deadline=None)
@given(SESSIONS)
def test_equals_a_plain_count_of_prefixes(sessions: list[list[tuple[Message, ...]]]) -> None:
    """Independent: write every prompt out as tokens (segment's id and position; role borders as marks of no
    length), keep all prefixes in a set, and count."""
    seen: set[tuple[object, ...]] = set()
    shared = total = 0
    for prompts in sessions:
        for prompt in prompts:
            written: list[object] = []
            known = True
            for message in prompt:
                written.append(f"<{message.role}>")
                for segment in message.segments:
                    written += [(segment.id, i) for i in range(segment.tokens)]
                    written.append("|")
                written.append("</>")
            for end in range(1, len(written) + 1):
                prefix = tuple(written[:end])
                known = known and prefix in seen
                if isinstance(written[end - 1], tuple):
                    total += 1
                    shared += known
                seen.add(prefix)
    hit = theoretical_hit(workload(*sessions))
    assert (hit.shared_tokens, hit.total_tokens) == (shared, total)


def test_sub_agents_count_and_unknown_tokens_give_no_figure() -> None:
    """Main 100+20, a sub-agent 100+30: 220 + 30 tokens once, the child shares the first 100 with the parent."""
    parent = (Turn((user("x", 100), user("y", 20)), 1),)
    child = SubAgent("a", (Turn((user("x", 100), user("z", 30)), 1),), after_turn=0)
    tree = Workload("", "", (Session("s", parent, (child,)),))
    scopes: tuple[CacheBust, ...] = ("none", "session")
    for scope in scopes:
        assert theoretical_hit(tree, scope) == TheoreticalHit(100 / 250, None, 100, 250)
    assert theoretical_hit(tree, "request").shared_tokens == 0
    unknown = Workload("", "", (Session("s", (Turn((Message("user", raw=b"{}"),), 1),)),))
    assert theoretical_hit(unknown) == TheoreticalHit(None, None, None, None)
