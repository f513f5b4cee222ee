"""The figures of each pair: which are compared, how, and what is made of it in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from servemark.analysis.compare_judge import (
    Ruling,
    Test,
    effect_unit,
    percent,
    ratio_test,
    same_test,
    share_test,
)
from servemark.analysis.compare_match import Matched
from servemark.analysis.compare_types import Judged, Verdict
from servemark.analysis.format import significant
from servemark.analysis.labels import display_of, label
from servemark.analysis.measured import Measured
from servemark.analysis.noise import NoiseModel, has_noise
from servemark.base.errors import input_error
from servemark.base.messages import text
from servemark.metrics.address import Address, parse
from servemark.metrics.registry import Better
from servemark.results.point import Eval

FIRST_OF: tuple[tuple[str, ...], ...] = (
    (
        "total_tokens_per_s_per_gpu",
        "total_tokens_per_s",
        "output_tokens_per_s_per_gpu",
        "output_tokens_per_s",
    ),
    ("interactivity.p50", "interactivity.p90", "interactivity.p99"),
    ("ttft_s.p50", "ttft_s.mean"),
    ("ttft_s.p90", "ttft_s.p99", "ttft_s.p95"),
    ("e2el_s.p50", "e2el_s.mean"),
)
"""Figures that are compared unasked: of each group the first that the points have. Few, so that the correction for many
comparisons costs little."""
NO_POWER = 2.0
"""A threshold above this (e^2, a factor of 7) is none: there are too few repeats."""
ERRORS = "error_rate"
SCORES = "eval_score"


@dataclass(frozen=True, slots=True)
class Case:
    """One figure of one pair: a test, or the reason why there is none."""

    pair: int
    address: Address
    test: Test | None
    verdict: Verdict = "cannot_tell"
    reason: str = ""
    """A message key; `reason_values` are its values, `why` a further key whose text it quotes."""
    a: float | None = None
    b: float | None = None
    reason_values: tuple[tuple[str, str], ...] = ()
    why: str = ""


def chosen_addresses(metrics: Sequence[str] | None, pairs: Sequence[Matched]) -> list[Address]:
    """The figures to compare: those named, or the usual ones that some pair has on both sides. Raises ServemarkError
    (exit code 2) for one that says nothing of better or worse."""
    if metrics:
        named = [parse(name) for name in dict.fromkeys(metrics)]
        for each in named:
            if not has_noise(each) and each.metric.id not in {ERRORS, SCORES}:
                raise input_error("compare.no_direction", metric=str(each))
        return named
    found = []
    for group in FIRST_OF:
        for name in group:
            address = parse(name)
            if any(_value(pair.a, address) and _value(pair.b, address) for pair in pairs):
                found.append(address)
                break
    return [*found, parse(SCORES), parse(ERRORS)]


def _value(points: Iterable[Measured], address: Address) -> float | None:
    return next((value for point in points if (value := point.value(address)) is not None), None)


def cases_of(
    pairs: Sequence[Matched], addresses: Sequence[Address], noise: NoiseModel, min_effect: float
) -> list[Case]:
    """Every figure of every pair, pair by pair."""
    found: list[Case] = []
    for place, pair in enumerate(pairs):
        for address in addresses:
            if address.metric.id == SCORES:
                found += _scores(place, pair, address.task)
            elif address.metric.id == ERRORS:
                found += _errors(place, pair, address)
            else:
                case = _ratio(place, pair, address, noise, min_effect)
                found += [case] if case is not None else []
    return found


def _ratio(place: int, pair: Matched, address: Address, noise: NoiseModel, min_effect: float) -> Case | None:
    sides = [[point.value(address) for point in side] for side in (pair.a, pair.b)]
    known = [[value for value in side if value is not None] for side in sides]
    if not any(known):
        return None
    shown = [fmean(side) if side else None for side in known]
    a, b = shown[0], shown[1]
    if a is None or b is None:
        side, lacking = ("a", pair.a) if a is None else ("b", pair.b)
        why = lacking[0].reading(address).reason or "metrics.absent.always"
        return Case(place, address, None, "absent", f"compare.absent.{side}", a, b, why=why)
    unlike = [definitions(side, address) for side in (pair.a, pair.b)]
    if all(unlike) and unlike[0] != unlike[1]:
        said = tuple(zip("ab", (", ".join(sorted(each)) for each in unlike), strict=True))
        return Case(place, address, None, "refused", "compare.refused.definition", a, b, said)
    if min(min(side) for side in known) <= 0:
        return Case(place, address, None, "cannot_tell", "compare.not_positive", a, b)
    noises = noise.relative_sd(pair.a[0], address), noise.relative_sd(pair.b[0], address)
    if noises[0] is None or noises[1] is None:
        return None
    test = ratio_test(known[0], known[1], (noises[0], noises[1]), min_effect)
    return Case(place, address, same_test(test) if _identical(pair) else test)


def _identical(pair: Matched) -> bool:
    """Whether both sides hold the same measurements, under one name or two."""
    if {point.ref for point in pair.a} == {point.ref for point in pair.b}:
        return True
    sides = [{(point.run, frozenset(point.figures.items())) for point in side} for side in (pair.a, pair.b)]
    return sides[0] == sides[1]


def definitions(side: Iterable[Measured], address: Address) -> frozenset[str]:
    """Definition ids of the stated figures that a side's values were made of."""
    return frozenset(
        point.definitions[name]
        for point in side
        for name, _ in point.reading(address).made_of
        if name in point.definitions
    )


def _scores(place: int, pair: Matched, task: str | None) -> list[Case]:
    """Accuracy of each task that both sides have. Repeats answer the same items, so their mean counts as one result."""
    sides = [_by_task(side) for side in (pair.a, pair.b)]
    found = []
    for name, metric in sides[0]:
        if (task is not None and task != name) or (name, metric) not in sides[1]:
            continue
        evals = [side[name, metric] for side in sides]
        scores = [fmean(each.score for each in some) for some in evals]
        items = [min((each.n for each in some if each.n), default=None) for some in evals]
        address = parse(f"{SCORES}.{name}")
        if items[0] is None or items[1] is None or not all(0 <= score <= 1 for score in scores):
            reason = "compare.items_unknown"
            found.append(Case(place, address, None, "cannot_tell", reason, scores[0], scores[1]))
            continue
        test = share_test(scores[0], items[0], scores[1], items[1])
        found.append(Case(place, address, same_test(test) if _identical(pair) else test))
    return found


def _by_task(side: Iterable[Measured]) -> dict[tuple[str, str], list[Eval]]:
    found: dict[tuple[str, str], list[Eval]] = {}
    for point in side:
        for each in point.evals:
            found.setdefault((each.task, each.metric), []).append(each)
    return found


def _errors(place: int, pair: Matched, address: Address) -> list[Case]:
    """The share of failed requests, where both sides count them and any failed."""
    counts = []
    for side in (pair.a, pair.b):
        known = [(p.requests_ok, p.requests_error) for p in side]
        if any(ok is None or error is None for ok, error in known):
            return []
        ok_total, error_total = sum(ok or 0 for ok, _ in known), sum(error or 0 for _, error in known)
        counts.append((error_total, ok_total + error_total))
    (failed_a, n_a), (failed_b, n_b) = counts
    if not n_a or not n_b or not failed_a + failed_b:
        return []
    test = share_test(failed_a / n_a, n_a, failed_b / n_b, n_b)
    return [Case(place, address, same_test(test) if _identical(pair) else test)]


def sign_of(address: Address) -> float:
    """1 where higher is better, -1 where lower is."""
    return 1.0 if address.metric.better is Better.HIGHER else -1.0


def judged(case: Case, ruling: Ruling | None, pair: Matched, lang: str | None) -> Judged:
    """A case in words."""
    test = case.test
    a, b = (test.a, test.b) if test is not None else (case.a, case.b)
    shown = display_of(case.address, (a, b))
    verdict = ruling.verdict if ruling is not None else case.verdict
    counts = (test.n_a, test.n_b) if test is not None else (len(pair.a), len(pair.b))
    said = Judged(
        str(case.address), label(case.address, lang), verdict, text(f"compare.verdict.{verdict}", lang),
        a, b, shown.text(a), shown.text(b), *counts, reason=_reason(case, lang),
    )  # fmt: skip
    if test is None or ruling is None:
        return said
    unit = effect_unit(test)
    effect, low, high = (percent(test, value) for value in (test.effect, test.low, test.high))
    return replace(
        said,
        effect=effect,
        low=low,
        high=high,
        effect_unit=unit,
        effect_text=signed(effect, unit),
        interval_text=interval(low, high, unit),
        threshold=percent(test, ruling.threshold) if ruling.threshold <= NO_POWER else None,
        p_adjusted=ruling.p_adjusted,
        noise=" / ".join(each.text(lang) for each in test.noises),
        reason=text("compare.identical", lang) if test.identical else _why(test, ruling, lang),
    )


def _reason(case: Case, lang: str | None) -> str | None:
    if not case.reason:
        return None
    values: dict[str, object] = dict(case.reason_values)
    if case.why:
        values["why"] = text(case.why, lang)
    return text(case.reason, lang, **values)


def _why(test: Test, ruling: Ruling, lang: str | None) -> str | None:
    """Why nobody can tell: what would have been seen, and what was."""
    if ruling.verdict != "cannot_tell":
        return None
    if ruling.threshold > NO_POWER:
        return text("compare.no_power", lang)
    unit = effect_unit(test)
    limit = significant(percent(test, ruling.threshold), 2)
    return text("compare.below_threshold", lang, threshold=limit, unit=unit)


def signed(value: float, unit: str) -> str:
    """`+2.3 %`; a minus sign for less."""
    number = significant(abs(value), 2 if abs(value) < 100 else 3)
    sign = "" if number == "0" else "+" if value > 0 else "\u2212"
    return f"{sign}{number}\u202f{unit}"


def interval(low: float, high: float, unit: str) -> str:
    """`+1.2 … +3.4 %`."""
    first = signed(low, unit).partition("\u202f")[0]
    return f"{first} … {signed(high, unit)}"
