"""All gates, in the order of their tables, and how points are judged: one alone, or many with what stands around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from servemark.base.canonical import canonical_json
from servemark.base.collector import uncollected
from servemark.results.figures import Figures
from servemark.results.gates import (
    arithmetic,
    bounds,
    counts,
    evals,
    instrument,
    latency,
    memory,
    power,
    provenance,
    topology,
)
from servemark.results.gates.base import Context, Gate, GateFinding, Severity, Verdict, verdict_of
from servemark.results.gates.columns import FEWEST, columns_of
from servemark.results.gates.read import POWER_PER_GPU, TOTAL_PER_GPU, passed
from servemark.results.point import (
    NO_REQUESTS,
    Offload,
    Point,
    PointIdentity,
    Precision,
    RoleTopology,
    Scenario,
    Speculation,
)

if TYPE_CHECKING:
    from servemark.results.gates.base import Said

GATES: tuple[Gate, ...] = (
    *bounds.GATES,
    *arithmetic.GATES,
    *topology.GATES,
    *latency.GATES,
    *counts.GATES,
    *instrument.GATES,
    *memory.GATES,
    *provenance.GATES,
    *evals.GATES,
    *power.GATES,
)
GATES_BY_ID: dict[str, Gate] = {gate.id: gate for gate in GATES}
_ALONE = Context()
PARTS = (
    "attempts", "client", "duration", "early", "evals", "expected", "memory", "observed", "power", "requests", "roles",
    "scores", "speculation", "telemetry",
)  # fmt: skip
"""What a point may lack, in the order of `_parts`; `Gate.idle` names one of them. `early`: it ended so; `scores`: evals of
its line."""
_OK, _SKIPPED, _QUARANTINE = Severity.OK, Severity.SKIPPED, Severity.QUARANTINE
_SOUND = (_OK, _SKIPPED)

_PLAIN = attrgetter(
    "model", "hardware", "engine", "model_revision", "engine_version", "image", "recipe_fingerprint", "router"
)
_SCENARIO, _PRECISION, _SPECULATION, _OFFLOAD, _ROLE = (
    attrgetter(*(field.name for field in fields(part)))
    for part in (Scenario, Precision, Speculation, Offload, RoleTopology)
)

Judged = tuple[tuple[GateFinding, ...], Verdict]
Judge = Callable[[Point, Context], GateFinding]
Way = tuple[list[GateFinding], tuple[tuple[int, Judge], ...]]
"""What gates say without being asked, a gap for each of the others; and those, by their place."""
_FRAMED = tuple((place, gate.framed) for place, gate in enumerate(GATES) if gate.framed is not None)
_GAP = passed("")


def gates_version() -> str:
    """Every gate with its version: points judged under another one are to be judged again."""
    return ",".join(f"{gate.id}:{gate.version}" for gate in GATES)


def _parts(point: Point, context: Context) -> tuple[bool, ...]:
    """Which of PARTS a point has."""
    requests, identity = point.requests, point.identity
    return (
        bool(context.attempts), bool(point.client), point.duration_s is not None,
        point.status != "complete", bool(point.evals), bool(point.expected), point.memory is not None,
        bool(point.observed), POWER_PER_GPU in point.figures,
        requests is not NO_REQUESTS and requests != NO_REQUESTS, len(identity.topology) > 1,
        context.evals is None or bool(context.evals), identity.speculation is not None, point.gpus_telemetry is not None,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _to_ask(parts: tuple[bool, ...]) -> Way:
    """Of a point with these parts: what gates say without being asked, a gap for each of the others; and those, by their
    place."""
    has = dict(zip(PARTS, parts, strict=True))
    said: list[GateFinding] = []
    asked = []
    for place, gate in enumerate(GATES):
        if gate.idle is not None and not has[gate.idle[0]]:
            said.append(gate.idle[1])
        else:
            said.append(_GAP)
            asked.append((place, gate.judge))
    return said, tuple(asked)


def judge(point: Point, context: Context = _ALONE) -> Judged:
    """What every gate says of the point, in the order of GATES, and the verdict: the worst of them.

    Never raises for what a point holds: a gate whose arithmetic fails (an integer that no float can hold) is skipped.
    """
    return _ask(_to_ask(_parts(point, context)), point, context)


def _ask(way: Way, point: Point, context: Context, verdict: Verdict = Verdict.VALID) -> Judged:
    """What is said without asking, with what the other gates say, and the verdict; `verdict` is that of what is said."""
    said, asked = way[0].copy(), way[1]
    try:
        for place, ask in asked:
            said[place] = finding = ask(point, context)
            severity = finding.severity  # by identity: an enum's hash is a Python call
            if severity is _SKIPPED or severity is _OK:
                continue
            if severity is _QUARANTINE:
                verdict = Verdict.QUARANTINED
            elif verdict is Verdict.VALID:
                verdict = Verdict.WARNINGS
    except (ArithmeticError, ValueError, TypeError):
        said = [_careful(gate, point, context) for gate in GATES]
        verdict = verdict_of(said)
    return tuple(said), verdict


def _careful(gate: Gate, point: Point, context: Context) -> GateFinding:
    try:
        return gate.judge(point, context)
    except (ArithmeticError, ValueError, TypeError):
        return GateFinding(gate.id, Severity.SKIPPED, {"reason": "not_computable"})


def judge_all(points: Sequence[Point]) -> list[Judged]:
    """Each point judged among all others given, in their order; the order itself decides nothing.

    Give whole runs: a gate that looks for missing concurrencies, evals or attempts sees only what is given.
    """
    with uncollected():  # nothing here makes cycles, and a collection walks every figure of every point
        around = list(contexts(points))
        if len(points) < FEWEST:
            return list(map(judge, points, around))
        shapes: dict[tuple[str, ...], list[int]] = {}
        for place, point in enumerate(points):
            shapes.setdefault(tuple(point.figures), []).append(place)
        judged: dict[int, Judged] = {}
        for addresses, places in shapes.items():
            some = [points[place] for place in places], [around[place] for place in places]
            found = _judge_columns(addresses, *some) if len(places) >= FEWEST else None
            judged.update(zip(places, found or map(judge, *some), strict=True))
        return [judged[place] for place in range(len(points))]


def _judge_columns(
    addresses: tuple[str, ...], points: Sequence[Point], around: Sequence[Context]
) -> list[Judged] | None:
    """As `judge` for points that state the same addresses, the gates on figures alone asked of all at once. None where
    the arithmetic of columns fails."""
    import numpy as np  # noqa: PLC0415 - only where there are many points

    try:
        columns = columns_of(addresses, points)
        if columns is None:
            return None
        with np.errstate(all="ignore"):
            asked = [(place, gate.columns(columns)) for place, gate in enumerate(GATES) if gate.columns]
        frames = list(map(_of_frame, columns.frames))
    except (ArithmeticError, ValueError, TypeError):
        return None
    said = {place: each for place, each in asked if each[0].severity in _SOUND}
    ways: dict[Hashable, tuple[Way, Judged]] = {}
    judged = []
    more = _masked(said, len(points))
    for at, (point, context, frame) in enumerate(zip(points, around, columns.frame_of, strict=True)):
        parts = _parts(point, context)
        of_frame, key = frames[frame]
        known = ways.get((parts, key))
        if known is None:
            way = _way(_to_ask(parts), {place: each for place, (each, _) in said.items()} | of_frame)
            known = ways[parts, key] = way, (tuple(way[0]), verdict_of(way[0]))
        way, done = known
        if at in more:
            judged.append(_ask((way[0], (*way[1], *more[at])), point, context, done[1]))
        else:
            judged.append(_ask(way, point, context, done[1]) if way[1] else done)
    return judged


def _of_frame(point: Point) -> tuple[dict[int, GateFinding], Hashable]:
    """What gates say of all points of a frame by their places, and a key that is equal where that is the same."""
    said = {place: found for place, ask in _FRAMED if (found := ask(point)) is not None}
    return said, tuple([(place, id(found)) for place, found in said.items()])


def _masked(said: Mapping[int, Said], points: int) -> dict[int, list[tuple[int, Judge]]]:
    """By the place of a point: gates that must be asked of it alone."""
    import numpy as np  # noqa: PLC0415 - as above

    more: dict[int, list[tuple[int, Judge]]] = {}
    for place, (_, mask) in said.items():
        ask = place, GATES[place].judge
        for at in range(points) if mask is False else () if mask is True else np.flatnonzero(~mask).tolist():
            more.setdefault(at, []).append(ask)
    return more


def _way(way: Way, said: Mapping[int, GateFinding]) -> Way:
    """The way with what is said already; what a gate without its part says stays."""
    asked = {place for place, _ in way[1]}
    filled = [said[place] if place in said and place in asked else each for place, each in enumerate(way[0])]
    return filled, tuple(each for each in way[1] if each[0] not in said)


def contexts(points: Sequence[Point]) -> Iterator[Context]:
    """What stands around each point, in their order.

    `attempts` holds what decides and no more: the latest complete attempt of the same point in its run, and one other
    point with the same figures; however often a point was measured, judging stays one pass.
    """
    numbers: dict[Hashable, int] = {}  # one hash of a configuration a point; all else goes by its number
    known: dict[
        int, int
    ] = {}  # by the identity object, which rows of one source share; all live until the end
    lines: dict[tuple[str, str, int], _Line] = {}
    runs: dict[tuple[str, str], list[Point]] = {}
    places: dict[tuple[str, int, int | None], list[Point]] = {}
    kept: list[tuple[_Line, list[Point]]] = []
    for point in points:
        source, run, identity = point.source, point.execution.run, point.identity
        number = known.get(id(identity))
        if number is None:
            number = known[id(identity)] = numbers.setdefault(configuration(identity), len(numbers))
        line_key = (source, run, number)
        line = lines.get(line_key)
        if line is None:
            line = lines[line_key] = _Line(runs.setdefault((source, run), []))
        line.points.append(point)
        line.run.append(point)
        place_key = (source, number, identity.concurrency)
        place = places.get(place_key)
        if place is None:
            place = places[place_key] = []
        place.append(point)
        kept.append((line, place))
    for line in lines.values():
        line.context = _of_line(line.points, line.run)
    tried = [(id(place), _SamePlace(place)) for place in places.values() if len(place) > 1]
    same = {number: each for number, each in tried if not each.apart}
    for point, (line, place) in zip(points, kept, strict=True):
        others = same.get(id(place))
        attempts = others.attempts(point) if others is not None else ()
        yield _with_attempts(line.context, attempts) if attempts else line.context


class _Line:
    """Points of one line, those of its run, and what stands around each of them but for its attempts."""

    __slots__ = ("context", "points", "run")

    def __init__(self, run: list[Point]) -> None:
        self.points: list[Point] = []
        self.run = run
        self.context = _ALONE


def configuration(identity: PointIdentity) -> Hashable:
    """Equal for equal configurations, whatever the concurrency: the fields that `PointIdentity.config_key` hashes, as
    they are; far cheaper than the hash, and than hashing nested dataclasses."""
    return (
        _PLAIN(identity),
        _SCENARIO(identity.scenario),
        _PRECISION(identity.precision),
        identity.speculation and _SPECULATION(identity.speculation),
        identity.offload and _OFFLOAD(identity.offload),
        *[_ROLE(role) for role in identity.topology],
        _extra(identity.extra) if identity.extra else "",
    )


def _extra(extra: dict[str, object]) -> str:
    try:
        return canonical_json(extra)
    except (TypeError, ValueError):  # NaN and the like: such a point has no key, but it is judged
        return repr(sorted(extra.items(), key=lambda item: str(item[0])))


def _of_line(line: list[Point], run: list[Point]) -> Context:
    """The context that all points of a line share, but for their attempts."""
    present = frozenset(
        [
            point.identity.concurrency
            for point in line
            if point.identity.concurrency is not None and counts.is_whole(point)
        ]
    )
    return Context(line, run, (), present, evals.line_evals(line))


class _SamePlace:
    """The latest complete attempt of each run, and two points of each set of equal figures, of points that are the same
    configuration at the same load."""

    __slots__ = ("_latest", "_sketch", "_twins", "apart")

    def __init__(self, place: list[Point]) -> None:
        self._latest: dict[str, Point] = {}
        self._twins: dict[Hashable, list[Point]] = {}
        self._sketch = _sketcher(place)
        for point in place:
            run = point.execution.run
            known = self._latest.get(run)
            if (known is None or counts.when(known) < counts.when(point)) and counts.is_whole(point):
                self._latest[run] = point
        sketches = list(map(self._sketch, place))
        unlike = len(set(sketches)) == len(place)
        self.apart = unlike and len(self._latest) == len(place)
        """True where no point has anything that decides about it: each of a run of its own, and no two alike."""
        if not unlike:
            alike: dict[Hashable, list[Point]] = {}
            for point, sketch in zip(place, sketches, strict=True):
                alike.setdefault(sketch, []).append(point)
            self._twins = {sketch: _first_two(some) for sketch, some in alike.items() if len(some) > 1}

    def attempts(self, point: Point) -> tuple[Point, ...]:
        """What decides about `point`: its twin, and the latest complete attempt of its run."""
        latest = self._latest.get(point.execution.run)
        found = [] if latest is None or latest is point else [latest]
        if self._twins:
            found += [each for each in self._twins.get(self._sketch(point), ()) if each is not point]
        return tuple(found)


_SKETCHED = (TOTAL_PER_GPU, "ttft_s.p50", "e2el_s.p50", "ttft_s.mean")


def _sketcher(points: list[Point]) -> Callable[[Point], Hashable]:
    """Gives something equal for rows with equal figures, nearly always unlike for others: spares comparing all figures."""
    first = points[0].figures
    if isinstance(first, Figures) and all(
        isinstance(point.figures, Figures) and point.figures.shape is first.shape for point in points
    ):
        places = [first.shape.places[each] for each in _SKETCHED if each in first]
        if len(places) > 1:
            pick = itemgetter(*places)
            return lambda point: pick(point.figures.numbers)  # type: ignore[attr-defined]
    return lambda point: (len(point.figures), *map(point.value, _SKETCHED))


def _first_two(alike: list[Point]) -> list[Point]:
    """Of points with equal sketches the first two of each set of wholly equal figures, by run and attempt."""
    sets: dict[Hashable, list[Point]] = defaultdict(list)
    for point in alike:
        sets[counts.figure_values(point)].append(point)
    return [each for some in sets.values() if len(some) > 1 for each in sorted(some, key=_order)[:2]]


def _order(point: Point) -> tuple[str, tuple[int, str, str]]:
    return point.execution.run, counts.when(point)


def _with_attempts(context: Context, attempts: tuple[Point, ...]) -> Context:
    return Context(context.line, context.run, attempts, context.concurrencies, context.evals)
