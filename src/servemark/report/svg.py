"""Small, safe building blocks for SVG that adapts to any width without a script.

Charts place things across in per cent of their box and down in pixels, so a chart fills a phone and a wide
screen with text of one constant size. Shapes that must not be stretched sit in a nested `<svg>` whose corner
is given in per cent. Every attribute and text goes through `markupsafe.escape`.
"""

from __future__ import annotations

from markupsafe import Markup, escape


def num(value: float, decimals: int = 1) -> str:
    """A coordinate in px, to a tenth unless asked finer, without trailing zeros: `12.5`, `3`, `0`."""
    text = f"{value:.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def pct(share: float) -> str:
    """A share of the box (0..1) as a per cent coordinate."""
    return f"{num(share * 100, 2)}%"


def el(tag: str, *children: Markup | str | None, **attrs: str | float | None) -> Markup:
    """One element. Attribute names: a trailing `_` is dropped and `_` becomes `-`, save in `viewBox`.

    None leaves an attribute or child out; numbers are shortened by `num`; strings are escaped.
    """
    head = Markup("").join(
        Markup(' {}="{}"').format(_attribute_name(name), num(v) if isinstance(v, int | float) else v)
        for name, v in attrs.items()
        if v is not None
    )
    body = Markup("").join(escape(child) for child in children if child is not None)
    if not body and tag not in _CONTAINERS:
        return Markup("<{}{}/>").format(tag, head)
    return Markup("<{}{}>{}</{}>").format(tag, head, body, tag)


def _attribute_name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


_CONTAINERS = frozenset({"div", "span", "text", "title", "g", "svg", "p", "figure", "pattern"})


def join(parts: list[Markup]) -> Markup:
    """Concatenate."""
    return Markup("").join(parts)


def at(x_share: float, y_px: float, *children: Markup, **attrs: str | float | None) -> Markup:
    """A group whose origin is a point of the chart: contents are drawn in pixels around (0, 0)."""
    return el("svg", *children, x=pct(x_share), y=y_px, overflow="visible", **attrs)


def text(x: str | float, y: float, words: str, cls: str, anchor: str = "start") -> Markup:
    """A text whose baseline begins, is centred, or ends (`anchor`) at (x, y)."""
    return el("text", words, x=x, y=y, class_=cls, text_anchor=None if anchor == "start" else anchor)


def inward(share: float, edge: float = 0.08) -> str:
    """The anchor that keeps a short text at `share` of the width inside the chart: start, middle or end."""
    return "start" if share < edge else "end" if share > 1 - edge else "middle"


def hline(y: float, cls: str, x1: float = 0.0, x2: float = 1.0) -> Markup:
    """A level line between two shares of the width."""
    return el("line", x1=pct(x1), x2=pct(x2), y1=y, y2=y, class_=cls)


def vline(x: float, y1: float, y2: float, cls: str) -> Markup:
    """An upright line at a share of the width."""
    return el("line", x1=pct(x), x2=pct(x), y1=y1, y2=y2, class_=cls)


def rect(x: float, width: float, y: float, height: float, cls: str) -> Markup:
    """A rectangle: across in shares of the width, down in pixels."""
    return el("rect", x=pct(x), width=pct(max(width, 0.0)), y=y, height=max(height, 0.0), class_=cls)


def plot(height: float, label: str | None, *children: Markup, cls: str = "", role: str = "group") -> Markup:
    """The outermost element of a chart: as wide as its parent, `height` pixels high, named for readers.

    Without a label it is an ornament of words that stand beside it, and hidden from readers of the screen.
    """
    return el(
        "svg",
        *children,
        width="100%",
        height=height,
        overflow="visible",
        role=role if label is not None else None,
        aria_label=label,
        aria_hidden="true" if label is None else None,
        class_=f"plot {cls}".strip(),
    )
