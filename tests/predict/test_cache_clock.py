"""Who sends when, and what a whole simulation says; by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.predict.blocks import BlockMaker
from servemark.predict.cache import CacheConfig, build
from servemark.predict.session_clock import Pacing, SessionClock
from servemark.predict.simulate import Source, simulate
from servemark.traces.open import open_workload
from servemark.traces.types import Message, Segment, Session, SubAgent, Turn, Workload


def turn(name: str, tokens: int, output: int = 0, think_s: float = 0.0) -> Turn:
    """A prompt of one segment."""
    return Turn((Message("user", (Segment(name, tokens),)),), output, think_s)


def begun(
    workload: Workload, pacing: Pacing, config: CacheConfig | None = None
) -> list[tuple[str, str, float]]:
    """(tree, stream, moment) of every request."""
    config = config or CacheConfig(block_tokens=1)
    clock = SessionClock(workload, build(config), BlockMaker(config.block_tokens), pacing)
    return [(b.request.tree, b.request.stream, round(b.at_s, 6)) for b in clock.play()]


def test_turns_sub_agents_and_joins() -> None:
    """A token computed takes 1 s, one of a reply 0.1 s. The main stream's turn 0 (2 tokens, 10 of reply) runs 0 to 3; the
    sub-agent starts 1 s later, at 4, takes 5 and 1, till 10; turn 1 joins it and thinks 2 s: 12. A background child that
    starts before everything runs 0 to 1 and delays nothing."""
    child = SubAgent("c", (turn("c", 5, 10),), 0, 1.0, 1)
    background = SubAgent("b", (turn("b", 1),), -1, 0.0, None)
    main = (turn("a", 2, 10), turn("d", 1, 0, 2.0))
    workload = Workload("w", "w", [Session("s", main, (child, background), 0.0)])
    assert begun(workload, Pacing(None, 1.0, 0.1)) == [
        ("s", "b", 0.0), ("s", "", 0.0), ("s", "c", 4.0), ("s", "", 12.0),
    ]  # fmt: skip


def test_a_join_that_cannot_be_is_waited_for_by_nobody() -> None:
    """A sub-agent that would start after a turn that is not there: the main stream goes on."""
    lost = SubAgent("c", (turn("c", 1),), 7, 0.0, 1)
    workload = Workload("w", "w", [Session("s", (turn("a", 1), turn("b", 1)), (lost,), 0.0)])
    assert [stream for _, stream, _ in begun(workload, Pacing(None, 1.0, 0.0))] == ["", ""]


def test_lanes_play_one_session_after_another() -> None:
    """Two lanes, three sessions of 1, 3 and 1 s: the third takes the first one's lane."""
    sessions = [Session(name, (turn(name, tokens),)) for name, tokens in (("a", 1), ("b", 3), ("c", 1))]
    found = begun(Workload("w", "w", sessions), Pacing(2, 1.0, 0.0))
    assert found == [("a", "", 0.0), ("b", "", 0.0), ("c", "", 1.0)]


def test_requests_wait_for_room() -> None:
    """A pool of 5 tokens: the second prompt of 3 waits for the end of the first, at 3 s."""
    sessions = [Session(name, (turn(name, 3),), start_s=0.0) for name in ("a", "b")]
    config = CacheConfig(block_tokens=1, gpu_tokens=5)
    assert begun(Workload("w", "w", sessions), Pacing(None, 1.0, 0.0), config) == [
        ("a", "", 0.0),
        ("b", "", 3.0),
    ]
    report = simulate(Source(Workload("w", "w", sessions)), config, Pacing(None, 1.0, 0.0))
    assert (report.waited_requests, report.waited_s) == (1, 3.0)


def test_a_prompt_larger_than_the_pool_is_begun_alone() -> None:
    """It cannot wait for ever; what did not fit is counted."""
    workload = Workload("w", "w", [Session("a", (turn("a", 9),), start_s=0.0)])
    report = simulate(Source(workload), CacheConfig(block_tokens=1, gpu_tokens=5), Pacing())
    assert (report.counts.requests, report.counts.overcommitted_tokens) == (1, 4)


def test_without_times_lanes_are_asked_for() -> None:
    """A trace that says nothing of arrivals."""
    workload = Workload("w", "w", [Session("a", (turn("a", 1),))])
    with pytest.raises(ServemarkError) as error:
        begun(workload, Pacing(None))
    assert error.value.key == "predict.cache.no_times"


def rows(tmp_path: Path, prompts: list[list[int]]) -> Workload:
    """A Mooncake trace of whole blocks, a second apart, with a block of its own at each prompt's end."""
    path = tmp_path / "rows.jsonl"
    lines = []
    for n, shared in enumerate(prompts):
        ids = [*shared, 1000 + n]
        row = {"timestamp": 1000 * n, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))
    return open_workload(path)


def test_the_least_size_is_the_same_by_one_pass_and_by_whole_runs(tmp_path: Path) -> None:
    """Prompts 1, 2, 1, 2, ... each with a block of its own: a prompt's last block goes
    before its first, so 1's distance is 3: itself, 2 and 2's tail. Below 3 blocks nothing is found, from 3 on all."""
    workload = rows(tmp_path, [[1], [2]] * 8)
    config = CacheConfig(block_tokens=512)
    one = simulate(Source(workload), config, Pacing(1)).least
    assert one is not None and (one.tokens, one.method) == (3 * 512, "stack-distances")
    assert one.share == one.share_unbounded == pytest.approx(14 / 32)
    runs = simulate(
        Source(workload), CacheConfig(block_tokens=512, gpu_tokens=0, dram_tokens=512), Pacing(1), find="dram"
    )
    assert runs.least is not None and (runs.least.tokens, runs.least.method) == (3 * 512, "bisection")
    assert runs.hit_share == 0


def test_windows_and_shares_add_up(tmp_path: Path) -> None:
    """All requests are in a window; the shares of all windows, weighted, are the whole's."""
    workload = rows(tmp_path, [[1, 2], [1, 3], [1, 2], [4]])
    report = simulate(Source(workload), CacheConfig(block_tokens=512), Pacing())
    assert sum(w.requests for w in report.windows) == report.counts.requests == 4
    assert report.hit_share == pytest.approx(3 / 11)  # 1; 1 and 2; of 3 + 3 + 3 + 2 blocks
    assert report.windows[0].gpu == 0.0 and report.windows[1].gpu is None
    assert report.distinct_tokens == (4 + 4) * 512
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain["hit_share"] == plain["gpu_share"] == report.hit_share
