"""The theoretical hit of packed prompts, walked by what each turn adds, against the same prompts as plain segments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.traces.block_prompts import BlockPrompt, BlockRule, PackedStream
from servemark.traces.open import open_workload
from servemark.traces.template import TemplateTokens
from servemark.traces.theory import TheoreticalHit, theoretical_hit
from servemark.traces.theory_blocks import walkable
from servemark.traces.types import CacheBust, Session, SubAgent, Turn, Workload

TEMPLATES = st.sampled_from(
    [
        TemplateTokens(),
        TemplateTokens(preamble=21, system=3, user=3, assistant=4, closing=2, generation=4, marker=6),
        TemplateTokens(preamble=0, system=3, user=3, assistant=4, closing=0, generation=7, marker=6),
    ]
)
SCOPES: st.SearchStrategy[CacheBust] = st.sampled_from(["none", "session", "request"])


@st.composite
def streams(draw: st.DrawFn, rule: BlockRule, name: str) -> PackedStream:
    """Prompts that grow, are cut back, repeat blocks, and end within a block or behind the last one."""
    packed = PackedStream(rule, name, draw(st.integers(0, 2)))
    before: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        kept = draw(st.integers(0, len(before)))
        ids = before[: draw(st.sampled_from([kept, len(before)]))] + draw(
            st.lists(st.integers(0, 6), max_size=4)
        )
        low = max(1, (len(ids) - 1) * rule.block + 1)
        tokens = draw(st.integers(low, max(low, len(ids) * rule.block + rule.block - 1)))
        packed.add(before, ids, tokens, draw(st.integers(0, 3 * rule.block)))
        before = ids
    return packed


def turns(packed: PackedStream) -> tuple[Turn, ...]:
    """Its turns."""
    return tuple(Turn(BlockPrompt(packed, n), 1) for n in range(len(packed)))


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Sessions with a sub-agent that shares the session's ids."""
    block, scale = draw(st.integers(1, 5)), draw(st.sampled_from([1.0, 1.37, 2.5, 0.4]))
    made = []
    for number in range(draw(st.integers(1, 3))):
        rule = BlockRule(f"weka/s{number}", block, scale)
        main = turns(draw(streams(rule, "main")))
        child = turns(draw(streams(rule, "a")))
        made.append(Session(f"s{number}", main, (SubAgent("a", child, 0),)))
    return Workload("w", "w", tuple(made), {"block_tokens": block})


def as_segments(workload: Workload) -> Workload:
    """The same prompts, every message made."""

    def plain(found: object) -> tuple[Turn, ...]:
        assert isinstance(found, tuple)
        return tuple(Turn(tuple(turn.messages), 1) for turn in found)

    made = tuple(
        Session(s.id, plain(s.turns), tuple(SubAgent(c.id, plain(c.turns), 0) for c in s.children))
        for s in workload.sessions
    )
    return Workload("w", "w", made, workload.source)


@settings(max_examples=400, deadline=None)
@given(workloads(), SCOPES, TEMPLATES)
def test_equals_the_walk_over_segments(
    workload: Workload, scope: CacheBust, template: TemplateTokens
) -> None:
    assert theoretical_hit(workload, scope, template) == theoretical_hit(
        as_segments(workload), scope, template
    )


def test_by_hand(tmp_path: Path) -> None:
    """Blocks of 10: prompts of 25, 40 and 60 tokens. The second keeps two whole blocks and 5 tokens of the third:
    25. The third keeps four: 40. So 65 of 125. A second session shares
    nothing, though its ids are the same."""
    rows = [
        {
            "t": float(i),
            "type": "s",
            "model": "m",
            "in": tokens,
            "out": 1,
            "hash_ids": list(range(-(-tokens // 10))),
        }
        for i, tokens in enumerate((25, 40, 60))
    ]
    for name in "ab":
        session = {"id": name, "block_size": 10, "hash_id_scope": "local", "requests": rows}
        (tmp_path / f"{name}.json").write_text(json.dumps(session))
    workload = open_workload(tmp_path)
    assert all(walkable(session.turns) for session in workload.sessions)
    assert theoretical_hit(workload) == TheoreticalHit(130 / 250, None, 130, 250)
    assert theoretical_hit(workload, "request").shared_tokens == 0


@pytest.mark.parametrize("local", [False])
def test_ids_of_a_whole_file_are_not_walked_session_by_session(local: bool) -> None:
    """Ids that other sessions have too: what one session begins, another may go on with."""
    rule = BlockRule("mooncake", 10, 1.0, local=local)
    made = []
    for name in "ab":
        packed = PackedStream(rule, "main")
        packed.add((), [1, 2], 20, None)
        made.append(Session(name, turns(packed)))
    workload = Workload("w", "w", tuple(made))
    assert walkable(made[0].turns) is None
    assert theoretical_hit(workload) == TheoreticalHit(0.5, None, 20, 40)


def test_a_system_block_that_nothing_follows_is_the_users() -> None:
    """Blocks of 1.6 tokens, one of the system's. The second prompt has two ids as the first, and ends after 2 tokens:
    its second block has none (it begins at 2), so its first is a user's message, which no earlier prompt began
    with."""
    rule = BlockRule("weka/s", 4, 0.4)
    packed = PackedStream(rule, "main", 1)
    packed.add((), [0, 0], 8, None)
    packed.add([0, 0], [0, 0], 5, None)
    assert [[m.role for m in BlockPrompt(packed, n)] for n in (0, 1)] == [["system", "user"], ["user"]]
    workload = Workload(
        "w", "w", (Session("s", turns(packed), (SubAgent("a", (), 0),)),), {"block_tokens": 4}
    )
    assert theoretical_hit(workload) == theoretical_hit(as_segments(workload)) == TheoreticalHit(0, 0, 0, 5)
