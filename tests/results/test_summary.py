"""The summary of many records: equal to plain lists, however it is cut up, and bounded in memory."""

from __future__ import annotations

import math
import random
import runpy
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.metrics.percentiles import Distribution
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import RecordWriter, read_records, split_lines
from servemark.results import gap_tally, measures, tally
from servemark.results.gap_tally import GapTally
from servemark.results.summary import Questions, Summary, summarise
from servemark.results.summary_file import summarise_file
from servemark.results.tally import Tally, to_microseconds

a_record: Callable[..., RequestRecord] = runpy.run_path(str(Path(__file__).with_name("test_build.py")))[
    "a_record"
]
QUESTIONS = Questions(((3.0, 40.0), (0.0, 1e6)), {"ttft_s": 0.3, "chunk_gap_s": 1.0})


def many(n: int, seed: int = 1) -> list[RequestRecord]:
    """Requests of every outcome, with and without tokens a chunk, some of them stalling."""
    rng = random.Random(seed)
    made = []
    for i in range(n):
        start = round(i * 0.1, 6)
        times = [start + rng.uniform(0.1, 0.5)]
        while len(times) < rng.randrange(1, 30):
            times.append(times[-1] + (rng.uniform(1, 3) if rng.random() < 0.05 else rng.gauss(0.02, 0.001)))
        made.append(
            a_record(
                f"r{i}",
                start,
                session=f"s{i % 7}",
                chunk_s=[round(t, 6) for t in times],
                end_s=round(times[-1] + 0.1, 6),
                chunk_tokens=[rng.randrange(3) for _ in times] if i % 2 else None,
                output_tokens=rng.choice([len(times), len(times) + 3]),
                input_tokens=rng.randrange(50, 200),
                outcome=rng.choice(["ok", "ok", "ok", "error", "incomplete", "cancelled"]),
                served_model=rng.choice(["m", "n", None]),
            )
        )
    return made


def figures(seen: Summary) -> dict[str, object]:
    """Everything that a row takes from a summary."""
    return {
        "distributions": seen.distributions(),
        "counts": seen.counts(9),
        "live": seen.live_sessions(),
        "window": seen.window_s(),
        "inside": [seen.tokens_inside(*window) for window in seen.questions.windows],
        "tokens": seen.row_tokens(None),
        "failures": seen.with_failures(),
        "slo": seen.slo(),
        "osl": seen.osl,
        "isl": seen.isl,
        "first": seen.first_chunks,
        "models": seen.models.most_common(),
        "stalls": seen.stalls,
        "validity": seen.validity,
        "bad": seen.last_bad,
    }


def test_equal_to_plain_lists() -> None:
    """Distributions to the last digit as `Distribution.of` of all values in one list, metric by metric."""
    records = many(400)
    ok = [r for r in records if r.outcome == "ok"]
    plain = {
        name: Distribution.of([v for r in ok for v in values_of(r)])
        for name, values_of in measures.VALUES.items()
    }
    seen = summarise(records)
    assert seen.distributions() == {name: d for name, d in plain.items() if d is not None}
    assert seen.stalls == sum(measures.stalls_of(r) for r in ok) > 0


maybe_s = st.none() | st.integers(-(10**7), 10**7).map(lambda us: us / 1e6)


@given(
    start=maybe_s,
    sent=maybe_s,
    text=maybe_s,
    connect=maybe_s,
    chunks=st.lists(st.integers(0, 10**7).map(lambda us: us / 1e6), max_size=4).map(sorted),
    first=st.none() | st.integers(-2, 5),
    tokens=st.none() | st.integers(0, 6),
)
def test_all_values_of_a_request_at_once_are_those_of_the_formulas(
    *, start: float | None, sent: float | None, text: float | None, connect: float | None, chunks: list[float],
    first: int | None, tokens: int | None,
) -> None:  # fmt: skip
    """`singles` repeats the arithmetic of `metrics.request` for speed; it must give the very values, absent ones too."""
    record = RequestRecord("r", "s", 0, "measured")
    record.start_s, record.intended_send_s, record.first_text_s, record.connect_s = start, sent, text, connect
    record.chunk_s, record.output_tokens, record.input_tokens = chunks, tokens, tokens
    record.chunk_tokens = None if first is None else [first] * len(chunks)
    assert measures.singles(record) == tuple(formula(record) for formula in measures.SINGLE.values())


@pytest.mark.parametrize("cuts", [(0,), (200,), (1, 399), (100, 200, 300)])
def test_parts_merge_to_the_whole(cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut anywhere, with a dictionary so small that sorted runs are made."""
    records = many(400)
    whole = figures(summarise(records, QUESTIONS))
    monkeypatch.setattr(tally, "MAX_DISTINCT", 50)
    edges = [0, *cuts, len(records)]
    parts = [summarise(records[a:b], QUESTIONS) for a, b in pairwise(edges)]
    for later in parts[1:]:
        parts[0].merge(later)
    assert figures(parts[0]) == whole


def test_processes_read_the_same(tmp_path: Path) -> None:
    """A file read by three processes; and a bad line, which one reader then names."""
    path = tmp_path / "requests.jsonl"
    with RecordWriter(path) as writer:
        for record in many(400):
            writer.write(record)
    one = summarise_file(path, QUESTIONS, processes=1)
    assert figures(summarise_file(path, QUESTIONS, processes=3)) == figures(one)
    assert one.records == 400
    lines = path.read_bytes().splitlines(keepends=True)
    lines[350] = b"{}\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(ServemarkError) as caught:
        summarise_file(path, QUESTIONS, processes=3)
    assert f"{path}:351" in caught.value.what()


@pytest.mark.parametrize("parts", [1, 2, 5, 400, 4000])
def test_lines_are_split_whole(tmp_path: Path, parts: int) -> None:
    """Every line lies in one part, in order, however many parts are asked for."""
    path = tmp_path / "r"
    with RecordWriter(path) as writer:
        for record in many(40):
            writer.write(record)
    data = path.read_bytes()
    places = split_lines(path, parts)
    pieces = [data[start:end] for start, end in places]
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert len(places) <= parts
    assert len(list(read_records(path))) == 40


@given(st.lists(st.tuples(st.floats(-1e12, 1e12), st.integers(1, 5)), max_size=40))
def test_counted_is_written_out(pairs: list[tuple[float, int]]) -> None:
    """`of_counted` against `of`, to the last digit."""
    counts: dict[float, int] = {}
    for value, count in pairs:
        counts[value + 0.0] = counts.get(value + 0.0, 0) + count
    ordered = sorted(counts)
    out = [value for value in ordered for _ in range(counts[value])]
    assert Distribution.of_counted(ordered, [counts[v] for v in ordered]) == Distribution.of(out)


def test_equal_gaps_are_one_value() -> None:
    """20 ms after 1 s, after 1,000 s and after 100,000 s: three different floats, one gap."""
    raw = [0.02 + at - at for at in (1.0, 1000.0, 100_000.0)]
    assert len(set(raw)) == 3
    assert {to_microseconds(gap) for gap in raw} == {0.02}
    counted = GapTally()
    for at in (1.0, 1000.0, 100_000.0):
        counted.add([at, at + 0.02])
    assert [list(part) for part in counted.ascending()] == [[0.02], [3]]


replies = st.lists(
    st.lists(
        st.one_of(
            st.floats(0, 3),
            st.integers(0, 2**9).map(lambda n: n / 2**8),  # ties between two microseconds
            st.sampled_from([0.0, 0.02, 1.0, 1.048575, 1.048576, 11.0, 300.0, 1e7]),
        ),
        max_size=12,
    ),
    max_size=30,
)


@settings(deadline=None)  # the array library is loaded within
@given(replies, st.integers(1, 60), st.integers(0, 30))
def test_gaps_in_columns_are_gaps_one_by_one(waits: list[list[float]], together: int, cut: int) -> None:
    """Counts, stalls and the summary, however many are worked off at once and however the replies are cut into two
    parts, against the formulas of one request."""
    records = [a_record("r", 0.0, chunk_s=list(accumulate(each))) for each in waits]
    parts = GapTally(), GapTally()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gap_tally, "TOGETHER", together)
        for place, record in enumerate(records):
            parts[place >= cut].add(record.chunk_s)
    parts[0].merge(parts[1])
    gaps = [gap for record in records for gap in measures.VALUES["chunk_gap_s"](record)]
    assert parts[0].distribution() == Distribution.of(gaps)
    assert sum(parts[0].ascending()[1]) == len(gaps)
    assert parts[0].stalls == sum(map(measures.stalls_of, records))


def test_distinct_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit values go to sorted runs, and the distribution stays exact."""
    monkeypatch.setattr(tally, "MAX_DISTINCT", 10)
    rng = random.Random(3)
    values = [rng.choice([rng.random(), 0.5]) for _ in range(500)]
    counted = Tally()
    for at in range(0, 500, 5):
        counted.add(values[at : at + 5])
        assert len(counted._counts) <= 10
    assert counted.distribution() == Distribution.of(values)
    assert math.isclose(sum(counted.ascending()[1]), 500)


def test_a_server_that_makes_up_names() -> None:
    """Each reply names another model: the names kept are bounded, and none is lost from the count."""
    records = [a_record(f"r{i}", float(i), served_model=f"m{i}") for i in range(1200)]
    seen = summarise(records)
    assert len(seen.models) <= 1001
    assert seen.models.total() == 1200
