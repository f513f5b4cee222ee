"""A series through time: dated values of the same arm at the same load, where it changed, and what changed with it.

One value a run. A run that gave no value that counts stays in its place as a gap with its reason; nothing is carried
forward to later dates. Change points come from `change_points`; beside each stands what differs between the last run
before it and the first run after it (image, versions, revision, recipe) and the changelog entries that name it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.axes import AxisInfo, Reader, Reading, axis_info, default_axes, reader
from servemark.analysis.change_points import MAX_P_VALUE, MAX_VALUES, MIN_SIDE, ChangePoint, change_points
from servemark.analysis.changelog_match import Matches, matching
from servemark.analysis.configurations import series_label, series_parts, topology_label
from servemark.analysis.eligible import EVAL, Doubt, eligibility
from servemark.analysis.format import significant
from servemark.analysis.front_query import accuracy_results, beginning, with_gates
from servemark.analysis.labels import display_of, label
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import RateCard
from servemark.analysis.selection import Selection, select
from servemark.base.messages import text
from servemark.catalog.changelog import ChangelogEntry
from servemark.metrics.address import Address, parse
from servemark.metrics.registry import Better
from servemark.store.database import Store

FEWEST = 9
"""Values below which no change can be told from chance (see `change_points`)."""
FEWEST_SHARED = 3
MAX_SERIES = 200
"""Series that a view holds; all of them are judged."""
PROVENANCE = ("image", "engine_version", "model_revision", "recipe_fingerprint")
"""What may differ within a series: all of a point's identity that its series key leaves out."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One run of a series. `value` is None for a gap, and `gap` says why."""

    ref: str
    run: str
    attempt: int
    date: str
    value: float | None
    text: str
    gap: str | None
    image: str | None
    engine_version: str | None
    recipe: str | None
    url: str | None
    segment: int | None
    """Which stretch between change points it belongs to, from 0; None for a gap."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One part of the provenance on both sides of a change; None where a side does not state it. `same` is None when
    that cannot be told."""

    name: str
    label: str
    before: str | None
    after: str | None
    same: bool | None


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A change before `points[at]`. `magnitude` is relative (after / before - 1, medians of both stretches); `verdict`
    is `better`, `worse` or, for a metric without a better way, `changed`."""

    at: int
    last_before: int
    date: str
    since: str
    p_value: float
    before: float
    after: float
    magnitude: float | None
    verdict: str
    text: str
    differences: tuple[Difference, ...]
    cause: str
    changelog: Matches


@dataclass(frozen=True, slots=True)
class SeriesHistory:
    """One series: its key, what it is in words, its runs by date and its changes by date."""

    key: str
    label: str
    model: str
    scenario: str
    parts: Mapping[str, str]
    topology: str
    concurrency: int | None
    points: tuple[HistoryPoint, ...]
    values: int
    changes: tuple[ChangeView, ...]
    note: str | None


@dataclass(frozen=True, slots=True)
class SharedChange:
    """Changes of several series between the same two dates and to the same side: rather one cause than many. `series`
    are their keys, `hardware` and `engine` what they have in common, by frequency; magnitudes are relative."""

    since: str
    date: str
    verdict: str
    series: tuple[str, ...]
    hardware: tuple[str, ...]
    engine: tuple[str, ...]
    smallest: float | None
    largest: float | None
    text: str


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Series with the most recent change first, then those with the most values. `tested` is how many had enough values,
    `by_chance` how many of them would show a change if nothing had changed at all."""

    metric: AxisInfo
    shared: tuple[SharedChange, ...]
    series: tuple[SeriesHistory, ...]
    tested: int
    by_chance: float
    changed: int
    left_out: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Context:
    address: Address
    read: Reader
    doubts: Mapping[str, Doubt | None]
    changelog: Sequence[ChangelogEntry]
    lang: str | None


def history(
    points: Sequence[Measured],
    address: str,
    *,
    evals: Sequence[Measured] = (),
    changelog: Sequence[ChangelogEntry] = (),
    card: RateCard | None = None,
    limit: int = MAX_SERIES,
    lang: str | None = None,
) -> HistoryView:
    """The history of every series among the points (select with `all=yes`: the latest runs alone have none); without an
    address the figure that a front of these points would begin with. Raises ServemarkError (exit code 2) for an address
    that is none."""
    measured = [p for p in points if p.identity.scenario.type != EVAL and p.at_utc]
    chosen = parse(address) if address else default_axes(measured, reader(card))[1]
    context = _Context(chosen, reader(card), eligibility(measured, evals), changelog, lang)
    grouped: dict[str, list[Measured]] = defaultdict(list)
    for point in measured:
        grouped[point.series_key].append(point)
    runs = {key: one_a_run(some, context) for key, some in grouped.items()}
    among = [series_parts(some[-1]) for some in runs.values()]
    found = [_series(key, some, context, among) for key, some in runs.items()]
    found.sort(
        key=lambda one: (one.changes[-1].date if one.changes else "", one.values, one.key), reverse=True
    )
    return _view(chosen, found, limit, lang)


def history_of(
    store: Store,
    chosen: Selection,
    address: str,
    *,
    series: str | None = None,
    changelog: Sequence[ChangelogEntry] = (),
    card: RateCard | None = None,
    limit: int = MAX_SERIES,
    lang: str | None = None,
) -> HistoryView:
    """The same straight from a store: every run of the selection, whether the newest of its line or not. `series` asks
    for one key (or its beginning) alone; without it, model and scenario are those with the most points."""
    asked = replace(chosen if series else beginning(store, chosen), latest=False)
    points = with_gates(store, [p for p in select(store, asked) if p.series_key.startswith(series or "")])
    evals = accuracy_results(store, points)
    return history(points, address, evals=evals, changelog=changelog, card=card, limit=limit, lang=lang)


def _view(address: Address, found: Sequence[SeriesHistory], limit: int, lang: str | None) -> HistoryView:
    left_out = max(0, len(found) - limit)
    tested = sum(one.values >= FEWEST for one in found)
    by_chance = tested * MAX_P_VALUE
    changed = sum(bool(one.changes) for one in found)
    notes = []
    if tested:
        values = {"tested": tested, "changed": changed, "chance": significant(by_chance, 2)}
        notes.append(text("history.note.chance", lang, **values, percent=f"{MAX_P_VALUE:.0%}"))
    short = len(found) - tested
    if short:
        notes.append(text("history.note.short", lang, count=short, fewest=FEWEST))
    if left_out:
        notes.append(text("history.note.left_out", lang, count=left_out))
    return HistoryView(
        axis_info(address, lang),
        shared_changes(found, lang),
        tuple(found[:limit]),
        tested,
        by_chance,
        changed,
        left_out,
        tuple(notes),
    )


def shared_changes(found: Sequence[SeriesHistory], lang: str | None = None) -> tuple[SharedChange, ...]:
    """Changes that at least three series share, those of most series first."""
    groups: dict[tuple[str, str, str], list[tuple[SeriesHistory, ChangeView]]] = defaultdict(list)
    for one in found:
        for change in one.changes:
            groups[change.since[:10], change.date[:10], change.verdict].append((one, change))
    shared = [_shared(*key, some, lang) for key, some in groups.items() if len(some) >= FEWEST_SHARED]
    return tuple(sorted(shared, key=lambda each: (-len(each.series), each.date)))


def _shared(
    since: str,
    date: str,
    verdict: str,
    some: Sequence[tuple[SeriesHistory, ChangeView]],
    lang: str | None,
) -> SharedChange:
    known = sorted((c.magnitude for _, c in some if c.magnitude is not None), key=abs)
    hardware, engine = (
        tuple(name for name, _ in Counter(one.parts[part] for one, _ in some).most_common())
        for part in ("hardware", "engine")
    )
    percents = [_signed(value, 0) for value in (known[:1] + known[-1:])] or ["?", "?"]
    said = text(
        f"history.shared.{verdict}",
        lang,
        count=len(some),
        since=since,
        date=date,
        what=", ".join((*hardware, *engine)),
        low=percents[0],
        high=percents[-1],
    )
    keys = tuple(one.key for one, _ in some)
    low, high = (known[0], known[-1]) if known else (None, None)
    return SharedChange(since, date, verdict, keys, hardware, engine, low, high, said)


def _signed(share: float, places: int) -> str:
    """Per cent with its sign, as a true minus."""
    return f"{100 * share:+.{places}f}".replace("-", "\u2212")


def one_a_run(points: Iterable[Measured], context: _Context) -> list[Measured]:
    """Points of one series by date, one a run: the last attempt; among copies of one row (the same value imported twice,
    once with its image) the one that states the most. Unlike values of one run are repeats, and all stay."""
    attempts: dict[tuple[str, str], int] = {}
    offered = list(points)
    for point in offered:
        run = (point.source, point.run)
        attempts[run] = max(attempts.get(run, 0), point.attempt)
    kept: dict[tuple[object, ...], Measured] = {}
    for point in offered:
        if point.attempt < attempts[point.source, point.run]:
            continue
        value = context.read(point, context.address).value
        name = (point.source, point.run, None if value is None else float(f"{value:.9g}"))
        if name not in kept or _stated(point) > _stated(kept[name]):
            kept[name] = point
    valued = {(p.source, p.run) for (*_, value), p in kept.items() if value is not None}
    whole = [p for (*_, value), p in kept.items() if value is not None or (p.source, p.run) not in valued]
    return sorted(whole, key=_by_date)


def _by_date(point: Measured) -> tuple[object, ...]:
    """Runs of one day follow their ids; longer numbers are later ones."""
    return point.at_utc, len(point.run), point.run, point.attempt, point.ref


def _stated(point: Measured) -> int:
    return sum(getattr(point.identity, name) is not None for name in PROVENANCE)


def _series(
    key: str, runs: Sequence[Measured], context: _Context, among: Sequence[Mapping[str, str]]
) -> SeriesHistory:
    address, lang = context.address, context.lang
    readings = [context.read(point, address) for point in runs]
    gaps = [_gap(point, reading, context) for point, reading in zip(runs, readings, strict=True)]
    values = [None if gap else reading.value for gap, reading in zip(gaps, readings, strict=True)]
    known = [(place, value) for place, value in enumerate(values) if value is not None][-MAX_VALUES:]
    changes = change_points([value for _, value in known])
    places = [place for place, _ in known]
    edges = [places[change.index] for change in changes]
    shown = display_of(address, values)
    points = tuple(
        HistoryPoint(
            point.ref,
            point.run,
            point.attempt,
            point.at_utc,
            value,
            shown.text(value),
            gap,
            point.identity.image,
            point.identity.engine_version,
            point.identity.recipe_fingerprint,
            point.url,
            None if value is None else sum(place >= edge for edge in edges),
        )
        for place, (point, value, gap) in enumerate(zip(runs, values, gaps, strict=True))
    )
    newest = runs[-1]
    parts = series_parts(newest)
    topology = topology_label(newest.identity, lang)
    views = tuple(_change(change, places, runs, values, context) for change in changes)
    return SeriesHistory(
        key,
        _label(newest, parts, among, topology, lang),
        newest.identity.model,
        newest.scenario,
        parts,
        topology,
        newest.concurrency,
        points,
        len(known),
        views,
        _note([value for _, value in known], changes, address, lang),
    )


def _label(
    point: Measured,
    parts: Mapping[str, str],
    among: Sequence[Mapping[str, str]],
    topology: str,
    lang: str | None,
) -> str:
    load = (
        text("analysis.label.open", lang, arrivals=point.identity.scenario.arrivals or "—")
        if point.concurrency is None
        else text("analysis.label.point", lang, concurrency=point.concurrency)
    )
    return f"{series_label(parts, among, lang)} · {topology} · {load}"


def _gap(point: Measured, reading: Reading, context: _Context) -> str | None:
    """Why a run has no value here, in words; None for one that counts."""
    doubt = context.doubts.get(point.ref)
    if doubt is not None:
        return doubt.sentence(context.lang)
    return reading.why(context.lang)


def _note(
    values: Sequence[float], changes: Sequence[ChangePoint], address: Address, lang: str | None
) -> str | None:
    """What the test could not tell: too few values, or a last value alone outside all others since the last change."""
    if len(values) < FEWEST:
        return text("history.note.few", lang, count=len(values), fewest=FEWEST)
    since = list(values[changes[-1].index if changes else 0 :])
    if len(since) <= MIN_SIDE:
        return None
    *others, last = since
    if min(others) <= last <= max(others):
        return None
    shown = display_of(address, since)
    said = {"value": shown.text(last), "low": shown.text(min(others)), "high": shown.text(max(others))}
    return text("history.note.last", lang, **said)


def _change(
    change: ChangePoint,
    places: Sequence[int],
    runs: Sequence[Measured],
    values: Sequence[float | None],
    context: _Context,
) -> ChangeView:
    at, last = places[change.index], places[change.index - 1]
    before, after = runs[last], runs[at]
    verdict = _verdict(change, context.address)
    differences = tuple(_difference(name, before, after, context.lang) for name in PROVENANCE)
    shown = display_of(context.address, [change.before, change.after])
    magnitude = change.magnitude
    said = text(
        f"history.change.{verdict}",
        context.lang,
        metric=label(context.address, context.lang),
        date=after.at_utc[:10],
        since=before.at_utc[:10],
        percent="?" if magnitude is None else _signed(magnitude, 1),
        before=shown.text(change.before),
        after=shown.text(change.after),
        p_value=significant(change.p_value, 2),
    )
    return ChangeView(
        at,
        last,
        after.at_utc,
        before.at_utc,
        change.p_value,
        change.before,
        change.after,
        magnitude,
        verdict,
        said,
        differences,
        _cause(differences, context.lang),
        matching(context.changelog, before, after),
    )


def _verdict(change: ChangePoint, address: Address) -> str:
    better = address.metric.better
    if better is Better.NEITHER or change.after == change.before:
        return "changed"
    return "better" if (change.after > change.before) == (better is Better.HIGHER) else "worse"


def _difference(name: str, before: Measured, after: Measured, lang: str | None) -> Difference:
    one, other = getattr(before.identity, name), getattr(after.identity, name)
    same = one == other if one is not None and other is not None else None
    return Difference(name, text(f"history.part.{name}", lang), one, other, same)


def _cause(differences: Sequence[Difference], lang: str | None) -> str:
    """What changed with it, in one sentence. Nothing is called a cause; what nobody states is not called the same."""
    changed = [each.label for each in differences if each.same is False]
    unknown = [each.label for each in differences if each.same is None and (each.before or each.after)]
    if changed:
        return text("history.cause.changed", lang, parts=", ".join(changed))
    if unknown:
        return text("history.cause.one_side", lang, parts=", ".join(unknown))
    if any(each.same for each in differences):
        return text("history.cause.same", lang)
    return text("history.cause.unknown", lang)
