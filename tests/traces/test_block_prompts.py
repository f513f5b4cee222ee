"""Packed prompts: whatever a trace does, the blocks come out in order and the messages are a chat."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.traces.block_prompts import BlockPrompt, BlockRule, PackedStream, common_prefix

IDS = st.lists(st.integers(0, 4), max_size=9)


@settings(max_examples=400, deadline=None)
@given(
    turns=st.lists(st.tuples(IDS, st.integers(1, 63), st.integers(0, 300)), min_size=1, max_size=7),
    system=st.integers(0, 3),
    scale=st.sampled_from([1.0, 0.5, 0.013, 1.7]),
)
def test_prompts_of_any_trace(turns: list[tuple[list[int], int, int]], system: int, scale: float) -> None:
    """Oracle: ids as given, then the tail; at full scale 64 tokens each."""
    stream = PackedStream(BlockRule("x", 64, scale), "m", system)
    before: list[int] = []
    for ids, tail, reply in turns:
        stream.add(before, ids, 64 * len(ids) + tail, reply)
        before = ids
    for number, (ids, tail, _) in enumerate(turns):
        assert stream.ids(number) == ids
        messages = list(BlockPrompt(stream, number))
        segments = [s for m in messages for s in m.segments]
        assert sum(s.tokens for s in segments) == BlockPrompt(stream, number).tokens
        assert BlockPrompt(stream, number).tokens == max(1, round((64 * len(ids) + tail) * scale))
        if scale == 1.0:
            assert [(s.id, s.tokens) for s in segments] == [
                *((f"x/{i}", 64) for i in ids),
                (f"x/m/tail{number}", tail),
            ]
        assert all(m.segments for m in messages)
        assert messages[-1].role == "user"
        assert all(a.role != b.role for a, b in pairwise(messages))
        assert [m.role for m in messages[1:]].count("system") == 0


@given(IDS, IDS)
def test_common_prefix(left: list[int], right: list[int]) -> None:
    """Against a plain loop."""
    size = 0
    while size < min(len(left), len(right)) and left[size] == right[size]:
        size += 1
    assert common_prefix(left, right) == size


def test_a_reply_without_a_token_is_no_message() -> None:
    """Blocks of 64 x 0.013 = 0.832 tokens: the second prompt's blocks begin at 0, 1, 2 and 2 and end at 1, 2, 2 and 3, so
    its third, the recorded reply of one block, has none. The questions on both sides are one message then."""
    stream = PackedStream(BlockRule("x", 64, 0.013), "m")
    stream.add((), [2, 0], 128, 64)
    stream.add([2, 0], [2, 0, 0, 0], 256, None)
    messages = list(BlockPrompt(stream, 1))
    assert [(m.role, sum(s.tokens for s in m.segments)) for m in messages] == [("user", 3)]
