"""What several gates read of a point: names of figures, token means, GPU counts, and how findings are made.

Nothing here raises on absent data: what is not known is None.
"""

from __future__ import annotations

import math

from servemark.results.figures import number_of
from servemark.results.gates.base import GateFinding, Severity
from servemark.results.point import Point, RoleTopology

TOTAL = "total_tokens_per_s"
TOTAL_PER_GPU = "total_tokens_per_s_per_gpu"
INPUT_PER_GPU = "input_tokens_per_s_per_gpu"
OUTPUT_PER_GPU = "output_tokens_per_s_per_gpu"
INPUT_PER_PREFILL_GPU = "input_tokens_per_s_per_prefill_gpu"
"""Tokens read per second by one GPU of the prefill role; never on one axis with a figure per GPU deployed."""
OUTPUT_PER_DECODE_GPU = "output_tokens_per_s_per_decode_gpu"
POWER_PER_GPU = "gpu_power_w.mean"
"""Mean power of one GPU over the window, watts."""
IN_FLIGHT = "requests_in_flight.mean"
"""Mean number of requests that the server held over the window: what Little's law speaks of."""
ACHIEVED = "achieved_concurrency"
FIXED = frozenset({"fixed-seq-len", "random"})
"""Scenarios whose request lengths are fixed and whose lanes never think."""
ASSUMED_LENGTH_SHARE = (0.9, 1.0)
"""Mean length / stated length where nobody says the range ratio: 0.9 for the common ratio 0.8, 1 for none."""


def skips(gate: str, *reasons: str) -> tuple[GateFinding, ...]:
    """One finding a reason, made once: a skip holds nothing of the point. Text: `gate.skipped.<reason>`."""
    return tuple(GateFinding(gate, Severity.SKIPPED, {"reason": reason}) for reason in reasons)


def passed(gate: str) -> GateFinding:
    """The finding of a gate that has nothing to say; made once."""
    return GateFinding(gate, Severity.OK)


def percent(share: float) -> float | str:
    """A share as printed: percent, one decimal; what is no finite number as text."""
    return round(100 * share, 1) if math.isfinite(share) else repr(share)


def short(value: float) -> float | str:
    """A number as messages show it: five significant digits; what is no finite number as text, since JSON has none."""
    found = float(f"{value:.5g}")
    return found if math.isfinite(found) else repr(value)


def usable(value: float | None) -> bool:
    """True for a finite number above zero: what one may divide by."""
    return value is not None and 0 < value < math.inf


def plain(value: object) -> float | None:
    """A finite number of a free-form field (`observed`, `client`, ...); None for anything else, a truth value too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def length_share(point: Point) -> tuple[float, float]:
    """(least, most) mean request length / stated length. Lengths drawn evenly from [ratio x L, L] have the mean
    (1 + ratio) / 2 x L."""
    ratio = point.identity.scenario.range_ratio
    if ratio is None or not 0 <= ratio <= 1:
        return ASSUMED_LENGTH_SHARE
    share = (1 + ratio) / 2
    return share, share


def tokens_a_request(point: Point) -> tuple[float, float] | None:
    """(least, most) mean input + output tokens of a request: as measured, else from the stated lengths."""
    figures = point.figures
    read, written = number_of(figures, "input_tokens.mean"), number_of(figures, "output_tokens.mean")
    if read is not None and written is not None:
        both = read + written
        return (both, both) if usable(both) else None
    return stated_tokens(point)


def stated_tokens(point: Point) -> tuple[float, float] | None:
    """(least, most) mean input + output tokens of a request by the stated lengths alone."""
    scenario = point.identity.scenario
    if scenario.type not in FIXED or scenario.isl is None or scenario.osl is None:
        return None
    both = float(scenario.isl + scenario.osl)
    least, most = length_share(point)
    return (least * both, most * both) if usable(both) and least > 0 else None


def role_of(point: Point, name: str) -> RoleTopology | None:
    """The role of that name; None when there is none."""
    for role in point.identity.topology:
        if role.role == name:
            return role
    return None


def role_gpus(role: RoleTopology | None) -> int | None:
    """GPUs of a role: workers x GPUs of each; None where a part is not said (zero is nobody's count)."""
    if role is None or not role.workers or not role.gpus:
        return None
    return role.workers * role.gpus


def world(role: RoleTopology) -> tuple[int, ...]:
    """GPUs that one worker of the role may have by its parallel sizes, the least first: tp x pp x pcp, and dp times
    that where replicas have their own GPUs. Expert parallelism runs on the same GPUs and adds none (so does DCP), but a
    group of experts wider than tp shows data-parallel ranks that nobody named: ep x pp."""
    if not role.tp or role.tp < 0:
        return ()
    size = role.tp * (role.pp or 1) * (role.pcp or 1)
    if role.dp and role.dp > 1:
        return size, size * role.dp
    if role.ep and not role.dp and role.ep > role.tp * (role.pcp or 1):
        return size, role.ep * (role.pp or 1)
    return (size,)


def topology_gpus(point: Point) -> tuple[int, ...]:
    """GPU counts that the topology of an aggregated deployment allows, the least first; empty when it does not say."""
    topology = point.identity.topology
    if len(topology) != 1 or topology[0].role != "aggregated":
        return ()
    workers = topology[0].workers or 1
    return tuple(workers * size for size in world(topology[0]))


def gpus(point: Point) -> int | None:
    """The best known number of GPUs behind per-GPU figures: deployed, else what the topology says, else stated."""
    if point.gpus_deployed:
        return point.gpus_deployed
    allowed = topology_gpus(point)
    if allowed:
        return point.gpus_stated if point.gpus_stated in allowed else allowed[0]
    roles = [role_gpus(role) for role in point.identity.topology]
    known = [count for count in roles if count is not None]
    if roles and len(known) == len(roles):
        return sum(known)
    return point.gpus_stated or None


def is_disaggregated(point: Point) -> bool:
    """True with separate prefill and decode roles; as `PointIdentity.disaggregated`, without a set a call."""
    topology = point.identity.topology
    return (
        len(topology) > 1 and role_of(point, "prefill") is not None and role_of(point, "decode") is not None
    )


def in_flight(point: Point) -> float | None:
    """Mean requests in flight of a closed loop; None for an open loop, and for traces, whose sessions think."""
    figures = point.figures
    measured = number_of(figures, IN_FLIGHT)
    if measured is not None:
        return measured
    if not is_closed(point):
        return None
    achieved = number_of(figures, ACHIEVED)
    return achieved if achieved is not None else point.identity.concurrency


def is_closed(point: Point) -> bool:
    """True for a closed loop whose lanes never think."""
    scenario = point.identity.scenario
    return scenario.arrivals is None and scenario.type in FIXED


def implied_total(point: Point) -> tuple[float, float, float, bool] | None:
    """(least, most) total tokens per second of the whole deployment by Little's law, the latency in seconds that it
    rests on, and whether that is the mean (True) or only the median. None where a part is not known."""
    figures = point.figures
    mean = number_of(figures, "e2el_s.mean")
    latency = mean if mean is not None else number_of(figures, "e2el_s.p50")
    lanes = in_flight(point)
    if latency is None or lanes is None or not 0 < latency < math.inf or not 0 < lanes < math.inf:
        return None
    tokens = tokens_a_request(point)
    if tokens is None:
        return None
    per_token = lanes / latency
    return per_token * tokens[0], per_token * tokens[1], latency, mean is not None


def distance(found: float, least: float, most: float) -> float:
    """How far a positive value lies outside [least, most], as the ratio of the nearest end to it: 1 inside, 2 where
    the range promises twice the value, 0.5 where it promises half of it."""
    if found < least:
        return least / found
    return most / found if found > most else 1.0
