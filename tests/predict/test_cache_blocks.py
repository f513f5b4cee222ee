"""Prompts as numbered blocks: what they share, against the room `traces`, which works it out apart."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.predict.blocks import BlockMaker, requests_of
from servemark.predict.types import CacheRequest
from servemark.traces.open import TraceOptions, open_workload
from servemark.traces.stats import trace_stats
from servemark.traces.template import TemplateTokens
from servemark.traces.theory import theoretical_hit
from servemark.traces.types import Message, Segment, Session, Turn, Workload


def seen_before(requests: list[CacheRequest]) -> list[int]:
    """Whole blocks of each prompt that an earlier one began with: a set of numbers is enough, for a number stands for
    its whole prefix."""
    known: set[int] = set()
    found = []
    for request in requests:
        full = list(request.blocks)[: request.input_tokens // request.block_tokens]
        found.append(next((i for i, block in enumerate(full) if block not in known), len(full)))
        known.update(full)
    return found


def mooncake(tmp_path: Path, rows: list[tuple[int, list[int]]]) -> Path:
    """A trace file: (tokens, ids) of each row, a second apart."""
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(
            json.dumps({"timestamp": n * 1000, "input_length": t, "output_length": 1, "hash_ids": ids}) + "\n"
            for n, (t, ids) in enumerate(rows)
        )
    )
    return path


def test_blocks_by_hand(tmp_path: Path) -> None:
    """Rows of 512-token blocks cut every 256: the first has 4 and a part; the second shares block 1 (2 of ours) and goes
    its own way; the third repeats the first, with its partial block, whose number is not that of a whole one."""
    path = mooncake(tmp_path, [(1100, [1, 2, 3]), (1024, [1, 9]), (1100, [1, 2, 3]), (1536, [1, 2, 3])])
    found = [list(r.blocks) for r in requests_of(open_workload(path), 256)]
    first, other, again, longer = found
    assert [len(f) for f in found] == [5, 4, 5, 6]
    assert first == again and first[:2] == other[:2] and not set(first[2:]) & set(other[2:])
    assert longer[:4] == first[:4] and longer[4] != first[4]


@pytest.mark.parametrize("size", [100, 512, 700, 1024, 2048])
def test_the_ceiling_is_that_of_the_traces_room(tmp_path: Path, size: int) -> None:
    """Random rows, in blocks smaller, equal and larger than the trace's: shared tokens, cut in whole blocks, are the
    longest common token prefix with any earlier row, floored. Counted here by comparing all pairs."""
    rng = random.Random(5)
    rows = []
    for fresh in range(40):
        ids = [1 + rng.randrange(2), 10 + rng.randrange(3), 100 + rng.randrange(3), 1000 + fresh][: rng.randint(1, 4)]
        rows.append((512 * len(ids) - rng.choice([0, 0, 100]), ids))
    requests = list(requests_of(open_workload(mooncake(tmp_path, rows)), size))
    want = []
    for n, (tokens, ids) in enumerate(rows):
        best = 0
        for before_tokens, before in rows[:n]:
            same = next((i for i, (a, b) in enumerate(zip(ids, before, strict=False)) if a != b), min(len(ids), len(before)))
            best = max(best, min(same * 512, tokens, before_tokens))
        want.append(best // size)
    assert seen_before(requests) == want
    assert [r.input_tokens for r in requests] == [t for t, _ in rows]


def test_made_agents_have_the_ceiling_of_trace_show(tmp_path: Path) -> None:
    """Session trees with sub-agents and compactions: at the trace's block and above, `trace_stats` says the same."""
    from servemark.traces.agentic_tree import TreeRecipe  # noqa: PLC0415
    from servemark.traces.write import write_made  # noqa: PLC0415

    path = tmp_path / "agents.jsonl"
    write_made(TreeRecipe(3, 1, 0.1), path, "weka")
    workload = open_workload(path)
    ceilings = {c.block_tokens: c.share for c in trace_stats(workload).hit_ceiling}
    total = sum(t.input_tokens or 0 for s in workload.sessions for _, turns in s.streams() for t in turns)
    for size in (64, 256, 1024):
        shared = sum(seen_before(list(requests_of(workload, size)))) * size
        assert shared / total == pytest.approx(ceilings[size], abs=1e-12)


def recipe(tmp_path: Path) -> Workload:
    """Six sessions of the seeded generator, with roles."""
    path = tmp_path / "r.yaml"
    path.write_text(
        "kind: agentic\nname: r\nseed: 7\nsessions: 6\nturns: [2, 4]\nsystem_tokens: 40\ntools_tokens: 30\n"
        "first_user_tokens: [5, 20]\ntool_result_tokens: {median: 20, sigma: 0.5, min: 4, max: 60}\n"
        "output_tokens: {median: 8, sigma: 0.4, min: 2, max: 20}\nthink_s: {median: 1, sigma: 1, cap: 5}\n"
    )
    return open_workload(path)


@pytest.mark.parametrize("scope", ["none", "session", "request"])
def test_with_a_template_the_ceiling_is_the_theoretical_hit(tmp_path: Path, scope: str) -> None:
    """Blocks of one token count what `theoretical_hit` counts, template and marker included."""
    template = TemplateTokens(preamble=9, system=3, user=4, assistant=5, closing=2, generation=5, marker=6)
    workload = recipe(tmp_path)
    theory = theoretical_hit(workload, scope, template)  # type: ignore[arg-type]
    requests = list(requests_of(workload, 1, template=template, cache_bust=scope))  # type: ignore[arg-type]
    assert sum(r.input_tokens for r in requests) == theory.total_tokens
    assert sum(seen_before(requests)) == theory.shared_tokens


def test_streams_may_be_asked_in_any_order(tmp_path: Path) -> None:
    """What is shared does not depend on who is asked first; `forget` lets go of a session's own blocks alone."""
    workload = recipe(tmp_path)
    one = seen_before(list(requests_of(workload, 4)))
    maker = BlockMaker(4)
    streams = [maker.streams(s)[""] for s in workload.sessions]
    mixed: list[CacheRequest] = []
    while streams:
        for stream in list(streams):
            request = next(stream, None)
            if request is None:
                streams.remove(stream)
            else:
                mixed.append(request)
    assert sum(seen_before(mixed)) == sum(one)


def test_a_session_played_again_shares_all_or_nothing(tmp_path: Path) -> None:
    """Without a marker its second time has its first one's blocks; with one, another tree's name makes it new."""
    path = mooncake(tmp_path, [(1024, [1, 2])])
    (session,) = open_workload(path).sessions
    for scope, same in (("none", True), ("session", False)):
        maker = BlockMaker(512, cache_bust=scope)  # type: ignore[arg-type]
        first, second = (list(next(maker.streams(session, name)[""]).blocks) for name in ("a", "a#2"))
        assert (first == second) is same


def test_what_has_no_content_is_refused(tmp_path: Path) -> None:
    """Lengths alone, and recorded text that nobody counted."""
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00.0000000,10,5\n")
    with pytest.raises(ServemarkError) as error:
        list(requests_of(open_workload(path), 16))
    assert error.value.key == "predict.cache.no_content"
    raw = Message("user", raw=b'{"role":"user","content":"hi"}')
    workload = Workload("x", "x", [Session("s", (Turn((raw,), 1),))])
    with pytest.raises(ServemarkError) as error:
        list(requests_of(workload, 16))
    assert error.value.key == "predict.cache.unknown_tokens"
    with pytest.raises(ServemarkError):
        BlockMaker(0)


def test_scaled_lengths_keep_their_borders(tmp_path: Path) -> None:
    """At 0.3 of its length a block of 512 is 153 or 154 tokens; prompts that begin alike still do, block by block."""
    path = mooncake(tmp_path, [(1536, [1, 2, 3]), (2048, [1, 2, 3, 4]), (2048, [1, 2, 8, 4])])
    requests = list(requests_of(open_workload(path, TraceOptions(scale_lengths=0.3)), 1))
    assert [r.input_tokens for r in requests] == [461, 614, 614]
    assert seen_before(requests) == [0, 461, 307]


def test_segments_are_runs() -> None:
    """A message of two segments: a block may begin in one and end in the other."""
    a, b, c = Segment("a", 3), Segment("b", 4), Segment("c", 4)
    turns = (Turn((Message("user", (a, b)),), 1), Turn((Message("user", (a, c)),), 1))
    found = list(requests_of(Workload("x", "x", [Session("s", turns)]), 2))
    assert [len(r.blocks) for r in found] == [4, 4]
    assert seen_before(found) == [0, 1]  # tokens 0-1 are of a; the second block has one of a and one of b or c
