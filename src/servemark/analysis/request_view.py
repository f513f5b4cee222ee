"""The raw records of one of our own runs as a page shows them: histograms, requests in lanes, engine and GPU metrics over
time, failed requests, logs, accuracy samples. Bounded whatever the run's size; what was thinned out is said.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from servemark.analysis.figure_words import metric_label
from servemark.analysis.format import display, one
from servemark.analysis.histogram import Histogram, histogram
from servemark.analysis.panels import cache_panel, eval_panels, phases
from servemark.analysis.problems import MAX_FAILED, failed_request
from servemark.analysis.report_types import FailedRequest
from servemark.analysis.request_types import (
    HistogramView,
    LanesView,
    LogFile,
    LogView,
    RequestView,
    SamplesView,
)
from servemark.analysis.run_place import folder_files
from servemark.analysis.timeline import Bar, bar_of, free_lane
from servemark.analysis.tracks import engine_tracks, gpu_tracks
from servemark.base.errors import ServemarkError, input_error
from servemark.base.messages import text
from servemark.base.printable import one_line, printable
from servemark.metrics.registry import METRICS
from servemark.metrics.request import chunk_gaps_s
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import has_torn_tail, read_records
from servemark.results.measures import VALUES
from servemark.results.row import ResultRow
from servemark.results.serialize import EVALS_NAME, REQUESTS_NAME, RESULT_NAME, read_result, row_to_json
from servemark.results.tally import to_microseconds

HISTOGRAMS = ("ttft_s", "tpot_s", "chunk_gap_s", "e2el_s", "input_tokens", "output_tokens")
GAPS = "chunk_gap_s"
LOG_RANGE = 10.0
"""A histogram is logarithmic when its p99 is this many times its median."""
MAX_REQUESTS = 300_000
"""Requests that are read; about 100 MB of memory."""
MAX_VALUES = 200_000
"""Values that a histogram is made of; more are thinned out evenly."""
MAX_BARS = 1500
"""Requests that are drawn."""
MAX_LOG_BYTES = 128 * 1024
TICKS = 6


@dataclass(slots=True)
class Values:
    """Values of one metric; beyond MAX_VALUES every other one is dropped and every `stride`th is taken."""

    kept: array[float] = field(default_factory=lambda: array("d"))
    stride: int = 1
    seen: int = 0

    def extend(self, values: Sequence[float]) -> None:
        """Take the values of one request, in their order."""
        self.kept.extend(values if self.stride == 1 else values[-self.seen % self.stride :: self.stride])
        self.seen += len(values)
        while len(self.kept) >= MAX_VALUES:
            self.kept = self.kept[::2]
            self.stride *= 2


@dataclass(slots=True)
class Gathered:
    """What one pass over records gathers: values by metric, bars with their lane where it is told, failures."""

    values: dict[str, Values]
    bars: list[tuple[int | None, Bar]] = field(default_factory=list)
    failed: list[FailedRequest] = field(default_factory=list)
    failed_total: int = 0
    never_started: int = 0
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, metrics: Iterable[str]) -> Self:
        """Nothing yet, with room for these metrics."""
        return cls({name: Values() for name in metrics})


def request_view(folder: Path, lang: str | None = None) -> RequestView:
    """Read a run folder. Raises ServemarkError when it has no sound result; damaged records become a note."""
    row = read_result(folder / RESULT_NAME)
    found = _read(folder, row, lang)
    plain = row_to_json(row)
    if found.failed_total > len(found.failed):
        said = {"shown": len(found.failed), "total": found.failed_total}
        found.notes.append(text("analysis.requests.failed_more", lang, **said))
    return RequestView(
        run_id=row.run_id,
        histograms=tuple(histogram_views(found, lang)),
        lanes=lanes_view(found, lang),
        engine=engine_tracks(folder, lang),
        gpus=gpu_tracks(folder, lang),
        failed=tuple(found.failed),
        failed_total=found.failed_total,
        cache=cache_panel(row, plain, lang),
        phases=phases(row, lang),
        logs=tuple(LogFile(name, size) for name, size in folder_files(folder) if name.startswith("logs/")),
        notes=tuple(found.notes),
    )


def _read(folder: Path, row: ResultRow, lang: str | None) -> Gathered:
    found = Gathered.of(HISTOGRAMS)
    path = folder / REQUESTS_NAME
    count = 0
    try:
        for line, record in _records(path, found, lang):
            if record.phase != "measured":
                continue
            count += 1
            if count > MAX_REQUESTS:
                found.notes.append(text("analysis.requests.capped", lang, limit=MAX_REQUESTS))
                break
            _take(found, line, record, row)
    except ServemarkError as error:
        found.notes.append(text("analysis.requests.bad_lines", lang, reason=error.what(lang)))
    return found


def _records(path: Path, found: Gathered, lang: str | None) -> Iterator[tuple[int, RequestRecord]]:
    if has_torn_tail(path):
        found.notes.append(text("analysis.requests.torn", lang))
    return read_records(path, allow_torn_tail=True)


def _take(found: Gathered, line: int, record: RequestRecord, row: ResultRow) -> None:
    if record.outcome == "ok":
        for name, values in found.values.items():
            values.extend(chunk_gaps_s(record) if name == GAPS else VALUES[name](record))
    else:
        found.failed_total += 1
        if len(found.failed) < MAX_FAILED:
            found.failed.append(failed_request(row, line, record))
    if record.start_s is None:
        found.never_started += 1
    else:
        found.bars.append((record.lane, bar_of(record, record.start_s, 0.0)))


def histogram_views(found: Gathered, lang: str | None) -> Iterator[HistogramView]:
    """The histograms of what was gathered; metrics without any value are left out."""
    for name, values in found.values.items():
        if name == GAPS:  # whole microseconds as everywhere, for those alone that are counted
            values.kept = array("d", map(to_microseconds, values.kept))
        made = histogram(name, METRICS[name].unit.value, values.kept)
        if made is not None and made.p50 and made.p99 and made.p99 > LOG_RANGE * made.p50:
            made = histogram(name, METRICS[name].unit.value, values.kept, log=True)
        if made is not None:
            yield _histogram_view(made, values, lang)


def _histogram_view(made: Histogram, values: Values, lang: str | None) -> HistogramView:
    shown = display(made.unit, (made.p99, made.p50))
    edges = tuple(edge * shown.factor for edge in made.edges)
    notes = []
    if made.above:
        notes.append(text("analysis.requests.hist.above", lang, count=made.above, max=shown.text(made.max)))
    if made.at_or_below_zero:
        notes.append(text("analysis.requests.hist.zero", lang, count=made.at_or_below_zero))
    if values.stride > 1:
        notes.append(text("analysis.requests.hist.thinned", lang, stride=values.stride, total=values.seen))
    marks = ((name, value) for name, value in (("p50", made.p50), ("p90", made.p90), ("p99", made.p99)))
    return HistogramView(
        metric=made.metric,
        label=metric_label(made.metric, lang),
        unit=shown.unit,
        log=made.log,
        edges=edges,
        counts=made.counts,
        texts=tuple(
            text(
                "analysis.requests.hist.bin",
                lang,
                low=shown.number(low),
                high=shown.text(high),
                count=count,
            )
            for low, high, count in zip(made.edges, made.edges[1:], made.counts, strict=False)
        ),
        marks=tuple(
            (name, value * shown.factor, shown.text(value)) for name, value in marks if value is not None
        ),
        n=values.seen,
        note=" ".join(notes),
    )


def lanes_view(found: Gathered, lang: str | None) -> LanesView:
    """Lanes of all requests, then as many of them as can be drawn, evenly by their start."""
    bars = sorted(found.bars, key=lambda each: each[1].start_s)
    zero = bars[0][1].start_s if bars else 0.0
    placed: list[tuple[int, Bar]] = []
    ends: list[float] = []
    for lane, bar in bars:
        where = free_lane(ends, bar.start_s) if lane is None else lane
        while len(ends) <= where < MAX_REQUESTS:
            ends.append(0.0)
        if where < len(ends):
            ends[where] = max(ends[where], bar.end_s)
        placed.append((where, bar))
    total = len(placed)
    shown = placed if total <= MAX_BARS else [placed[i * total // MAX_BARS] for i in range(MAX_BARS)]
    failed = [each for each in placed if each[1].outcome != "ok"] if total > MAX_BARS else []
    if failed:  # what went wrong is drawn as far as there is room
        kept = {id(bar) for _, bar in shown}
        shown += [each for each in failed if id(each[1]) not in kept][: MAX_BARS // 3]
    used = sorted({lane for lane, _ in placed})
    rank = {lane: place for place, lane in enumerate(used)}
    duration = max((bar.end_s for _, bar in placed), default=zero) - zero
    key = "analysis.requests.sampled" if total > MAX_BARS else "analysis.requests.all"
    return LanesView(
        duration_s=duration,
        lanes=len(used),
        lane=tuple(rank[lane] for lane, _ in shown),
        start=tuple(round(bar.start_s - zero, 4) for _, bar in shown),
        first=tuple(
            None if bar.first_content_s is None else round(bar.first_content_s - zero, 4) for _, bar in shown
        ),
        end=tuple(round(bar.end_s - zero, 4) for _, bar in shown),
        ok=tuple(bar.outcome == "ok" for _, bar in shown),
        said=tuple(_said(bar, zero, lang) for _, bar in shown),
        ticks=ticks(duration),
        total=total + found.never_started,
        note=text(key, lang, shown=len(shown), total=total + found.never_started) if total else "",
    )


def _said(bar: Bar, zero: float, lang: str | None) -> str:
    """A bar in words: what a reader of the screen hears."""
    parts = [
        one_line(bar.request),
        text("analysis.requests.bar.start", lang, at=one(bar.start_s - zero, "s")),
        "" if bar.ttft_s is None else text("analysis.requests.bar.ttft", lang, ttft=one(bar.ttft_s, "s")),
        "" if bar.e2el_s is None else text("analysis.requests.bar.took", lang, e2el=one(bar.e2el_s, "s")),
        ""
        if bar.input_tokens is None or bar.output_tokens is None
        else text("analysis.requests.bar.tokens", lang, input=bar.input_tokens, output=bar.output_tokens),
        "" if bar.outcome == "ok" else text(f"analysis.requests.outcome.{bar.outcome}", lang),
    ]
    return " · ".join(part for part in parts if part)


def ticks(duration_s: float) -> tuple[tuple[float, str], ...]:
    """Round moments from 0 to the end, at most TICKS + 1 of them."""
    if duration_s <= 0:
        return ()
    rough = duration_s / TICKS
    power = 10.0 ** len(str(int(rough))) / 10 if rough >= 1 else 0.1
    while power > rough:
        power /= 10
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
    return tuple((step * i, one(step * i, "s") if i else "0") for i in range(int(duration_s / step) + 1))


def samples_view(folder: Path, lang: str | None = None, limit: int = 40) -> SamplesView:
    """Accuracy tasks of a run with up to `limit` samples of each, right and wrong mixed.

    Raises ServemarkError when the result or the samples are damaged.
    """
    from servemark.evals.io import read_evals  # noqa: PLC0415 - only where there are evals

    row = read_result(folder / RESULT_NAME)
    kept = read_evals(folder / EVALS_NAME) if (folder / EVALS_NAME).is_file() else ()
    return SamplesView(row.run_id, eval_panels(row.evals, kept, limit, lang))


def log_view(folder: Path, name: str, lang: str | None = None) -> LogView:
    """The end of one of the run's logs. Raises ServemarkError (exit code 2) for a name that is none of them."""
    sizes = dict(folder_files(folder))
    if not name.startswith("logs/") or name not in sizes:
        raise input_error("analysis.log.unknown", name=name[:120])
    size = sizes[name]
    try:
        with (folder / name).open("rb") as stream:
            stream.seek(max(0, size - MAX_LOG_BYTES))
            data = stream.read(MAX_LOG_BYTES)
    except OSError as error:
        raise input_error(
            "analysis.log.unreadable", name=name[:120], reason=error.strerror or str(error)
        ) from error
    note = ""
    if size > MAX_LOG_BYTES:
        note = text("analysis.log.tail", lang, shown=len(data) // 1024, total=size // 1024)
        data = data.partition(b"\n")[2]
    return LogView(name, printable(data.decode("utf-8", "replace")), note)
