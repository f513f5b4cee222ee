"""Least squares, intervals and the identity, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from servemark.predict.conformal import binomial_band, conformal_quantile, design_effect, likeness
from servemark.predict.fit import PhysicalFit, coverage, nnls, relative_nnls, tpot_terms


def test_nnls_keeps_a_negative_term_out() -> None:
    """Columns (1,1,1) and (1,2,3), b = (3,2,1): free least squares gives (4, -1); with x >= 0 the mean, 2, remains."""
    a = np.asarray([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert nnls(a, np.asarray([3.0, 2.0, 1.0])) == pytest.approx([2.0, 0.0])


def test_nnls_gives_the_exact_solution_where_it_is_positive() -> None:
    """y = 2 + 3x at x = 1, 2, 4."""
    a = np.asarray([[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    assert nnls(a, np.asarray([5.0, 8.0, 14.0])) == pytest.approx([2.0, 3.0])


def test_nnls_meets_its_optimality_conditions() -> None:
    """x >= 0, gradient <= 0, and 0 where x > 0 (Karush, Kuhn, Tucker), on matrices of unlike sizes."""
    rng = np.random.default_rng(7)
    for rows, terms in ((3, 5), (8, 4), (40, 6)):
        a, b = rng.normal(size=(rows, terms)) * rng.uniform(1e-6, 1e3, terms), rng.normal(size=rows)
        x = nnls(a, b)
        gradient = a.T @ (b - a @ x) / np.sqrt((a * a).sum(axis=0))
        assert (x >= 0).all()
        assert gradient.max() < 1e-6
        assert np.abs(gradient[x > 0]).max(initial=0.0) < 1e-6


def test_nnls_of_nothing_and_of_zero_columns() -> None:
    """No information is 0, not an error."""
    assert nnls(np.zeros((2, 3)), np.ones(2)) == pytest.approx([0.0, 0.0, 0.0])
    assert nnls(np.zeros((0, 2)), np.zeros(0)) == pytest.approx([0.0, 0.0])


def test_one_wrong_row_does_not_move_a_robust_fit() -> None:
    """y = 10 + x, one of eight rows 42 times too high: plain relative least squares would be far off, this is not."""
    x = np.arange(1.0, 9.0)
    y = 10 + x
    y[3] *= 42
    found, weights = relative_nnls(np.stack([np.ones(8), x], axis=1), y)
    assert found == pytest.approx([10.0, 1.0], rel=0.02)
    assert weights[3] < 0.05
    assert weights[[0, 1, 2, 4, 5, 6, 7]].min() > 0.5


def test_a_prior_chooses_among_equal_fits() -> None:
    """One row cannot tell two equal columns apart: the prior's ratio decides, the row is met."""
    found, _ = relative_nnls(np.asarray([[1.0, 1.0]]), np.asarray([6.0]), np.asarray([1.0, 2.0]))
    assert found.sum() == pytest.approx(6.0, rel=0.01)
    assert found[1] > 1.5 * found[0]


def test_coverage_of_experts() -> None:
    """One of four experts: 1 token reaches 1/4, two 1 - 9/16 = 7/16; nothing is known of a dense model."""
    assert coverage(np.asarray([1.0, 2.0]), 4, 1) == pytest.approx([0.25, 0.4375])
    assert coverage(np.asarray([5.0]), None, None) == pytest.approx([0.0])


def test_terms_of_the_physical_form() -> None:
    """B = 2, ISL = 100, OSL = 50: context 125, B*ISL/OSL = 4."""
    two = (np.asarray([2.0]), np.asarray([100.0]), np.asarray([50.0]))
    assert tpot_terms(*two, 4, 1)[0] == pytest.approx([1.0, 0.4375, 2.0, 250.0, 4.0])


def test_step_times_of_a_fit() -> None:
    """a 10 ms, 1 ms a stream, 1 us a stream and context token, 2 us a prefill token; acceptance 2 makes a step twice as long
    as a token, since two tokens come of it."""
    fit = PhysicalFit((0.010, 0.0, 0.001, 1e-6, 2e-6), (0.1, 1e-5, 1e-7, 0.0), None, None, 2.0, 5, 0.01)
    assert fit.step_s(4, 1000.0, 500.0) == pytest.approx(2 * (0.010 + 4 * (0.001 + 0.001) + 0.001))
    assert fit.prefill_s(1000, 500, 3) == pytest.approx(0.1 + 1000 * (1e-5 + 3e-7))
    assert fit.tokens_per_step() == 2.0


def test_conformal_quantile_by_rank() -> None:
    """Of 19 scores 1..19 the ceil(20 * 0.9) = 18th; of 8 none, since ceil(9 * 0.9) = 9 is more than there are; of 9 the
    greatest."""
    assert conformal_quantile([float(each) for each in range(19, 0, -1)], 0.9) == 18.0
    assert conformal_quantile([1.0] * 8, 0.9) is None
    assert conformal_quantile([float(each) for each in range(9)], 0.9) == 8.0


def test_scores_of_one_group_count_by_their_design_effect() -> None:
    """Ten pairs of equal scores are worth ten: the rank is ceil(20 * 0.9 * 11 / 10) = 20, not ceil(21 * 0.9) = 19. Eight
    pairs are worth eight, too few (0.9 * 9 / 8 > 1), where 16 that stand alone give the ceil(17 * 0.9) = 16th."""
    pairs = [float(each // 2) for each in range(20)]
    names = [f"deployment {each // 2}" for each in range(20)]
    assert likeness(pairs, names) == pytest.approx(1.0)
    assert design_effect(pairs, names) == pytest.approx(2.0)
    assert conformal_quantile(pairs, 0.9, names) == 9.0
    assert conformal_quantile([float(each) for each in range(20)], 0.9) == 18.0
    assert conformal_quantile(pairs[:16], 0.9, names[:16]) is None
    assert conformal_quantile([float(each) for each in range(16)], 0.9) == 15.0


def test_likeness_is_the_intraclass_correlation() -> None:
    """Four scores in two groups, normal ranks -1.1503, -0.3186, 0.3186, 1.1503 (table of the normal distribution at 1/8,
    3/8, 5/8, 7/8). Groups (1, 2) and (3, 4): between 2 * (0.7345^2 + 0.7345^2) = 2.1579, within 4 * 0.4158^2 = 0.6917
    over 2; (2.1579 - 0.3459) / (2.1579 + 0.3459) = 0.7237. Groups (1, 4) and (2, 3) are less alike than chance: 0."""
    assert likeness([1.0, 2.0, 3.0, 4.0], ["a", "a", "b", "b"]) == pytest.approx(0.7237, abs=2e-4)
    assert likeness([1.0, 4.0, 2.0, 3.0], ["a", "a", "b", "b"]) == 0.0
    assert likeness([1.0, 2.0], ["a", "b"]) == 0.0


def test_scores_of_a_single_group_are_worth_one() -> None:
    """A hundred figures of one deployment say nothing of how far off the next deployment is: no rank of one score holds
    with 90 % (2 * 0.9 > 1). A second deployment that is off alike may not take an interval away that one alone gave."""
    scores = [float(each) for each in range(100)]
    assert conformal_quantile(scores, 0.9, ["a"] * 100) is None
    assert conformal_quantile(scores, 0.9, ["a"] * 50 + ["b"] * 50) is None
    assert conformal_quantile(scores, 0.9, [str(each) for each in range(100)]) == 90.0


def test_binomial_band() -> None:
    """n = 100, p = 0.9: 84 to 95 hold 95 % (tables of the binomial distribution); below 30 nothing is judged."""
    assert binomial_band(0.9, 100) == (0.84, 0.95)
    assert binomial_band(0.9, 29) is None
