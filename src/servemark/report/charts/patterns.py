"""Fill patterns shared by every drawing of the page: hatching says "waiting" without colour."""

from __future__ import annotations

from markupsafe import Markup

from servemark.report import svg


def patterns() -> Markup:
    """An invisible drawing that only holds the patterns; must stand before the first chart that uses them."""
    return svg.el(
        "svg",
        _hatch("wait"),
        _hatch("lost"),
        class_="defs-only",
        width=0,
        height=0,
        aria_hidden="true",
        focusable="false",
    )


def _hatch(name: str) -> Markup:
    return svg.el(
        "pattern",
        svg.el("rect", width=5, height=5, class_=f"{name}-ground"),
        svg.el("line", x1=0, x2=0, y1=0, y2=5, class_=f"{name}-line"),
        id=name,
        width=5,
        height=5,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
