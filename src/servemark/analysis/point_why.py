"""Where a figure of a stored point comes from: the stated figures behind it, their place in the raw file, the conversion,
and what every gate says of the point. Both `show POINT METRIC --why` and the point's page read this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from servemark.analysis.figure_words import definition_of, formula_of, label_of, text_of, unit_of
from servemark.analysis.measured import FILE_PREFIX
from servemark.analysis.point_types import FigureWhy, WhyEvidence, WhyPart
from servemark.analysis.run_place import run_folder_of
from servemark.base.errors import ServemarkError, input_error
from servemark.base.messages import find_text, text
from servemark.base.printable import one_line
from servemark.metrics.figures import read_figure
from servemark.results.gates import registry
from servemark.results.gates.base import GateFinding, Severity
from servemark.results.point import Figure, Point
from servemark.store.database import Store
from servemark.store.import_types import SourceFile
from servemark.store.imports import find_source
from servemark.store.points import PointFilter, StoredPoint, find_points, load_points
from servemark.store.raw_files import RawFiles
from servemark.store.staging import MAX_TOGETHER


@dataclass(frozen=True, slots=True)
class FoundFigure:
    """A figure of a point: `figure` with its making in `how`, `parts` the stated figures behind it by address (itself where
    it is stated), `formula` with their numbers; or no figure and the message key of the `reason`."""

    figure: Figure | None
    parts: tuple[tuple[str, Figure], ...] = ()
    formula: str = ""
    reason: str | None = None


def find_stored(store: Store, name: str) -> StoredPoint:
    """The point that a ref (`FILE:ORDINAL`) or a point key, or the beginning of one, names: the newest that counts.

    Raises ServemarkError (exit code 2) when there is none, or when a key's beginning names several points.
    """
    found = find_points(store, name)
    if not found:
        raise input_error("analysis.point.unknown", point=name[:80])
    keys = sorted({one.point_key for one in found})
    if len(keys) > 1:
        raise input_error("analysis.point.many", point=name[:80], count=len(keys), some=", ".join(keys[:4]))
    return found[-1]


def find_figure(point: Point, address: str) -> FoundFigure:
    """A figure as stated, or as made of stated ones (`metrics.figures`): the inverse of a latency, a rate per GPU."""
    stated = point.figures.get(address)
    if stated is not None:
        return FoundFigure(stated, ((address, stated),))
    values = {name: figure.value for name, figure in point.figures.items()}
    try:
        reading = read_figure(values, address, point.gpus_deployed)
    except ServemarkError:
        return FoundFigure(None, reason="analysis.point.not_stated")
    if reading.value is None:
        return FoundFigure(None, reason=reading.reason)
    parts = tuple((name, point.figures[name]) for name, _ in reading.made_of if name in point.figures)
    if not parts:
        return FoundFigure(Figure(reading.value, "", ""), (), reading.formula)
    return FoundFigure(_made(reading.value, reading.formula, parts), parts, reading.formula)


def _made(value: float, formula: str, parts: tuple[tuple[str, Figure], ...]) -> Figure:
    """One figure that tells how it was made of `parts`; of a single one its place and its own conversion stay."""
    address, first = parts[0]
    if len(parts) > 1:
        places = ", ".join(figure.at for _, figure in parts)
        return Figure(value, first.definition, places, None, formula)
    making = f"1 / {address} ({first.value:g} {unit_of(address)})" if formula.startswith("1 ÷") else formula
    how = making + (f"; {first.how}" if first.how else "")
    return msgspec.structs.replace(
        first, value=value, stated=first.value if first.stated is None else first.stated, how=how
    )


def all_gates(store: Store, one: StoredPoint) -> list[GateFinding]:
    """What every gate says now, judged among the points of its line (what gates see around a point); the skipped ones are
    among them."""
    wanted = PointFilter(line_key=one.line_key, superseded=True)
    around = sorted(load_points(store, wanted), key=lambda each: each.point_key != one.point_key)[
        :MAX_TOGETHER
    ]
    judged = registry.judge_all([each.point() for each in around])
    found = next((each for stored, (each, _) in zip(around, judged, strict=True) if stored.id == one.id), ())
    return list(found)


def applying(findings: list[GateFinding]) -> list[GateFinding]:
    """Those of gates that had something to judge."""
    return [each for each in findings if each.severity is not Severity.SKIPPED]


def said(key: str, values: Mapping[str, object], lang: str | None = None) -> str:
    """A message with values out of a file; the key with its values where none fits (another version wrote it)."""
    try:
        found = find_text(key, lang, **values)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError):
        found = None
    if found is None:
        found = " ".join([key, *(f"{name}={value}" for name, value in values.items())])
    return one_line(found.splitlines()[0] if found else key)


def short_name(name: str) -> str:
    """The last two parts of a file's name: enough to know it by, and pages travel to people who need no more."""
    return "/".join(Path(name).parts[-2:]) or name


def figure_why(
    store: Store,
    raw: RawFiles,
    name: str,
    address: str,
    *,
    lang: str | None = None,
    runs: Path | None = None,
    records: bool = True,
) -> FigureWhy:
    """Where `address` of the point `name` comes from. `runs`: the folder of this home's runs. For a point of
    ours its raw records give the lines behind the figure, and the figure is made again of them, unless `records` is False.

    Raises ServemarkError (exit code 2) when there is no such point.
    """
    one = find_stored(store, name)
    source = find_source(store, one.file)
    assert source is not None  # noqa: S101 - a row's file is held by a foreign key
    point = one.point()
    found = find_figure(point, address)
    folder = run_folder_of(source, one, runs) if records else None
    evidence, check, substituted = _evidence(folder, address, lang)
    state = raw.check(one.file)
    value = None if found.figure is None else found.figure.value
    return FigureWhy(
        ref=f"{one.file[:FILE_PREFIX]}:{one.ordinal}",
        point_key=one.point_key,
        address=address,
        label=label_of(address, lang),
        value=value,
        text=text_of(address, value),
        unit=unit_of(address),
        definition=definition_of(address, lang),
        formula=formula_of(address, lang),
        substituted=found.formula or substituted,
        absent_because=None if value is not None else text(found.reason or "metrics.absent.always", lang),
        parts=tuple(_part(name, figure, lang) for name, figure in found.parts),
        file=one_line(short_name(source.name)),
        sha256=one.file,
        row=one.ordinal,
        raw_state=state,
        raw_text=text(f"analysis.why.raw_{state}", lang, sha256=one.file),
        importer=source.importer,
        mapping_version=source.mapping_version,
        mapping_text=_mapping(source, lang),
        verdict_text=text(f"analysis.verdict.{one.verdict}", lang),
        evidence=evidence,
        check=check,
        command=f"servemark show {one.point_key} {address} --why",
    )


def _mapping(source: SourceFile, lang: str | None) -> str:
    return text("analysis.why.mapping", lang, importer=source.importer, version=source.mapping_version)


def _part(address: str, figure: Figure, lang: str | None) -> WhyPart:
    stated = figure.value if figure.stated is None else figure.stated
    return WhyPart(
        address=address,
        text=text_of(address, figure.value),
        at=one_line(figure.at),
        stated=f"{stated:.9g}",
        conversion=one_line(figure.how) if figure.how else text("analysis.why.as_stated", lang),
        definition=one_line(figure.definition),
    )


def _evidence(
    folder: Path | None, address: str, lang: str | None
) -> tuple[tuple[WhyEvidence, ...], str, str]:
    """(lines behind the figure, whether it was made again, the formula with numbers) from the run's own raw records."""
    if folder is None:
        return (), "", ""
    from servemark.results.serialize import RESULT_NAME, read_result  # noqa: PLC0415 - own runs alone
    from servemark.results.why import explain  # noqa: PLC0415

    try:
        why = explain(folder, read_result(folder / RESULT_NAME), address, lang)
    except ServemarkError as error:
        return (), error.what(lang), ""
    lines = tuple(
        WhyEvidence(
            each.file if each.line is None else f"{each.file}:{each.line}",
            None if each.request is None else one_line(each.request),
            each.field,
            one_line(each.text),
        )
        for each in why.evidence
    )
    return lines, "; ".join(part for part in (why.rule, why.check) if part), why.substituted
