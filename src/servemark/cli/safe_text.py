"""Rich text of something that may have come from a file or a server."""

from __future__ import annotations

from rich.text import Text as RichText

from servemark.base.printable import printable


def Text(content: str = "", style: str = "") -> RichText:  # noqa: N802 - stands for rich's class, made safe
    """`content` with everything that could steer a terminal written out; no markup is read in it."""
    return RichText(printable(content), style=style)
