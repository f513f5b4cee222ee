"""GPU metrics as CSV: `nvidia-smi --query-gpu=... --format=csv[,nounits]` and `amd-smi monitor --csv`.

Such a file is no result: it is kept beside the result that it belongs to, and `results.power` reads energy from it.
Units: nvidia-smi writes them in each value, or with `nounits` in the heading (`power.draw [W]`); amd-smi's CSV carries
none, its power is watts by its documentation. A heading without a known unit is refused.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import TextIOWrapper

from servemark.results.errors import bad_file
from servemark.results.importers.base import Given, Importer
from servemark.results.point import Mapped

VERSION = 1
MAX_SAMPLES = 5_000_000
"""A day of 576 GPUs at one sample in 10 s; 16 bytes each."""
MAX_LINE = 64 << 10
MAX_DEVICES = 4096
_NVIDIA_POWER = ("power.draw.average", "power.draw", "power.draw.instant")
"""A mean over the last second first: it misses nothing between two samples, and its energy is nearer to NVML's counter."""
_AMD_POWER = ("socket_power", "power_usage", "average_socket_power", "current_socket_power")
_HEADING = re.compile(r"([a-zA-Z0-9_.]+)(?: \[([^\]]+)\])?")
_ABSENT = {"", "n/a", "[n/a]", "[not supported]", "na", "[unknown error]", "[gpu requires reset]"}


@dataclass(slots=True)
class DeviceSamples:
    """One GPU: moments (seconds since 1970, or by the file's own clock) and watts, in time's order as written."""

    device: str
    at_s: array[float] = field(default_factory=lambda: array("d"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    ordered: bool = False
    """Whether time only grows; set by who has sorted them."""


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """A whole file. `skipped` counts lines without power or time; `zoned` is False when its clock's zone is not said;
    `index` leads the number of a GPU on its host to its device, where the file states both."""

    devices: dict[str, DeviceSamples]
    samples: int
    skipped: int
    zoned: bool
    power_column: str
    index: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Columns:
    time: int
    device: int
    power: int
    power_name: str
    index: int


def _headings(line: list[str], name: str) -> _Columns:
    """Where time, device and power stand. Raises ServemarkError when one is missing or has an unknown unit."""
    found: dict[str, tuple[int, str | None]] = {}
    for place, text in enumerate(line):
        match = _HEADING.fullmatch(text.strip())
        if match:
            found.setdefault(match[1].lower(), (place, match[2]))
    time = found.get("timestamp")
    device = next(
        (found[key] for key in ("uuid", "gpu_uuid", "index", "gpu", "gpu_id", "pci.bus_id") if key in found),
        None,
    )
    nvidia = next((key for key in _NVIDIA_POWER if key in found), None)
    power = nvidia or next((key for key in _AMD_POWER if key in found), None)
    if time is None or device is None or power is None:
        raise bad_file(
            "import_no_columns", name, missing="timestamp, index / uuid / gpu, power.draw / socket_power"
        )
    place, unit = found[power]
    if unit not in (("W",) if nvidia else (None, "W")):
        raise bad_file("import_power_unit", name, column=power, unit=unit or "—")
    index = next((found[key] for key in ("index", "gpu", "gpu_id") if key in found), device)
    return _Columns(time[0], device[0], place, power, index[0])


def moment_of(text: str) -> tuple[float, bool] | None:
    """Seconds, and whether the zone is known. nvidia-smi: local time `2026/11/30 09:22:04.089`; amd-smi: seconds."""
    try:
        seconds = float(text)
        return (seconds, True) if math.isfinite(seconds) and seconds > 0 else None
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        return None
    zoned = moment.tzinfo is not None
    return (moment if zoned else moment.replace(tzinfo=UTC)).timestamp(), zoned


def _watts(text: str) -> float | None:
    number, _, unit = text.strip().partition(" ")
    if unit not in ("", "W"):
        return None
    try:
        watts = float(number)
    except ValueError:
        return None
    return watts if math.isfinite(watts) and 0 <= watts < 1e5 else None


def _lines(given: Given) -> Iterator[list[str]]:
    with given.open() as stream, TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="") as text:
        while line := text.readline(MAX_LINE):
            if len(line) >= MAX_LINE:
                raise bad_file("import_long_line", given.name, limit=MAX_LINE // 1024)
            if line.strip():
                yield next(csv.reader([line]), [])


def read_samples(given: Given) -> GpuSamples:
    """All power samples, 16 bytes each. Raises ServemarkError for a file without the columns, or with no sample."""
    lines = _lines(given)
    columns = _headings(next(lines, []), given.name)
    devices: dict[str, DeviceSamples] = {}
    index: dict[str, str] = {}
    skipped, count, zoned = 0, 0, True
    for line in lines:
        try:
            moment, watts, device = (
                moment_of(line[columns.time].strip()),
                line[columns.power],
                line[columns.device].strip(),
            )
            number = line[columns.index].strip()
        except IndexError:
            skipped += 1
            continue
        power = None if watts.strip().lower() in _ABSENT else _watts(watts)
        if moment is None or power is None or not device:
            skipped += 1
            continue
        zoned = zoned and moment[1]
        one = devices.get(device)
        if one is None:
            if len(devices) >= MAX_DEVICES:
                raise bad_file("import_too_many", given.name, limit=MAX_DEVICES)
            one = devices[device] = DeviceSamples(device)
            index.setdefault(number, device)
        one.at_s.append(moment[0])
        one.watts.append(power)
        count += 1
        if count > MAX_SAMPLES:
            raise bad_file("import_too_many", given.name, limit=MAX_SAMPLES)
    if not count:
        raise bad_file("import_no_samples", given.name, skipped=skipped)
    return GpuSamples(devices, count, skipped, zoned, columns.power_name, index)


def detect(given: Given) -> float:
    """Sure where the headings are a time and a power."""
    head = given.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace").lower()
    named = {match[1] for text in head.split(",") if (match := _HEADING.fullmatch(text.strip()))}
    if "timestamp" not in named:
        return 0.0
    return 0.9 if named & {*_NVIDIA_POWER, *_AMD_POWER} else 0.0


def _read(given: Given) -> Iterator[Mapped]:
    samples = read_samples(given)
    values: dict[str, object] = {
        "devices": len(samples.devices),
        "samples": samples.samples,
        "skipped": samples.skipped,
    }
    yield Mapped(0, "unmapped", None, None, "results.import_companion", values)


IMPORTER = Importer("gpu-csv", VERSION, "GPU metrics CSV", detect, _read)
