"""A point as columns, and back. What many points share is set apart: the identity without its concurrency, and the shape of
the figures (their names, definitions and places in the raw row); what is left is packed numbers and short JSON.

Keys are those of `PointIdentity`, made several times faster: the JSON encoder that sorts keys gives the very text of
`canonical_json` as long as no fraction is written with an exponent; where one might be, the slow way is taken.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from servemark.base.canonical import content_hash
from servemark.base.errors import Layer, ServemarkError
from servemark.results.figures import Figure, Figures, FigureShape
from servemark.results.point import (
    ID_LENGTH,
    NO_REQUESTS,
    Eval,
    Execution,
    Memory,
    Point,
    PointIdentity,
    Requests,
    Status,
)

MAX_CONCURRENCY = 10**7
MAX_ATTEMPT = 2**31
MEMO = 100_000
"""Keys of configurations and lines that are remembered; cleared when full, so memory stays bounded."""
IDENTITIES = 8192
"""Identity objects that are held with their keys; where each row has one of its own they are some 10 MB."""
_PACK_FROM = 700
"""Bytes from which the rest of a point is compressed: below, the time is worth more than the bytes."""
_ABSENT = float("nan")
_VALUE, _DEFINITION, _AT, _STATED, _HOW = map(attrgetter, ("value", "definition", "at", "stated", "how"))


class NotStorable(ValueError):  # noqa: N818 - told to the user as the reason of a row, not raised at them
    """A point that no store may hold: `args[0]` says which field and why."""


class _Rest(msgspec.Struct, omit_defaults=True):
    """All of a point that is neither identity nor figures; defaults are not written."""

    execution: Execution
    requests: Requests | None = None
    duration_s: float | None = None
    steady_s: tuple[float, float] | None = None
    gpus_deployed: int | None = None
    gpus_stated: int | None = None
    gpus_telemetry: int | None = None
    memory: Memory | None = None
    evals: tuple[Eval, ...] = ()
    expected: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    observed: dict[str, Any] = {}
    client: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


class _Address(msgspec.Struct):
    url: str | None = None


class Beside(msgspec.Struct, frozen=True):
    """What is compared of the rest of a point; nothing else of it is read."""

    execution: _Address
    requests: Requests = NO_REQUESTS
    gpus_deployed: int | None = None
    evals: tuple[Eval, ...] = ()


Shape = tuple[tuple[str, str, str, str | None], ...]
"""(address, definition, at, how) of every figure, in the point's order."""
Form = tuple[str, bytes]
"""SHA-256 of a shape's JSON, and that JSON, compressed."""


class Encoded(NamedTuple):
    """One point as the store keeps it; a named tuple for speed. `content` hashes all of it."""

    point_key: str
    config_key: str
    line_key: str
    config: bytes
    facets: tuple[str, str, str, str, str]
    """model, hardware, engine, precision family, scenario."""
    source: str
    run: str
    concurrency: int | None
    attempt: int
    at_utc: str
    status: Status
    content: bytes
    shape_sha256: str
    shape: bytes
    """Compressed JSON of the `Shape`; one object for all points that share it."""
    figures: bytes
    stated: bytes
    rest: bytes


class _Shared(NamedTuple):
    """What the points of one `FigureShape` share; `shape` is held, so that its number stays its own."""

    shape: FigureShape
    order: tuple[str, ...]
    """Addresses, sorted."""
    rows: tuple[tuple[str, str, str], ...]
    pick: Callable[[Sequence[Any]], tuple[Any, ...]]
    """What is listed as in the shape, in that order."""
    pack: Callable[..., bytes]
    form: Form
    """Where no figure was changed."""


class _Known(NamedTuple):
    """What all points of one identity share; `begun` is the hash of their content as far as that."""

    identity: PointIdentity
    point_key: str
    config_key: str
    config: bytes
    facets: tuple[str, str, str, str, str]
    begun: hashlib._Hash


class Encoder:
    """Encodes points; remembers the keys of the configurations and lines that it has seen."""

    def __init__(self) -> None:
        self._identities: dict[int, _Known] = {}
        self._configs: dict[bytes, str] = {}
        self._lines: dict[tuple[str, str, str], str] = {}
        self._facets: dict[bytes, tuple[str, str, str, str, str]] = {}
        self._orders: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._shapes: dict[Shape, Form] = {}
        self._known_shapes: dict[int, _Shared] = {}
        self._json = msgspec.json.Encoder(order="sorted")
        self._plain = msgspec.json.Encoder(order="deterministic")
        self._packers: dict[int, struct.Struct] = {}

    def encode(self, point: Point) -> Encoded:
        """Columns of a point. Raises NotStorable for figures that are no finite numbers, and for what JSON, UTF-8 or
        the columns cannot hold."""
        try:
            return self._encode(point)
        except (OverflowError, UnicodeEncodeError, TypeError, RecursionError, struct.error) as error:
            raise NotStorable(str(error)[:200]) from error

    def _encode(self, point: Point) -> Encoded:
        execution, identity = point.execution, point.identity
        _check(point)
        known = self._identities.get(id(identity))
        if known is None:
            known = self._identity(identity)
        _, point_key, config_key, config, facets, begun = known
        line = (config_key, execution.run, point.source)
        line_key = self._lines.get(line)
        if line_key is None:
            line_key = _line_key(*line)
            _remember(self._lines, line, line_key)
        found = point.figures
        form, figures, stated = self._shared(found) if isinstance(found, Figures) else self._figures(found)
        rest = self._plain.encode(_rest(point))
        digest = begun.copy()
        said = f"{point_key}{line_key}{point.status}{form[0]}"
        digest.update(b"".join((said.encode(), figures, stated, rest)))
        return Encoded(
            point_key,
            config_key,
            line_key,
            config,
            facets,
            point.source,
            execution.run,
            identity.concurrency,
            execution.attempt,
            execution.finished_utc or execution.started_utc or "",
            point.status,
            digest.digest()[:16],
            *form,
            figures,
            stated,
            rest if len(rest) < _PACK_FROM else zlib.compress(rest, 1),
        )

    def _identity(self, identity: PointIdentity) -> _Known:
        """Keys and facets, remembered by the object: importers give rows of one configuration the very same one. It is
        held, so that its number stays its own."""
        point_key, config_key, config = self._keys(identity)
        facets = self._facets.get(config)
        if facets is None:
            facets = _facets(identity)
            _remember(self._facets, config, facets)
        known = _Known(identity, point_key, config_key, config, facets, hashlib.sha256(config))
        if len(self._identities) >= IDENTITIES:
            self._identities.clear()
        self._identities[id(identity)] = known
        return known

    def _keys(self, identity: PointIdentity) -> tuple[str, str, bytes]:
        """(point key, configuration key, the configuration's JSON)."""
        whole = self._json.encode(identity)
        # Keys are sorted, so the concurrency stands first: {"concurrency":16,"engine":...
        config = b'{"concurrency":null' + whole[whole.index(b",") :]
        if _exact(identity):
            config_key = self._configs.get(config)
            if config_key is None:
                config_key = hashlib.sha256(config).hexdigest()[:ID_LENGTH]
                _remember(self._configs, config, config_key)
            return hashlib.sha256(whole).hexdigest()[:ID_LENGTH], config_key, config
        return identity.point_key, identity.config_key, config

    def _shared(self, found: Figures) -> tuple[Form, bytes, bytes]:
        """(form, numbers, stated) of figures that share their shape: no figure is made."""
        known = self._known_shapes.get(id(found.shape))
        if known is None:
            known = _shape_known(found.shape)
            if len(self._known_shapes) >= IDENTITIES:
                self._known_shapes.clear()
            self._known_shapes[id(found.shape)] = known
        numbers = known.pick(found.numbers)
        if not math.isfinite(sum(numbers)) and not all(map(math.isfinite, numbers)):
            raise _not_finite(zip(known.order, numbers, strict=True))
        figures = known.pack(*numbers)
        if not found.hows:
            return known.form, figures, b""
        hows = known.pick(found.hows)
        shape = tuple([(*row, how) for row, how in zip(known.rows, hows, strict=True)])
        said = [_ABSENT if each is None else each for each in known.pick(found.stated)]
        return encode_shape(shape), figures, known.pack(*said)

    def _figures(self, found: Mapping[str, Figure]) -> tuple[Form, bytes, bytes]:
        # In one order, so that a point has the same content however its figures were listed.
        listed = tuple(found)
        order = self._orders.get(listed)
        if order is None:
            order = tuple(sorted(listed))
            _remember(self._orders, listed, order)
        some = list(map(found.__getitem__, order))
        shape = tuple(zip(order, map(_DEFINITION, some), map(_AT, some), map(_HOW, some), strict=True))
        form = self._shapes.get(shape)
        if form is None:
            form = encode_shape(shape)
            _remember(self._shapes, shape, form)
        packer = self._packers.get(len(shape))
        if packer is None:
            packer = self._packers[len(shape)] = struct.Struct(f"<{len(shape)}d")
        numbers = list(map(_VALUE, some))
        if not all(map(math.isfinite, numbers)):
            raise _not_finite(zip(order, numbers, strict=True))
        said = list(map(_STATED, some))
        if said.count(None) == len(said):
            return form, packer.pack(*numbers), b""
        return form, packer.pack(*numbers), packer.pack(*[_ABSENT if each is None else each for each in said])


def _not_finite(listed: Iterable[tuple[str, float]]) -> NotStorable:
    name, value = next((name, value) for name, value in listed if not math.isfinite(value))
    return NotStorable(f"{name} = {value}")


def _shape_known(shape: FigureShape) -> _Shared:
    places = sorted(range(len(shape.rows)), key=shape.addresses.__getitem__)
    rows = tuple(shape.rows[place] for place in places)
    return _Shared(
        shape,
        tuple(address for address, _, _ in rows),
        rows,
        itemgetter(*places) if len(places) > 1 else tuple,
        struct.Struct(f"<{len(places)}d").pack,
        encode_shape(tuple((*row, None) for row in rows)),
    )


def _line_key(config_key: str, run: str, source: str) -> str:
    """As `Point.line_key`; most runs are named by what JSON writes as it is."""
    if _BARE(run) and _BARE(source):
        text = f'{{"config":"{config_key}","run":"{run}","source":"{source}"}}'
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]
    return content_hash({"config": config_key, "run": run, "source": source}, ID_LENGTH)


_BARE = re.compile(r"[A-Za-z0-9 ._:/+-]*").fullmatch


def _check(point: Point) -> None:
    load, attempt = point.identity.concurrency, point.execution.attempt
    if load is not None and not (type(load) is int and 1 <= load <= MAX_CONCURRENCY):
        raise NotStorable(f"concurrency = {load}")
    if not 0 <= attempt <= MAX_ATTEMPT:
        raise NotStorable(f"attempt = {attempt}")
    if point.duration_s is not None and not math.isfinite(point.duration_s):
        raise NotStorable(f"duration_s = {point.duration_s}")


def _rest(point: Point) -> _Rest:
    requests = point.requests
    return _Rest(
        point.execution,
        None if requests is NO_REQUESTS or requests == NO_REQUESTS else requests,
        point.duration_s,
        point.steady_s,
        point.gpus_deployed,
        point.gpus_stated,
        point.gpus_telemetry,
        point.memory,
        point.evals,
        point.expected,
        point.declared,
        point.observed,
        point.client,
        point.notes,
    )


def _exact(identity: PointIdentity) -> bool:
    """Whether the fast JSON is canonical: no fraction that might be written with an exponent."""
    ratio = identity.scenario.range_ratio
    if ratio and not 1e-3 <= abs(ratio) < 1e15:
        return False
    return all(isinstance(value, str | int | None) for value in identity.extra.values())


def identity_hash(identity: PointIdentity) -> str:
    """The key that `canonical_json` of an identity gives, `content_hash(identity.canonical(), ID_LENGTH)`, sooner."""
    tail = identity_tail(identity)
    return (
        content_hash(identity.canonical(), ID_LENGTH) if tail is None else hash_of(tail, identity.concurrency)
    )


def identity_tail(identity: PointIdentity) -> bytes | None:
    """An identity's canonical JSON after its concurrency, which all loads of a configuration share; None where only the
    slow way is sure to be canonical."""
    if not _exact(identity):
        return None
    whole = _SORTED.encode(identity)
    return whole[whole.index(b",") :]


def hash_of(tail: bytes, concurrency: int | None) -> str:
    """`identity_hash` by the tail."""
    load = b"null" if concurrency is None else str(concurrency).encode()
    return hashlib.sha256(b'{"concurrency":' + load + tail).hexdigest()[:ID_LENGTH]


_SORTED = msgspec.json.Encoder(order="sorted")


def _facets(identity: PointIdentity) -> tuple[str, str, str, str, str]:
    return (
        identity.model,
        identity.hardware,
        identity.engine,
        identity.precision.family or "",
        scenario_name(identity),
    )


def scenario_name(identity: PointIdentity) -> str:
    """What was replayed, in a word to filter by: `fixed-seq-len:1024/1024`, `agentic-coding:DATASET`."""
    scenario = identity.scenario
    if scenario.isl is not None or scenario.osl is not None:
        lengths = "/".join("?" if each is None else str(each) for each in (scenario.isl, scenario.osl))
        return f"{scenario.type}:{lengths}"
    return f"{scenario.type}:{scenario.dataset}" if scenario.dataset else scenario.type


def _remember(memo: dict[Any, Any], key: object, value: object) -> None:
    if len(memo) >= MEMO:
        memo.clear()
    memo[key] = value


def encode_shape(shape: Shape) -> Form:
    """(SHA-256, compressed JSON) of a shape."""
    text = msgspec.json.encode(shape)
    return hashlib.sha256(text).hexdigest(), zlib.compress(text, 6)


P = ParamSpec("P")
T = TypeVar("T")


def _whole(decode: Callable[P, T]) -> Callable[P, T]:
    """The same, where bytes that a damaged store holds are its damage, not a fault of this program."""

    @wraps(decode)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decode(*args, **kwargs)
        except (zlib.error, msgspec.MsgspecError, struct.error, ValueError) as error:
            reason = str(error)[:200]
            raise ServemarkError("store.damaged", Layer.STORE, path="store.sqlite", reason=reason) from error

    return checked


@_whole
def decode_shape(data: bytes) -> Shape:
    """A shape from its column."""
    return msgspec.json.decode(zlib.decompress(data), type=Shape)


@_whole
def decode_identity(data: bytes, concurrency: int | None) -> PointIdentity:
    """The identity of a point: its configuration's column, and its concurrency."""
    config = msgspec.json.decode(zlib.decompress(data), type=PointIdentity)
    return replace(config, concurrency=concurrency)


@_whole
def decode_values(figures: bytes) -> Sequence[float]:
    """The numbers of a point's figures, in the order of its shape."""
    return struct.unpack(f"<{len(figures) // 8}d", figures)


@_whole
def decode_figures(names: Sequence[str], figures: bytes) -> dict[str, float]:
    """Values by the names of their shape."""
    return dict(zip(names, struct.unpack(f"<{len(figures) // 8}d", figures), strict=True))


_BESIDE = msgspec.json.Decoder(Beside)


@_whole
def decode_beside(rest: bytes) -> Beside:
    """What is compared of a point's rest."""
    return _BESIDE.decode(rest if rest.startswith(b"{") else zlib.decompress(rest))


@_whole
def has_evals(rest: bytes) -> bool:
    """Whether a point's rest holds accuracy results."""
    return b'"evals":' in (rest if rest.startswith(b"{") else zlib.decompress(rest))


@_whole
def decode_point(
    identity: PointIdentity,
    shape: Shape,
    figures: bytes,
    stated: bytes,
    rest: bytes,
    *,
    source: str,
    mapping_version: int,
    status: Status,
) -> Point:
    """The point again, equal to the one that was encoded."""
    text = rest if rest.startswith(b"{") else zlib.decompress(rest)
    left = msgspec.json.decode(text, type=_Rest)
    said = array("d", stated) if stated else None
    made = {}
    for place, ((name, definition, at, how), value) in enumerate(
        zip(shape, decode_values(figures), strict=True)
    ):
        was = said[place] if said is not None else _ABSENT
        made[name] = Figure(value, definition, at, None if was != was else was, how)  # noqa: PLR0124 - NaN
    return Point(
        identity,
        left.execution,
        made,
        source,
        mapping_version,
        status,
        left.requests or NO_REQUESTS,
        left.duration_s,
        left.steady_s,
        left.gpus_deployed,
        left.gpus_stated,
        left.gpus_telemetry,
        left.memory,
        left.evals,
        left.expected,
        left.declared,
        left.observed,
        left.client,
        left.notes,
    )
