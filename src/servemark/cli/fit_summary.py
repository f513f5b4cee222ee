"""The short of a size report: where the room of a rank and of a node goes, and what binds first."""

from __future__ import annotations

from collections.abc import Iterable

from servemark.base.joined import with_head
from servemark.base.messages import text
from servemark.cli.text_table import wrapped
from servemark.sizing.fit import FitReport, RoleFit
from servemark.sizing.lines import Line
from servemark.sizing.words import amount

_ROOM = ("gpu_budget", "gpu_memory", "host_memory")
_PARTS = ("weights", "draft_weights", "reserve", "pool", "kv_context", "state_pool")
_REQUESTS = ("requests_worker", "requests_fit", "requests_slots")


def summary_lines(report: FitReport, width: int) -> list[str]:
    """At most six sentences; what is not known is left out."""
    sentences = [each for made in report.roles if (each := _role(made))]
    sentences += [each for each in (_limit(report), _host(report)) if each]
    lines: list[str] = []
    for sentence in sentences:
        first, *more = wrapped(sentence, width, "  ")
        lines += [first, *more]
    return lines


def _found(lines: Iterable[Line], *names: str) -> Line | None:
    """The first of these names that is there."""
    by_name = {line.name: line for line in lines}
    return next((by_name[name] for name in names if name in by_name), None)


def _short(size: float) -> str:
    """`52.79 GiB`: one unit, where two would make a list unreadable."""
    return amount(size, "bytes").partition(" = ")[0]


def _role(made: RoleFit) -> str | None:
    role = text(f"sizing.role.{made.role.name}")
    if made.same_as is not None:
        return text("sizing.short.same", None, role=role, other=text(f"sizing.role.{made.same_as}"))
    room = _found(made.lines, *_ROOM)
    parts = " + ".join(
        f"{text(f'sizing.line.{line.name}')} {_short(line.value)}"
        for line in made.lines
        if line.name in _PARTS and line.unit == "bytes" and line.value >= 0
    )
    if room is None or not parts:
        return None
    values = {"role": role, "room": _short(room.value), "parts": parts}
    kind = "here" if room.name == "host_memory" else "gpu"
    return text(f"sizing.short.{kind}", None, **values)


def _limit(report: FitReport) -> str | None:
    """The role whose KV cache holds the fewest requests of the asked length."""
    found = [
        (line.value, made, line)
        for made in report.roles
        if made.same_as is None and (line := _found(made.lines, *_REQUESTS)) is not None
    ]
    if not found or report.verdict.kind != "fits":
        return None
    fewest, made, line = min(found, key=lambda each: each[0])
    margin = f" ± {line.margin:,.0f}" if line.margin else ""
    return text(
        "sizing.short.limit",
        None,
        role=text(f"sizing.role.{made.role.name}"),
        requests=f"{fewest:,.0f}{margin}",
        context=f"{report.asked.context:,}",
    )


def _host(report: FitReport) -> str | None:
    """Host memory of the fullest node beside what a node has, and the huge pages to reserve."""
    every = [line for made in report.roles for line in made.lines]
    taken = [line.value for line in every if line.name == "host_node"]
    shared = _found(report.job, "host_node_shared")
    there = _found(report.job, "node_dram")
    if not taken:
        return None
    most = max([*taken, *([shared.value] if shared is not None else [])])
    said = (
        text("sizing.short.host_alone", None, taken=_short(most))
        if there is None or not there.value
        else text(
            "sizing.short.host",
            None,
            taken=_short(most),
            there=_short(there.value),
            share=f"{most / there.value:.0%}",
        )
    )
    pages = [line.value for line in every if line.name == "pages_reserved"]
    return said + text("sizing.short.pages", None, pages=f"{max(pages):,.0f}") if pages else said


def rest_lines(report: FitReport, width: int) -> list[str]:
    """Warnings in full elsewhere; here how much more there is to read, and how."""
    count = sum(len(made.lines) for made in report.roles if made.same_as is None)
    count += len(report.model) + len(report.job)
    notes = sum(remark.severity == "note" for remark in report.remarks)
    return wrapped(
        with_head(text("sizing.short.more"), text("sizing.short.how", None, figures=count, notes=notes)),
        width,
        "  ",
    )
