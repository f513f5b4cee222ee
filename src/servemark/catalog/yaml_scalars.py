"""Plain YAML 1.1 scalars: `3_977_095` is an integer, `12:00:00` is 43200, `yes` is true.

One deliberate difference from PyYAML: a date stays the text that stands in the file, because no field of a
suite is a date and a version like `2026-08-11` must not change its spelling.
"""

from __future__ import annotations

import re

Scalar = str | int | float | bool | None

MAX_INT_DIGITS = 4000
"""Longer ones are left as text (Python refuses to convert them); no field of a suite takes such a number."""

_INT = re.compile(
    r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*(?::[0-5]?[0-9])+|[1-9][0-9_]*)\Z", re.ASCII
)
_FLOAT = re.compile(
    r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z",
    re.ASCII,
)
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NUMERIC_START = frozenset("0123456789+-.")


def resolve_scalar(value: str) -> Scalar:
    """The value of a plain (unquoted, untagged) scalar."""
    if value in _WORDS:
        return _WORDS[value]
    if value[0] in _NUMERIC_START and len(value) <= MAX_INT_DIGITS:
        if _INT.match(value):
            return _integer(value)
        if _FLOAT.match(value):
            return _number(value)
    return value


def _integer(value: str) -> Scalar:
    digits = value.replace("_", "").lstrip("+-")
    sign = -1 if value.startswith("-") else 1
    if digits.startswith(("0b", "0x")):
        return sign * int(digits[2:], 2 if digits[1] == "b" else 16) if digits[2:] else value
    if ":" in digits:
        total = 0
        for part in digits.split(":"):
            total = total * 60 + int(part)
        return sign * total
    return sign * int(digits, 8 if len(digits) > 1 and digits.startswith("0") else 10)


def _number(value: str) -> float:
    body = value.replace("_", "").lower().lstrip("+-")
    sign = -1.0 if value.startswith("-") else 1.0
    if body in {".inf", ".nan"}:
        return sign * float(body[1:])
    if ":" in body:
        total = 0.0
        for part in body.split(":"):
            total = total * 60 + float(part)
        return sign * total
    return sign * float(body)
