"""`servemark show` for imported points: the point with its verdict, one figure, or where a figure comes from."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from servemark.base.errors import ServemarkError, input_error
from servemark.base.home import Home
from servemark.base.joined import sentences, with_head
from servemark.base.messages import text
from servemark.base.printable import one_line, printable
from servemark.store.reasons import reason_text

if TYPE_CHECKING:
    from servemark.analysis.prediction_view import PredictionView
    from servemark.results.gates.base import GateFinding
    from servemark.results.point import Figure
    from servemark.store.database import Store
    from servemark.store.import_types import SourceFile
    from servemark.store.points import StoredPoint
    from servemark.store.raw_files import RawFiles

_NAME = re.compile(r"[0-9a-f]{4,16}|[0-9a-f]{4,64}:\d{1,9}")


def show_point(  # noqa: PLR0911 - one return an answer
    home: Home, name: str, metric: str | None, *, why: bool, as_json: bool
) -> int | None:
    """Print what is asked of an imported point and give the exit code; None when there is no such point."""
    if not _NAME.fullmatch(name) or not home.store.exists():
        return None
    from servemark.analysis.prediction_view import prediction_view  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415 - only when it may be a point
    from servemark.store.imports import find_source  # noqa: PLC0415
    from servemark.store.points import find_points, findings_of  # noqa: PLC0415

    try:
        opened = Store.open(home.store, read_only=True)
    except ServemarkError as error:
        if error.key == "store.older_schema":  # made before there were imports: it holds none
            return None
        raise
    with opened as store:
        found = find_points(store, name)
        if not found:
            return None
        if len({one.point_key for one in found}) > 1:
            some = ", ".join(sorted({one.point_key for one in found})[:4])
            raise input_error("cli.show.many_points", point=name, count=len(found), some=some)
        one = found[-1]
        source = find_source(store, one.file)
        assert source is not None  # noqa: S101 - a row's file is held by a foreign key
        findings = findings_of(store, one.id)
        if metric is None:
            foretold = prediction_view(store, one.id, one.model)
            return _whole(one, len(found), source, findings, foretold, as_json=as_json)
        from servemark.analysis.point_why import find_figure  # noqa: PLC0415 - a figure alone needs it

        figure = find_figure(one.point(), metric).figure
        if figure is None:
            return _absent(one, metric, as_json)
        if not why:
            click.echo(
                json.dumps(_figure_json(one, metric, figure))
                if as_json
                else f"{figure.value:g} {_unit(metric)}"
            )
            return 0
        return _why(store, home, Asked(one, metric, figure, source, findings), as_json=as_json)


def _unit(metric: str) -> str:
    from servemark.analysis.figure_words import unit_of  # noqa: PLC0415

    return unit_of(metric)


def _figure_json(one: StoredPoint, metric: str, figure: Figure) -> dict[str, object]:
    body = {"point_key": one.point_key, "run": one.run, "source": one.source, "metric": metric}
    return {**body, "value": figure.value, "unit": _unit(metric) or None, "definition": figure.definition}


def _absent(one: StoredPoint, metric: str, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"point_key": one.point_key, "metric": metric, "value": None}))
    else:
        click.echo(
            text(
                "cli.show.point.absent", None, metric=printable(metric), some=", ".join(one.addresses()[:12])
            )
        )
    return 1


def _whole(
    one: StoredPoint,
    runs: int,
    source: SourceFile,
    findings: list[GateFinding],
    foretold: PredictionView | None,
    *,
    as_json: bool,
) -> int:
    if as_json:
        click.echo(json.dumps(_whole_json(one, source, findings, foretold), ensure_ascii=False))
        return 0
    point = one.point()
    facets = (
        one.model,
        one.hardware,
        one.engine,
        one.precision or "?",
        one.scenario,
        f"c{one.concurrency or '-'}",
    )
    head = " · ".join(facets)
    click.echo(one_line(f"{one.point_key}  {head}"))
    when = text(
        "cli.show.point.run", None, run=one.run, source=one.source, attempt=one.attempt, at=one.at_utc or "?"
    )
    click.echo(one_line(when))
    click.echo(text(f"cli.show.point.verdict.{one.verdict}"))
    for line in _said(findings):
        click.echo("  " + line)
    if not one.current:
        click.echo(text("cli.show.point.superseded"))
    for name, figure in sorted(point.figures.items(), key=lambda each: _place(each[0])):
        click.echo(one_line(f"  {name:<32} {figure.value:>14.6g} {_unit(name)}").rstrip())
    for line in _foretold(foretold) if foretold is not None else ():
        click.echo(line)
    for each in point.evals:
        error = f" ± {each.stderr:g}" if each.stderr is not None else ""
        click.echo(one_line(f"  {each.task} {each.metric:<20} {each.score:g}{error}"))
    click.echo(
        printable(text("cli.show.point.from", None, file=source.name, row=one.ordinal, sha256=one.file[:16]))
    )
    if runs > 1:
        click.echo(text("cli.show.point.others", None, others=runs - 1))
    return 0


def _whole_json(
    one: StoredPoint, source: SourceFile, findings: list[GateFinding], foretold: PredictionView | None
) -> dict[str, object]:
    from servemark.results.point import point_json  # noqa: PLC0415

    body: dict[str, object] = {
        "verdict": one.verdict,
        "findings": [{"gate": f.gate, "severity": str(f.severity), "values": f.values} for f in findings],
        "latest": bool(one.latest),
        "current": bool(one.current),
        "file": source.name,
        "sha256": one.file,
        "row": one.ordinal,
        "importer": source.importer,
    }
    if foretold is not None:
        body["prediction"] = asdict(foretold)
    return {**body, "point": json.loads(point_json(one.point()))}


def _foretold(view: PredictionView) -> list[str]:
    """What was foretold beside what was measured, and the record by class."""
    from servemark.cli.text_table import table  # noqa: PLC0415

    head = text("predict.use.page.title")
    made = text("predict.use.page.made", None, when=view.made_utc)
    names = ("metric", "value", "interval", "measured", "class", "n")
    heads = [text(f"predict.use.column.{name}") for name in names]
    heads[4:4] = [text("predict.use.page.error"), text("predict.use.page.within")]
    rows = [
        [
            one.label,
            one.predicted,
            one.interval,
            one.measured,
            one.error,
            "—" if one.inside is None else text(f"predict.use.page.{'yes' if one.inside else 'no'}"),
            one.class_text,
            str(one.residuals),
        ]
        for one in view.rows
    ]
    first = sentences([with_head(head, made), view.words])
    told = [first, *(f"  {line}" for line in table(heads, rows, 118))]
    if view.record:
        record = ("class", "figures", "points", "coverage", "promised", "median_error", "verdict")
        heads = [text(f"predict.use.page.{name}") for name in record]
        rows = [
            [r.label, str(r.figures), str(r.points), r.coverage, r.promised, r.median_error, r.judged_text]
            for r in view.record
        ]
        told += [text("predict.use.page.by_class"), *(f"  {line}" for line in table(heads, rows, 118))]
    return [*told, view.record_words]


def _place(address: str) -> tuple[str, int, str]:
    """Figures of one metric stand together, in the order in which people read statistics."""
    from servemark.analysis.figure_words import STATISTICS, split  # noqa: PLC0415

    metric, statistic = split(address)
    return metric, STATISTICS.index(statistic) if statistic in STATISTICS else -1, statistic


def _said(findings: list[GateFinding]) -> list[str]:
    return [f"[{each.gate}] {reason_text(f'gate.{each.gate}', each.values)}" for each in findings]


@dataclass(frozen=True, slots=True)
class Asked:
    """One figure of one point, the file that it came from, and what gates found fault with."""

    point: StoredPoint
    metric: str
    figure: Figure
    source: SourceFile
    findings: list[GateFinding]


def _why(store: Store, home: Home, asked: Asked, *, as_json: bool) -> int:
    """Value, definition, file, hash, place, stated value, conversion, mapping version, and every gate with its numbers."""
    from servemark.analysis.point_why import all_gates, applying  # noqa: PLC0415
    from servemark.store.raw_files import RawFiles  # noqa: PLC0415

    raw = RawFiles(home.raw)
    one, metric, figure, source = asked.point, asked.metric, asked.figure, asked.source
    beside = _beside(figure, source, raw)
    states = [raw.check(one.file), *(str(each["raw_state"]) for each in beside)]
    state = next((each for each in states if each != "ok"), "ok")
    gates = applying(all_gates(store, one))
    if as_json:
        body = _figure_json(one, metric, figure)
        body |= {
            "file": source.name,
            "sha256": one.file,
            "raw": str(raw.path(one.file)),
            "raw_state": states[0],
        }
        body |= {"from": beside} if beside else {}
        body |= {"row": one.ordinal, "at": figure.at, "stated": figure.stated, "conversion": figure.how}
        body |= {
            "importer": source.importer,
            "mapping_version": source.mapping_version,
            "verdict": one.verdict,
        }
        told = [
            {"gate": f.gate, "severity": str(f.severity), "values": f.values} for f in gates or asked.findings
        ]
        click.echo(json.dumps({**body, "gates": told}, ensure_ascii=False))
        return 0 if state == "ok" else 1
    stated = figure.value if figure.stated is None else figure.stated
    lines = [
        f"{metric} = {figure.value:g} {_unit(metric)}".rstrip(),
        text("cli.show.point.definition", None, definition=figure.definition),
        text(
            "cli.show.point.file", None, file=source.name, row=one.ordinal, at=figure.at, stated=f"{stated:g}"
        )
        if not beside
        else text("cli.show.point.beside_row", None, file=source.name, row=one.ordinal, at=figure.at),
        text("cli.show.point.conversion", None, how=figure.how)
        if figure.how
        else text("cli.show.point.as_stated"),
        text(f"cli.show.point.raw_{states[0]}", None, path=raw.path(one.file), sha256=one.file),
        *_beside_lines(beside),
        text("cli.show.point.mapping", None, importer=source.importer, version=source.mapping_version),
        text(f"cli.show.point.verdict.{one.verdict}"),
    ]
    for line in [*lines, *("  " + each for each in _gate_lines(gates or asked.findings))]:
        click.echo(one_line(line))
    return 0 if state == "ok" else 1


def _beside(figure: Figure, source: SourceFile, raw: RawFiles) -> list[dict[str, object]]:
    """The files beside the row's own that a figure was made of: power samples."""
    from servemark.results.measured_power import BETWEEN, DEFINITION  # noqa: PLC0415

    if figure.definition != DEFINITION:
        return []
    named = BETWEEN + figure.at.rpartition(":")[0] + BETWEEN
    return [
        {"file": name, "sha256": sha256, "raw": str(raw.path(sha256)), "raw_state": raw.check(sha256)}
        for name, sha256 in source.siblings
        if BETWEEN + name + BETWEEN in named
    ]


def _beside_lines(beside: list[dict[str, object]]) -> list[str]:
    lines = []
    for each in beside:
        lines.append(text("cli.show.point.beside", None, file=each["file"]))
        state = each["raw_state"]
        lines.append(text(f"cli.show.point.raw_{state}", None, path=each["raw"], sha256=each["sha256"]))
    return lines


def _gate_lines(findings: list[GateFinding]) -> list[str]:
    from servemark.results.gates.base import Severity  # noqa: PLC0415

    lines = []
    for each in findings:
        if each.severity is Severity.OK:
            numbers = ", ".join(f"{name} = {value}" for name, value in each.values.items())
            said = text("cli.show.point.gate_ok", None, gate=each.gate, numbers=numbers)
            lines.append(said.rstrip(" :\uff1a") if not numbers else said)
        else:
            lines += _said([each])
    return lines
