"""Which arms, entries and concurrencies a plan takes. A filter only ever leaves out; it invents nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from servemark.base.errors import input_error
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.fields import nearest
from servemark.catalog.suite import Suite

KINDS = ("single", "multi", "agg", "disagg")
_RANGE = re.compile(r"(\d{1,7})?(-)?(\d{1,7})?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters; an empty one takes everything. Names may hold `*` and `?`."""

    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    """`fixed-seq-len`, `agentic-coding`, or a name such as `1k1k`."""
    topologies: tuple[str, ...] = ()
    """`single`, `multi`, `agg`, `disagg`, or a topology's name."""
    concurrencies: tuple[tuple[int, int], ...] = ()
    """Inclusive ranges."""

    def arms(self, suite: Suite) -> list[Arm]:
        """The suite's arms that pass, in suite order (keys in the order in which they were asked for).

        ServemarkError (exit 2) for a key or value that nothing in the suite has, with the nearest one.
        """
        for field, patterns, values in self._fields(suite):
            known = dict.fromkeys(values)
            for pattern in patterns:
                if not any(fnmatchcase(value, pattern) for value in known):
                    _no_match(field, pattern, known)
        arms = list(suite.arms.values())
        if self.keys:
            found = [arm for pattern in self.keys for arm in arms if fnmatchcase(arm.key, pattern)]
            arms = list({arm.key: arm for arm in found}.values())
        return [arm for arm in arms if self.takes_arm(arm)]

    def _fields(self, suite: Suite) -> list[tuple[str, tuple[str, ...], list[str]]]:
        arms = suite.arms.values()
        entries = [entry for arm in arms for entry in arm.entries]
        scenarios = [name for e in entries if e.scenario for name in (e.scenario.kind, e.scenario.name)]
        return [
            ("keys", self.keys, [arm.key for arm in arms]),
            ("model", self.models, [name for arm in arms for name in (arm.model_prefix, arm.model)]),
            ("precision", self.precisions, [arm.precision for arm in arms]),
            ("framework", self.frameworks, [arm.framework for arm in arms]),
            ("cluster", self.clusters, [*(arm.runner for arm in arms), *suite.clusters.labels]),
            ("scenario", self.scenarios, scenarios),
            ("topology", self.topologies, [*KINDS, *(entry.topology for entry in entries)]),
        ]

    def takes_arm(self, arm: Arm) -> bool:
        """Whether an arm passes the filters that look at the whole arm (keys apart)."""
        return (
            (not self.models or _any((arm.model_prefix, arm.model), self.models))
            and (not self.precisions or _any((arm.precision,), self.precisions))
            and (not self.frameworks or _any((arm.framework,), self.frameworks))
            and (not self.clusters or _any((arm.runner,), self.clusters))
        )

    def takes_entry(self, entry: SearchEntry) -> bool:
        """Whether an entry passes the filters that look at scenario and topology."""
        scenario = entry.scenario
        if self.scenarios and (scenario is None or not _any((scenario.kind, scenario.name), self.scenarios)):
            return False
        if not self.topologies:
            return True
        kinds = (
            "single" if entry.single_node else "multi",
            "agg" if entry.decode.num_worker == 0 else "disagg",
            entry.topology,
            entry.shape,
        )
        return _any(kinds, self.topologies)

    def takes_concurrency(self, concurrency: int) -> bool:
        """Whether a listed concurrency passes."""
        return not self.concurrencies or any(low <= concurrency <= high for low, high in self.concurrencies)

    @property
    def empty(self) -> bool:
        """Whether nothing is filtered."""
        return self == Selection()


def _any(values: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)


def _no_match(field: str, pattern: str, known: Iterable[str]) -> None:
    values = list(known)
    near = nearest(pattern.replace("*", "").replace("?", ""), values)
    shown = ", ".join(values[:12]) + (", …" if len(values) > 12 else "")
    key = "plan.no_match_near" if near else "plan.no_match"
    raise input_error(key, field=field, value=pattern, near=near, known=shown)


def parse_concurrencies(text: str) -> tuple[tuple[int, int], ...]:
    """`8`, `16-64`, `-32`, `128-`, joined by commas, as inclusive ranges. ServemarkError (exit 2)
    otherwise."""
    ranges = []
    for part in text.split(","):
        found = _RANGE.match(part.strip())
        low, dash, high = found.groups() if found is not None else (None, None, None)
        if low is None and high is None:
            raise input_error("plan.bad_concurrency", value=text, part=part)
        first = int(low) if low is not None else 1
        last = int(high) if high is not None else (10**7 if dash else first)
        if first < 1 or last < first:
            raise input_error("plan.bad_concurrency", value=text, part=part)
        ranges.append((first, last))
    return tuple(ranges)
