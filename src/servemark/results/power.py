"""Energy of a window from power samples, and joules per token.

Energy of one device is the integral of its power over the window by the trapezoid rule,
E = sum (P[i] + P[i+1]) / 2 x (t[i+1] - t[i]), with the power at the window's two ends interpolated linearly between the
samples on either side (the rule of e.g. `numpy.trapezoid`; Press et al., Numerical Recipes, 4.1). Samples are sorted by
time and several at one moment count once, as their mean. Energy is refused, not estimated, when samples do not reach
both ends of the window, when two of them are further apart than the tolerance, or when a device that is expected has none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from servemark.base.errors import Layer, ServemarkError
from servemark.results.importers.gpu_csv import DeviceSamples, GpuSamples

MAX_GAP_S = 5.0
"""Largest distance of two samples: load changes within seconds, so a trapezoid over more would be a guess."""


@dataclass(frozen=True, slots=True)
class DeviceEnergy:
    """One GPU over the window: joules, mean watts, samples inside, largest distance of two samples (seconds)."""

    device: str
    energy_j: float
    mean_w: float
    samples: int
    longest_gap_s: float


@dataclass(frozen=True, slots=True)
class Energy:
    """All GPUs over one window, seconds on the samples' own clock."""

    begin_s: float
    end_s: float
    devices: tuple[DeviceEnergy, ...]
    first_s: float
    last_s: float

    @property
    def energy_j(self) -> float:
        """Joules of the whole deployment."""
        return sum(device.energy_j for device in self.devices)

    @property
    def mean_w_per_gpu(self) -> float:
        """Mean power of one GPU."""
        return self.energy_j / (self.end_s - self.begin_s) / len(self.devices)

    def observed(self) -> dict[str, object]:
        """What gates on coverage read as `observed["power"]`; `first_s` and `last_s` count from the window's begin."""
        return {
            "window_s": self.end_s - self.begin_s,
            "first_s": self.first_s - self.begin_s,
            "last_s": self.last_s - self.begin_s,
            "longest_gap_s": max(device.longest_gap_s for device in self.devices),
            "devices": len(self.devices),
        }


def _refused(key: str, **values: object) -> ServemarkError:
    return ServemarkError(f"results.{key}", Layer.RESULTS, exit_code=2, where=None, **values)


def _sorted(samples: DeviceSamples) -> tuple[Sequence[float], Sequence[float]]:
    """In time's order; samples of one moment as their mean."""
    one = ordered(samples)
    return one.at_s, one.watts


def ordered(samples: DeviceSamples) -> DeviceSamples:
    """The samples in time's order, those of one moment as their mean: done once for any number of windows."""
    if samples.ordered:
        return samples
    times, watts = array("d"), array("d")
    many = 1
    for moment, power in sorted(zip(samples.at_s, samples.watts, strict=True)):
        if times and moment == times[-1]:
            many += 1
            watts[-1] += (power - watts[-1]) / many
        else:
            times.append(moment)
            watts.append(power)
            many = 1
    return DeviceSamples(samples.device, times, watts, ordered=True)


def _at(times: Sequence[float], watts: Sequence[float], moment: float) -> float:
    """Power at a moment that samples surround."""
    right = bisect_left(times, moment)
    if times[right] == moment:
        return watts[right]
    share = (moment - times[right - 1]) / (times[right] - times[right - 1])
    return watts[right - 1] + share * (watts[right] - watts[right - 1])


def device_energy(
    samples: DeviceSamples, begin_s: float, end_s: float, max_gap_s: float = MAX_GAP_S
) -> DeviceEnergy:
    """Joules of one GPU from `begin_s` to `end_s` on the samples' clock.

    Raises ServemarkError when samples do not cover the window, or leave a gap above `max_gap_s` in it."""
    if not end_s > begin_s:
        raise _refused("power_window", begin=begin_s, end=end_s)
    times, watts = _sorted(samples)
    if not times or times[0] > begin_s or times[-1] < end_s:
        shown = f"{times[0]:.3f}..{times[-1]:.3f}" if times else "—"
        raise _refused("power_uncovered", device=samples.device, begin=begin_s, end=end_s, samples=shown)
    first, past = bisect_right(times, begin_s), bisect_left(times, end_s)
    around = times[max(first - 1, 0) : past + 1]
    gap = max((b - a for a, b in pairwise(around)), default=0.0)
    if gap > max_gap_s:
        raise _refused("power_gap", device=samples.device, gap=round(gap, 3), limit=max_gap_s)
    t = [begin_s, *times[first:past], end_s]
    p = [_at(times, watts, begin_s), *watts[first:past], _at(times, watts, end_s)]
    joules = sum((p[i] + p[i + 1]) / 2 * (t[i + 1] - t[i]) for i in range(len(t) - 1))
    inside = bisect_right(times, end_s) - bisect_left(times, begin_s)
    return DeviceEnergy(samples.device, joules, joules / (end_s - begin_s), inside, gap)


def energy(
    samples: GpuSamples, begin_s: float, end_s: float, *, devices: Sequence[str] | None = None, max_gap_s: float = MAX_GAP_S,
    expected: int | None = None,
) -> Energy:  # fmt: skip
    """Joules of every GPU (or of `devices`). Raises ServemarkError for one that is missing or not covered, and when
    `expected` GPUs are deployed but another number has samples."""
    names = list(devices) if devices is not None else sorted(samples.devices)
    absent = [name for name in names if name not in samples.devices]
    if absent or (expected is not None and len(names) != expected) or not names:
        raise _refused("power_devices", found=len(names) - len(absent), expected=expected or len(names),
                       missing=", ".join(absent[:8]) or "—")  # fmt: skip
    found = tuple(device_energy(samples.devices[name], begin_s, end_s, max_gap_s) for name in names)
    times = [_sorted(samples.devices[name])[0] for name in names]
    return Energy(begin_s, end_s, found, max(each[0] for each in times), min(each[-1] for each in times))


def by_role(found: Energy, roles: Mapping[str, str]) -> dict[str, tuple[DeviceEnergy, ...]]:
    """GPUs by role, given each GPU's role. Raises ServemarkError when a GPU has none, since a sum would lack it."""
    unknown = [device.device for device in found.devices if device.device not in roles]
    if unknown:
        raise _refused("power_no_role", devices=", ".join(unknown[:8]))
    some: dict[str, tuple[DeviceEnergy, ...]] = {}
    for device in found.devices:
        role = roles[device.device]
        some[role] = (*some.get(role, ()), device)
    return some


@dataclass(frozen=True, slots=True)
class Made:
    """A figure and its formula with numbers."""

    value: float
    how: str


@dataclass(frozen=True, slots=True)
class Work:
    """What was done in the window that the energy is of: tokens and ok requests; None where it is not known."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    requests: float | None = None


ROLES = ("prefill", "decode")


def energy_figures(found: Energy, work: Work, roles: Mapping[str, str] | None = None) -> dict[str, Made]:
    """Energy, mean power, joules per token and per request of the whole deployment, by metric address; with `roles` also
    prefill energy per input token and decode energy per output token. What cannot be computed is not there."""
    window = found.end_s - found.begin_s
    made = _powers(found.devices, window, "")
    read, written = work.input_tokens, work.output_tokens
    both = None if read is None or written is None else read + written
    parts = [
        ("total_token", both),
        ("input_token", read),
        ("output_token", written),
        ("request", work.requests),
    ]
    made |= _per(found.energy_j, "joules_per_", parts)
    if roles is None:
        return made
    for role, devices in by_role(found, roles).items():
        if role in ROLES:
            made |= _powers(devices, window, f"{role}_")
            joules = sum(device.energy_j for device in devices)
            kind = ("input_token", read) if role == "prefill" else ("output_token", written)
            made |= _per(joules, f"{role}_joules_per_", [kind])
    return made


def _powers(devices: Sequence[DeviceEnergy], window: float, prefix: str) -> dict[str, Made]:
    joules = sum(device.energy_j for device in devices)
    shown = " + ".join(f"{device.energy_j:.9g}" for device in devices[:8])
    shown += f" + … ({len(devices)} GPUs)" if len(devices) > 8 else ""
    made = {
        f"{prefix}gpus_energy_j": Made(joules, f"{shown} J, each a trapezoid over {window:.9g} s"),
        f"{prefix}gpu_power_w.mean": Made(
            joules / window / len(devices), f"{joules:.9g} J / {window:.9g} s / {len(devices)} GPUs"
        ),
    }
    if not prefix:
        made["gpus_power_w.mean"] = Made(joules / window, f"{joules:.9g} J / {window:.9g} s")
    return made


def _per(joules: float, name: str, parts: Sequence[tuple[str, float | None]]) -> dict[str, Made]:
    """Joules over what was done; absent without any."""
    return {
        f"{name}{kind}": Made(joules / count, f"{joules:.9g} J / {count:.9g} {kind.replace('_', ' ')}s")
        for kind, count in parts
        if count
    }


def coverage(
    samples: GpuSamples, begin_s: float, end_s: float, devices: Sequence[str] | None = None
) -> dict[str, object]:
    """What gates on coverage read where energy was refused; as `Energy.observed`, over whatever samples there are."""
    names = [name for name in (devices or sorted(samples.devices)) if name in samples.devices]
    if not names or not end_s > begin_s:
        return {}
    some = [_sorted(samples.devices[name])[0] for name in names]
    inside = (times[bisect_left(times, begin_s) : bisect_right(times, end_s)] for times in some)
    gaps = [b - a for times in inside for a, b in pairwise(times)]
    return {
        "window_s": end_s - begin_s,
        "first_s": max(times[0] for times in some) - begin_s,
        "last_s": min(times[-1] for times in some) - begin_s,
        "longest_gap_s": max(gaps, default=end_s - begin_s),
        "devices": len(names),
    }
