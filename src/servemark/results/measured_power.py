"""Energy on the points of a result file that GPU metrics were recorded for.

Power samples lie beside the result (`siblings`) or are named by the user (hint `power`). The measured window is, in this
order: what the user says (hint `window`), what our own row says of its wall clock (`observed["measured_window"]`), begin
and end of the execution where their distance is the result's duration. Energy that cannot be known is absent: the
point gets a note, and whoever imports is told why.

A clock that names no zone (nvidia-smi's) is read as UTC, or as the clock of a window that names none either. Samples of
another zone then do not cover the window, and are refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.results.importers.base import Given
from servemark.results.importers.gpu_csv import DeviceSamples, GpuSamples, detect, moment_of, read_samples
from servemark.results.point import Figure, Mapped, Point
from servemark.results.power import Energy, Work, coverage, energy, energy_figures, ordered

DEFINITION = "servemark-power-1"
"""GPU power alone, trapezoid over the measured window: no host, switches or cooling."""
WINDOW_KEY = "measured_window"
"""In `observed`: `begin_s` and `end_s` of the measured window, seconds since 1970."""
MAX_BESIDE = 8
"""Of more CSV files in one folder none is taken unasked: which result each belongs to is not known."""
SAME_WINDOW = 0.02
"""Energy is divided by the row's tokens only where both are over one window, within this share of it."""
BETWEEN = " + "
ROLE_NAMES = ("prefill", "decode", "aggregated")
_NUMBERS = re.compile(r"(?:(.+):)?([0-9]{1,4})(?:-([0-9]{1,4}))?")
_STATED = ("gpus_energy_j", "gpu_power_w.mean")


@dataclass(slots=True)
class PowerTold:
    """What came of the power samples of one file: points that got energy, and by message key what kept it from others: the
    first such error, and how many points."""

    points: int = 0
    refused: dict[str, tuple[ServemarkError, int]] = field(default_factory=dict)

    def refuse(self, error: ServemarkError) -> None:
        """One more point without energy."""
        first, points = self.refused.get(error.key, (error, 0))
        self.refused[error.key] = (first, points + 1)


def parse_window(said: str) -> tuple[float, float]:
    """`START,END`: seconds since 1970, or ISO moments; one without a zone is on the samples' own clock.

    Raises ServemarkError (exit code 2) for anything else, and for an end that is not after the start."""
    ends = [moment_of(each.strip()) for each in said.split(",")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[1][0] <= ends[0][0]:
        raise input_error("results.power_bad_window", given=said[:80])
    return ends[0][0], ends[1][0]


def parse_roles(said: str) -> list[tuple[str, str]]:
    """`0-3=prefill,4-7=decode` as pairs; a GPU is a number, a range, a UUID, or a file's name for all of its GPUs.

    Raises ServemarkError (exit code 2)."""
    pairs = []
    for each in said.split(","):
        gpus, equals, role = (part.strip() for part in each.rpartition("="))
        if not equals or not gpus or role not in ROLE_NAMES:
            raise input_error("results.power_bad_roles", given=said[:80], roles=", ".join(ROLE_NAMES))
        pairs.append((gpus, role))
    return pairs


def with_power(rows: Iterable[Mapped], given: Given, told: PowerTold) -> Iterator[Mapped]:
    """The rows, with energy on their points where GPU metrics of the window are at hand. Reads them once, when the first
    point comes; what cannot be used is noted, never raised."""
    files = _files(given)
    return iter(rows) if not files else _with(rows, _Samples(files, given.hints), told)


def has_power(given: Given) -> bool:
    """Whether GPU metrics of the file's window are at hand."""
    return bool(_files(given))


def _files(given: Given) -> dict[str, Given]:
    """The GPU metrics of this file by name: those that the user names, else those that lie beside it."""
    named = given.hints.get("power")
    if named is not None:
        return {each: given.siblings[each] for each in named.split(BETWEEN) if each in given.siblings}
    names = [name for name in given.siblings if name.lower().endswith(".csv")]
    if len(names) > MAX_BESIDE:
        return {}
    some = ((name, given.siblings[name]) for name in names)
    return {name: each for name, each in some if detect(each) > 0}


class _Samples:
    """GPU metrics of one result, read when they are first needed."""

    def __init__(self, files: Mapping[str, Given], hints: Mapping[str, str]) -> None:
        self._files = files
        self._read: GpuSamples | ServemarkError | None = None
        self._of_file: dict[str, list[str]] = {}
        self.names = BETWEEN.join(files)
        self.window = parse_window(hints["window"]) if "window" in hints else None
        self._said = parse_roles(hints["gpu_roles"]) if "gpu_roles" in hints else []

    def get(self) -> GpuSamples:
        """All files as one. Raises ServemarkError for a file that cannot be read, or GPUs that two files hold."""
        if self._read is None:
            try:
                self._read = self._joined()
            except ServemarkError as error:
                self._read = error
            except OSError as error:
                reason = error.strerror or str(error)
                self._read = ServemarkError(
                    "store.import.unreadable", Layer.RESULTS, exit_code=2, path=self.names, reason=reason
                )
        if isinstance(self._read, ServemarkError):
            raise self._read
        return self._read

    def _joined(self) -> GpuSamples:
        """Numbers of GPUs are of one host, so with several files they carry the file's name."""
        parts = [(name, read_samples(each)) for name, each in self._files.items()]
        several = len(parts) > 1
        devices: dict[str, DeviceSamples] = {}
        index: dict[str, str] = {}
        for name, part in parts:
            for device, samples in part.devices.items():
                ours = f"{name}:{device}" if several and device.isdigit() else device
                if ours in devices:
                    raise _refused("twice", device=device, path=name)
                devices[ours] = ordered(replace(samples, device=ours))
                self._of_file.setdefault(name, []).append(ours)
            for number, device in part.index.items():
                ours = f"{name}:{device}" if several and device.isdigit() else device
                index[f"{name}:{number}"] = ours
                if not several:
                    index[number] = ours
        whole = sum(part.samples for _, part in parts), sum(part.skipped for _, part in parts)
        columns = sorted({part.power_column for _, part in parts})
        zoned = all(part.zoned for _, part in parts)
        return GpuSamples(devices, *whole, zoned, "/".join(columns), index)

    def roles(self) -> dict[str, str] | None:
        """Device -> role; None where nobody says. Raises ServemarkError for a GPU that is not there or has two roles."""
        samples = self.get()
        found: dict[str, str] = {}
        for chosen, role in self._said:
            for device in self._chosen(chosen, samples):
                if found.setdefault(device, role) != role:
                    raise _refused("two_roles", device=device)
        return found or None

    def _chosen(self, text: str, samples: GpuSamples) -> list[str]:
        if text in samples.devices:
            return [text]
        if text in self._of_file:
            return self._of_file[text]
        match = _NUMBERS.fullmatch(text)
        if match is None:
            raise _refused("no_gpu", device=text[:80], path=self.names)
        prefix = f"{match[1]}:" if match[1] else ""
        some = []
        for number in range(int(match[2]), int(match[3] or match[2]) + 1):
            device = samples.index.get(f"{prefix}{number}")
            if device is None:
                raise _refused("no_gpu", device=f"{prefix}{number}", path=self.names)
            some.append(device)
        return some


def _refused(key: str, **values: object) -> ServemarkError:
    return ServemarkError(f"results.power_{key}", Layer.RESULTS, exit_code=2, where=None, **values)


def _with(rows: Iterable[Mapped], samples: _Samples, told: PowerTold) -> Iterator[Mapped]:
    every, alone = iter(rows), True
    if samples.window is not None:  # one window cannot be that of several results
        first = []
        for row in every:
            first.append(row)
            if sum(each.point is not None for each in first) > 1:
                alone = False
                break
        every = itertools.chain(first, every)
    for row in every:
        yield (
            row
            if row.point is None
            else msgspec.structs.replace(row, point=_powered(row.point, samples, told, alone))
        )


def _powered(point: Point, samples: _Samples, told: PowerTold, alone: bool) -> Point:
    """The point with energy, or with a note that says why it has none. What the row itself states stays."""
    if any(name in point.figures for name in _STATED):
        return point
    power: dict[str, object] = {}
    try:
        if not alone:
            raise _refused("one_window")
        window = samples.window or _window(point)
        held, roles = samples.get(), samples.roles()
        if window is None:
            raise _refused("no_window", path=samples.names)
        devices = list(roles) if roles is not None else None
        power = coverage(held, *window, devices)
        expected = point.gpus_deployed if point.gpus_deployed is not None else point.gpus_stated
        found = energy(held, *window, devices=devices, expected=expected or None)
    except ServemarkError as error:
        told.refuse(error)
        observed = {**point.observed, "power": power} if power else point.observed
        return replace(point, observed=observed, notes=(*point.notes, f"no energy: {error.what('en')}"))
    told.points += 1
    return _attached(point, found, roles, held, samples.names)


def _window(point: Point) -> tuple[float, float] | None:
    """The measured window in seconds since 1970, where the point says it."""
    said = point.observed.get(WINDOW_KEY)
    if isinstance(said, Mapping):
        ends = said.get("begin_s"), said.get("end_s")
        if isinstance(ends[0], int | float) and isinstance(ends[1], int | float) and ends[1] > ends[0]:
            return float(ends[0]), float(ends[1])
    begin, end = (_seconds(each) for each in (point.execution.started_utc, point.execution.finished_utc))
    if begin is None or end is None or point.duration_s is None or end <= begin:
        return None
    return (begin, end) if _same(end - begin, point.duration_s) else None


def _seconds(text: str | None) -> float | None:
    """A moment with a time of day; a date alone is none."""
    if text is None or "T" not in text:
        return None
    found = moment_of(text)
    return None if found is None else found[0]


def _same(window: float, duration: float) -> bool:
    return abs(window - duration) <= SAME_WINDOW * duration


def _attached(
    point: Point, found: Energy, roles: Mapping[str, str] | None, held: GpuSamples, names: str
) -> Point:
    window = found.end_s - found.begin_s
    notes, work = list(point.notes), Work()
    if point.duration_s is None or _same(window, point.duration_s):
        work = Work(point.value("input_tokens_total"), point.value("output_tokens_total"), point.requests.ok)
    else:
        notes.append(
            f"no energy per token: power is over {window:g} s, the row's tokens over {point.duration_s:g} s"
        )
    clock = "" if held.zoned else "; the samples name no zone and are read as UTC"
    inside = sum(device.samples for device in found.devices)
    gap = max(device.longest_gap_s for device in found.devices)
    about = (
        f"; window {_utc(found.begin_s)} to {_utc(found.end_s)}, {inside} samples of {len(found.devices)} GPUs in it, "
        f"longest gap {gap:.3f} s{clock}"
    )
    at = f"{names}:{held.power_column}"
    made = energy_figures(found, work, roles)
    figures = {
        name: Figure(each.value, DEFINITION, at, None, each.how + about) for name, each in made.items()
    }
    return replace(
        point,
        figures={**point.figures, **figures},
        gpus_telemetry=point.gpus_telemetry if point.gpus_telemetry is not None else len(found.devices),
        observed={**point.observed, "power": found.observed()},
        notes=tuple(notes),
    )


def _utc(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.3f}"
