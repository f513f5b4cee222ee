"""A measured point as analysis sees it: who it is, where it came from, its figures, and what gates said of it.

Made of the store's points or of a file that nobody imported (an overlay); everything that compares, draws or sums up
reads these and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from servemark.metrics.address import Address
from servemark.metrics.figures import FigureReading, figure_value, read_figure
from servemark.results.gates.base import GateFinding
from servemark.results.point import Eval, Point, PointIdentity
from servemark.store.point_codec import hash_of, identity_hash, identity_tail, scenario_name
from servemark.store.points import StoredPoint

FILE_PREFIX = 16
"""Letters of a file's SHA-256 in a `ref`: enough to tell a store's files apart, short enough for an address bar."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One point of one run. `ref` (`FILE:ORDINAL`) names it in any store that has the file; `point_key` names the
    configuration at its load, which many runs may have measured. `scenario` is the store's word for it
    (`fixed-seq-len:1024/1024`). Figures are stated ones, in base units, by address."""

    ref: str
    point_key: str
    line_key: str
    config_key: str
    series_key: str
    identity: PointIdentity
    scenario: str
    source: str
    run: str
    attempt: int
    at_utc: str
    """When it began, ISO 8601 or a date alone; empty where nobody says."""
    status: str
    verdict: str
    figures: Mapping[str, float]
    gpus_deployed: int | None
    evals: tuple[Eval, ...] = ()
    requests_ok: int | None = None
    requests_error: int | None = None
    current: bool = True
    latest: bool = True
    findings: tuple[GateFinding, ...] = ()
    """What gates found fault with; empty where they were not asked for."""
    url: str | None = None
    official: bool = True
    """False for an overlay: never on an official front, never without its mark."""
    stored_id: int | None = None
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Definition id of each stated figure, by its address: unlike ones do not belong on one axis unmarked."""

    @property
    def concurrency(self) -> int | None:
        """None for an open loop."""
        return self.identity.concurrency

    def reading(self, address: Address | str) -> FigureReading:
        """A figure with its making, or the reason why it is absent."""
        return read_figure(self.figures, address, self.gpus_deployed)

    def value(self, address: Address | str) -> float | None:
        """A figure; None when absent."""
        return figure_value(self.figures, address, self.gpus_deployed)


def series_key(identity: PointIdentity) -> str:
    """The same arm at the same load through time: all but image, versions, revision and the recipe's content."""
    return identity_hash(_lasting(identity))


def _lasting(identity: PointIdentity) -> PointIdentity:
    return replace(identity, image=None, engine_version=None, model_revision=None, recipe_fingerprint=None)


_TAILS: dict[str, bytes | None] = {}
_TAILS_KEPT = 16_384


def _series_of(config_key: str, identity: PointIdentity) -> str:
    """`series_key`; what all loads and runs of a configuration share is remembered by its key, which is over all of it."""
    if config_key not in _TAILS:
        if len(_TAILS) >= _TAILS_KEPT:
            _TAILS.clear()
        tail = _TAILS[config_key] = identity_tail(_lasting(identity))
    else:
        tail = _TAILS.get(config_key)
    return series_key(identity) if tail is None else hash_of(tail, identity.concurrency)


def of_stored(stored: StoredPoint, findings: Iterable[GateFinding] = ()) -> Measured:
    """A point of the store; of its raw places, notes and provenance nothing is decoded."""
    identity, beside = stored.identity(), stored.beside()
    return Measured(
        ref=f"{stored.file[:FILE_PREFIX]}:{stored.ordinal}",
        point_key=stored.point_key,
        line_key=stored.line_key,
        config_key=stored.config_key,
        series_key=_series_of(stored.config_key, identity),
        identity=identity,
        scenario=stored.scenario,
        source=stored.source,
        run=stored.run,
        attempt=stored.attempt,
        at_utc=stored.at_utc,
        status=stored.status,
        verdict=stored.verdict,
        figures=stored.figures(),
        gpus_deployed=beside.gpus_deployed,
        evals=beside.evals,
        requests_ok=beside.requests.ok,
        requests_error=beside.requests.error,
        current=bool(stored.current),
        latest=bool(stored.latest),
        findings=tuple(findings),
        url=beside.execution.url,
        stored_id=stored.id,
        definitions=stored.definitions(),
    )


def of_point(
    point: Point, ref: str, verdict: str, findings: Iterable[GateFinding] = (), *, official: bool = False
) -> Measured:
    """A point that no store has, as read from a file."""
    identity = point.identity
    config_key = identity.config_key
    return Measured(
        ref=ref,
        point_key=identity.point_key,
        line_key=point.line_key,
        config_key=config_key,
        series_key=_series_of(config_key, identity),
        identity=identity,
        scenario=scenario_name(identity),
        source=point.source,
        run=point.execution.run,
        attempt=point.execution.attempt,
        at_utc=point.execution.started_utc or "",
        status=point.status,
        verdict=verdict,
        figures={name: figure.value for name, figure in point.figures.items()},
        gpus_deployed=point.gpus_deployed,
        evals=point.evals,
        requests_ok=point.requests.ok,
        requests_error=point.requests.error,
        findings=tuple(findings),
        url=point.execution.url,
        official=official,
        definitions={name: figure.definition for name, figure in point.figures.items()},
    )
