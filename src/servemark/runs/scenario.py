"""What a planned point replays: one function for `plan` and `sweep`, so that a point and its run have one id."""

from __future__ import annotations

from servemark.catalog.arms import SearchEntry
from servemark.catalog.deployment import Deployment
from servemark.catalog.suite import Suite
from servemark.plan.strict import plain_scenario


def planned_scenario(suite: Suite, entry: SearchEntry, deployment: Deployment | None) -> dict[str, object]:
    """What `run` would replay; the suite's own word where the recipe names no workload."""
    if deployment is None or (
        deployment.benchmark.workload is None and deployment.benchmark.requests_per_slot is None
    ):
        return plain_scenario(entry, deployment)
    from servemark.runs.request import is_fixed, suite_scenario  # noqa: PLC0415 - costs the client's imports

    if deployment.benchmark.workload is None and not is_fixed(deployment.benchmark):
        return plain_scenario(entry, deployment)

    return suite_scenario(suite, deployment)
