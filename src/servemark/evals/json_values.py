"""JSON out of replies, compared by value, and held against the part of JSON Schema that tools are described with.

Of JSON Schema (2020-12) the keywords of `KEYWORDS` are known; a schema with any other is refused where it is read, so
that no rule is passed over in silence. NaN and infinities are no JSON here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Final

MAX_TEXT: Final = 100_000
MAX_DEPTH: Final = 40

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_NOTES: Final = frozenset({"title", "description", "default", "examples", "$schema", "$comment"})
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_COUNTS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
KEYWORDS: Final = (
    frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"})
    | _NOTES
    | _NUMBERS
    | _COUNTS
)


def parse_json(text: str, limit: int = MAX_TEXT, *, unique: bool = False) -> tuple[bool, object]:
    """(True, value) of a text of at most `limit` characters that is one JSON value, or (False, None). With `unique` an
    object that names a member twice is none."""
    if len(text) > limit:
        return False, None
    pairs = _once if unique else None
    try:
        return True, json.loads(
            text, parse_constant=_refuse, parse_float=_finite, parse_int=_bounded, object_pairs_hook=pairs
        )
    except (ValueError, RecursionError):
        return False, None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member twice")
    return found


def _refuse(name: str) -> object:
    raise ValueError(name)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(digits[:20])
    return value


def _bounded(digits: str) -> int:
    if len(digits) > 400:
        raise ValueError("too long")
    return int(digits)


def json_in(text: str) -> tuple[bool, object]:
    """The JSON value that a reply consists of: the whole text, the first fenced block, or what lies between the
    first opening and the last closing bracket."""
    text = text.strip()
    found, value = parse_json(text)
    if found:
        return True, value
    _, fence, rest = text.partition("```")
    if fence:
        inside = rest.partition("```")[0]
        found, value = parse_json(inside.partition("\n")[2].strip() or inside.strip())
        if found:
            return True, value
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            found, value = parse_json(text[start : end + 1])
            if found:
                return True, value
    return False, None


def same_value(expected: object, found: object, depth: int = 0) -> bool:
    """Equal as JSON: numbers by value (3 is 3.0, true is not 1), texts after white space is folded and case dropped,
    objects by their members in any order, lists in order."""
    if depth > MAX_DEPTH or isinstance(expected, bool) != isinstance(found, bool):
        return False
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return expected == found
    if isinstance(expected, str) and isinstance(found, str):
        return " ".join(expected.casefold().split()) == " ".join(found.casefold().split())
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            same_value(value, found[name], depth + 1) for name, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(
            same_value(a, b, depth + 1) for a, b in zip(expected, found, strict=True)
        )
    return type(expected) is type(found) and expected == found


def schema_faults(schema: object, place: str = "", depth: int = 0) -> Iterator[str]:
    """What is wrong with a schema, or not known here, each as place and word."""
    if depth > MAX_DEPTH:
        yield f"{place or '/'}: depth > {MAX_DEPTH}"
        return
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{place or '/'}: {type(schema).__name__}"
        return
    for word, value in schema.items():
        if not _well_formed(word, value):
            yield f"{place}/{word}"
    for name, inner in (schema.get("properties") or {}).items() if _is_map(schema, "properties") else ():
        yield from schema_faults(inner, f"{place}/properties/{name}", depth + 1)
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from schema_faults(schema[word], f"{place}/{word}", depth + 1)
    choices = schema.get("anyOf")
    for number, inner in enumerate(choices if isinstance(choices, list) else ()):
        yield from schema_faults(inner, f"{place}/anyOf/{number}", depth + 1)


def _is_map(schema: Mapping[str, object], word: str) -> bool:
    return isinstance(schema.get(word), dict)


def _well_formed(word: str, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    well = word in KEYWORDS
    if word == "type":
        names = value if isinstance(value, list) else [value]
        well = bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)
    elif word in _COUNTS:
        well = number and isinstance(value, int) and value >= 0
    elif word in _NUMBERS:
        well = number
    elif word == "properties":
        well = isinstance(value, dict)
    elif word == "required":
        well = isinstance(value, list) and all(isinstance(name, str) for name in value)
    elif word in {"enum", "anyOf"}:
        well = isinstance(value, list) and bool(value)
    return well


def fits(schema: object, value: object, depth: int = 0) -> bool:
    """Whether a value keeps to a schema without faults."""
    if isinstance(schema, bool) or depth > MAX_DEPTH:
        return schema is True
    if not isinstance(schema, dict):
        return False
    names = schema.get("type", [])
    listed = names if isinstance(names, list) else [names]
    return (
        (not listed or any(_is_type(value, name) for name in listed))
        and ("const" not in schema or _exactly(schema["const"], value))
        and ("enum" not in schema or any(_exactly(one, value) for one in schema["enum"]))
        and ("anyOf" not in schema or any(fits(one, value, depth + 1) for one in schema["anyOf"]))
        and _inside(schema, value)
        and _members(schema, value, depth)
    )


def _exactly(expected: object, found: object) -> bool:
    return isinstance(expected, bool) == isinstance(found, bool) and expected == found


def _is_type(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, _TYPES[name])


def _inside(schema: Mapping[str, object], value: object) -> bool:
    """Limits of numbers, and of the lengths of texts and lists."""
    limits: list[tuple[str, str, float | None]] = []
    size = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    limits.append(("minimum", "maximum", size))
    limits.append(("minLength", "maxLength", len(value) if isinstance(value, str) else None))
    limits.append(("minItems", "maxItems", len(value) if isinstance(value, list) else None))
    for least, most, found in limits:
        low, high = schema.get(least), schema.get(most)
        if found is not None and isinstance(low, int | float) and found < low:
            return False
        if found is not None and isinstance(high, int | float) and found > high:
            return False
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if size is not None and isinstance(above, int | float) and size <= above:
        return False
    return not (size is not None and isinstance(below, int | float) and size >= below)


def _members(schema: Mapping[str, object], value: object, depth: int) -> bool:
    if isinstance(value, list):
        inner = schema.get("items", True)
        return all(fits(inner, each, depth + 1) for each in value)
    if not isinstance(value, dict):
        return True
    needed, known = schema.get("required", ()), schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if not isinstance(needed, list | tuple) or not isinstance(known, dict):
        return False
    return all(name in value for name in needed) and all(
        fits(known.get(name, others), inner, depth + 1) for name, inner in value.items()
    )
