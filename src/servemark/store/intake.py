"""One file from its bytes into the store: recognise, keep the bytes, map, judge, write. And mapping kept bytes again."""

from __future__ import annotations

import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from servemark.base.collector import uncollected
from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.results.importers.base import HEAD_BYTES, Given, Importer, surest
from servemark.results.measured_power import BETWEEN, PowerTold, with_power
from servemark.results.point import Mapped
from servemark.results.serialize import check_files, read_result
from servemark.store.database import Store
from servemark.store.found_files import Found, damaged
from servemark.store.import_types import Judge, Kept, ReasonCount, RowStatus, SourceFile
from servemark.store.imports import find_source, keep_source, put_file, sources
from servemark.store.point_codec import Encoder
from servemark.store.raw_files import BLOCK, RawFiles
from servemark.store.staging import Staging
from servemark.store.staging_process import LostError, SecondProcess, can_share, second_process, stage_alone

_TIE = 1e-9
OWN = "servemark"
"""The importer of our own rows. Such a row is kept among the runs too, as if it had been measured here."""


@dataclass(frozen=True, slots=True)
class Intake:
    """How files are taken in. `hints` is what the user says that the files do not; `format` an importer's id that is
    taken instead of asking; `gates` the version of all gates. Without a store nothing is kept: a dry run."""

    raw: RawFiles
    importers: Sequence[Importer]
    judge: Judge
    gates: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    format: str | None = None
    power: Mapping[str, Found] = field(default_factory=dict)
    """GPU metrics that the user names for the file, by name; they count as files beside it."""
    encoder: Encoder = field(default_factory=Encoder)


@dataclass(frozen=True, slots=True)
class FileReport:
    """What came of one file: its importer's id (empty where the format is not known), and what the store holds of it, or
    the error that kept it out."""

    name: str
    sha256: str
    importer: str
    kept: Kept | None
    error: ServemarkError | None = None
    power: PowerTold = field(default_factory=PowerTold)
    """What came of the power samples beside it."""

    @property
    def whole(self) -> bool:
        """Whether every row became a point."""
        return (
            self.error is None
            and self.kept is not None
            and not self.kept.rows.keys() & {"unmapped", "invalid"}
        )


def take_in(store: Store | None, intake: Intake, found: Found) -> FileReport:
    """Import one file; with `store` None only say what would come of it.

    Raises ServemarkError for the store and the disk; a file that cannot be used is a report with its error.
    """
    try:
        sha256, size = hash_of(found)
        if found.folder is not None:
            check_files(found.folder, read_result(found.folder, verify_files=False))
    except ServemarkError as error:
        return FileReport(found.name, "", "", None, error)
    except (OSError, EOFError, zlib.error) as error:
        return FileReport(found.name, "", "", None, damaged(found.name, error))
    if intake.power:
        found = replace(found, beside={**found.beside, **intake.power})
        intake = replace(intake, hints={**intake.hints, "power": BETWEEN.join(intake.power)})
    known = find_source(store, sha256) if store is not None else None
    is_new = known is None or not known.importer or _otherwise(intake, known)
    with (
        second_process(intake.raw, found, size) if store is not None and is_new else None
    ) or nullcontext() as second:
        if store is not None and not intake.raw.has(sha256):  # also where it was here and its bytes were lost
            with found.open() as stream:
                kept_sha, _ = intake.raw.keep(stream)
            if kept_sha != sha256:
                changed = input_error("store.import.changing", path=found.name)
                return FileReport(found.name, "", "", None, changed)
        if known is not None and not is_new:
            report = FileReport(found.name, sha256, known.importer, _same(store, known, intake))
            among_runs(store, intake, report)
            return report
        beside = Used(found.beside)
        name = found.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        source = SourceFile(sha256, name, size, "", 0, dict(intake.hints))
        opened: Callable[[], BinaryIO] = found.open if store is None else lambda: intake.raw.opened(sha256)
        given = given_of(found, opened, intake.hints, beside)
        report = _map(store, intake, source, given, beside, again=known is not None, second=second)
    among_runs(store, intake, report)
    return report


def among_runs(store: Store | None, intake: Intake, report: FileReport) -> None:
    """A row of our own stands among the runs of the store as well; nothing changes where it does already."""
    if store is not None and report.importer == OWN and report.whole:
        with intake.raw.opened(report.sha256) as stream:
            store.ingest(stream.read(), report.name)


def map_again(store: Store, intake: Intake) -> Iterator[FileReport]:
    """Map the kept bytes of every imported file with the present importers; one transaction a file.

    A file whose bytes are missing or changed stays as it is, and is reported with the error.
    """
    for source in sources(store):
        try:
            given, beside = _of_kept(intake, source)
        except ServemarkError as error:
            yield FileReport(source.name, source.sha256, source.importer, None, error)
            continue
        yield _map(store, intake, replace(source, importer="", mapping_version=0), given, beside, again=True)


def map_kept(store: Store, intake: Intake, source: SourceFile) -> FileReport:
    """Map the kept bytes of a file that is not among the imported ones yet, by the importer that it names where there is
    such a one, within the caller's transaction. Raises ServemarkError where its bytes are missing or changed."""
    given, beside = _of_kept(intake, source)
    known = source.importer if source.importer in {each.id for each in intake.importers} else None
    return _map(store, replace(intake, format=known), source, given, beside, again=False, keep=put_file)


def _of_kept(intake: Intake, source: SourceFile) -> tuple[Given, Used]:
    """Kept bytes as they would be given. Raises ServemarkError where they are missing or changed."""
    intake.raw.open(source.sha256).close()
    beside = Used({name: _kept(intake.raw, name, sha) for name, sha in source.siblings})
    found = Found(source.name, source.bytes, _opener(intake.raw, source.sha256))
    return given_of(found, found.open, source.hints, beside), beside


def _map(
    store: Store | None,
    intake: Intake,
    source: SourceFile,
    given: Given,
    beside: Used,
    *,
    again: bool,
    keep: Callable[..., Kept] = keep_source,
    second: SecondProcess | None = None,
) -> FileReport:
    """Recognise, map and keep (or, without a store, only count); with a second process where it can help."""
    file = _File(source, given, beside)
    # Uncollected until the rows are let go: a search for cycles would walk through all of them.
    with uncollected(), Staging(intake.raw.folder, intake.judge, intake.encoder) as staged:
        try:
            return _kept_rows(store, intake, file, staged, _stage(staged, intake, file, second), again, keep)
        except LostError:
            return _kept_rows(store, intake, file, staged, _stage(staged, intake, file, None), again, keep)


@dataclass(frozen=True, slots=True)
class _File:
    """One file on its way in."""

    source: SourceFile
    given: Given
    beside: Used
    told: PowerTold = field(default_factory=PowerTold)


def _stage(staged: Staging, intake: Intake, file: _File, second: SecondProcess | None) -> Importer | None:
    """Stage every row of the file, or the one row that says why there are none; returns the importer that takes it.
    Raises LostError where the second process is lost."""
    given = file.given
    importer, rows = rows_of(intake.importers, given, intake.format)
    staged.reset()
    try:
        if importer is not None and can_share(importer, given):
            if second is None:
                stage_alone(staged, importer, given)
            else:
                sha256 = file.source.sha256
                second.stage(staged, importer, given, raw=intake.raw, sha256=sha256, judge=intake.judge)
        else:
            staged.take(with_power(rows, given, file.told))
    except LostError:
        raise
    except ServemarkError as error:
        if error.layer not in (Layer.RESULTS, Layer.INPUT):
            raise
        staged.reset([Mapped(0, "invalid", None, None, error.key, dict(error.values))])
    except (OSError, EOFError, zlib.error) as error:
        broken = damaged(file.source.name, error)
        staged.reset([Mapped(0, "invalid", None, None, broken.key, dict(broken.values))])
    except Exception as error:
        name = importer.id if importer is not None else ""
        reason: dict[str, object] = {"importer": name, "error": f"{type(error).__name__}: {error}"[:300]}
        staged.reset([Mapped(0, "invalid", None, None, "store.row.importer_failed", reason)])
    return importer


def _kept_rows(  # noqa: PLR0917 - the end of `_map`, to which it may come twice
    store: Store | None,
    intake: Intake,
    file: _File,
    staged: Staging,
    importer: Importer | None,
    again: bool,
    keep: Callable[..., Kept],
) -> FileReport:
    """Put what is staged into the store, or only count it. Raises LostError; nothing is in the store then."""
    source = file.source
    name, version = (importer.id, importer.version) if importer is not None else ("", 0)
    if store is None:
        return FileReport(source.name, source.sha256, name, _counted(staged), power=file.told)
    used = tuple((one, _keep(intake.raw, each)) for one, each in file.beside.used.items())
    whole = replace(source, importer=name, mapping_version=version, siblings=used, gates=intake.gates)
    kept = keep(store, whole, staged, intake.judge, again=again)
    return FileReport(source.name, source.sha256, name, kept, power=file.told)


def rows_of(
    importers: Sequence[Importer], given: Given, format_id: str | None = None
) -> tuple[Importer | None, Iterator[Mapped]]:
    """The importer that takes the file (`format_id`: that one), and its rows; one unmapped row where none or two would."""
    if format_id is not None:
        chosen = next(each for each in importers if each.id == format_id)
        return chosen, chosen.read(given)
    some = surest([_careful(each) for each in importers], given)
    if not some:
        return None, iter([Mapped(0, "unmapped", None, None, "store.row.unknown_format", {})])
    if len(some) > 1 and some[0][0] - some[1][0] < _TIE:
        names: dict[str, object] = {"first": some[0][1].id, "second": some[1][1].id}
        return None, iter([Mapped(0, "unmapped", None, None, "store.row.two_formats", names)])
    return some[0][1], some[0][1].read(given)


def _careful(importer: Importer) -> Importer:
    """The importer with a detector that says no where it would fail."""

    def detect(given: Given) -> float:
        try:
            return importer.detect(given)
        except Exception:
            return 0.0

    return replace(importer, detect=detect)


def _otherwise(intake: Intake, known: SourceFile) -> bool:
    """Whether the user now says other things of a file that is here."""
    other_format = intake.format is not None and intake.format != known.importer
    other_hints = bool(intake.hints) and dict(intake.hints) != known.hints
    return (
        other_format
        or other_hints
        or any((name, hash_of(each)[0]) not in known.siblings for name, each in intake.power.items())
    )


def _same(store: Store | None, known: SourceFile, intake: Intake) -> Kept:
    with Staging(intake.raw.folder, intake.judge, intake.encoder) as nothing:
        return (
            keep_source(store, known, nothing, intake.judge)
            if store is not None
            else Kept("same", {}, (), {})
        )


def _counted(staged: Staging) -> Kept:
    """What would be kept, for a dry run; what is superseded only the store knows."""
    rows: dict[RowStatus, int] = {}
    reasons: dict[tuple[RowStatus, str, str], int] = {}
    verdicts: dict[str, int] = {}
    for row in itertools.chain.from_iterable(staged):
        rows[row.status] = rows.get(row.status, 0) + 1
        if row.point is not None:
            verdicts[str(row.verdict)] = verdicts.get(str(row.verdict), 0) + 1
        else:
            key = (row.status, row.reason, row.values)
            reasons[key] = reasons.get(key, 0) + 1
    told = sorted(reasons.items(), key=lambda each: -each[1])
    counts = tuple(ReasonCount(status, reason, json.loads(values), n) for (status, reason, values), n in told)
    return Kept("added", rows, counts, verdicts)


def hash_of(found: Found) -> tuple[str, int]:
    """SHA-256 and length of a file's bytes. Raises OSError, EOFError or zlib.error for a damaged one."""
    digest, size = hashlib.sha256(), 0
    with found.open() as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def given_of(
    found: Found, opened: Callable[[], BinaryIO], hints: Mapping[str, str], beside: Mapping[str, Given]
) -> Given:
    """A found file as importers take it."""
    with opened() as stream:
        head = stream.read(HEAD_BYTES)
    return Given(found.name, found.size, head, opened, hints, beside)


class Used(Mapping[str, Given]):
    """Files beside one, which remembers those that were opened: only they are part of what was mapped."""

    def __init__(self, found: Mapping[str, Found]) -> None:
        self._found = found
        self.used: dict[str, Found] = {}

    def __getitem__(self, name: str) -> Given:
        found = self._found[name]

        def opened() -> BinaryIO:
            self.used[name] = found
            return found.open()

        given = given_of(found, found.open, {}, {})
        return replace(given, open=opened)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found


def _keep(raw: RawFiles, found: Found) -> str:
    """Keep the bytes of a file that another one was mapped with; returns their SHA-256."""
    sha256, _ = hash_of(found)
    if not raw.has(sha256):
        with found.open() as stream:
            sha256, _ = raw.keep(stream)
    return sha256


def _opener(raw: RawFiles, sha256: str) -> Callable[[], BinaryIO]:
    return lambda: raw.opened(sha256)


def _kept(raw: RawFiles, name: str, sha256: str) -> Found:
    with raw.open(sha256) as stream:
        size = sum(len(block) for block in iter(lambda: stream.read(BLOCK), b""))
    return Found(name, size, _opener(raw, sha256))
