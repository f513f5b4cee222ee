"""Which points are looked at: the same words on the command line, in an address bar and in the API.

`model=deepseek-r1 scenario=fixed-seq-len:1024/1024 precision=fp4 hardware=b200,gb200 run=27489075807 date=2026-05-01..`
A key given twice or with commas means any of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date

from servemark.analysis.measured import Measured, of_stored
from servemark.base.errors import input_error
from servemark.store.database import Store
from servemark.store.points import PointFilter, load_points

MAX_VALUES = 64
MAX_TEXT = 400


@dataclass(frozen=True, slots=True)
class Selection:
    """Empty tuples ask for nothing. `since` and `until` are ISO dates, both included. `latest`: the newest complete run of
    each line alone; otherwise every run. `offload` and `disaggregated` are `yes` or `no`; `speculation` is a method or
    `none`."""

    model: tuple[str, ...] = ()
    scenario: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    engine: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    speculation: tuple[str, ...] = ()
    disaggregated: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    image: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    """Beginnings of config keys."""
    line: tuple[str, ...] = ()
    """Beginnings of line keys."""
    concurrency: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    latest: bool = True

    def words(self) -> list[str]:
        """As text that `parse_selection` reads back."""
        found = [f"{name}={','.join(values)}" for name in LISTS if (values := getattr(self, name))]
        if self.since or self.until:
            found.append(f"date={self.since or ''}..{self.until or ''}")
        return found if self.latest else [*found, "all=yes"]


LISTS = tuple(each.name for each in fields(Selection) if each.name not in {"since", "until", "latest"})
KEYS = (*LISTS, "date", "all")


def parse_selection(words: Iterable[str]) -> Selection:
    """`KEY=VALUE[,VALUE]` words. Raises ServemarkError (exit code 2) for an unknown key or a malformed date."""
    pairs: list[tuple[str, str]] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise input_error("analysis.selection.no_equals", word=word[:80], keys=", ".join(KEYS))
        pairs.append((key, value))
    return selection_of(pairs)


def selection_of(pairs: Iterable[tuple[str, str]]) -> Selection:
    """From (key, value) pairs, as a query string holds them."""
    lists: dict[str, list[str]] = {}
    since = until = None
    latest = True
    for key, value in pairs:
        if len(value) > MAX_TEXT:
            raise input_error("analysis.selection.long", name=key[:40], limit=MAX_TEXT)
        if (
            not value.isascii() and value.encode("utf-8", "replace").decode() != value
        ):  # bytes that are no UTF-8
            raise input_error("analysis.selection.no_text", name=key[:40], value=ascii(value)[:80])
        if key == "date":
            since, until = _dates(value)
        elif key == "all":
            latest = value not in {"yes", "1", "true"}
        elif key in LISTS:
            lists.setdefault(key, []).extend(part for part in value.split(",") if part)
        else:
            raise input_error("analysis.selection.unknown", name=key[:40], keys=", ".join(KEYS))
    for key, values in lists.items():
        if len(values) > MAX_VALUES:
            raise input_error("analysis.selection.many", name=key, limit=MAX_VALUES)
    chosen = {key: tuple(dict.fromkeys(values)) for key, values in lists.items()}
    return Selection(**chosen, since=since, until=until, latest=latest)


def _dates(value: str) -> tuple[str | None, str | None]:
    first, dots, last = value.partition("..")
    if not dots:
        first = last = value
    for each in (first, last):
        if each and not _is_date(each):
            raise input_error("analysis.selection.date", value=value[:40])
    return first or None, last or None


def _is_date(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return len(value) == len("2026-01-01")


def speculation_of(point: Measured) -> str:
    """The method's name, `none` without one."""
    found = point.identity.speculation
    return found.method if found is not None else "none"


def disaggregated_of(point: Measured) -> str:
    """`yes`, `no`, or `unknown` where the topology is not known."""
    split = point.identity.disaggregated
    return "unknown" if split is None else "yes" if split else "no"


FACETS: Mapping[str, Callable[[Measured], str]] = {
    "model": lambda p: p.identity.model,
    "scenario": lambda p: p.scenario,
    "hardware": lambda p: p.identity.hardware,
    "engine": lambda p: p.identity.engine,
    "precision": lambda p: p.identity.precision.family or "unknown",
    "speculation": speculation_of,
    "disaggregated": disaggregated_of,
    "offload": lambda p: "yes" if p.identity.offload is not None else "no",
    "source": lambda p: p.source,
    "run": lambda p: p.run,
    "image": lambda p: p.identity.image or "unknown",
    "concurrency": lambda p: "open" if p.concurrency is None else str(p.concurrency),
}
"""How each key of a selection reads a point; filters are made of these and of what the data hold."""
_PREFIXED: Mapping[str, str] = {"config": "config_key", "line": "line_key"}
_SQL = ("model", "scenario", "hardware", "engine", "precision", "source", "run")


def matches(point: Measured, chosen: Selection) -> bool:
    """Whether a point is selected; `latest` is not asked here."""
    return all(test(point) for test in _tests(chosen))


def _tests(chosen: Selection) -> list[Callable[[Measured], bool]]:
    """One question for each key that asks for something."""
    found: list[Callable[[Measured], bool]] = []
    for key, read in FACETS.items():
        if wanted := frozenset(getattr(chosen, key)):
            found.append(lambda p, read=read, wanted=wanted: read(p) in wanted)  # type: ignore[misc]
    for key, name in _PREFIXED.items():
        if beginnings := tuple(getattr(chosen, key)):
            found.append(lambda p, name=name, some=beginnings: getattr(p, name).startswith(some))  # type: ignore[misc]
    if since := chosen.since:
        found.append(lambda p: p.at_utc[:10] >= since)
    if until := chosen.until:
        found.append(lambda p: "" < p.at_utc[:10] <= until)
    return found


def store_filter(chosen: Selection, *, quarantined: bool = True) -> PointFilter:
    """What the store can narrow a selection down to by itself: every selected point is among these."""
    narrow = {key: values for key in _SQL if (values := getattr(chosen, key)) and "unknown" not in values}
    return PointFilter(
        **narrow, latest=chosen.latest, quarantined=quarantined, since=chosen.since, until=chosen.until
    )


def select_unusable(store: Store, chosen: Selection) -> list[Measured]:
    """The selected points of runs that gates quarantined whole: the newest such run of a configuration. Of a selection of
    latest runs they are no part, since an older good run stays the latest."""
    wanted = replace(store_filter(replace(chosen, latest=False)), unusable=True)
    tests = _tests(chosen)
    found = [each for each in map(of_stored, load_points(store, wanted)) if all(test(each) for test in tests)]
    newest: dict[tuple[str, str], tuple[str, str]] = {}
    for point in found:
        key = point.config_key, point.source
        newest[key] = max(newest.get(key, ("", "")), (point.at_utc, point.line_key))
    return [each for each in found if newest[each.config_key, each.source][1] == each.line_key]


def select(store: Store, chosen: Selection, *, quarantined: bool = True) -> list[Measured]:
    """The selected points that count (no superseded ones), in the order in which they came. Quarantined ones are among
    them unless they are not wanted: they are shown on request and never stand on a front."""
    wanted = store_filter(chosen, quarantined=quarantined)
    tests = _tests(chosen)
    found = (of_stored(each) for each in load_points(store, wanted))
    return [point for point in found if all(test(point) for test in tests)]
