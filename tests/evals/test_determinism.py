"""The probe's comparison; senders are written here, differing characters counted by hand."""

from __future__ import annotations

import asyncio

import pytest

from servemark.evals.basics import basics
from servemark.evals.determinism import Probe, differing, first_difference, probe
from servemark.evals.tasks import EvalPrompt
from servemark.replay.record import RequestRecord


def record(text: str | None, cached: int | None = 5) -> RequestRecord:
    made = RequestRecord(id="r", session="s", turn=0, phase="eval")
    made.outcome = "ok" if text is not None else "error"
    made.text, made.cached_tokens, made.input_tokens = text, cached, 10
    return made


def run(answer: object, concurrency: int = 4, items: int = 8) -> Probe:
    calls = {"sent": 0, "busy": 0}

    async def send(prompt: EvalPrompt) -> RequestRecord:
        calls["sent"] += 1
        calls["busy"] += 1
        await asyncio.sleep(0.001)
        made: RequestRecord = answer(prompt, calls["sent"], calls["busy"])  # type: ignore[operator]
        calls["busy"] -= 1
        return made

    return asyncio.run(probe(basics(items), send, concurrency))


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        ("abc", "abc", None),
        ("abc", "abd", 2),
        ("abc", "ab", 2),
        ("", "x", 0),
        ("", "", None),
        ("是的", "是吗", 1),
    ],
)
def test_first_difference(one: str, other: str, at: int | None) -> None:
    assert first_difference(one, other) == at
    found = differing("i", one, other)
    assert (found is None) == (at is None)


def test_the_same_everywhere() -> None:
    found = run(lambda prompt, sent, busy: record(prompt.item))
    assert [(p.name, p.concurrency) for p in found.passes] == [
        ("alone", 1), ("alone_cached", 1), ("together", 4), ("together_cached", 4),
    ]  # fmt: skip
    assert found.same
    assert found.passes[1].cached_share == 0.5


def test_what_differs_under_load_only_is_told_where() -> None:
    """Replies change where more than one request is in flight: passes three and four, none of the second."""
    found = run(lambda prompt, sent, busy: record("yes it is" if busy == 1 else "yes he is"))
    counts = [each.differing for each in found.passes]
    assert counts[:2] == [0, 0]
    assert min(counts[2:]) > 0
    assert not found.same
    listed = found.passes[2].listed[0]
    assert listed.at == 4
    assert listed.share == pytest.approx(4 / 9)


def test_cache_hits_that_change_answers() -> None:
    found = run(lambda prompt, sent, busy: record("a" if sent <= 8 else "b"))
    assert [each.differing for each in found.passes] == [0, 8, 8, 8]


def test_failures_are_no_agreement() -> None:
    found = run(lambda prompt, sent, busy: record("a" if sent != 9 else None))
    assert [each.failed for each in found.passes] == [0, 1, 0, 0]
    assert found.passes[1].compared == 7
    assert not found.same
    dead = run(lambda prompt, sent, busy: record(None))
    assert len(dead.passes) == 1
    assert not dead.same
