"""Compare two sides: points pair by pair, curves over their common range, and one verdict over all.

`compare(a, b)` reads `Measured` points and nothing else. Laws: a pair is the same thing measured twice or differs in what
the user named; unlike definitions are refused; what has no partner is told; a difference counts only where it exceeds both
noise (corrected for how many figures were compared) and the smallest difference that matters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.compare_curve_view import CurveOptions, curves_of
from servemark.analysis.compare_judge import (
    ALPHA,
    MIN_EFFECT,
    MIN_POINTS,
    Ruling,
    Test,
    effect_unit,
    judge,
    mean_test,
    percent,
)
from servemark.analysis.compare_match import Left, Matched, Matching, fields_of, match, usable
from servemark.analysis.compare_pairs import (
    SCORES,
    Case,
    cases_of,
    chosen_addresses,
    interval,
    judged,
    sign_of,
    signed,
)
from servemark.analysis.compare_types import (
    JUDGED,
    ComparedMetric,
    CompareView,
    LeftOut,
    Pair,
    Verdict,
)
from servemark.analysis.compare_words import (
    changes,
    common_parts,
    label_of,
    load_of,
    pair_parts,
    parts_of,
)
from servemark.analysis.format import significant
from servemark.analysis.labels import label
from servemark.analysis.measured import Measured
from servemark.analysis.noise import Noise, NoiseModel, noise_model
from servemark.analysis.selection import FACETS
from servemark.base.messages import text
from servemark.metrics.address import Address, parse

_Row = tuple[Case, Ruling | None]


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How two sides are compared. `metrics`: addresses, None for the usual ones. `by`: fields in which compared
    configurations may differ. `min_effect`: relative difference below which nobody acts. `x` and `y`: axes of curves, empty
    for the usual ones."""

    metrics: tuple[str, ...] | None = None
    by: tuple[str, ...] = ()
    min_effect: float = MIN_EFFECT
    x: str = ""
    y: str = ""
    a_label: str = "A"
    b_label: str = "B"


def compare(
    a: Sequence[Measured],
    b: Sequence[Measured],
    options: CompareOptions | None = None,
    noise: NoiseModel | None = None,
    lang: str | None = None,
) -> CompareView:
    """What differs between two sides. Without `noise` it comes from the repeats on the two sides themselves.

    Raises ServemarkError (exit code 2) for an unknown metric or field."""
    wanted = options or CompareOptions()
    by = fields_of(wanted.by)
    (good_a, aside_a), (good_b, aside_b) = usable(a), usable(b)
    model = noise if noise is not None else noise_model([], good_a, good_b)
    found = match(good_a, good_b, by)
    cases = cases_of(found.pairs, chosen_addresses(wanted.metrics, found.pairs), model, wanted.min_effect)
    rows, means = _ruled(cases, found.pairs)
    by_pair: dict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        by_pair[row[0].pair].append(row)
    parts = [pair_parts(pair, lang) for pair in found.pairs]
    common = common_parts(parts)
    pairs = tuple(
        _pair(pair, label_of(parts[place], common, load_of(pair.a[0])), by_pair[place], lang)
        for place, pair in enumerate(found.pairs)
    )
    metrics = _metrics(rows, means, lang)
    counts = Counter(judged.verdict for pair in pairs for judged in pair.judged)
    verdict = _overall(counts + Counter(each.verdict for each in metrics if each.verdict is not None))
    return CompareView(
        wanted.a_label,
        wanted.b_label,
        label_of(common, {}),
        verdict,
        _headline(verdict, counts, metrics, len(pairs), lang),
        {name: counts.get(name, 0) for name in (*JUDGED, "absent", "refused")},
        metrics,
        pairs,
        curves_of(
            good_a, good_b, model, CurveOptions(wanted.x, wanted.y, by, wanted.min_effect, common), lang
        ),
        _left((*aside_a, *found.left_a), common, lang),
        _left((*aside_b, *found.left_b), common, lang),
        _how(rows, len(means), wanted, lang),
        _hints(found, good_a, good_b, lang),
    )


def _pair(
    pair: Matched,
    said: str,
    rows: Sequence[_Row],
    lang: str | None,
) -> Pair:
    figures = tuple(judged(case, ruling, pair, lang) for case, ruling in rows)
    return Pair(
        said,
        pair.a[0].concurrency,
        pair.level,
        _overall(Counter(each.verdict for each in figures)),
        tuple(point.ref for point in pair.a),
        tuple(point.ref for point in pair.b),
        changes(pair, lang),
        figures,
    )


def _overall(counts: Counter[Verdict]) -> Verdict:
    """The worst that any figure says; same only where every one is."""
    if counts["worse"]:
        return "worse"
    if counts["better"]:
        return "better"
    return "same" if counts["same"] and not counts["cannot_tell"] else "cannot_tell"


def _ruled(
    cases: Sequence[Case], pairs: Sequence[Matched]
) -> tuple[list[_Row], dict[str, tuple[Test, Ruling]]]:
    """Every case with its ruling, and of each figure of several pairs their mean with its own."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if case.test is not None and case.test.kind == "ratio" and not case.test.identical:
            groups[str(case.address)].append(case)
    several = {name: some for name, some in groups.items() if len(some) > 1}
    tests = [case.test for case in cases if case.test is not None]
    signs = [sign_of(case.address) for case in cases if case.test is not None]
    means = []
    for name, some in several.items():
        blocks = [(pairs[case.pair].a[0].line_key, pairs[case.pair].b[0].line_key) for case in some]
        means.append((name, mean_test([case.test for case in some if case.test is not None], blocks)))
    alpha = ALPHA / 2 if means else ALPHA
    rulings = iter(judge(tests, signs, alpha))
    rows = [(case, next(rulings) if case.test is not None else None) for case in cases]
    ruled = judge([test for _, test in means], [sign_of(parse(name)) for name, _ in means], alpha)
    return rows, {name: (test, ruling) for (name, test), ruling in zip(means, ruled, strict=True)}


def _headline(
    verdict: Verdict,
    counts: Counter[Verdict],
    metrics: Sequence[ComparedMetric],
    pairs: int,
    lang: str | None,
) -> str:
    if not pairs:
        return text("compare.headline.nothing", lang)
    total = sum(counts[name] for name in JUDGED)
    told: dict[str, object] = {"pairs": pairs, "total": total, **{name: counts[name] for name in JUDGED}}
    mixed = verdict == "worse" and counts["better"] > 0
    said = text(f"compare.headline.{'mixed' if mixed else verdict}", lang, **told)
    means = [
        f"{each.label} {signed(each.mean_percent, '%')}"
        for each in metrics
        if each.pairs > 1 and each.mean_percent is not None and each.verdict in {"better", "worse"}
    ]
    return text("compare.headline.means", lang, said=said, means=", ".join(means)) if means else said


def _metrics(
    rows: Sequence[_Row], means: Mapping[str, tuple[Test, Ruling]], lang: str | None
) -> tuple[ComparedMetric, ...]:
    """Each compared figure with its verdicts over all pairs."""
    groups: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        groups[str(row[0].address)].append(row)
    return tuple(_metric(parse(name), some, means.get(name), lang) for name, some in groups.items())


def _metric(
    address: Address, some: Sequence[_Row], mean: tuple[Test, Ruling] | None, lang: str | None
) -> ComparedMetric:
    verdicts = Counter(ruling.verdict if ruling is not None else case.verdict for case, ruling in some)
    metric = address.metric
    tests = [(case.test, ruling) for case, ruling in some if case.test is not None and ruling is not None]
    anew = [each for each in tests if not each[0].identical]
    made = ComparedMetric(
        str(address),
        label(address, lang),
        address.unit,
        str(metric.better),
        text(metric.definition_key, lang),
        {str(key): value for key, value in verdicts.items()},
        len(anew),
    )
    told = mean
    if told is None:
        if len(anew) > 1 or not tests:
            return made
        told = (anew or tests)[0]
    test, ruling = told
    effect, low, high = (percent(test, value) for value in (test.effect, test.low, test.high))
    unit = effect_unit(test)
    ratio = test.kind == "ratio"
    return replace(
        made,
        verdict=ruling.verdict,
        verdict_text=text(f"compare.verdict.{ruling.verdict}", lang),
        mean_percent=effect if ratio else None,
        low_percent=low if ratio else None,
        high_percent=high if ratio else None,
        mean_text=f"{signed(effect, unit)} ({interval(low, high, unit)})",
    )


def _left(left: Sequence[Left], common: Mapping[str, str], lang: str | None) -> tuple[LeftOut, ...]:
    found = []
    for each in left:
        parts = parts_of(each.point, lang)
        told = {name: value for name, value in common.items() if parts[name] == value}
        said = label_of(parts, told, load_of(each.point))
        found.append(LeftOut(each.point.ref, said, text(f"compare.left.{each.reason}", lang)))
    return tuple(found)


def _how(rows: Sequence[_Row], means: int, options: CompareOptions, lang: str | None) -> tuple[str, ...]:
    """The rule, and the noise that it was applied with, figure by figure."""
    tested = [(case.address, case.test) for case, _ in rows if case.test is not None]
    if not tested:
        return ()
    real = [test for _, test in tested if not test.identical]
    limits = {
        "percent": significant(100 * options.min_effect, 2),
        "points": significant(100 * MIN_POINTS, 2),
    }
    said = [text("compare.how.rule", lang, tests=len(real) + means, **limits)]
    alike: dict[frozenset[Noise], list[str]] = defaultdict(list)
    for name in dict.fromkeys(str(address) for address, _ in tested):
        noises = [noise for address, test in tested if str(address) == name for noise in test.noises]
        if len(set(noises)) == 1:
            alike[frozenset(noises)].append(label(parse(name), lang))
        elif noises:
            said.append(_noises_text(label(parse(name), lang), noises, lang))
    for (noise,), names in alike.items():
        said.append(text("compare.how.noise", lang, metric=", ".join(names), noise=noise.text(lang)))
    same = len({case.pair for case, _ in rows if case.test is not None and case.test.identical})
    if same:
        said.append(text("compare.how.identical", lang, count=same))
    if any(address.metric.id == SCORES for address, _ in tested):
        said.append(text("compare.how.accuracy", lang))
    return tuple(said)


def _noises_text(metric: str, noises: Sequence[Noise], lang: str | None) -> str:
    """The range of a figure's noise and what it rests on."""
    bases = Counter(noise.basis for noise in noises)
    told = [
        text("compare.how.basis", lang, basis=text(f"noise.short.{basis}", lang), count=count)
        for basis, count in bases.most_common()
    ]
    low, high = (significant(100 * pick(noise.rel_sd for noise in noises), 2) for pick in (min, max))
    return text("compare.how.noises", lang, metric=metric, low=low, high=high, bases="; ".join(told))


def _hints(
    found: Matching, a: Sequence[Measured], b: Sequence[Measured], lang: str | None
) -> tuple[str, ...]:
    """What keeps the sides apart where nothing was paired."""
    if found.pairs:
        return ()
    empty = [side for side, points in (("A", a), ("B", b)) if not points]
    if empty:
        return tuple(text("compare.hint.empty", lang, side=side) for side in empty)
    apart = []
    for name in ("model", "scenario", "hardware", "engine", "precision", "speculation", "concurrency"):
        one, other = ({FACETS[name](point) for point in side} for side in (a, b))
        if not one & other:
            apart.append((name, one, other))
    said = [
        text(
            "compare.hint.apart",
            lang,
            field=text(f"compare.field.{name}", lang),
            a=", ".join(sorted(one)[:3]),
            b=", ".join(sorted(other)[:3]),
        )
        for name, one, other in apart
    ]
    fields = [name for name, _, _ in apart if name not in {"scenario", "concurrency"}]
    if fields and len(fields) == len(apart):
        said.append(text("compare.hint.by", lang, fields=",".join(fields)))
    return tuple(said)
