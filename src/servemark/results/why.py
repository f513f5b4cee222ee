"""Where does this number come from? Any figure of a row back to file, line, field and formula, and made
again.

Percentiles are nearest-rank, so each is one request's own value: that request is named, with its raw times
and the subtraction written out. Sums name their field and how many lines went into them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from servemark.base.messages import text
from servemark.metrics.address import Address, parse
from servemark.metrics.derive import Operand, Reading, latency_behind, read
from servemark.metrics.percentiles import rank
from servemark.metrics.registry import FLIPPED, Kind
from servemark.replay.record import RequestRecord
from servemark.results import measures
from servemark.results.errors import bad_file
from servemark.results.rebuild import Raw, read_raw, rebuild
from servemark.results.row import ResultRow
from servemark.results.serialize import EVALS_NAME, MANIFEST_NAME, REQUESTS_NAME, RESULT_NAME
from servemark.results.written import written

TIME_GRAIN_S = 2e-6
"""Raw times are kept to the microsecond, so a difference of two may be off by this much."""
MAX_REASON = 200
MAX_LINES = 20
"""A longer list of line numbers helps nobody; how many there are is always said."""
_FROM_MANIFEST = {
    "concurrency": "concurrency",
    "gpus_deployed": "declared.gpus",
    "counts.planned": "expected.requests",
}
"""Figures that were written down before the run: field of the row -> field of the manifest."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One place that a figure rests on: file of the run folder, line (from 1) where it has lines, the request
    it belongs to, the field, and the field's numbers written out."""

    file: str
    line: int | None
    request: str | None
    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Why:
    """One figure explained. `value` is in `unit` as stored; `substituted` is the formula with its numbers.

    `recomputed` is made from the raw files alone; `agrees` says whether it equals the stored value within the
    grain of the raw times, None when no raw file holds the figure's parts. `check` says so in words.
    """

    address: str
    label: str
    value: float | None
    unit: str
    formula: str
    substituted: str
    rule: str
    evidence: tuple[Evidence, ...]
    recomputed: float | None
    agrees: bool | None
    check: str
    absent_because: str | None


def explain(run_folder: Path, row: ResultRow, address: Address | str, lang: str | None = None) -> Why:
    """Lead one figure of `row` back to the files of `run_folder`, in `lang`.

    Raises ServemarkError for text that is no address (exit code 2), for a raw file that is missing or damaged,
    and for one that contradicts the row so far that the figure cannot be led back to it.
    """
    chosen = parse(address) if isinstance(address, str) else address
    raw = read_raw(run_folder, row)
    try:
        return _explained(chosen, raw, lang)
    except (
        ArithmeticError,
        ValueError,
    ) as error:  # figures that no formula is made for: not what was measured
        reason = str(error)[:MAX_REASON]
        raise bad_file(
            "contradicted", run_folder / REQUESTS_NAME, metric=str(chosen), reason=reason
        ) from error


def _explained(chosen: Address, raw: Raw, lang: str | None) -> Why:
    """`explain` once the raw files are read. ArithmeticError or ValueError: they do not fit the row."""
    reading = read(raw.stored, chosen)
    rebuilt = rebuild(raw)
    again = None if chosen.metric.field in _FROM_MANIFEST else read(rebuilt, chosen).value
    agrees = None if again is None or reading.value is None else _same(reading, again, rebuilt)
    return Why(
        address=str(chosen),
        label=text(chosen.metric.label_key, lang),
        value=reading.value,
        unit=chosen.unit,
        formula=text(chosen.metric.formula_key, lang),
        substituted=reading.substituted,
        rule=_rule(chosen, raw, lang) if reading.value is not None else "",
        evidence=tuple(_evidence(reading, raw, lang)),
        recomputed=again,
        agrees=agrees,
        check=_check(reading, again, agrees, lang),
        absent_because=text(reading.reason, lang) if reading.reason else None,
    )


def _same(reading: Reading, again: float, rebuilt: dict[str, object]) -> bool:
    """Equal within the grain of raw times. For a rate the figures that it is made of are compared: a
    reciprocal would stretch the grain."""
    if reading.value is None:
        return False
    if reading.substituted:
        made = [operand for operand in reading.operands if operand.field not in _FROM_MANIFEST]
        return all(_close(operand.value, _raw_field(rebuilt, operand.field)) for operand in made)
    return _close(reading.value, again)


def _raw_field(rebuilt: dict[str, object], dotted: str) -> float | None:
    """A number of a rebuilt row; list places ("evals.0.n") are followed too."""
    here: object = rebuilt
    for part in dotted.split("."):
        if isinstance(here, dict):
            here = here.get(part)
        elif isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        else:
            return None
    return float(here) if isinstance(here, int | float) else None


def _close(stored: float | None, again: float | None) -> bool:
    if stored is None or again is None:
        return False
    return math.isclose(stored, again, rel_tol=1e-9, abs_tol=TIME_GRAIN_S)


def _check(reading: Reading, again: float | None, agrees: bool | None, lang: str | None) -> str:
    if agrees is None:
        return text("results.why.not_recomputed", lang)
    if agrees:
        return text("results.why.same", lang)
    return text("results.why.differs", lang, found=f"{again:.9g}", stored=f"{reading.value:.9g}")


def _rule(address: Address, raw: Raw, lang: str | None) -> str:
    """How a statistic picks or makes its value; empty for a figure that has none."""
    statistic = address.statistic
    if statistic is None:
        return ""
    n = raw.seen.count(latency_behind(address.metric).id)
    if statistic.startswith("p"):
        return text("results.why.percentile", lang, rank=rank(n, float(statistic[1:])) + 1, n=n)
    if statistic in FLIPPED:
        chosen = FLIPPED[statistic] if address.metric.inverse_of else statistic
        return text("results.why.percentile", lang, rank=1 if chosen == "min" else n, n=n)
    key = {"mean": "mean", "std": "std", "n": "count"}[statistic]
    return text(f"results.why.{key}", lang, n=n, below=n - 1)


def _behind(metric: str, place: int, raw: Raw) -> tuple[int, RequestRecord, int]:
    """(line, request, which of the request's values) of the value at `place` in ascending order; of equal values
    those of earlier lines come first."""
    wanted, skip = raw.seen.at(metric, place)
    values_of = measures.VALUES[metric]
    for line, record in raw.ok():
        for which, value in enumerate(values_of(record)):
            if value == wanted:
                if not skip:
                    return line, record, which
                skip -= 1
    raise ValueError(f"{REQUESTS_NAME} changed while it was read")


def _evidence(reading: Reading, raw: Raw, lang: str | None) -> list[Evidence]:
    """The places that a figure rests on; for an absent one, where its parts should have been."""
    if reading.value is None:
        return []
    if reading.address.metric.kind is Kind.TASK:
        return [_task_evidence(reading, lang)]
    found: dict[Evidence, None] = {}  # a part that stands in both sides of a ratio is named once
    for operand in reading.operands:
        found |= dict.fromkeys(_operand_evidence(operand, raw, lang))
    return list(found)


def _task_evidence(reading: Reading, lang: str | None) -> Evidence:
    """An accuracy score: the samples of its task."""
    n = next((int(operand.value or 0) for operand in reading.operands if operand.field.endswith(".n")), 0)
    place = reading.operands[0].field.rpartition(".")[0].replace("evals.", "tasks.")
    said = text("results.why.sum_items", lang, n=n)
    return Evidence(EVALS_NAME, None, None, f"{place}.samples[].correct", f"{said}: {reading.substituted}")


def _operand_evidence(operand: Operand, raw: Raw, lang: str | None) -> list[Evidence]:
    """Where one stored figure comes from."""
    room, _, name = operand.field.partition(".")
    if room == "distributions":
        metric, _, statistic = name.partition(".")
        return _statistic_evidence(metric, statistic, raw, lang)
    if room == "tokens":
        return [_sum_evidence(f"{name}_tokens", raw, lang)]
    if operand.field in _FROM_MANIFEST:
        stated = Operand(_FROM_MANIFEST[operand.field], operand.value)
        return [_stored_evidence(stated, MANIFEST_NAME)]
    if room == "counts":
        lines = (line for line, record in raw.measured() if record.outcome == name)
        return [_lines_evidence("outcome", name, lines, lang)]
    special = _SPECIAL.get(operand.field)
    if special is not None:
        return special(raw, lang)
    return [_stored_evidence(operand, RESULT_NAME, text("results.why.stored", lang))]


def _stored_evidence(operand: Operand, file: str, said: str = "") -> Evidence:
    number = "—" if operand.value is None else f"{operand.value:.9g}"
    return Evidence(file, None, None, operand.field, f"{number}; {said}" if said else number)


def _statistic_evidence(metric: str, statistic: str, raw: Raw, lang: str | None) -> list[Evidence]:
    """The very request behind a percentile, or the field and n behind a mean."""
    n = raw.seen.count(metric)
    if not n:
        return []
    if statistic.startswith("p") or statistic in FLIPPED:
        places = {"min": 0, "max": n - 1}
        place = places[statistic] if statistic in places else rank(n, float(statistic[1:]))
        line, record, which = _behind(metric, place, raw)
        said = written(metric, record, which, lang)
        return [Evidence(REQUESTS_NAME, line, record.id, said.field, said.text)]
    values_of = measures.VALUES[metric]
    requests = n if metric in measures.SINGLE else sum(bool(values_of(record)) for _, record in raw.ok())
    said_n = text("results.why.values", lang, n=n, requests=requests)
    return [Evidence(REQUESTS_NAME, None, None, metric, said_n)]


def _sum_evidence(field: str, raw: Raw, lang: str | None) -> Evidence:
    found = raw.seen.sums[field]
    said = text("results.why.sum", lang, n=found.known)
    return Evidence(REQUESTS_NAME, None, None, field, f"{said} = {found.total}")


def _lines_evidence(field: str, wanted: str, lines: Iterable[int], lang: str | None) -> Evidence:
    """How many lines say `wanted`, and which they are as far as a list helps. `lines` ascend."""
    first: list[int] = []
    n = 0
    for line in lines:
        n += 1
        if n <= MAX_LINES:
            first.append(line)
    listed = ", ".join(map(str, first)) + (" …" if n > MAX_LINES else "")
    said = text("results.why.lines", lang, n=n)
    shown = f"{wanted}: {said}" + (f" ({listed})" if n else "")
    return Evidence(REQUESTS_NAME, first[0] if n == 1 else None, None, field, shown)


def _window_evidence(raw: Raw, lang: str | None) -> list[Evidence]:
    """The request that opens the measured window and the one that closes it."""
    first: tuple[float, int, RequestRecord] | None = None
    last: tuple[float, int, RequestRecord] | None = None
    for line, record in raw.measured():
        start, end = record.start_s, measures.last_moment_s(record)
        if start is None or end is None:
            continue
        if first is None or start < first[0]:
            first = (start, line, record)
        if last is None or end > last[0]:
            last = (end, line, record)
    if first is None or last is None:
        return []
    end, line, record = last
    field = "chunk_s[-1]" if record.chunk_s and record.chunk_s[-1] == end else "end_s"
    return [
        Evidence(REQUESTS_NAME, first[1], first[2].id, "start_s", f"{first[0]:.6f}"),
        Evidence(REQUESTS_NAME, line, record.id, field, f"{end:.6f}"),
    ]


def _stalls_evidence(raw: Raw, lang: str | None) -> list[Evidence]:
    """The requests whose replies stalled, and the longest stalls one by one: where in the reply, when, how long."""
    stalled = [(line, record) for line, record in raw.ok() if measures.stalls_of(record)]
    lines = {record.id: line for line, record in stalled}
    found = measures.longest_stalls(record for _, record in stalled)
    each = [
        Evidence(
            REQUESTS_NAME, lines[record.id], record.id, f"chunk_s[{stall.chunk}]",
            text(
                "results.why.stall", lang, gap=f"{stall.gap_s:.6f}", at=f"{stall.at_s:.6f}", chunk=stall.chunk,
                of=len(record.chunk_s),
            ),
        )
        for record, stall in found[:MAX_LINES]
    ]  # fmt: skip
    return [_lines_evidence("chunk_s", "stall", (line for line, _ in stalled), lang), *each]


def _sessions_evidence(raw: Raw, lang: str | None) -> list[Evidence]:
    """Session lifetimes over the window."""
    mean, peak = raw.seen.live_sessions()
    window = raw.seen.window_s() or 0.0
    said = text("results.why.sessions", lang, n=len(raw.seen.spans), peak=peak)
    alive = (mean or 0.0) * window
    return [
        Evidence(REQUESTS_NAME, None, None, "session, start_s, end_s", f"{said}: {alive:.6f} ÷ {window:.6f}"),
        *_window_evidence(raw, lang),
    ]


def _usage_evidence(raw: Raw, lang: str | None) -> list[Evidence]:
    """Cached and all prompt tokens as the replies state them."""
    return [_sum_evidence("cached_tokens", raw, lang), _sum_evidence("input_tokens", raw, lang)]


def _engine_evidence(raw: Raw, lang: str | None) -> list[Evidence]:
    """The engine's cache counters before and after the window, as the row keeps them."""
    return _counter_evidence(("cached_prompt_tokens", "prompt_tokens"), raw)


def _counter_evidence(names: tuple[str, ...], raw: Raw) -> list[Evidence]:
    found = []
    for name in names:
        place = "observed.engine_counters"
        before, after = (
            _raw_field(dict(raw.stored), f"{place}.{when}.{name}") for when in ("before", "after")
        )
        said = f"after {after:.9g} - before {before:.9g}" if before is not None and after is not None else "—"
        found.append(Evidence(RESULT_NAME, None, None, f"{place}.*.{name}", said))
    return found


_SPECIAL: dict[str, Callable[[Raw, str | None], list[Evidence]]] = {
    "window_s": _window_evidence,
    "stalls": _stalls_evidence,
    "achieved_concurrency": _sessions_evidence,
    "cache.usage": _usage_evidence,
    "cache.engine": _engine_evidence,
    **{
        f"speculation.{name}": lambda raw, _, name=name: _counter_evidence((f"spec_{name}",), raw)  # type: ignore[misc]
        for name in ("steps", "drafted", "accepted")
    },
}
