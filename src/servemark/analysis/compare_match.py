"""Which points of two sides are the same thing, measured twice.

First by point key (the same configuration at the same load), then by series key (the same arm at the same load with another
image, version or recipe); or, where fields are named, configurations that differ in those fields and no other. What is
left over on either side is told with a reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.compare_types import Level
from servemark.analysis.front import ERROR_RATE_LIMIT
from servemark.analysis.measured import Measured
from servemark.base.canonical import content_hash
from servemark.base.errors import input_error
from servemark.results.point import ID_LENGTH, PointIdentity, Precision


def _hardware(identity: PointIdentity) -> PointIdentity:
    roles = tuple(replace(role, hardware=None) for role in identity.topology)
    return replace(identity, hardware="", topology=roles)


def _engine(identity: PointIdentity) -> PointIdentity:
    return replace(identity, engine="", router=None)


def _topology(identity: PointIdentity) -> PointIdentity:
    """Roles, and what an entry states of them: router, KV transfer, shapes and settings of its workers."""
    extra = {name: value for name, value in identity.extra.items() if name != "stated"}
    return replace(identity, topology=(), router=None, extra=extra)


BY: Mapping[str, Callable[[PointIdentity], PointIdentity]] = {
    "model": lambda identity: replace(identity, model=""),
    "hardware": _hardware,
    "engine": _engine,
    "precision": lambda identity: replace(identity, precision=Precision(None, None)),
    "speculation": lambda identity: replace(identity, speculation=None),
    "topology": _topology,
    "offload": lambda identity: replace(identity, offload=None),
}
"""Fields in which compared configurations may differ, and an identity without each."""
_ALIASES = {"disaggregated": "topology"}
_LASTING = ("image", "engine_version", "model_revision", "recipe_fingerprint")


@dataclass(frozen=True, slots=True)
class Matched:
    """One pair: repeats on each side."""

    level: Level
    key: str
    a: tuple[Measured, ...]
    b: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """A point without a partner. `reason` is a message key below `compare.left`."""

    point: Measured
    reason: str


@dataclass(frozen=True, slots=True)
class Matching:
    """All pairs in the order of A, and what is left on each side."""

    pairs: tuple[Matched, ...]
    left_a: tuple[Left, ...]
    left_b: tuple[Left, ...]


def fields_of(names: Iterable[str]) -> tuple[str, ...]:
    """The fields that `--by` names, in their own order. Raises ServemarkError (exit code 2) for others: points of unlike
    scenarios or loads are not compared one by one."""
    wanted = {_ALIASES.get(name, name) for text in names for name in text.split(",") if name}
    for name in sorted(wanted - BY.keys()):
        key = "compare.by_scenario" if name in {"scenario", "concurrency"} else "compare.by_unknown"
        raise input_error(key, name=name[:40], known=", ".join(BY))
    return tuple(name for name in BY if name in wanted)


def usable(points: Iterable[Measured]) -> tuple[list[Measured], list[Left]]:
    """Points whose figures may be judged, and those set aside: quarantined, partial, superseded, many failed requests;
    of several attempts of one run the last counts."""
    newest: dict[tuple[str, str, str], int] = {}
    some = list({point.ref: point for point in points}.values())
    for point in some:
        place = (point.source, point.run, point.point_key)
        newest[place] = max(newest.get(place, 0), point.attempt)
    kept: list[Measured] = []
    left: list[Left] = []
    for point in some:
        reason = _fault(point)
        if reason is None and point.attempt < newest[point.source, point.run, point.point_key]:
            reason = "superseded"
        if reason is None:
            kept.append(point)
        else:
            left.append(Left(point, reason))
    return kept, left


def _fault(point: Measured) -> str | None:
    if not point.current:
        return "superseded"
    if point.verdict == "quarantined":
        return "quarantined"
    if point.status != "complete":
        return "partial"
    ok, errors = point.requests_ok, point.requests_error
    if ok is not None and errors and errors > ERROR_RATE_LIMIT * (ok + errors):
        return "errors"
    return None


def match(a: Sequence[Measured], b: Sequence[Measured], by: Sequence[str] = ()) -> Matching:
    """Pairs of two sides of usable points; `by` as `fields_of` gives it."""
    if by:
        return _joined(a, b, "fields", fields_key(by))
    first = _joined(a, b, "point", lambda point: point.point_key)
    rest = [
        [left.point for left in side if left.reason == "no_partner"] for side in (first.left_a, first.left_b)
    ]
    then = _joined(rest[0], rest[1], "series", lambda point: point.series_key)
    return Matching((*first.pairs, *then.pairs), then.left_a, then.left_b)


def line_key(point: Measured, by: Sequence[str] = ()) -> str:
    """Equal for lines that are compared as curves: as points are matched, whatever the load."""
    return fields_key(by, loads=True)(point)


def fields_key(by: Sequence[str], *, loads: bool = False) -> Callable[[Measured], str]:
    """A key of what remains without the named fields, image, versions, recipe and the arm's name; with `loads` without
    the load too."""
    known: dict[str, str] = {}

    def key(point: Measured) -> str:
        name = point.config_key if loads else point.point_key
        if name not in known:
            identity = replace(
                point.identity, image=None, engine_version=None, model_revision=None, recipe_fingerprint=None
            )
            if loads:
                identity = replace(identity, concurrency=None)
            for field in by:
                identity = BY[field](identity)
            extra = {name: value for name, value in identity.extra.items() if name != "arm"}
            identity = replace(identity, extra=extra)  # an arm's name follows its fields
            known[name] = content_hash(identity.canonical(), ID_LENGTH)
        return known[name]

    return key


def _joined(
    a: Sequence[Measured], b: Sequence[Measured], level: Level, key: Callable[[Measured], str]
) -> Matching:
    places_a, places_b = _grouped(a, key), _grouped(b, key)
    pairs: list[Matched] = []
    left_a: list[Left] = []
    left_b: list[Left] = []
    for name, some in places_a.items():
        others = places_b.get(name)
        if others is None:
            left_a += [Left(point, "no_partner") for point in some]
            continue
        if level == "fields":
            reason = _unfit(some, others)
            if reason is not None:
                left_a += [Left(point, reason) for point in some]
                left_b += [Left(point, reason) for point in others]
                continue
        (chosen_a, older_a), (chosen_b, older_b) = _newest(some), _newest(others)
        pairs.append(Matched(level, name, chosen_a, chosen_b))
        left_a += older_a
        left_b += older_b
    for name, others in places_b.items():
        if name not in places_a:
            left_b += [Left(point, "no_partner") for point in others]
    return Matching(tuple(pairs), tuple(left_a), tuple(left_b))


def _unfit(some: Sequence[Measured], others: Sequence[Measured]) -> str | None:
    """Why points with equal keys but for named fields are no pair."""
    if {p.series_key for p in some} & {p.series_key for p in others}:
        return "same_fields"
    if len({p.series_key for p in some}) > 1 or len({p.series_key for p in others}) > 1:
        return "several"
    return None


def _newest(some: Sequence[Measured]) -> tuple[tuple[Measured, ...], list[Left]]:
    """Repeats of the newest configuration, and the older ones."""
    configurations = _grouped(some, lambda point: point.point_key)
    newest = max(configurations, key=lambda name: (max(p.at_utc for p in configurations[name]), name))
    older = [Left(p, "older") for name, each in configurations.items() if name != newest for p in each]
    return tuple(configurations[newest]), older


def _grouped(points: Iterable[Measured], key: Callable[[Measured], str]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = defaultdict(list)
    for point in points:
        found[key(point)].append(point)
    return found


def lasting_changes(a: Measured, b: Measured) -> list[tuple[str, str | None, str | None]]:
    """(field, A's value, B's value) of image, versions and recipe where the two differ."""
    found = []
    for name in _LASTING:
        one, other = getattr(a.identity, name), getattr(b.identity, name)
        if one != other:
            found.append((name, one, other))
    return found
