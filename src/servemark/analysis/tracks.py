"""Quantities over time from a run's folder: the engine's own counters and the GPUs' power, few enough to draw."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from servemark.analysis.format import significant
from servemark.analysis.request_types import Track, TrackGroup
from servemark.base.errors import ServemarkError
from servemark.base.messages import text
from servemark.base.printable import one_line

ENGINE_FILE = "server_metrics.jsonl"
GPU_FILE = "gpu_metrics.csv"
MAX_SAMPLES = 20_000
"""Five hours at one a second."""
MAX_LINE = 1 << 20
MAX_TRACKS = 24
MAX_POINTS = 240
"""Points of a drawn track: more cannot be told apart on a screen."""
MAX_GPU_TRACKS = 8
_COUNTER = ("_total", "_sum", "_count")
_LEADING = (
    "requests_processing",
    "num_requests_running",
    "running",
    "waiting",
    "deferred",
    "cache_usage",
    "kv_",
)
"""Names that people look for first."""

Samples = list[tuple[float, dict[str, float]]]


def engine_tracks(folder: Path, lang: str | None = None) -> TrackGroup | None:
    """The engine's counters: those that only grow as a rate a second, others as they are; constant ones are left out.
    None without the file or with fewer than two samples."""
    samples, capped = _samples(folder / ENGINE_FILE)
    if len(samples) < 2:
        return None
    names = sorted({name for _, counters in samples for name in counters}, key=_importance)
    tracks = []
    for name in names:
        made = _track(name, samples, lang)
        if made is not None:
            tracks.append(made)
        if len(tracks) >= MAX_TRACKS:
            break
    note = text("analysis.requests.track.capped", lang, limit=MAX_SAMPLES, file=ENGINE_FILE) if capped else ""
    return TrackGroup(ENGINE_FILE, tuple(tracks), samples[-1][0] - samples[0][0], note) if tracks else None


def _importance(name: str) -> tuple[int, str]:
    return next((place for place, part in enumerate(_LEADING) if part in name), len(_LEADING)), name


def _samples(path: Path) -> tuple[Samples, bool]:
    """(seconds, counters) of each sound line, in time's order; whether more lines than MAX_SAMPLES are there."""
    found: Samples = []
    try:
        with path.open("rb") as stream:
            while line := stream.readline(MAX_LINE):
                if len(found) >= MAX_SAMPLES:
                    return found, True
                sample = _sample(line)
                if sample is not None and (not found or sample[0] >= found[-1][0]):
                    found.append(sample)
    except OSError:
        return found, False
    return found, False


def _sample(line: bytes) -> tuple[float, dict[str, float]] | None:
    try:
        body = json.loads(line)
        at = float(body["at_s"])
        counters = {
            str(name): float(value)
            for name, value in body["counters"].items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    return (at, counters) if math.isfinite(at) else None


def _track(name: str, samples: Samples, lang: str | None) -> Track | None:
    at = [moment for moment, _ in samples]
    raw = [counters.get(name) for _, counters in samples]
    counts = name.rpartition("{")[0].endswith(_COUNTER) or name.endswith(_COUNTER)
    values = _rates(at, raw) if counts else raw
    known = [value for value in values if value is not None]
    if len(known) < 2 or min(known) == max(known):
        return None
    unit = text("analysis.track.rate", lang) if counts else ""
    return track_of(name, one_line(name), unit, at, values)


def _rates(at: Sequence[float], raw: Sequence[float | None]) -> list[float | None]:
    """The growth a second between neighbours; None where the counter began anew or is absent."""
    rates: list[float | None] = [None]
    for i in range(1, len(at)):
        before, after, span = raw[i - 1], raw[i], at[i] - at[i - 1]
        known = before is not None and after is not None and after >= before and span > 0
        rates.append((after - before) / span if known and after is not None and before is not None else None)
    return rates


def track_of(name: str, label: str, unit: str, at: Sequence[float], values: Sequence[float | None]) -> Track:
    """One track of at most MAX_POINTS points: each the mean of its part of the time."""
    zero = at[0] if at else 0.0
    thin_at, thin = _thinned([moment - zero for moment in at], values)
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    said = f"{significant(low)} … {significant(high)} {unit}".strip()
    bottom = min(0.0, low)
    return Track(name, label, unit, tuple(thin_at), tuple(thin), bottom, max(high, bottom), said)


def _thinned(at: Sequence[float], values: Sequence[float | None]) -> tuple[list[float], list[float | None]]:
    if len(at) <= MAX_POINTS:
        return [round(moment, 3) for moment in at], [_short(value) for value in values]
    span = (at[-1] - at[0]) or 1.0
    sums: list[list[float]] = [[] for _ in range(MAX_POINTS)]
    for moment, value in zip(at, values, strict=True):
        if value is not None:
            sums[min(MAX_POINTS - 1, int((moment - at[0]) / span * MAX_POINTS))].append(value)
    middles = [round(at[0] + (i + 0.5) * span / MAX_POINTS, 3) for i in range(MAX_POINTS)]
    return middles, [_short(sum(part) / len(part)) if part else None for part in sums]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def gpu_tracks(folder: Path, lang: str | None = None) -> TrackGroup | None:
    """Power of each GPU (of all together beyond MAX_GPU_TRACKS), watts. None without the file; damage becomes the note."""
    path = folder / GPU_FILE
    if not path.is_file():
        return None
    from servemark.results.importers.base import HEAD_BYTES, Given  # noqa: PLC0415 - only where the file is there
    from servemark.results.importers.gpu_csv import read_samples  # noqa: PLC0415

    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
        found = read_samples(Given(GPU_FILE, path.stat().st_size, head, lambda: path.open("rb")))
    except ServemarkError as error:
        return TrackGroup(GPU_FILE, (), 0.0, error.what(lang))
    except OSError:
        return None
    devices = list(found.devices.values())
    first = min(each.at_s[0] for each in devices)
    last = max(each.at_s[-1] for each in devices)
    if len(devices) <= MAX_GPU_TRACKS:
        tracks = tuple(
            track_of(each.device, f"GPU {one_line(each.device)}", "W", list(each.at_s), list(each.watts))
            for each in devices
        )
    else:
        label = text("analysis.track.devices", lang, count=len(devices))
        tracks = (_together(label, [(each.at_s, each.watts) for each in devices], first, last),)
    return TrackGroup(GPU_FILE, tracks, last - first, "")


def _together(
    label: str, devices: Sequence[tuple[Iterable[float], Iterable[float]]], first: float, last: float
) -> Track:
    """The sum over devices of each one's mean power in each part of the time."""
    span = (last - first) or 1.0
    totals: list[float] = [0.0] * MAX_POINTS
    seen = [0] * MAX_POINTS
    for at, watts in devices:
        parts: list[list[float]] = [[] for _ in range(MAX_POINTS)]
        for moment, power in zip(at, watts, strict=True):
            parts[min(MAX_POINTS - 1, max(0, int((moment - first) / span * MAX_POINTS)))].append(power)
        for i, part in enumerate(parts):
            if part:
                totals[i] += sum(part) / len(part)
                seen[i] += 1
    whole = [total if count == len(devices) else None for total, count in zip(totals, seen, strict=True)]
    middles = [first + (i + 0.5) * span / MAX_POINTS for i in range(MAX_POINTS)]
    return track_of("all", label, "W", middles, whole)
