"""What one `run` takes: one deployment and the points (concurrencies) to measure on it, in order."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.base.errors import input_error
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.deployment import Deployment
from servemark.catalog.fields import nearest
from servemark.catalog.identity import Identity, identify
from servemark.catalog.layout import suite_here
from servemark.catalog.selector import Selector
from servemark.catalog.suite import Suite, load_suite, shipped_suites


@dataclass(frozen=True, slots=True)
class Choice:
    """A selector resolved: one arm, one topology, its deployment, and concurrencies in ascending order."""

    suite: Suite
    arm: Arm
    entry: SearchEntry
    deployment: Deployment
    concurrencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One point to measure: arm x topology x concurrency, with both ids."""

    concurrency: int
    identity: Identity


def choose(selector: Selector, default_suite: str | None = None) -> Choice:
    """Resolve a selector. Without a suite part, a shipped suite of the arm's name is meant, else the default, else the
    current folder if it is a suite.

    Raises ServemarkError (exit 2): unknown suite or arm (nearest name), several topologies, an unlisted
    concurrency.
    """
    here = default_suite or suite_here()
    where = selector.suite or (selector.arm if selector.arm in shipped_suites() else here)
    suite = load_suite(where if where is not None else selector.arm)
    arm = suite.arm(selector.arm)
    entry = _entry(arm, selector.topology)
    deployment = suite.deployment(arm, entry)
    listed = tuple(sorted(entry.concurrencies))
    if selector.concurrencies is None:
        return Choice(suite, arm, entry, deployment, listed)
    for asked in selector.concurrencies:
        if asked not in listed:
            shown = ", ".join(map(str, listed))
            raise input_error("catalog.unlisted_concurrency", arm=arm.key, listed=shown, asked=asked)
    return Choice(suite, arm, entry, deployment, tuple(sorted(selector.concurrencies)))


def points(choice: Choice, scenario: dict[str, object]) -> tuple[Point, ...]:
    """The points of a choice, in the order in which they run."""
    return tuple(
        Point(
            concurrency,
            identify(choice.suite.name, choice.arm, choice.entry, choice.deployment, scenario, concurrency),
        )
        for concurrency in choice.concurrencies
    )


def _entry(arm: Arm, topology: str | None) -> SearchEntry:
    found = {entry.topology: entry for entry in arm.entries}
    names = ", ".join(found)
    if topology is not None:
        if topology not in found:
            near = nearest(topology, found)
            key = "catalog.no_topology_near" if near else "catalog.no_topology"
            raise input_error(key, arm=arm.key, topology=topology, topologies=names, near=near)
        return found[topology]
    if len(arm.entries) > 1:
        raise input_error("catalog.many_topologies", arm=arm.key, topologies=names)
    return arm.entries[0]
