"""One request's value of a metric with its raw numbers written out: `chunk_s[0] 1.556 - start_s 1.204 =
0.352`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from servemark.base.messages import text
from servemark.metrics import request as formulas
from servemark.replay.record import RequestRecord


@dataclass(frozen=True, slots=True)
class Written:
    """Raw fields that were read, and the arithmetic over them."""

    field: str
    text: str


def _time(value: float | None) -> str:
    """Seconds to the microsecond, the grain of the raw file."""
    return "—" if value is None else f"{value:.6f}"


def _difference(later: str, earlier: str, b: float | None, a: float | None) -> Written:
    result = None if a is None or b is None else b - a
    return Written(f"{later}, {earlier}", f"{later} {_time(b)} - {earlier} {_time(a)} = {_time(result)}")


def _gap(record: RequestRecord, which: int) -> Written:
    return _difference(
        f"chunk_s[{which + 1}]", f"chunk_s[{which}]", record.chunk_s[which + 1], record.chunk_s[which]
    )


def _itl(record: RequestRecord, which: int, lang: str | None) -> Written:
    """Gaps that lead to a chunk without tokens have no value, so the which-th value may be a later gap."""
    tokens = record.chunk_tokens or []
    counted = [i for i in range(len(record.chunk_s) - 1) if tokens[i + 1] > 0]
    gap = _gap(record, counted[which])
    count = tokens[counted[which] + 1]
    difference = record.chunk_s[counted[which] + 1] - record.chunk_s[counted[which]]
    field = f"{gap.field}, chunk_tokens[{counted[which] + 1}]"
    return Written(field, f"({gap.text}) ÷ {count} = {difference / count:.9f}")


def _tpot(record: RequestRecord, which: int, lang: str | None) -> Written:
    first, assumed = formulas.first_chunk_tokens(record)
    mark = f" {text('results.why.assumed', lang)}" if assumed else ""
    value = formulas.tpot_s(record)
    said = (
        f"(chunk_s[-1] {_time(record.chunk_s[-1])} - chunk_s[0] {_time(record.chunk_s[0])})"
        f" ÷ (output_tokens {record.output_tokens} - {first}{mark}) = {value or 0.0:.9f}"
    )
    return Written("chunk_s, output_tokens" + ("" if assumed else ", chunk_tokens[0]"), said)


def _per_token(record: RequestRecord) -> Written:
    whole = _difference("chunk_s[-1]", "start_s", record.chunk_s[-1], record.start_s)
    value = formulas.e2el_per_token_s(record)
    return Written(
        f"{whole.field}, output_tokens",
        f"({whole.text}) ÷ output_tokens {record.output_tokens} = {value or 0.0:.9f}",
    )


def _field(name: str) -> Callable[[RequestRecord, int, str | None], Written]:
    def write(record: RequestRecord, which: int, lang: str | None) -> Written:
        value = getattr(record, name)
        return Written(name, f"{name} = {_time(value) if isinstance(value, float) else value}")

    return write


_WRITERS: dict[str, Callable[[RequestRecord, int, str | None], Written]] = {
    "ttft_s": lambda r, which, lang: _difference("chunk_s[0]", "start_s", r.chunk_s[0], r.start_s),
    "ttfo_s": lambda r, which, lang: _difference("first_text_s", "start_s", r.first_text_s, r.start_s),
    "e2el_s": lambda r, which, lang: _difference("chunk_s[-1]", "start_s", r.chunk_s[-1], r.start_s),
    "ttft_intended_s": lambda r, which, lang: _difference(
        "chunk_s[0]", "intended_send_s", r.chunk_s[0], r.intended_send_s
    ),
    "e2el_intended_s": lambda r, which, lang: _difference(
        "chunk_s[-1]", "intended_send_s", r.chunk_s[-1], r.intended_send_s
    ),
    "e2el_per_token_s": lambda r, which, lang: _per_token(r),
    "send_lateness_s": lambda r, which, lang: _difference(
        "start_s", "intended_send_s", r.start_s, r.intended_send_s
    ),
    "chunk_gap_s": lambda r, which, lang: _gap(r, which),
    "itl_s": _itl,
    "tpot_s": _tpot,
    "connect_s": _field("connect_s"),
    "input_tokens": _field("input_tokens"),
    "output_tokens": _field("output_tokens"),
}


def written(metric: str, record: RequestRecord, which: int, lang: str | None = None) -> Written:
    """The `which`-th value (from 0) that `record` contributes to `metric`, written out from its raw fields.

    `record` must have that value (see `measures.VALUES`).
    """
    return _WRITERS[metric](record, which, lang)
