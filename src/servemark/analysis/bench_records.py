"""Requests that another client listed in its result (vLLM's `--save-detailed`, SGLang's `--output-details`): arrays of times
and lengths by request, as histograms and, where starts are told, as lanes. All times there are seconds.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable

from servemark.analysis.problems import MAX_DETAIL_CHARS, MAX_FAILED
from servemark.analysis.report_types import FailedRequest
from servemark.analysis.request_types import RequestView
from servemark.analysis.request_view import Gathered, histogram_views, lanes_view
from servemark.analysis.timeline import Bar
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.store.import_types import SourceFile
from servemark.store.points import StoredPoint
from servemark.store.raw_files import RawFiles

IMPORTERS = frozenset({"vllm-bench", "sglang-bench"})
MAX_BYTES = 32 * 2**20
COUNTED = "ttft_s.n"
"""The figure that the importer makes of the list of first-token times: it tells that the list is there, and which row."""
HISTOGRAMS = ("ttft_s", "itl_s", "e2el_s", "input_tokens", "output_tokens")


def has_bench_records(source: SourceFile, one: StoredPoint) -> bool:
    """Whether the imported row lists its requests, and the file is small enough to be read for a page."""
    return source.importer in IMPORTERS and source.bytes <= MAX_BYTES and COUNTED in one.addresses()


def bench_request_view(
    raw: RawFiles, source: SourceFile, one: StoredPoint, lang: str | None = None
) -> RequestView | None:
    """What the lists show; None where there are none. Raises ServemarkError when the kept bytes are missing or changed."""
    if not has_bench_records(source, one):
        return None
    with raw.open(one.file) as stream:
        row = _row(stream.read(MAX_BYTES + 1), one.ordinal)
    firsts = _numbers(row.get("ttfts"))
    if sum(bool(each) for each in firsts) != one.value(COUNTED):
        return None
    found = _gathered(row, firsts, one)
    notes = [] if found.bars else [text("analysis.requests.no_starts", lang)]
    if found.failed_total > len(found.failed):
        said = {"shown": len(found.failed), "total": found.failed_total}
        notes.append(text("analysis.requests.failed_more", lang, **said))
    return RequestView(
        run_id=one_line(one.run),
        histograms=tuple(histogram_views(found, lang)),
        lanes=lanes_view(found, lang),
        engine=None,
        gpus=None,
        failed=tuple(found.failed),
        failed_total=found.failed_total,
        cache=None,
        phases=(),
        logs=(),
        notes=tuple(notes),
    )


def _row(data: bytes, ordinal: int) -> dict[str, object]:
    """The row at its place: the object itself, an element of a list, or a line. Empty where it cannot be read."""
    try:
        whole = json.loads(data)
    except RecursionError:
        return {}
    except ValueError:
        lines = [line for line in data.split(b"\n") if line.strip()]
        try:
            whole = json.loads(lines[ordinal])
        except (ValueError, IndexError, RecursionError):
            return {}
    if isinstance(whole, list):
        whole = whole[ordinal] if ordinal < len(whole) else {}
    return whole if isinstance(whole, dict) else {}


def _numbers(values: object) -> list[float | None]:
    """Each entry as a finite number, None for anything else."""
    if not isinstance(values, list):
        return []
    return [
        float(each)
        if isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each)
        else None
        for each in values
    ]


def _gathered(row: dict[str, object], firsts: list[float | None], one: StoredPoint) -> Gathered:
    found = Gathered.of(HISTOGRAMS)
    gaps = row.get("itls")
    each_gaps: Iterable[object] = gaps if isinstance(gaps, list) else ()
    starts = _numbers(row.get("start_times"))
    lengths = [_numbers(row.get(key)) for key in ("input_lens", "output_lens")]
    errors = row.get("errors")
    for place, (first, listed, start, given, made, error) in enumerate(
        itertools.zip_longest(firsts, each_gaps, starts, *lengths, errors if isinstance(errors, list) else ())
    ):
        between = [gap for gap in _numbers(listed) if gap is not None]
        if error:
            found.failed_total += 1
            if len(found.failed) < MAX_FAILED:
                found.failed.append(_failed(one, place, error))
        whole = None if not first else first + sum(between)
        if first and not error:
            told = {"ttft_s": [first], "itl_s": between, "e2el_s": [whole] if between else []}
            told |= {"input_tokens": [given], "output_tokens": [made]}
            for name, values in told.items():
                found.values[name].extend([value for value in values if value is not None])
        if start is not None:
            found.bars.append((None, _bar(place, start, first, whole, bool(error))))
    return found


def _failed(one: StoredPoint, place: int, error: object) -> FailedRequest:
    detail = one_line(str(error)[:MAX_DETAIL_CHARS])
    return FailedRequest(
        one.run, one.concurrency, f"#{place}", "", 0, "error", None, detail, None, None, place + 1
    )


def _bar(place: int, start: float, first: float | None, whole: float | None, failed: bool) -> Bar:
    return Bar(
        request=f"#{place}",
        session="",
        turn=0,
        start_s=start,
        first_content_s=start + first if first else None,
        end_s=start + (whole or first or 0.0),
        outcome="error" if failed else "ok",
        input_tokens=None,
        output_tokens=None,
        ttft_s=first or None,
        e2el_s=whole,
    )
