"""The curves of a comparison: each line that both sides measured, and the front of each group of comparable points."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from servemark.analysis.axes import axis, axis_info, default_axes
from servemark.analysis.comparable import comparable, length_classes
from servemark.analysis.compare_curves import (
    Axes,
    CurveTest,
    Kind,
    Knot,
    compare_curves,
    path_of,
)
from servemark.analysis.compare_judge import MIN_EFFECT, Ruling, judge, percent
from servemark.analysis.compare_match import line_key
from servemark.analysis.compare_pairs import definitions, interval, signed
from servemark.analysis.compare_types import Curve, CurvePoint, Section
from servemark.analysis.compare_words import PARTS, parts_of
from servemark.analysis.eligible import eligibility
from servemark.analysis.format import significant
from servemark.analysis.measured import Measured
from servemark.analysis.noise import NoiseModel
from servemark.base.messages import text
from servemark.metrics.address import Address
from servemark.metrics.registry import Better

MAX_CURVES = 200
NARROW = 0.06
"""Share of the common range below which a section is not told in words."""
LEAST = 2
"""Points that make a curve."""


@dataclass(frozen=True, slots=True)
class _Two:
    """One curve of either side before it is compared."""

    label: str
    kind: Kind
    a: tuple[Measured, ...]
    b: tuple[Measured, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CurveOptions:
    """Addresses of the axes, empty for the usual ones; fields in which configurations may differ; the relative difference
    below which nobody acts; parts of a configuration that need not be told again."""

    x: str = ""
    y: str = ""
    by: tuple[str, ...] = ()
    min_effect: float = MIN_EFFECT
    common: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What all curves of one comparison share."""

    x: Address
    y: Address
    ways: Axes
    noise: NoiseModel
    by: tuple[str, ...]
    common: Mapping[str, str]
    lang: str | None


def curves_of(
    a: Sequence[Measured],
    b: Sequence[Measured],
    noise: NoiseModel,
    options: CurveOptions,
    lang: str | None = None,
) -> tuple[Curve, ...]:
    """Every line that both sides have, then every front; at most MAX_CURVES. All means share one correction.

    Raises ServemarkError (exit code 2) for an axis of which neither way is better."""
    usual = default_axes([*a, *b], Measured.reading)
    x, y = axis(options.x) if options.x else usual[0], axis(options.y) if options.y else usual[1]
    how = _Drawing(x, y, Axes(x.metric.better, y.metric.better), noise, options.by, options.common, lang)
    tested: list[tuple[_Two, CurveTest | None]] = []
    for two in [*_lines(a, b, how), *_fronts(a, b, how)][:MAX_CURVES]:
        found = None
        if two.reason is None:
            df = min((d for point in (two.a[0], two.b[0]) for d in _freedom(point, how)), default=math.inf)
            knots_a, knots_b = _knots(two.a, how), _knots(two.b, how)
            found = compare_curves(knots_a, knots_b, two.kind, how.ways, df=df, min_effect=options.min_effect)
        tested.append((two, found))
    real = [found for _, found in tested if found is not None]
    sign = 1.0 if how.ways.y is Better.HIGHER else -1.0
    rulings = iter(judge([each.test for each in real], [sign] * len(real)))
    return tuple(
        _curve(two, found, next(rulings) if found is not None else None, how) for two, found in tested
    )


def _lines(a: Sequence[Measured], b: Sequence[Measured], how: _Drawing) -> list[_Two]:
    """The newest line of each configuration on both sides."""
    sides = [_newest_lines(side, how) for side in (a, b)]
    found = []
    for key, mine in sides[0].items():
        others = sides[1].get(key)
        if others is not None:
            found.append(_two(mine, others, "line", how))
    return found


def _newest_lines(points: Sequence[Measured], how: _Drawing) -> dict[str, list[Measured]]:
    lines: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for point in points:
        if _drawn(point, how):
            lines[line_key(point, how.by), point.line_key].append(point)
    found: dict[str, list[Measured]] = {}
    for (key, _), some in lines.items():
        if len({point.concurrency for point in some}) >= LEAST and (
            key not in found or _age(found[key]) < _age(some)
        ):
            found[key] = some
    return found


def _age(line: Sequence[Measured]) -> tuple[str, str]:
    return max(point.at_utc for point in line), line[0].run


def _fronts(a: Sequence[Measured], b: Sequence[Measured], how: _Drawing) -> list[_Two]:
    """Eligible points of either side that may stand on one front."""
    sides: list[dict[Hashable, list[Measured]]] = []
    lengths = length_classes([*a, *b])
    for side in (a, b):
        doubts = eligibility(side)
        groups: dict[Hashable, list[Measured]] = defaultdict(list)
        for point in side:
            if doubts.get(point.ref) is None and _drawn(point, how):
                group = comparable(point, (point.reading(how.x), point.reading(how.y)), lengths)
                groups[replace(group, model="") if "model" in how.by else group].append(point)
        sides.append(groups)
    return [
        _two(mine, others, "front", how)
        for group, mine in sides[0].items()
        if (others := sides[1].get(group)) is not None and len(mine) >= LEAST and len(others) >= LEAST
    ]


def _two(mine: Sequence[Measured], others: Sequence[Measured], kind: Kind, how: _Drawing) -> _Two:
    lang = how.lang
    rows = [parts_of(point, lang) for point in (*mine, *others)]
    alike = {name: rows[0][name] for name in PARTS if len({row[name] for row in rows}) == 1}
    first, other = parts_of(mine[0], lang), parts_of(others[0], lang)
    both = {
        name: first[name] if first[name] == other[name] else f"{first[name] or '—'} → {other[name] or '—'}"
        for name in PARTS
    }
    told = alike if kind == "front" else both
    hidden = how.common if kind == "line" else {name: how.common.get(name) for name in ("model", "scenario")}
    shown = " · ".join(value for name, value in told.items() if value and hidden.get(name) != value)
    unlike = [definitions(side, how.x) | definitions(side, how.y) for side in (mine, others)]
    reason = None
    if all(unlike) and unlike[0] != unlike[1]:
        reason = text(
            "compare.refused.definition", lang, a=", ".join(sorted(unlike[0])), b=", ".join(sorted(unlike[1]))
        )
    return _Two(shown, kind, tuple(mine), tuple(others), reason)


def _drawn(point: Measured, how: _Drawing) -> bool:
    return all((value := point.value(each)) is not None and value > 0 for each in (how.x, how.y))


def _freedom(point: Measured, how: _Drawing) -> list[float]:
    found = (how.noise.relative_sd(point, each) for each in (how.x, how.y))
    return [each.df for each in found if each is not None]


def _knots(side: Sequence[Measured], how: _Drawing) -> list[Knot]:
    found = []
    for point in side:
        x, y = (point.value(each) or math.nan for each in (how.x, how.y))
        found.append(Knot(point.ref, x, y, *_spreads(point, how), point.line_key))
    return found


def _spreads(point: Measured, how: _Drawing) -> tuple[float, float]:
    found = [how.noise.relative_sd(point, each) for each in (how.x, how.y)]
    sd_x, sd_y = (each.rel_sd if each is not None else 0.0 for each in found)
    return sd_x, sd_y


def _curve(two: _Two, found: CurveTest | None, ruling: Ruling | None, how: _Drawing) -> Curve:
    verdict = ruling.verdict if ruling is not None else "refused" if two.reason else "absent"
    points = [tuple(_point(each, how) for each in _ordered(side)) for side in (two.a, two.b)]
    paths = [path_of(_knots(side, how), two.kind, how.ways) for side in (two.a, two.b)]
    made = Curve(
        two.label, two.kind, axis_info(how.x, how.lang), axis_info(how.y, how.lang),
        points[0], points[1], paths[0], paths[1],
        verdict, text(f"compare.verdict.{verdict}", how.lang), reason=two.reason,
    )  # fmt: skip
    if found is None:
        return made if made.reason is not None else replace(made, reason=_apart(made, how.lang))
    test = found.test
    mean, low, high = (percent(test, value) for value in (test.effect, test.low, test.high))
    whole = replace(
        made,
        low=found.low,
        high=found.high,
        mean_percent=mean,
        mean_low=low,
        mean_high=high,
        sections=found.sections,
    )
    return replace(whole, text=_told(whole, how.lang))


def _apart(curve: Curve, lang: str | None) -> str:
    """Why there is nothing to compare: the ranges."""
    shown = [span(path[0][0], path[-1][0]) for path in (curve.a_path, curve.b_path)]
    return text("compare.curve.apart", lang, x=curve.x.label, unit=curve.x.unit, a=shown[0], b=shown[1])


def span(low: float, high: float) -> str:
    """The two ends of a range."""
    return f"{significant(low)}\u2013{significant(high)}"


def _ordered(side: Sequence[Measured]) -> list[Measured]:
    return sorted(side, key=lambda point: (point.concurrency or 0, point.ref))


def _point(point: Measured, how: _Drawing) -> CurvePoint:
    values = [point.value(each) or math.nan for each in (how.x, how.y)]
    bands: list[float | None] = []
    for address, value in zip((how.x, how.y), values, strict=True):
        bands += how.noise.band(point, address, value) or (None, None)
    return CurvePoint(point.ref, point.concurrency, values[0], values[1], *bands)


def _told(curve: Curve, lang: str | None) -> str:
    """The mean, and where each side is ahead."""
    if {each.ref for each in curve.a} == {each.ref for each in curve.b}:
        return text("compare.identical", lang)
    said = text(
        "compare.curve.mean",
        lang,
        y=curve.y.label,
        mean=signed(curve.mean_percent or 0.0, "%"),
        interval=interval(curve.mean_low or 0.0, curve.mean_high or 0.0, "%"),
        range=span(curve.low or 0.0, curve.high or 0.0),
        unit=curve.x.unit,
    )
    parts = _bridged(curve.sections)
    for winner in ("a", "b", "neither"):
        where = [span(low, high) for low, high, who in parts if who == winner]
        if where:
            said = text(f"compare.curve.{winner}", lang, said=said, where=", ".join(where))
    if curve.kind == "front":
        said = text("compare.curve.counts", lang, said=said, a=len(curve.a), b=len(curve.b))
    return said


def _bridged(sections: Sequence[Section]) -> list[tuple[float, float, str]]:
    """Sections for a sentence: one that is narrower than NARROW of the whole goes with the one before it."""
    whole = sections[-1].high - sections[0].low
    found: list[tuple[float, float, str]] = []
    for part in sections:
        last = found[-1] if found else None
        if last is not None and (part.winner == last[2] or part.high - part.low < NARROW * whole):
            found[-1] = (last[0], part.high, last[2])
        else:
            found.append((part.low, part.high, part.winner))
    return found
