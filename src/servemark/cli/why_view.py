"""`show --why` for a person and for a machine. Draws `results.why.Why`."""

from __future__ import annotations

from dataclasses import asdict

from servemark.analysis.format import display
from servemark.base.messages import text
from servemark.results.why import Why


def why_json(why: Why) -> dict[str, object]:
    """All fields of `Why` as one JSON object."""
    return asdict(why)


def why_lines(why: Why) -> list[str]:
    """The figure, its formula with its numbers, the evidence line by line, and whether it was made again."""
    value = display(why.unit, [why.value]).text(why.value)
    lines = [f"{why.label} ({why.address}) = {value}"]
    if why.absent_because:
        lines.append(text("cli.show.absent", None, why=why.absent_because))
    lines.append(text("cli.explain.formula", None, formula=why.formula))
    lines += [said for said in (why.rule, why.substituted) if said]
    for one in why.evidence:
        place = one.file if one.line is None else f"{one.file}:{one.line}"
        request = f"  [{one.request}]" if one.request else ""
        lines.append(
            f"  {place}{request}  {one.field}: {one.text}" if one.text else f"  {place}{request}  {one.field}"
        )
    if why.check:
        lines.append(why.check)
    return lines
