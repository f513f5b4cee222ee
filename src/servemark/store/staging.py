"""Rows of one file on their way into the store: encoded and judged before any lock is taken, spilled to disk when many."""

from __future__ import annotations

import marshal
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol, Self

import msgspec

from servemark.base.canonical import canonical_json
from servemark.base.collector import uncollected
from servemark.base.files import disk_error, make_folder
from servemark.results.gates.base import GateFinding, Severity, Verdict
from servemark.results.point import Mapped, Point
from servemark.store.import_types import Judge, RowStatus
from servemark.store.point_codec import Encoded, Encoder, NotStorable
from servemark.store.predictions import Foretold, foretold_of

BATCH = 12000
"""Rows that are judged together and held in memory as points, some 3 kB each; a run that two batches share is judged
twice."""
MAX_TOGETHER = 20_000
"""Points of one run that are held and judged together at most; a longer run is judged by whole lines (`imports`)."""
IN_MEMORY = 40_000
"""Encoded rows that are held in memory; more go to a file."""
AT_ONCE = 4_000
"""Rows that are put into bytes at once on their way to the file."""
MAX_REASON_VALUES = 2_000
_VERDICTS = {str(verdict): verdict for verdict in Verdict}
_TOLD = (Severity.WARNING, Severity.QUARANTINE)


class _Read(NamedTuple):
    """One row that waits to be judged; point and columns, or the reason why there are none."""

    ordinal: int
    status: RowStatus
    reason: str
    values: str
    point: Point | None
    encoded: Encoded | None


class Staged(NamedTuple):
    """One row, ready for its columns; a named tuple for speed."""

    ordinal: int
    status: RowStatus
    reason: str
    values: str
    point: Encoded | None
    verdict: Verdict
    findings: tuple[tuple[str, str, str], ...]
    """(gate, severity, values as JSON), only of those that are not ok."""
    foretold: tuple[Foretold, ...] = ()
    """What its manifest foretold of it, with what it measured."""


class Rest(Protocol):
    """Rows that another process stages."""

    def chunks(self, runs: dict[tuple[str, str], int]) -> Iterator[list[Staged]]:
        """Chunks of rows in order; adds to `runs` (as `Staging.runs`) those of the rows, before it ends."""


class Staging:
    """All rows of a file, in order. A context manager: its spill file goes with it."""

    def __init__(self, folder: Path, judge: Judge, encoder: Encoder) -> None:
        self._folder = folder
        self._judge = judge
        self._encoder = encoder
        self._held: list[Staged] = []
        self._spill: IO[bytes] | None = None
        self._chunks: list[int] = []
        self._rest: Rest | None = None
        self.rows = 0
        """Taken here; those of `follow` are not counted."""
        self.runs: dict[tuple[str, str], int] = {}
        """(source, run) -> batches that it stands in: more than one means it was judged in pieces."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = []
        if self._spill is not None:
            self._spill.close()

    def take(self, rows: Iterable[Mapped], together: int = BATCH) -> None:
        """Encode and judge every row, so many together. What `rows` raises goes through; nothing is in the store then."""
        for some in self.batches(rows, together):
            self._held += some
            self.rows += len(some)
            if len(self._held) >= IN_MEMORY:
                self._spill_held()

    def batches(self, rows: Iterable[Mapped], size: int) -> Iterator[list[Staged]]:
        """Every row encoded and judged, some `size` together; they are handed over, and not kept here."""
        some, waiting = map(self._read, rows), list[_Read]()
        with uncollected():
            while batch := list(islice(some, size)):
                waiting += batch
                # The last rows are judged with those before them: a row told twice is recognised only among such.
                whole = _whole_runs(waiting) if len(batch) == size else len(waiting)
                if whole:
                    yield self._batch(waiting[:whole])
                del waiting[:whole]
            if waiting:
                yield self._batch(waiting)

    def follow(self, rest: Rest) -> None:
        """What `rest` gives comes after all rows that are here."""
        self._rest = rest

    def reset(self, rows: Iterable[Mapped] = ()) -> None:
        """Forget everything and take these rows instead."""
        self.__exit__(None, None, None)
        self._held, self._spill, self._chunks, self._rest, self.rows = [], None, [], None, 0
        self.runs.clear()
        self.take(rows)

    def __iter__(self) -> Iterator[list[Staged]]:
        """Chunks of rows in order; may be asked for more than once."""
        if self._spill is not None:
            self._spill.seek(0)
            for size in self._chunks:
                yield unpacked(self._spill.read(size))
        if self._held:
            yield self._held
        if self._rest is not None:
            yield from self._rest.chunks(self.runs)

    def _read(self, row: Mapped) -> _Read:
        """Encoded as soon as it is mapped, while all of it is at hand; its bytes are let go."""
        point = row.point
        if point is None:
            status: RowStatus = "invalid" if row.status == "mapped" else row.status
            return _Read(row.ordinal, status, row.reason, plain(row.reason_values), None, None)
        try:
            return _Read(row.ordinal, "mapped", "", "{}", point, self._encoder.encode(point))
        except NotStorable as error:
            reason = plain({"reason": str(error)})
            return _Read(row.ordinal, "invalid", "store.row.not_storable", reason, None, None)

    def _batch(self, rows: list[_Read]) -> list[Staged]:
        good = [row.point for row in rows if row.point is not None]
        for key in {(point.source, point.execution.run) for point in good}:
            self.runs[key] = self.runs.get(key, 0) + 1
        judged = iter(self._judge(good))
        found = []
        for ordinal, status, reason, values, point, encoded in rows:
            if point is None:
                found.append(Staged(ordinal, status, reason, values, None, Verdict.VALID, ()))
                continue
            findings, verdict = next(judged)
            words = told(findings) if verdict is not Verdict.VALID else ()
            foretold = foretold_of(point) if point.expected else ()
            found.append(Staged(ordinal, status, reason, values, encoded, verdict, words, foretold))
        return found

    def _spill_held(self) -> None:
        try:
            if self._spill is None:
                make_folder(self._folder)
                self._spill = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - lives as long as the staging
            for some in (self._held[at : at + AT_ONCE] for at in range(0, len(self._held), AT_ONCE)):
                data = packed(some)
                self._spill.write(data)
                self._chunks.append(len(data))
        except OSError as error:
            raise disk_error(error, self._folder) from error
        self._held = []


def packed(rows: list[Staged]) -> bytes:
    """A chunk of rows as bytes of this moment, for `unpacked`."""
    return marshal.dumps([_bare(row) for row in rows])


def unpacked(data: bytes) -> list[Staged]:
    """The chunk again."""
    return [_dressed(row) for row in marshal.loads(data)]  # noqa: S302 - our own bytes of a moment ago


def _bare(row: Staged) -> tuple[object, ...]:
    """A row as plain tuples and text, which pass through a file in half the time."""
    ordinal, status, reason, values, point, verdict, findings, foretold = row
    bare = None if point is None else tuple(point)
    return ordinal, status, reason, values, bare, str(verdict), findings, [tuple(each) for each in foretold]


def _dressed(row: tuple[Any, ...]) -> Staged:
    """The row that `_bare` was given."""
    point, verdict, findings, foretold = row[4:]
    told = tuple(Foretold._make(each) for each in foretold)
    return Staged._make((*row[:4], point and Encoded._make(point), _VERDICTS[verdict], findings, told))


def _whole_runs(rows: list[_Read]) -> int:
    """How many of the rows may be judged now: up to the last place that no run stands on both sides of, and else all but
    the run of the last row, which may go on, unless there are too many already."""
    last = rows[-1].point
    if last is None or len(rows) >= MAX_TOGETHER:
        return len(rows)
    begins: dict[tuple[str, str], int] = {}
    for place, row in enumerate(rows):
        if row.point is not None:
            begins.setdefault((row.point.source, row.point.execution.run), place)
    least = len(rows)
    for place in range(len(rows) - 1, 0, -1):
        point = rows[place].point
        if point is not None:
            least = min(least, begins[point.source, point.execution.run])
        if least == place:
            return place
    for place in range(len(rows) - 1, -1, -1):
        point = rows[place].point
        if point is not None and (point.execution.run != last.execution.run or point.source != last.source):
            return place + 1
    return 0


def told(findings: Iterable[GateFinding]) -> tuple[tuple[str, str, str], ...]:
    """Findings that are warnings or worse, as columns; each gate once, its worst word."""
    some = [each for each in findings if each.severity in _TOLD]
    if len(some) > 1:
        some.sort(key=lambda each: each.severity is Severity.QUARANTINE)
        some = list({each.gate: each for each in some}.values())
    return tuple([(each.gate, each.severity.value, plain(each.values)) for each in some])


def plain(values: dict[str, object]) -> str:
    """Values of a message as JSON; what JSON cannot hold is written out, and a long text is cut."""
    if not values:
        return "{}"
    try:
        if all(map(_simple, values.values())):
            text = _SORTED.encode(values).decode()
        else:
            text = canonical_json(values)
            text.encode("utf-8")
    except (ValueError, TypeError, RecursionError):
        text = canonical_json({name: _written(value) for name, value in values.items()})
    if len(text) > MAX_REASON_VALUES:
        text = canonical_json({name: _written(value)[:200] for name, value in values.items()})
    return text


def _simple(value: object) -> bool:
    """Whether the fast encoder writes the value as canonical JSON does: a short whole number, a float without an
    exponent, plain text."""
    if type(value) is float:
        return value == 0 or 1e-4 <= abs(value) < 1e15
    if type(value) is str:
        return value.isascii() and value.isprintable()
    return type(value) is int and -(2**53) < value < 2**53


_SORTED = msgspec.json.Encoder(order="sorted")


def _written(value: object) -> str:
    return str(value)[:MAX_REASON_VALUES].encode("utf-8", "replace").decode("utf-8")
