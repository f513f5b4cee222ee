"""The page's style and script, read once, and the policy that allows exactly these two and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from markupsafe import Markup

_STATIC = "static"


@cache
def style() -> Markup:
    """`static/report.css` without comments and indentation."""
    return Markup(tight_css(_read("report.css")))  # noqa: S704 - a file of our own, without anything from outside


def tight_css(sheet: str) -> str:
    """A style sheet without comments, indentation and the spaces that nothing needs."""
    text = re.sub(r"/\*.*?\*/", "", sheet, flags=re.S)
    text = " ".join(line.strip() for line in text.splitlines() if line.strip())
    for wide, tight in (
        (" {", "{"),
        ("{ ", "{"),
        (" }", "}"),
        ("} ", "}"),
        ("; ", ";"),
        (": ", ":"),
        (", ", ","),
        (";}", "}"),
    ):
        text = text.replace(wide, tight)
    return text


@cache
def script() -> Markup:
    """`static/report.js` without whole-line comments and indentation."""
    lines = (line.strip() for line in _read("report.js").splitlines())
    kept = "\n".join(line for line in lines if line and not line.startswith("//"))
    return Markup(kept)  # noqa: S704 - a file of our own, without anything from outside


@cache
def policy() -> str:
    """Content-Security-Policy: our style and our script by their hashes, data: icons, no network at all."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(style())}'",
            f"script-src '{_hash(script())}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(_STATIC, name).read_text(encoding="utf-8")
