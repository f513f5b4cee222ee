"""Two evals of the same items, paired: does this deployment answer differently from the reference?

Items whose verdicts differ decide alone (McNemar, Psychometrika 12, 1947): with b items that only the reference has right
and c that only this one has right, b is binomial(b + c, 1/2) where both answer alike, and the exact two-sided p-value is
twice the smaller tail. The interval of the difference of scores is Agresti's and Min's for paired shares (Statistics in
Medicine 24, 2005, p. 729): half an item is added to each cell. Several comparisons of one eval are judged together (Holm,
Scandinavian Journal of Statistics 6, 1979).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from servemark.evals.samples import SampleRecord
from servemark.metrics.accuracy import Z95

ALPHA = 0.05
MAX_LISTED = 20
_SHOWN = 300

Finding = Literal["worse", "better", "no_difference", "too_few", "unpaired", "other_prompts", "no_pairs"]
"""worse, better: significant. too_few: so few items differ that no outcome could be significant. unpaired: nothing
significant, and some items are in one eval alone. other_prompts: an item of one name asks something else. no_pairs: no
item is in both."""


def mcnemar_p(b: int, c: int) -> float:
    """Exact two-sided p-value of b against c discordant pairs; 1 where there are none. ValueError below 0."""
    if b < 0 or c < 0:
        raise ValueError(f"{b} and {c} are no counts")
    n = b + c
    tail = sum(math.comb(n, i) for i in range(min(b, c) + 1))
    return min(1.0, 2 * tail / 2**n) if n else 1.0


def paired_interval(b: int, c: int, n: int) -> tuple[float, float]:
    """95 % interval of (c - b) / n, within -1 .. 1. ValueError for more discordant pairs than pairs, or none."""
    if n < 1 or b < 0 or c < 0 or b + c > n:
        raise ValueError(f"{b} and {c} of {n} are no pairs")
    b_, c_, n_ = b + 0.5, c + 0.5, n + 2
    middle = (c_ - b_) / n_
    half = Z95 * math.sqrt((b_ + c_) - (c_ - b_) ** 2 / n_) / n_
    return max(-1.0, middle - half), min(1.0, middle + half)


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order given."""
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of a sample: enough to pair it, not the whole reply."""

    correct: bool
    extracted: str | None
    prompt: bytes
    reply: bytes


@dataclass(frozen=True, slots=True)
class Differing:
    """An item on which verdicts differ."""

    item: str
    expected_by_reference: bool
    """True: only the reference has it right."""
    reference: str | None
    here: str | None


@dataclass(frozen=True, slots=True)
class Paired:
    """One task at one concurrency against the reference. `b`: only the reference right; `c`: only this one right.
    `answers_differ` counts extracted answers, `replies_differ` whole replies that are not equal, right or wrong. `p` is
    exact and two-sided, `p_adjusted` over all comparisons of the eval. `low` and `high` bound the difference of scores
    (this one - reference), 95 %."""

    task: str
    version: str
    concurrency: int | None
    reference_concurrency: int | None
    n: int
    unpaired: int
    reference_correct: int
    correct: int
    b: int
    c: int
    answers_differ: int
    replies_differ: int
    p: float
    p_adjusted: float
    difference: float | None
    low: float | None
    high: float | None
    finding: Finding
    listed: tuple[Differing, ...] = ()


Group = tuple[str, str, int | None]


def gather(samples: Iterable[SampleRecord]) -> dict[Group, dict[str, Answer]]:
    """(task, version, concurrency) -> item -> what is kept of its sample."""
    found: dict[Group, dict[str, Answer]] = {}
    for sample in samples:
        group = (sample.task, sample.version, sample.concurrency)
        extracted = None if sample.extracted is None else sample.extracted[:_SHOWN]
        answer = Answer(sample.correct, extracted, _digest(sample.prompt), _digest(sample.reply or ""))
        found.setdefault(group, {})[sample.item] = answer
    return found


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()


def compare(here: dict[Group, dict[str, Answer]], reference: dict[Group, dict[str, Answer]]) -> list[Paired]:
    """Every task and concurrency of `here` against the reference at the same concurrency, or at the only one that the
    reference has. A task that the reference lacks is no pair, and is said to be none."""
    made = [_pair(group, answers, reference) for group, answers in here.items()]
    tested = [
        index for index, each in enumerate(made) if each.finding in {"worse", "better", "no_difference"}
    ]
    adjusted = holm([made[index].p for index in tested])
    for index, value in zip(tested, adjusted, strict=True):
        each = made[index]
        sure: Finding = "worse" if each.b > each.c else "better"
        unsure: Finding = "unpaired" if each.unpaired else "no_difference"
        made[index] = replace(each, p_adjusted=value, finding=sure if value < ALPHA else unsure)
    return made


def _reference_of(
    group: Group, reference: dict[Group, dict[str, Answer]]
) -> tuple[int | None, dict[str, Answer]]:
    if group in reference:
        return group[2], reference[group]
    others = [other for other in reference if other[:2] == group[:2]]
    return (others[0][2], reference[others[0]]) if len(others) == 1 else (None, {})


def _pair(group: Group, here: dict[str, Answer], reference: dict[Group, dict[str, Answer]]) -> Paired:
    at, other = _reference_of(group, reference)
    shared = [item for item in here if item in other]
    n = len(shared)
    pairs = [(item, other[item], here[item]) for item in shared]
    b_items = [(i, was, now) for i, was, now in pairs if was.correct and not now.correct]
    c_items = [(i, was, now) for i, was, now in pairs if now.correct and not was.correct]
    b, c = len(b_items), len(c_items)
    finding: Finding = "no_difference"
    if not n:
        finding = "no_pairs"
    elif any(was.prompt != now.prompt for _, was, now in pairs):
        finding = "other_prompts"
    elif 2.0 ** (1 - (b + c)) >= ALPHA and b + c > 0:
        finding = "unpaired" if len(here) + len(other) > 2 * n else "too_few"
    bounds = paired_interval(b, c, n) if n else (None, None)
    return Paired(
        task=group[0],
        version=group[1],
        concurrency=group[2],
        reference_concurrency=at,
        n=n,
        unpaired=len(here) + len(other) - 2 * n,
        reference_correct=sum(was.correct for _, was, _ in pairs),
        correct=sum(now.correct for _, _, now in pairs),
        b=b,
        c=c,
        answers_differ=sum(was.extracted != now.extracted for _, was, now in pairs),
        replies_differ=sum(was.reply != now.reply for _, was, now in pairs),
        p=mcnemar_p(b, c),
        p_adjusted=mcnemar_p(b, c),
        difference=(c - b) / n if n else None,
        low=bounds[0],
        high=bounds[1],
        finding=finding,
        listed=tuple(
            Differing(item, was.correct, was.extracted, now.extracted)
            for item, was, now in (*b_items, *c_items)[:MAX_LISTED]
        ),
    )
