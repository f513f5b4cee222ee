"""All gates, in the order of their tables, and how points are judged: one alone, or many with what stands around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from servemark.base.canonical import canonical_json
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
from servemark.results.gates.base import Context, Gate, GateFinding, Severity, Verdict
from servemark.results.point import Point, PointIdentity

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
_JUDGES = tuple(gate.judge for gate in GATES)
_ALONE = Context()

Judged = tuple[tuple[GateFinding, ...], Verdict]


def gates_version() -> str:
    """Every gate with its version: points judged under another one are to be judged again."""
    return ",".join(f"{gate.id}:{gate.version}" for gate in GATES)


def judge(point: Point, context: Context = _ALONE) -> Judged:
    """What every gate says of the point, in the order of GATES, and the verdict: the worst of them."""
    found = tuple([gate(point, context) for gate in _JUDGES])
    verdict = Verdict.VALID
    for finding in found:
        severity = finding.severity
        if severity is Severity.QUARANTINE:
            return found, Verdict.QUARANTINED
        if severity is Severity.WARNING:
            verdict = Verdict.WARNINGS
    return found, verdict


def judge_all(points: Sequence[Point]) -> list[Judged]:
    """Each point judged among all others given, in their order; the order itself decides nothing.

    Give whole runs: a gate that looks for missing concurrencies, evals or attempts sees only what is given.
    """
    return [judge(point, context) for point, context in zip(points, contexts(points), strict=True)]


def contexts(points: Sequence[Point]) -> Iterator[Context]:
    """What stands around each point, in their order.

    `attempts` holds what decides and no more: the latest complete attempt of the same point in its run, and one other
    point with the same figures; however often a point was measured, judging stays one pass.
    """
    lines: dict[Hashable, list[Point]] = defaultdict(list)
    runs: dict[tuple[str, str], list[Point]] = defaultdict(list)
    places: dict[Hashable, list[Point]] = defaultdict(list)
    keys: list[tuple[Hashable, Hashable]] = []
    for point in points:
        run = (point.source, point.execution.run)
        config = configuration(point.identity)
        line = (run, config)
        place = (point.source, config, point.identity.concurrency)
        keys.append((line, place))
        runs[run].append(point)
        lines[line].append(point)
        places[place].append(point)
    around = {key: _of_line(line, runs) for key, line in lines.items()}
    twins = {key: _SamePlace(some) for key, some in places.items() if len(some) > 1}
    for point, (line_key, place) in zip(points, keys, strict=True):
        context = around[line_key]
        some = twins.get(place)
        yield context if some is None else _with_attempts(context, some.attempts(point))


def configuration(identity: PointIdentity) -> Hashable:
    """Equal for equal configurations, whatever the concurrency: the fields that `PointIdentity.config_key` hashes, as
    they are; some thirty times cheaper than the hash."""
    return (
        identity.model,
        identity.hardware,
        identity.engine,
        identity.scenario,
        identity.model_revision,
        identity.engine_version,
        identity.image,
        identity.precision,
        identity.speculation,
        identity.topology,
        identity.offload,
        identity.recipe_fingerprint,
        identity.router,
        _extra(identity.extra) if identity.extra else "",
    )


def _extra(extra: dict[str, object]) -> str:
    try:
        return canonical_json(extra)
    except (TypeError, ValueError):  # NaN and the like: such a point has no key, but it is judged
        return repr(sorted(extra.items(), key=lambda item: str(item[0])))


def _of_line(line: list[Point], runs: dict[tuple[str, str], list[Point]]) -> Context:
    """The context that all points of a line share, but for their attempts."""
    present = frozenset(
        point.identity.concurrency
        for point in line
        if point.identity.concurrency is not None and counts.is_whole(point)
    )
    run = runs[line[0].source, line[0].execution.run]
    return Context(line, run, (), present, evals.line_evals(line))


class _SamePlace:
    """The latest complete attempt of each run, and two points of each set of equal figures, of points that are the same
    configuration at the same load."""

    __slots__ = ("_latest", "_twins")

    def __init__(self, some: list[Point]) -> None:
        self._latest: dict[str, Point] = {}
        self._twins: dict[Hashable, list[Point]] = defaultdict(list)
        for point in some:
            twins = self._twins[counts.figure_values(point)]
            if len(twins) < 2 or counts.when(point) < counts.when(twins[-1]):
                twins.append(point)
                twins.sort(key=_order)
                del twins[2:]
            if counts.is_whole(point):
                run = point.execution.run
                known = self._latest.get(run)
                if known is None or counts.when(known) < counts.when(point):
                    self._latest[run] = point

    def attempts(self, point: Point) -> tuple[Point, ...]:
        """What decides about `point`: its twin, and the latest complete attempt of its run."""
        latest = self._latest.get(point.execution.run)
        found = [each for each in self._twins[counts.figure_values(point)] if each is not point][:1]
        if latest is not None:
            found.append(latest)
        return tuple(found)


def _order(point: Point) -> tuple[str, tuple[int, str, str]]:
    return point.execution.run, counts.when(point)


def _with_attempts(context: Context, attempts: tuple[Point, ...]) -> Context:
    return Context(context.line, context.run, attempts, context.concurrencies, context.evals)
