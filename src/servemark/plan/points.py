"""What one `run` takes: one deployment and the points (concurrencies) to measure on it, in order."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.base.errors import input_error
from servemark.catalog.acceptance import EVAL_RECIPE, as_measured, as_verified, master_force
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
    """What points are measured on: the recipe, with the acceptance length that the master forces."""
    concurrencies: tuple[int, ...]
    verified: Deployment | None
    """What accuracy is scored on: `deployment` itself where it forces no acceptance, else one without; None where the
    entry names another recipe for it and that one cannot be read."""


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
    deployment, verified = deployments(suite, arm, entry)
    listed = tuple(sorted(entry.concurrencies))
    if selector.concurrencies is None:
        return Choice(suite, arm, entry, deployment, listed, verified)
    for asked in selector.concurrencies:
        if asked not in listed:
            shown = ", ".join(map(str, listed))
            raise input_error("catalog.unlisted_concurrency", arm=arm.key, listed=shown, asked=asked)
    return Choice(suite, arm, entry, deployment, tuple(sorted(selector.concurrencies)), verified)


def deployments(suite: Suite, arm: Arm, entry: SearchEntry) -> tuple[Deployment, Deployment | None]:
    """What an entry's points are measured on, and what their accuracy is scored on: the same where nothing forces
    acceptance, else the entry's own recipe for evals or the same recipe, without what forces.

    Raises ServemarkError (exit 2) for a recipe that cannot be read, and where the master forces a length that the
    engine cannot be told: the row would then say what did not happen.
    """
    recipe = suite.deployment(arm, entry)
    deployment = as_measured(entry, recipe)
    if as_verified(deployment) is deployment:
        if master_force(entry) is not None:
            values = {"arm": arm.key, "engine": recipe.engine, "file": recipe.file}
            raise input_error("plan.forces_nothing", where=str(entry.prefill.at), **values)
        return deployment, deployment
    setting = entry.prefill.setting(EVAL_RECIPE)
    if setting is not None:
        own = suite.reading(setting, entry.prefill.at).deployment
        return deployment, None if own is None else as_verified(own)
    return deployment, as_verified(recipe)


def require_scorable(entry: SearchEntry, verified: Deployment | None) -> Deployment:
    """What the tasks are asked on. Raises ServemarkError (exit 2) where the entry's own recipe for it is not there."""
    if verified is None:
        file = entry.prefill.setting(EVAL_RECIPE)
        raise input_error("plan.no_eval_recipe", where=str(entry.prefill.at), setting=EVAL_RECIPE, file=file)
    return verified


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
