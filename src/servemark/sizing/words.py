"""Figures and the verdict of a size report in words; every figure has its unit."""

from __future__ import annotations

from servemark.base.messages import text
from servemark.sizing.lines import Verdict
from servemark.sizing.size_strings import GIB


def amount(value: float, unit: str, lang: str | None = None) -> str:
    """A value with its unit; never a bare number."""
    if unit == "bytes":
        return _bytes(value)
    if unit == "parameters":
        for size, letter, digits in ((1e12, "T", 4), (1e9, "B", 3)):
            if value >= size:
                return f"{value / size:,.{digits}f} {letter}"
    if unit == "seconds":
        return f"{value * 1000:,.2f} ms"
    if unit == "tokens":
        return text("sizing.view.tokens", lang, count=f"{value:,.0f}")
    return f"{value:,.0f}"


def _bytes(value: float) -> str:
    """GiB and GB side by side, MiB and MB below a tenth of a GiB, bytes below a MiB."""
    if abs(value) >= GIB / 10:
        return f"{value / GIB:,.2f} GiB = {value / 1e9:,.2f} GB"
    if abs(value) >= 1 << 20:
        return f"{value / (1 << 20):,.2f} MiB = {value / 1e6:,.2f} MB"
    return f"{value:,.0f} B" if value == int(value) else f"{value:,.1f} B"


def number(value: object, lang: str | None = None) -> str:
    """A value of a formula or a reason: grouped digits; a name that is a message's key as its text."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
    if isinstance(value, str) and value.startswith("sizing."):
        return text(value, lang)
    return str(value)


def verdict_text(verdict: Verdict, lang: str | None = None) -> str:
    """One sentence."""
    if verdict.kind == "fits":
        return text("sizing.verdict.fits", lang)
    values = {name: number(value, lang) for name, value in (verdict.values or {}).items()}
    if "role" in values:
        values["role"] = text(f"sizing.role.{values['role']}", lang)
    if "margin" in (verdict.values or {}):
        values["margin"] = amount(float(str((verdict.values or {})["margin"])), "bytes").partition(" = ")[0]
    reason = text(f"sizing.reason.{verdict.reason}", lang, **values)
    if verdict.kind == "cannot_say":
        return text("sizing.verdict.cannot_say", lang, reason=reason)
    scope = text(f"sizing.scope.{verdict.scope}", lang)
    size = f"{verdict.missing:,} B ({amount(verdict.missing, 'bytes')})"
    return text("sizing.verdict.does_not_fit", lang, missing=size, scope=scope, reason=reason)
