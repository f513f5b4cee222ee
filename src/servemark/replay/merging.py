"""One outcome and one file of records out of those of several client processes. Figures come from the union of
samples and records: no percentile is ever made from percentiles."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from servemark.base.files import disk_error
from servemark.replay.health import LoopHealth
from servemark.replay.outcome import LiveSample, LoopOutcome, ProcessFacts
from servemark.replay.stop import StopMode

COPY_BYTES = 1 << 20


def merge_outcomes(
    parts: Mapping[int, LoopOutcome],
    facts: Sequence[ProcessFacts],
    *,
    planned: int | None,
    concurrency: int,
    drops: Mapping[str, int] | None,
    stopped: tuple[StopMode | None, str | None],
) -> LoopOutcome:
    """The whole replay. `parts` holds the outcomes of the processes that lived to tell; `planned` None takes
    what was sent. `max_in_flight` is the sum of each process's own maximum, which may not have been at one
    moment."""
    known = list(parts.values())
    sent = sum(fact.sent for fact in facts)
    whole = sent if planned is None else max(sent, planned)
    starts = [p.steady_start_s for p in known]
    ends = [p.steady_end_s for p in known]
    steady = None not in starts and None not in ends and len(known) == len(facts)
    mode, reason = stopped
    if mode is None:
        mode, reason = next(((p.stop_mode, p.stop_reason) for p in known if p.stop_mode), (None, None))
    return LoopOutcome(
        planned=whole,
        sent=sent,
        not_sent=whole - sent,
        concurrency=concurrency,
        window_start_s=min(p.window_start_s for p in known),
        window_end_s=max(p.window_end_s for p in known),
        lane_live_s=sum(p.lane_live_s for p in known),
        max_in_flight=sum(p.max_in_flight for p in known),
        health=_health(known, drops),
        stop_mode=mode,
        stop_reason=reason,
        steady_start_s=max((s for s in starts if s is not None), default=None) if steady else None,
        steady_end_s=min((e for e in ends if e is not None), default=None) if steady else None,
        timed=any(p.timed for p in known),
        passes=max(p.passes for p in known),
        shifts=sorted(chain.from_iterable(p.shifts for p in known), key=lambda shift: shift.at_s),
        live=_live(known),
        live_interval_s=max(p.live_interval_s for p in known),
        cut_off=sorted(chain.from_iterable(p.cut_off for p in known)),
        warmup_cut_off=sorted(chain.from_iterable(p.warmup_cut_off for p in known)),
        held_by_cap=sum(p.held_by_cap for p in known),
        processes=tuple(facts),
    )


def _health(parts: Sequence[LoopOutcome], drops: Mapping[str, int] | None) -> LoopHealth:
    lags = list(chain.from_iterable(p.health.lags_s for p in parts))
    shares = [p.health.cpu_share_max for p in parts if p.health.cpu_share_max is not None]
    return LoopHealth.of(lags, sum(p.health.cpu_s for p in parts), max(shares, default=None), drops)


def _live(parts: Sequence[LoopOutcome]) -> tuple[LiveSample, ...]:
    """Samples of the same moment added up; moments that not all processes saw are left out."""
    step_s = max(p.live_interval_s for p in parts)
    start_s = min(p.window_start_s for p in parts)
    slots: dict[int, list[LiveSample]] = {}
    for part in parts:
        mine = {round((sample.at_s - start_s) / step_s): sample for sample in part.live}
        for slot, sample in mine.items():
            slots.setdefault(slot, []).append(sample)
    return tuple(
        LiveSample(start_s + slot * step_s, sum(s.trees for s in found), sum(s.in_flight for s in found))
        for slot, found in sorted(slots.items())
        if len(found) == len(parts)
    )


def merge_records(parts: Sequence[Path], into: Path) -> int:
    """Append the whole lines of each part to `into` and take the parts away; returns how many torn ends of
    killed processes were left out. Raises ServemarkError (layer home) when the disk refuses; the parts are
    still there then."""
    torn = 0
    try:
        with into.open("ab") as target:
            for part in parts:
                if not part.exists():
                    continue
                torn += _copy_lines(part, target.fileno())
            os.fsync(target.fileno())
    except OSError as error:
        raise disk_error(error, into) from error
    for part in parts:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return torn


def _copy_lines(part: Path, target: int) -> bool:
    """True when the part ends in a line without its end."""
    rest = b""
    with part.open("rb") as source:
        while block := source.read(COPY_BYTES):
            whole, newline, rest_of = (rest + block).rpartition(b"\n")
            rest = rest_of
            data = memoryview(whole + newline)
            while data:
                data = data[os.write(target, data) :]
    return bool(rest)
