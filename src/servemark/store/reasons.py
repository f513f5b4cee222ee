"""Why a row has no point, or what a gate found, in words."""

from __future__ import annotations

from collections.abc import Mapping

from servemark.base.messages import find_text
from servemark.base.printable import printable


def reason_text(reason: str, values: Mapping[str, object], lang: str | None = None) -> str:
    """A reason's first line; its key with its values where no message fits (another version wrote it)."""
    try:
        said = find_text(reason, lang, **values)
    except (KeyError, IndexError, ValueError, AttributeError):
        said = None
    if said is None:
        said = " ".join([reason, *(f"{name}={value}" for name, value in values.items())])
    return printable(said.splitlines()[0] if said else reason)
