"""The two identities of a point, made in one place.

Point id = exactly what ran: canonical identity with the image and the fingerprint of the parsed deployment.
Series id = arm x topology x scenario x concurrency: history and comparison follow it.
"""

from __future__ import annotations

from dataclasses import dataclass

from servemark.base.canonical import content_hash
from servemark.catalog.deployment import Deployment
from servemark.catalog.master import Arm, SearchEntry

ID_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """Both ids and the canonical value that the point id hashes."""

    point_id: str
    series_id: str
    canonical: dict[str, object]


def identify(  # noqa: PLR0917 - six facts make one identity
    suite: str,
    arm: Arm,
    entry: SearchEntry,
    deployment: Deployment,
    scenario: dict[str, object],
    concurrency: int,
) -> Identity:
    """Identities of one point. `scenario` names what is replayed: its type, data set and cache policy."""
    canonical: dict[str, object] = {
        "arm": arm.key,
        "concurrency": concurrency,
        "deployment": content_hash(deployment.canonical()),
        "framework": arm.framework,
        "hardware": arm.runner,
        "image": arm.image,
        "kv_offloading": entry.kv_offloading,
        "model": arm.model,
        "precision": arm.precision,
        "scenario": scenario,
        "spec_decoding": entry.spec_decoding,
        "suite": suite,
        "topology": [
            {
                "role": r.role,
                "workers": r.workers,
                "gpus_per_worker": r.gpus,
                "tp": entry.prefill.tp if r.role != "decode" else entry.decode.tp,
            }
            for r in deployment.roles
        ],
    }
    series = {
        "suite": suite,
        "arm": arm.key,
        "topology": entry.topology,
        "scenario": scenario,
        "concurrency": concurrency,
    }
    return Identity(content_hash(canonical, ID_LENGTH), content_hash(series, ID_LENGTH), canonical)
