"""Figures of a trace: by hand, against a plain count of token prefixes, and of the real public traces."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path

import pytest

from servemark.traces.open import open_workload
from servemark.traces.stats import TraceStats, trace_stats
from servemark.traces.theory import theoretical_hit
from servemark.traces.types import Message, Segment, Session, SubAgent, Turn, Workload

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"


def ceiling(stats: TraceStats, block: int) -> float:
    """The hit ceiling at a cache block size."""
    return next(c.share for c in stats.hit_ceiling if c.block_tokens == block)


def prompt(*pieces: tuple[str, int]) -> tuple[Message, ...]:
    """One user message."""
    return (Message("user", tuple(Segment(n, t) for n, t in pieces)),)


def test_figures_by_hand() -> None:
    """Prompts 100, 150 (100 shared), 130 (100 shared, a sub-agent), 90 in a second session that shares nothing:
    200 of 470 tokens; in blocks of 64 each 100 is 64."""
    child = SubAgent("c", (Turn(prompt(("a", 100), ("z", 30)), 7),), 0, joins_turn=None)
    first = Session(
        "s", (Turn(prompt(("a", 100)), 5), Turn(prompt(("a", 100), ("b", 50)), 6, 2.0)), (child,), 0.0
    )
    second = Session("t", (Turn(prompt(("q", 90)), 8),), start_s=30.0)
    found = trace_stats(Workload("", "", (first, second)))
    assert (found.sessions, found.requests, found.sub_agents, found.background_sub_agents) == (2, 4, 1, 1)
    assert (found.input_tokens, found.output_tokens, found.distinct_tokens) == (470, 26, 270)
    assert ceiling(found, 1) == 200 / 470
    assert ceiling(found, 64) == 128 / 470
    assert ceiling(found, 256) == 0
    assert found.within_session_share == 200 / 470
    assert found.first_turn_tokens_share == (100 + 130 + 90) / 470
    assert (found.span_s, found.rate_rps[0], found.rate_rps[-1], sum(found.rate_rps)) == (30.0, 2.0, 2.0, 4.0)
    assert json.loads(json.dumps(found.to_json()))["gap_s"]["p50"] == 2.0


def test_packed_blocks_agree_with_the_theory(tmp_path: Path) -> None:
    """The fast count over packed blocks and the token tree over segments, on the same session."""
    rows = [
        {"t": i, "type": "n", "in": 64 * len(ids) + 3, "out": 5, "hash_ids": ids}
        for i, ids in enumerate([[1, 2, 3], [1, 2, 3, 4, 5], [1, 9], [1, 2, 3, 4, 7], [8], [1, 9, 4]])
    ]
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps({"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": rows}),
        encoding="utf-8",
    )
    workload = open_workload(path)
    hit = theoretical_hit(workload)
    assert ceiling(trace_stats(workload), 64) == hit.tokens
    assert hit.shared_tokens == 64 * (0 + 3 + 1 + 4 + 0 + 2)


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["mooncake_conversation_trace", "mooncake_synthetic_trace"])
def test_public_mooncake_traces(name: str) -> None:
    """Against a plain set of prefixes: (all ids up to here) seen before, min(512, what is left) tokens each."""
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("the public traces are not here")
    seen: set[int] = set()
    total = shared = 0
    for line in path.read_text().splitlines():
        row = json.loads(line)
        total += row["input_length"]
        chain = 0
        for index, block in enumerate(row["hash_ids"]):
            chain = hash((chain, block))
            if chain in seen:
                shared += min(512, row["input_length"] - 512 * index)
            seen.add(chain)
    found = trace_stats(open_workload(path))
    assert found.input_tokens == total
    assert found.distinct_tokens == total - shared
    # Whole cache blocks only: the last, partial block of a prompt that came before is no hit.
    assert shared / total - 0.02 < ceiling(found, 512) <= shared / total


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["code", "conv"])
def test_public_azure_traces(name: str) -> None:
    """Against csv and datetime alone."""
    path = DATA / f"AzureLLMInferenceTrace_{name}.csv"
    if not path.exists():
        pytest.skip("the public traces are not here")
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    times = [datetime.fromisoformat(r["TIMESTAMP"][:26]) for r in rows]
    found = trace_stats(open_workload(path))
    assert found.requests == len(rows)
    assert found.input_tokens == sum(int(r["ContextTokens"]) for r in rows)
    assert found.output_tokens == sum(int(r["GeneratedTokens"]) for r in rows)
    assert found.span_s == pytest.approx((max(times) - min(times)).total_seconds(), abs=1e-5)
    assert found.isl is not None
    ordered = sorted(int(r["ContextTokens"]) for r in rows)
    assert found.isl.p50 == ordered[-(-len(rows) // 2) - 1]
    assert found.hit_ceiling == ()
