"""What an endpoint of the JSON interface is: its path, its typed query, what it answers, and what the answer hangs on.

An endpoint is data: `Route(path, summary, reply, params=…)`. Requests are read with it, refused with it, and the
published OpenAPI document is made of it. A module here holds one `ROUTE` (or a few) and is named in `registry.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import parse_qsl

from servemark.analysis.selection import KEYS, MAX_TEXT, Selection, selection_of
from servemark.base.messages import LANGUAGES
from servemark.metrics.address import parse
from servemark.web.depends import Depends
from servemark.web.problems import Problem
from servemark.web.site import Context

PREFIX = "/api/v1"
MAX_FIELDS = 100
JSON = "application/json"


class Kind(StrEnum):
    """How a query parameter is written."""

    TEXT = "text"
    NUMBER = "number"
    INTEGER = "integer"
    FLAG = "flag"
    CHOICE = "choice"
    ADDRESS = "address"
    ADDRESSES = "addresses"


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a query or of a path. `doc` is a message key. `limit` is the longest text, or the most addresses;
    `minimum` and `maximum` bound numbers, both included."""

    name: str
    doc: str
    kind: Kind = Kind.TEXT
    required: bool = False
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    limit: int = MAX_TEXT
    minimum: float = -1e15
    maximum: float = 1e15


Value = str | float | int | bool | tuple[str, ...]

LANG = Param("lang", "serve.param.lang", Kind.CHOICE, choices=LANGUAGES)
OVERLAY = Param("overlay", "serve.param.overlay", pattern=r"[0-9a-z]{8,40}(,[0-9a-z]{8,40}){0,7}")
REF = Param("ref", "serve.param.ref", required=True, pattern=r"[0-9a-f]{4,64}(:[0-9]{1,9})?", limit=80)
ADDRESS = Param("address", "serve.param.address", Kind.ADDRESS, required=True, limit=120)


@dataclass(frozen=True, slots=True)
class Query:
    """A request's words, read and checked. `selection` is empty for endpoints that take none."""

    values: Mapping[str, Value] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    lang: str = "en"

    def text(self, name: str) -> str | None:
        """A text, a choice or an address; None when absent."""
        found = self.values.get(name)
        return found if isinstance(found, str) else None

    def need(self, name: str) -> str:
        """A required text."""
        return str(self.values[name])

    def number(self, name: str) -> float | None:
        """A number; None when absent."""
        found = self.values.get(name)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def integer(self, name: str, default: int) -> int:
        """A whole number."""
        found = self.values.get(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else default

    def flag(self, name: str) -> bool:
        """Whether a flag is set."""
        return self.values.get(name) is True

    def addresses(self, name: str) -> tuple[str, ...]:
        """A list of addresses; empty when absent."""
        found = self.values.get(name)
        return found if isinstance(found, tuple) else ()


@dataclass(frozen=True, slots=True)
class Body:
    """An answer that is no JSON object: its bytes, its media type, and the name under which a browser saves it."""

    data: bytes
    media: str
    filename: str | None = None


Reply = Callable[[Context, Query], object]


@dataclass(frozen=True, slots=True)
class Route:
    """One GET endpoint. `path` is below `/api/v1` and may hold `{name}` parts, each a required `Param` of `path_params`.
    `reply` runs in a worker thread with a store of its own; it gives what msgspec can write (a dataclass, a dict) or a
    `Body`, and raises ServemarkError or Problem. `selection`: the keys of a selection may stand in the query."""

    path: str
    summary: str
    reply: Reply
    params: tuple[Param, ...] = ()
    path_params: tuple[Param, ...] = ()
    selection: bool = False
    depends: Depends = Depends.STORE
    media: str = JSON
    list_body: bool = False
    """Whether the answer is a list and no object."""

    def keys(self) -> tuple[str, ...]:
        """Every key that its query may hold."""
        own = tuple(each.name for each in self.params)
        return (*(KEYS if self.selection else ()), *own, LANG.name)


def read_query(route: Route, raw: bytes, path: Mapping[str, str], lang: str) -> Query:
    """The words of a request. Raises Problem 400 for what the endpoint does not know, for a key given twice, and for a
    value out of bounds; ServemarkError for a selection or an address that is none."""
    known = {each.name: each for each in (*route.params, LANG)}
    found: dict[str, Value] = {}
    chosen: list[tuple[str, str]] = []
    for key, value in _pairs(raw):
        param = known.get(key)
        if param is None and route.selection and key in KEYS:
            chosen.append((key, value))
        elif param is None:
            raise Problem(400, "serve.query.unknown", name=key[:40], keys=", ".join(route.keys()))
        elif key in found:
            raise Problem(400, "serve.query.twice", name=key)
        else:
            found[key] = read_value(param, value)
    for param in route.path_params:
        found[param.name] = read_value(param, path.get(param.name, ""))
    for param in route.params:
        if param.required and param.name not in found:
            raise Problem(400, "serve.query.missing", name=param.name)
    said = found.pop(LANG.name, lang)
    return Query(found, selection_of(chosen), str(said))


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise Problem(400, "serve.query.unreadable", limit=MAX_FIELDS) from error


def read_value(param: Param, value: str) -> Value:
    """One value as its parameter wants it."""
    if param.kind is Kind.ADDRESSES:
        parts = tuple(dict.fromkeys(part for part in value.split(",") if part))
        if len(parts) > param.limit:
            raise Problem(400, "serve.query.many", name=param.name, limit=param.limit)
        return tuple(str(parse(part)) for part in parts)
    if len(value) > param.limit:
        raise Problem(400, "serve.query.long", name=param.name, limit=param.limit)
    if param.kind is Kind.ADDRESS:
        return str(parse(value))
    if param.kind is Kind.CHOICE:
        if value not in param.choices:
            raise Problem(400, "serve.query.choice", name=param.name, choices=", ".join(param.choices))
        return value
    if param.kind is Kind.FLAG:
        if value not in {"yes", "no"}:
            raise Problem(400, "serve.query.choice", name=param.name, choices="yes, no")
        return value == "yes"
    if param.kind in {Kind.NUMBER, Kind.INTEGER}:
        return _number(param, value)
    if param.pattern is not None and re.fullmatch(param.pattern, value) is None:
        raise Problem(400, "serve.query.pattern", name=param.name)
    return value


_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?")


def _number(param: Param, value: str) -> float | int:
    """ASCII digits only: `float` also reads `infinity`, `1_000` and digits of other scripts."""
    whole = param.kind is Kind.INTEGER
    number = float(value) if _NUMBER.fullmatch(value) else math.nan
    bounded = math.isfinite(number) and param.minimum <= number <= param.maximum
    if not bounded or (whole and not number.is_integer()):
        raise Problem(
            400, "serve.query.number", name=param.name, low=f"{param.minimum:g}", high=f"{param.maximum:g}"
        )
    return int(number) if whole else number


def full_path(route: Route) -> str:
    """With the prefix."""
    return f"{PREFIX}{route.path}"


def names(params: Sequence[Param]) -> tuple[str, ...]:
    """The names of parameters."""
    return tuple(each.name for each in params)
