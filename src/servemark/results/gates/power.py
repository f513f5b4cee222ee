"""Gates on measured energy: do the power samples cover the window, and is J/token what power and rate give."""

from __future__ import annotations

from collections.abc import Mapping

from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.read import (
    POWER_PER_GPU,
    TOTAL_PER_GPU,
    passed,
    percent,
    plain,
    short,
    skips,
    usable,
)
from servemark.results.point import Point

JOULES_PER_TOTAL = "joules_per_total_token"
JOULES_PER_OUTPUT = "joules_per_output_token"
ENERGY = "gpus_energy_j"
"""Energy of all GPUs deployed over the window, joules."""
EDGE_SHARE = 0.02
"""Share of the window that samples may leave uncovered at its two ends together."""
GAP_SHARE = 0.05
"""Longest gap between samples as a share of the window: a trapezoid over more is a guess."""
ENERGY_TOLERANCE = 0.05

_COVER_SKIP = skips("power_coverage", "no_power_samples")[0]
_COVER_OK = passed("power_coverage")


def power_coverage(point: Point, _context: Context) -> GateFinding:
    """Power samples begin before and end after the measured window, without a long gap, for every GPU deployed.

    Reads `observed["power"]`: `first_s` and `last_s` (moments of samples, seconds from the start of the window),
    `window_s` (else the point's duration), `longest_gap_s`, `devices`. Each may be absent.
    """
    power = point.observed.get("power")
    if not isinstance(power, Mapping):
        return _COVER_SKIP
    window = plain(power.get("window_s"))
    window = window if window is not None else point.duration_s
    first, last, gap = (plain(power.get(name)) for name in ("first_s", "last_s", "longest_gap_s"))
    devices = plain(power.get("devices"))
    if devices is None and point.gpus_telemetry is not None:
        devices = float(point.gpus_telemetry)
    if window is None or not usable(window) or (first is None and last is None and gap is None):
        return _COVER_SKIP
    open_s = max(first or 0.0, 0.0) + max(window - (window if last is None else last), 0.0)
    few = devices is not None and point.gpus_deployed is not None and devices < point.gpus_deployed
    if open_s <= EDGE_SHARE * window and (gap or 0.0) <= GAP_SHARE * window and not few:
        return _COVER_OK
    values: dict[str, object] = {
        "open_s": short(open_s),
        "gap_s": "—" if gap is None else short(gap),
        "window_s": short(window),
        "devices": "—" if devices is None else int(devices),
        "gpus": "—" if point.gpus_deployed is None else point.gpus_deployed,
        "edge_percent": percent(EDGE_SHARE),
        "gap_percent": percent(GAP_SHARE),
    }
    return GateFinding("power_coverage", Severity.WARNING, values)


_ENERGY_SKIP = skips("energy", "no_energy")[0]
_ENERGY_OK = passed("energy")


def energy(point: Point, _context: Context) -> GateFinding:
    """J/token = mean power per GPU / tokens per second per GPU, and energy = power x GPUs x time. Otherwise energy was
    summed over another window, or over other GPUs, than the tokens."""
    figures = point.figures
    power = point.value(POWER_PER_GPU)
    if power is None or not usable(power):
        return _ENERGY_SKIP
    checks: list[tuple[str, float | None, float | None]] = []
    for name, rate_name in (
        (JOULES_PER_TOTAL, TOTAL_PER_GPU),
        (JOULES_PER_OUTPUT, "output_tokens_per_s_per_gpu"),
    ):
        if name in figures:
            rate = point.value(rate_name)
            checks.append(
                (name, point.value(name), power / rate if rate is not None and usable(rate) else None)
            )
    if ENERGY in figures and point.duration_s is not None and point.gpus_deployed:
        checks.append((ENERGY, point.value(ENERGY), power * point.gpus_deployed * point.duration_s))
    seen = False
    for name, stated, implied in checks:
        if stated is None or implied is None or not usable(stated) or not usable(implied):
            continue
        seen = True
        if abs(stated / implied - 1) > ENERGY_TOLERANCE:
            values: dict[str, object] = {
                "figure": name,
                "stated": short(stated),
                "implied": short(implied),
                "power_w": short(power),
                "tolerance_percent": percent(ENERGY_TOLERANCE),
            }
            return GateFinding("energy", Severity.WARNING, values)
    return _ENERGY_OK if seen else _ENERGY_SKIP


GATES = (
    Gate(
        "power_coverage",
        1,
        power_coverage,
        EDGE_SHARE,
        "a trapezoid over a gap is a guess",
        idle=("observed", _COVER_SKIP),
    ),
    Gate(
        "energy",
        1,
        energy,
        ENERGY_TOLERANCE,
        "sampling at one second over a minute; published rows agree to 2 %",
        idle=("power", _ENERGY_SKIP),
    ),
)
"""The family in the order of its tables."""
