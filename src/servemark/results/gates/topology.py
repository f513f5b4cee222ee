"""Gates on GPU counts and on the split of a disaggregated deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.columns import Columns, usable_column
from servemark.results.gates.read import (
    INPUT_PER_GPU,
    INPUT_PER_PREFILL_GPU,
    OUTPUT_PER_DECODE_GPU,
    OUTPUT_PER_GPU,
    TOTAL,
    TOTAL_PER_GPU,
    distance,
    implied_total,
    is_disaggregated,
    passed,
    percent,
    role_gpus,
    role_of,
    short,
    skips,
    topology_gpus,
    usable,
    world,
)
from servemark.results.point import Point, RoleTopology

if TYPE_CHECKING:
    from servemark.results.gates.base import Said

COUNT_TOLERANCE = 0.4
"""How near the closed loop must come for a GPU count to be taken as the one that the figures were made with: below the
geometric middle (1.41) between a count and its double."""
MEDIAN_COUNT_FACTOR = 2.0
"""The same limit as a factor where only the median latency is known: half the mean is a common median."""
SPLIT_TOLERANCE = 0.01
INTEGER_TOLERANCE = 0.02
"""How near a recovered GPU count must be to a whole number: figures with three digits give no better."""


class _Loop(NamedTuple):
    """Throughput per GPU as stated, what the latency implies for all GPUs together, and whether that rests on a mean."""

    stated: float
    least: float
    most: float
    exact: bool


def _loop(point: Point) -> _Loop | None:
    """None where a part is not known, or where the total of the whole deployment is stated and the count is in no
    figure."""
    stated, implied = point.value(TOTAL_PER_GPU), implied_total(point)
    if stated is None or not usable(stated) or implied is None or point.value(TOTAL) is not None:
        return None
    return _Loop(stated, implied[0], implied[1], implied[3])


def _off_by(loop: _Loop, count: int) -> float:
    """By which factor (1 or more) throughput per GPU x `count` differs from what the latency implies. What a median
    latency implies is taken for near up to the wider limit."""
    ratio = distance(loop.stated, loop.least / count, loop.most / count)
    off = max(ratio, 1 / ratio)
    return off if loop.exact else max(1.0, off * (1 + COUNT_TOLERANCE) / MEDIAN_COUNT_FACTOR)


def _agrees(point: Point, count: int) -> bool | None:
    loop = _loop(point)
    return None if loop is None else _off_by(loop, count) <= 1 + COUNT_TOLERANCE


def _made_with(point: Point, count: int, stated: int) -> bool:
    """True where the closed loop says that the figures were made with `count` GPUs and not with `stated`."""
    loop = _loop(point)
    if loop is None:
        return False
    near = _off_by(loop, count)
    return near <= 1 + COUNT_TOLERANCE and (stated <= 0 or near < _off_by(loop, stated))


_COUNT_NO_COUNT, _COUNT_ROLES, _COUNT_NO_TP = skips(
    "gpu_count", "no_gpus", "disaggregated", "no_parallel_sizes"
)
_COUNT_OK = passed("gpu_count")
_PER_GPU = frozenset({TOTAL_PER_GPU, INPUT_PER_GPU, OUTPUT_PER_GPU, "requests_per_s_per_gpu"})


def gpu_count(point: Point, _context: Context) -> GateFinding:
    """The stated GPUs of an aggregated deployment against its parallel sizes: workers x tp x pp x pcp (x dp for
    replicas on GPUs of their own). tp x ep is no GPU count: experts lie on the same GPUs.

    A wrong count is a warning where the closed loop shows that the per-GPU figures were made with the right one, or where
    no figure is per GPU (an eval), and quarantine otherwise. More GPUs than the topology explains, in whole workers, are
    a warning where nobody says how many workers there are.
    """
    sure = _count_framed(point)
    if sure is not None:
        return sure
    stated, allowed = _stated_gpus(point) or 0, topology_gpus(point)
    role = point.identity.topology[0]
    by_experts = stated == (role.workers or 1) * (role.tp or 0) * (role.ep or 1)
    confirmed = _made_with(point, allowed[0], stated)
    more_workers = role.workers is None and not by_experts and stated > 0 and stated % allowed[0] == 0
    values: dict[str, object] = {
        "stated": stated,
        "topology": allowed[0],
        "tp": role.tp or 0,
        "pp": role.pp or 1,
        "ep": role.ep or 1,
        "confirmed": allowed[0] if confirmed else "—",
    }
    harmless = confirmed or more_workers or not _PER_GPU & point.figures.keys()
    return GateFinding("gpu_count", Severity.WARNING if harmless else Severity.QUARANTINE, values)


def _stated_gpus(point: Point) -> int | None:
    return point.gpus_stated if point.gpus_stated is not None else point.gpus_deployed


def _count_framed(point: Point) -> GateFinding | None:
    """What `gpu_count` says without a look at the figures; None where they have a say."""
    stated = _stated_gpus(point)
    if not stated:  # unknown, or a deployment without GPUs
        return _COUNT_NO_COUNT
    if len(point.identity.topology) > 1:
        return _COUNT_ROLES
    allowed = topology_gpus(point)
    if not allowed:
        return _COUNT_NO_TP
    return _COUNT_OK if stated in allowed else None


_ROLE_ONE, _ROLE_NO_SIZES = skips("role_gpus", "not_disaggregated", "no_parallel_sizes")
_ROLE_OK = passed("role_gpus")


def role_count(point: Point, _context: Context) -> GateFinding:
    """GPUs of one worker of a role against its parallel sizes: tp x ep, where both are above 1 and neither explains it,
    is the same slip as in `gpu_count`. The identity of `split` overrules it: rates made with a count prove the count."""
    if not is_disaggregated(point):
        return _ROLE_ONE
    sized = [role for role in point.identity.topology if role.gpus and role.tp and role.workers]
    for role in sized:
        if _is_product(role) and not stated_split_holds(point):
            values: dict[str, object] = {
                "role": role.role,
                "stated": role.gpus,
                "tp": role.tp,
                "ep": role.ep or 1,
            }
            return GateFinding("role_gpus", Severity.WARNING, values)
    return _ROLE_OK if sized else _ROLE_NO_SIZES


def _is_product(role: RoleTopology) -> bool:
    """Whether the GPUs of a worker are tp x ep and nothing else explains them."""
    tp, ep = role.tp or 0, role.ep or 1
    return tp > 1 and ep > 1 and role.gpus == tp * ep and role.gpus not in world(role)


def _role_framed(point: Point) -> GateFinding | None:
    """What `role_count` says without a look at the figures; None where they have a say."""
    topology = point.identity.topology
    if any(_is_product(role) for role in topology if role.workers):
        return None
    return role_count(point, _NO_CONTEXT)


_NO_CONTEXT = Context()


_TELEMETRY_SKIP = skips("gpu_telemetry", "no_telemetry")[0]
_TELEMETRY_OK = passed("gpu_telemetry")


def gpu_telemetry(point: Point, _context: Context) -> GateFinding:
    """Distinct GPUs in the telemetry against GPUs deployed. Fewer than stated: the count, or the energy, is wrong
    (quarantine). More: idle GPUs of the host were sampled too, or the count is too low (warning)."""
    seen = point.gpus_telemetry
    stated = point.gpus_deployed if point.gpus_deployed is not None else point.gpus_stated
    if seen is None or stated is None:
        return _TELEMETRY_SKIP
    if seen == stated:
        return _TELEMETRY_OK
    severity = Severity.QUARANTINE if seen < stated else Severity.WARNING
    return GateFinding("gpu_telemetry", severity, {"telemetry": seen, "stated": stated})


class Split(NamedTuple):
    """GPUs of the two roles that the three rates give."""

    prefill: int
    decode: int


class _Rates(NamedTuple):
    read: float
    written: float
    total: float


def _rates(point: Point) -> _Rates | None:
    """Input per prefill GPU, output per decode GPU and total per GPU; None where one is absent or no number."""
    read, written = point.value(INPUT_PER_PREFILL_GPU), point.value(OUTPUT_PER_DECODE_GPU)
    total = point.value(TOTAL_PER_GPU)
    if read is None or written is None or total is None:
        return None
    found = _Rates(read, written, total)
    return found if all(usable(rate) for rate in found) else None


def _off(rates: _Rates, prefill: int, decode: int) -> float:
    """|in x P + out x D over total x (P + D), less 1|."""
    whole = rates.total * (prefill + decode)
    return abs((rates.read * prefill + rates.written * decode) / whole - 1)


def recover_split(point: Point) -> Split | None:
    """The whole numbers P and D with in x P + out x D = total x (P + D), for the GPU counts that the row may have
    meant: what it states, half of that (a total written for both roles) and either role's own count.

    The three rates give only the ratio P : D, so several sizes may fit; the closed loop then decides, and without it
    the size that both roles claim. None when no whole numbers fit, or sizes stay in doubt.
    """
    rates = _rates(point)
    if rates is None or rates.read == rates.written:
        return None
    share = (rates.total - rates.written) / (rates.read - rates.written)
    prefill, decode = role_of(point, "prefill"), role_of(point, "decode")
    of_roles = [_claimed(point, "prefill"), _claimed(point, "decode")]
    both = of_roles[0] if of_roles[0] is not None and of_roles[0] == of_roles[1] else None
    stated = [point.gpus_stated, point.gpus_deployed]
    halves = [count // 2 for count in stated if count is not None and count % 2 == 0]
    if prefill is None or decode is None:
        return None
    fits: dict[int, Split] = {}
    for count in (*stated, *halves, *of_roles):
        if count is None or count < 2:
            continue
        some = share * count
        whole = round(some)
        if abs(some - whole) <= INTEGER_TOLERANCE and 0 < whole < count:
            fits[count] = Split(whole, count - whole)
    agreed = {count: _agrees(point, count) for count in fits}
    sure = [count for count, agrees in agreed.items() if agrees]
    if len(sure) == 1:
        return fits[sure[0]]
    open_still = [count for count, agrees in agreed.items() if agrees is not False]
    if both in open_still and both is not None:
        return fits[both]
    return fits[open_still[0]] if len(open_still) == 1 else None


def _claimed(point: Point, name: str) -> int | None:
    """What a role claims to have: workers x GPUs, or the GPUs alone where no workers are said."""
    role = role_of(point, name)
    known = role_gpus(role)
    return known if known is not None or role is None else role.gpus or None


_SPLIT_ONE, _SPLIT_NO_RATES = skips("split", "not_disaggregated", "no_role_rates")
_SPLIT_OK = passed("split")
_UNKNOWN_ONE, _UNKNOWN_NO_RATES = skips("split_unknown", "not_disaggregated", "no_role_rates")
_UNKNOWN_OK = passed("split_unknown")


def stated_split_holds(point: Point) -> bool:
    """True where the stated prefill and decode GPUs satisfy the identity of `split`; where a role states none, workers x
    what its parallel sizes allow stand for them."""
    rates = _rates(point)
    if rates is None:
        return False
    return any(
        _off(rates, prefill, decode) <= SPLIT_TOLERANCE
        for prefill in _possible(point, "prefill")
        for decode in _possible(point, "decode")
    )


def _possible(point: Point, name: str) -> tuple[int, ...]:
    """GPU counts that a role may have, by what is stated or else by its sizes; all above zero."""
    claimed, role = _claimed(point, name), role_of(point, name)
    if claimed is not None:
        return (claimed,) if claimed > 0 else ()
    if role is None or not role.workers or role.workers < 0:
        return ()
    return tuple(role.workers * size for size in world(role) if size > 0)


def split(point: Point, _context: Context) -> GateFinding:
    """Input per prefill GPU x P + output per decode GPU x D = total per GPU x (P + D). Where the stated P and D do not
    satisfy it but whole numbers do, the row lost its split and these are it (warning)."""
    if not is_disaggregated(point):
        return _SPLIT_ONE
    if stated_split_holds(point):
        return _SPLIT_OK
    rates = _rates(point)
    if rates is None:
        return _SPLIT_NO_RATES
    found = recover_split(point)
    if found is None:
        return _SPLIT_OK
    values: dict[str, object] = {**_numbers(point, rates), "prefill": found.prefill, "decode": found.decode}
    return GateFinding("split", Severity.WARNING, values)


def _split_columns(columns: Columns) -> Said:
    return _holds(columns, _SPLIT_OK, _SPLIT_ONE)


def _unknown_columns(columns: Columns) -> Said:
    return _holds(columns, _UNKNOWN_OK, _UNKNOWN_ONE)


def _holds(columns: Columns, sound: GateFinding, one: GateFinding) -> Said:
    """`sound` of the points whose stated split holds, where each role can have one count of GPUs alone; `one` where none
    has roles."""
    if not any(map(is_disaggregated, columns.frames)):
        return one, True
    read, written = columns.of(INPUT_PER_PREFILL_GPU), columns.of(OUTPUT_PER_DECODE_GPU)
    total = columns.of(TOTAL_PER_GPU)
    if read is None or written is None or total is None:
        return sound, False
    prefill, decode = (
        columns.framed(lambda point, name=name: _only(point, name))  # type: ignore[misc]
        for name in ("prefill", "decode")
    )
    off = abs((read * prefill + written * decode) / (total * (prefill + decode)) - 1)
    known = usable_column(read) & usable_column(written) & usable_column(total)
    return sound, known & (off <= SPLIT_TOLERANCE)


def _only(point: Point, name: str) -> int | None:
    """GPUs of a role of a disaggregated point, where one count alone is possible."""
    found = _possible(point, name) if is_disaggregated(point) else ()
    return found[0] if len(found) == 1 else None


def split_unknown(point: Point, _context: Context) -> GateFinding:
    """As `split`, where no whole numbers of GPUs give the stated rates, or more than one pair does: nobody can say how
    many GPUs each role had, so no per-GPU figure of the row stands."""
    if not is_disaggregated(point):
        return _UNKNOWN_ONE
    if stated_split_holds(point):
        return _UNKNOWN_OK
    rates = _rates(point)
    if rates is None:
        return _UNKNOWN_NO_RATES
    if recover_split(point) is not None:
        return _UNKNOWN_OK
    return GateFinding("split_unknown", Severity.QUARANTINE, _numbers(point, rates))


def _stated(point: Point, name: str) -> int | None:
    """GPUs of a role as its topology has them, or as the source stated them where the topology does not believe it."""
    claimed = _claimed(point, name)
    said = point.declared.get(f"{name}_gpus")
    return said if claimed is None and isinstance(said, int) and not isinstance(said, bool) else claimed


def _numbers(point: Point, rates: _Rates) -> dict[str, object]:
    prefill, decode = _stated(point, "prefill"), _stated(point, "decode")
    return {
        "input": short(rates.read),
        "output": short(rates.written),
        "total": short(rates.total),
        "stated_prefill": "—" if prefill is None else prefill,
        "stated_decode": "—" if decode is None else decode,
        "tolerance_percent": percent(SPLIT_TOLERANCE),
    }


GATES = (
    Gate(
        "gpu_count",
        1,
        gpu_count,
        COUNT_TOLERANCE,
        "the geometric middle between a count and its double",
        framed=_count_framed,
    ),
    Gate("role_gpus", 1, role_count, 0.0, "both are counts", idle=("roles", _ROLE_ONE), framed=_role_framed),
    Gate("gpu_telemetry", 1, gpu_telemetry, 0.0, "both are counts", idle=("telemetry", _TELEMETRY_SKIP)),
    Gate(
        "split",
        1,
        split,
        SPLIT_TOLERANCE,
        "rounding to three digits; published rows are exact",
        idle=("roles", _SPLIT_ONE),
        columns=_split_columns,
    ),
    Gate(
        "split_unknown",
        1,
        split_unknown,
        SPLIT_TOLERANCE,
        "rounding to three digits; published rows are exact",
        idle=("roles", _UNKNOWN_ONE),
        columns=_unknown_columns,
    ),
)
"""The family in the order of its tables."""
