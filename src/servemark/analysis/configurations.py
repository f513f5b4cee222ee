"""A deployment in a few letters, and the group of lines that a reader compares: hardware, engine, precision, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servemark.analysis.measured import Measured
from servemark.analysis.selection import disaggregated_of, speculation_of
from servemark.base.messages import text
from servemark.results.point import PointIdentity, RoleTopology

SERIES_PARTS = ("hardware", "engine", "precision", "speculation", "disaggregated")
"""What tells series apart, in the order in which they are named."""
_PARALLEL = ("tp", "pp", "dp", "ep", "dcp", "pcp")


def topology_label(identity: PointIdentity, lang: str | None = None) -> str:
    """`TP8 EP8`, or `P 4xTP4 + D 1xTP32 EP32 DPA` with separate roles (P prefill, D decode; DPA data-parallel attention).

    Sizes of 1 are left out, but for a tensor parallelism that stands alone."""
    if not identity.topology:
        return text("front.topology.unknown", lang)
    many = len(identity.topology) > 1
    return " + ".join(_role(role, many, lang) for role in identity.topology)


def _role(role: RoleTopology, named: bool, lang: str | None) -> str:
    sizes = [f"{name.upper()}{size}" for name in _PARALLEL if (size := getattr(role, name)) not in (None, 1)]
    if not sizes and role.tp == 1:
        sizes = ["TP1"]
    if role.dp_attention:
        sizes.append("DPA")
    said = " ".join(sizes) or ("?" if named else text("front.topology.unknown", lang))
    workers = f"{role.workers}\u00d7" if role.workers and (named or role.workers > 1) else ""
    return f"{role.role[:1].upper()} {workers}{said}" if named else f"{workers}{said}"


def series_parts(point: Measured) -> dict[str, str]:
    """What a series is, as the words that a selection takes (`SERIES_PARTS`)."""
    identity = point.identity
    return {
        "hardware": identity.hardware,
        "engine": identity.engine,
        "precision": identity.precision.family or "unknown",
        "speculation": speculation_of(point),
        "disaggregated": disaggregated_of(point),
    }


def series_label(
    parts: Mapping[str, str], among: Sequence[Mapping[str, str]], lang: str | None = None
) -> str:
    """`b200 · trtllm · fp4 · mtp · disaggregated`: hardware and engine always, the rest where series differ in it. What is
    not there (no speculation, not disaggregated) is not named."""
    said = [parts["hardware"], parts["engine"]]
    for name in SERIES_PARTS[2:]:
        if len({each[name] for each in among}) > 1:
            said.append(part_label(name, parts[name], lang))
    return " · ".join(each for each in said if each)


def part_label(name: str, value: str, lang: str | None = None) -> str:
    """A part in words, empty for what is not there: `disaggregated=yes` is "disaggregated", `speculation=none` nothing."""
    if name == "disaggregated":
        return text("front.part.disaggregated", lang) if value == "yes" else ""
    if name == "speculation" and value == "none":
        return ""
    return text(f"front.part.{name}.unknown", lang) if value == "unknown" else value
