"""Sizes that a person gives to a probe: GiB is 2^30 and GB is 10^9, and a bare `G` is refused as it means both."""

from __future__ import annotations

import re

from servemark.base.errors import ServemarkError, input_error
from servemark.preflight.facts import GIB, KIB, MIB, PAGE_2M, HostFacts
from servemark.preflight.finding import Saying, say, size

UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "kb": 10**3, "mb": 10**6, "gb": 10**9}
SHARE_OF_AVAILABLE = 4
SHARE_OF_CGROUP = 2
STEPS = (4, 2, 1)
"""A probe takes a quarter, a half and the whole of what was asked."""


def probe_size(value: str) -> int:
    """Bytes of `512MiB` or `1.5 GB`. ServemarkError (exit 2) for zero, negatives, unknown units and what is no size."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]{0,3})\s*", value, re.ASCII)
    unit = UNITS.get(match.group(2).lower()) if match is not None else None
    if match is None or unit is None or float(match.group(1)) <= 0:
        raise input_error("preflight.bad_size", value=value[:40])
    number = match.group(1)
    return int(number) * unit if number.isdigit() else int(float(number) * unit)


def allowed(facts: HostFacts) -> tuple[int, Saying]:
    """(bytes that a probe may take at once, why): a quarter of what is available, half of the cgroup's room."""
    available, room = facts.memory.available_bytes, facts.limits.room_bytes
    if available is None:
        raise input_error("preflight.size_unknown")
    share = available // SHARE_OF_AVAILABLE
    if room is not None and room // SHARE_OF_CGROUP < share:
        return room // SHARE_OF_CGROUP, say("preflight.reason.cgroup", room=size(room))
    return share, say("preflight.reason.share", available=size(available))


def steps(value: str, facts: HostFacts) -> tuple[int, ...]:
    """The three sizes of a probe, multiples of 2 MiB. ServemarkError (exit 2) when too small or not safe here."""
    asked = probe_size(value)
    if asked < STEPS[0] * PAGE_2M:
        raise input_error("preflight.size_small", value=value, minimum=size(STEPS[0] * PAGE_2M))
    most, reason = allowed(facts)
    if asked > most:
        raise too_large(asked, most, reason)
    return tuple(asked // part // PAGE_2M * PAGE_2M for part in STEPS)


def too_large(asked: int, most: int, reason: Saying) -> ServemarkError:
    """A probe that is refused."""
    shown = size(most // PAGE_2M * PAGE_2M)
    return input_error("preflight.size_large", asked=size(asked), allowed=shown, reason=reason.said())
