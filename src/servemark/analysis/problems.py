"""What a reader must know before trusting the figures: doubts of rows, failed requests, missing and damaged
runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from servemark.analysis.panels import provenance
from servemark.analysis.report_types import FailedRequest, Level, Problem, ProblemGroup
from servemark.analysis.run_files import RunFiles, concurrency_of, expected_runs
from servemark.base.errors import ServemarkError
from servemark.base.messages import find_text, text
from servemark.replay.record import RequestRecord
from servemark.results.gates.base import GateFinding
from servemark.results.gates.words import next_step, sentence, title
from servemark.results.row import ResultRow, Warned

MAX_FAILED = 50
MAX_DETAIL_CHARS = 2000
NOTES = frozenset({"few_requests", "first_chunk_assumed", "tokens_from_chunks", "host_shared", "stalls_seen"})
"""Doubts that are good to know but seldom change what a figure means."""
QUARANTINE_CODE = "gate."
"""Begins the code of a problem that a gate found; the point is there all the same."""
_ORDER: tuple[Level, ...] = ("error", "warning", "note")


def _said(key: str, values: Mapping[str, object], lang: str | None) -> str | None:
    """A message with values from a file: None where the catalogue has no such key or the values do not fit
    it."""
    try:
        return find_text(key, lang, **{str(name): value for name, value in values.items()})
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        # str.format raises these when values read from an untrusted file do not fit the template.
        return None


def warning_problem(warned: Warned, row: ResultRow, lang: str | None) -> Problem:
    """A stored doubt in words; one of an unknown code (a newer servemark's) shows its code and raw values."""
    key = f"warning.{warned.code}"
    raw = json.dumps(warned.values, ensure_ascii=False, default=str)
    return Problem(
        level="note" if warned.code in NOTES else "warning",
        code=warned.code,
        title=_said(f"{key}.title", {}, lang) or warned.code,
        text=_said(key, warned.values, lang) or raw,
        next_step=_said(f"{key}.next", warned.values, lang),
        run_id=row.run_id,
        concurrency=row.concurrency,
    )


def quarantine_problem(finding: GateFinding, row: ResultRow, lang: str | None) -> Problem:
    """A gate's word that keeps a point off every front, and what to do about it."""
    return Problem(
        level="error",
        code=f"{QUARANTINE_CODE}{finding.gate}",
        title=text("analysis.problem.quarantined.title", lang, title=title(finding.gate, lang)),
        text=text("analysis.problem.quarantined", lang, said=sentence(finding, lang)),
        next_step=next_step(finding, lang),
        run_id=row.run_id,
        concurrency=row.concurrency,
    )


def _error_problem(error: ServemarkError, run: RunFiles, lang: str | None) -> Problem:
    """A part of a run folder that could not be read."""
    return Problem(
        level="error",
        code=error.key,
        title=text("analysis.problem.damaged.title", lang, run=run.folder.name),
        text=error.what(lang),
        next_step=error.next_step(lang),
        run_id=run.folder.name,
        concurrency=run.row.concurrency if run.row else concurrency_of(run.folder.name),
    )


def _failure_problem(run: RunFiles, failure: Mapping[str, object], lang: str | None) -> Problem:
    """A run that says itself why it has no result."""
    key, values = str(failure.get("key", "")), failure.get("values")
    fitted: Mapping[str, object] = values if isinstance(values, Mapping) else {}
    raw = f"{key} {json.dumps(fitted, ensure_ascii=False, default=str)}"
    return Problem(
        level="error",
        code=key,
        title=text(
            "analysis.problem.failed.title", lang, run=run.folder.name, layer=str(failure.get("layer", "?"))
        ),
        text=_said(key, fitted, lang) or raw,
        next_step=_said(f"{key}.next", fitted, lang),
        run_id=run.folder.name,
        concurrency=concurrency_of(run.folder.name),
    )


def _plain_problem(key: str, run_id: str, concurrency: int | None, lang: str | None) -> Problem:
    return Problem(
        level="error",
        code=key,
        title=text(f"{key}.title", lang, run=run_id),
        text=text(key, lang, run=run_id),
        next_step=text(f"{key}.next", lang, run=run_id),
        run_id=run_id,
        concurrency=concurrency,
    )


def missing_runs(runs: Sequence[RunFiles]) -> tuple[tuple[str, int | None], ...]:
    """(run id, concurrency) of runs that a manifest expected and of which there is no folder: neither among
    those given nor beside them (whoever asks for one run of a line does not miss the others)."""
    given = {run.folder.name for run in runs} | {str(run.manifest.get("run_id")) for run in runs}
    expected = {
        (name, concurrency)
        for run in runs
        for name, concurrency in expected_runs(run.manifest)
        if not (run.folder.parent / PurePath(name).name).exists()
    }
    return tuple(
        sorted(((name, c) for name, c in expected if name not in given), key=lambda e: (e[1] or 0, e[0]))
    )


def problems(runs: Sequence[RunFiles], warnings: Sequence[Problem], lang: str | None) -> tuple[Problem, ...]:
    """Everything worth saying, the gravest first; inside a level in the order of the runs."""
    found = list(warnings)
    for run in runs:
        found += [_error_problem(error, run, lang) for error in run.errors] + _disagreements(run, lang)
        if run.row is not None or run.errors:
            continue
        if run.failure is not None:
            found.append(_failure_problem(run, run.failure, lang))
        else:
            name = run.folder.name
            found.append(_plain_problem("analysis.problem.no_result", name, concurrency_of(name), lang))
    for name, concurrency in missing_runs(runs):
        found.append(_plain_problem("analysis.problem.missing_point", name, concurrency, lang))
    return tuple(sorted(found, key=lambda problem: _ORDER.index(problem.level)))


def grouped_problems(found: Sequence[Problem]) -> tuple[ProblemGroup, ...]:
    """Problems of equal level, code, title and next step together, each group where its first one stood."""
    groups: dict[tuple[Level, str, str, str | None], list[Problem]] = {}
    for problem in found:
        groups.setdefault((problem.level, problem.code, problem.title, problem.next_step), []).append(problem)
    return tuple(ProblemGroup(*key, tuple(members)) for key, members in groups.items())


def _disagreements(run: RunFiles, lang: str | None) -> list[Problem]:
    """Declared facts that what ran contradicts."""
    row = run.row
    return [
        Problem(
            level="warning",
            code="analysis.problem.provenance",
            title=text("analysis.problem.provenance.title", lang, field=fact.field),
            text=text(
                "analysis.problem.provenance",
                lang,
                field=fact.field,
                declared=fact.declared,
                observed=fact.observed,
            ),
            next_step=text("analysis.problem.provenance.next", lang),
            run_id=row.run_id,
            concurrency=row.concurrency,
        )
        for fact in (provenance(row) if row else ())
        if row and fact.agree is False
    ]


def failed_requests(
    row: ResultRow, records: Sequence[tuple[int, RequestRecord]], limit: int = MAX_FAILED
) -> tuple[tuple[FailedRequest, ...], int]:
    """(the first `limit` measured requests that did not end well, how many there are)."""
    bad = [(line, r) for line, r in records if r.phase == "measured" and r.outcome != "ok"]
    shown = tuple(failed_request(row, line, record) for line, record in bad[:limit])
    return shown, len(bad)


def failed_request(row: ResultRow, line: int, record: RequestRecord) -> FailedRequest:
    """One request that did not end well, at its line of the records."""
    return FailedRequest(
        run_id=row.run_id,
        concurrency=row.concurrency,
        request=record.id,
        session=record.session,
        turn=record.turn,
        outcome=record.outcome,
        kind=record.error_kind,
        detail=record.error_detail[:MAX_DETAIL_CHARS] if record.error_detail else None,
        http_status=record.http_status,
        at_s=record.start_s,
        line=line,
    )
