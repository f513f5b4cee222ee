"""Paired comparison. p-values and intervals worked out by hand from the binomial and from Agresti and Min (2005)."""

from __future__ import annotations

import pytest

from servemark.evals.against import compare, gather, holm, mcnemar_p, paired_interval
from servemark.evals.samples import SampleRecord


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [
        (1, 9, 22 / 1024),  # 2 (C(10,0) + C(10,1)) / 2^10 = 0.0215
        (9, 1, 22 / 1024),
        (0, 5, 2 / 32),  # the best that five can do: 0.0625
        (0, 6, 2 / 64),
        (3, 3, 1.0),
        (0, 0, 1.0),
        (2, 8, 2 * (1 + 10 + 45) / 1024),
    ],
)
def test_exact_p(b: int, c: int, p: float) -> None:
    assert mcnemar_p(b, c) == pytest.approx(p)


def test_large_counts_stay_exact() -> None:
    assert 0 < mcnemar_p(400, 600) < 1e-9
    with pytest.raises(ValueError, match="no counts"):
        mcnemar_p(-1, 2)


def test_interval_by_hand() -> None:
    """b=1, c=9, n=100: (9.5 - 1.5)/102 = 0.07843; sqrt(11 - 64/102)/102 = 0.031575; times 1.95996 = 0.061886."""
    low, high = paired_interval(1, 9, 100)
    assert low == pytest.approx(0.078431 - 0.061886, abs=2e-6)
    assert high == pytest.approx(0.078431 + 0.061886, abs=2e-6)


def test_holm_by_hand() -> None:
    """Smallest times 3, next times 2, largest times 1, never falling."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([]) == []


def sample(
    number: int, correct: bool, *, concurrency: int = 4, task: str = "t", prompt: str = ""
) -> SampleRecord:
    return SampleRecord(
        f"i{number}", "k", prompt or f"q{number}", "x", "r", "x" if correct else f"no{number}", correct, "ok", None,
        "stop", 1.0, 1, 1, 0, task=task, version="1", concurrency=concurrency,
    )  # fmt: skip


def evals(right: set[int], n: int = 200, **more: object) -> dict[object, object]:
    return gather(sample(i, i in right, **more) for i in range(n))  # type: ignore[arg-type,return-value]


def test_differs_though_both_scores_are_low() -> None:
    """8 of 200 (4 %) and 0 of 200: scores that no threshold tells apart; p = 2 / 2^8 = 0.0078."""
    (found,) = compare(evals(set()), evals(set(range(8))))  # type: ignore[arg-type]
    assert (found.finding, found.b, found.c, found.n, found.unpaired) == ("worse", 8, 0, 200, 0)
    assert found.p == pytest.approx(2 / 256)
    assert found.difference == pytest.approx(-0.04)
    assert found.high is not None
    assert found.high < 0
    assert len(found.listed) == 8
    assert found.listed[0].expected_by_reference


def test_equal_scores_of_other_answers_differ() -> None:
    """Ten right in both, none of them the same item: the score says nothing, ten against ten neither; answers do."""
    (found,) = compare(evals(set(range(10))), evals(set(range(10, 20))))  # type: ignore[arg-type]
    assert (found.finding, found.p, found.answers_differ) == ("no_difference", 1.0, 20)


def test_what_cannot_be_said() -> None:
    (few,) = compare(evals({1}), evals({1, 2, 3}))  # type: ignore[arg-type]
    assert few.finding == "too_few"  # two that differ: at best 0.5
    (none,) = compare(evals({1}), evals({1}, task="u"))  # type: ignore[arg-type]
    assert (none.finding, none.n, none.difference) == ("no_pairs", 0, None)
    (other,) = compare(evals({1}), evals({1}, prompt="z"))  # type: ignore[arg-type]
    assert other.finding == "other_prompts"
    (short,) = compare(evals({1}), evals({1}, n=150))  # type: ignore[arg-type]
    assert (short.n, short.unpaired, short.finding) == (150, 50, "unpaired")


def test_the_concurrency_of_the_reference() -> None:
    """The same where it has it, its only one otherwise; of several others none is chosen by chance."""
    reference = evals({1}, concurrency=1)
    (found,) = compare(evals({1}), reference)  # type: ignore[arg-type]
    assert (found.concurrency, found.reference_concurrency, found.n) == (4, 1, 200)
    both = reference | evals({1}, concurrency=8)
    (unsure,) = compare(evals({1}), both)  # type: ignore[arg-type]
    assert unsure.finding == "no_pairs"


def test_several_are_judged_together() -> None:
    """p = 2/64 = 0.031 twice: alone each is below 0.05, together 0.0625."""
    here = evals(set(), task="t") | evals(set(), task="u")
    reference = evals(set(range(6)), task="t") | evals(set(range(6)), task="u")
    found = compare(here, reference)  # type: ignore[arg-type]
    assert [each.finding for each in found] == ["no_difference", "no_difference"]
    assert [each.p_adjusted for each in found] == pytest.approx([4 / 64, 4 / 64])
