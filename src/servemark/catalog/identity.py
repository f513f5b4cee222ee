"""The two identities of a point, made in one place.

Point id = exactly what ran: canonical identity with the image and the fingerprint of the parsed deployment.
Series id = arm x topology x scenario x concurrency: history and comparison follow it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from servemark.base.canonical import canonical_json
from servemark.catalog.arms import Arm, Component, SearchEntry, WorkerBlock

if TYPE_CHECKING:
    from servemark.catalog.deployment import Deployment

ID_LENGTH = 16
_CONCURRENCY = ',"concurrency":{},'


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
    deployment: Deployment | None,
    scenario: dict[str, object],
    concurrency: int,
) -> Identity:
    """Identities of one point. `scenario` names what is replayed: its type, data set and cache policy.

    `deployment` is None where the entry is launched by a script or its recipe is not in the suite: the
    identity then holds what the entry states and the recipe's name.
    """
    return identify_line(suite, arm, entry, deployment, scenario, (concurrency,))[0]


def identify_line(  # noqa: PLR0917 - as above
    suite: str,
    arm: Arm,
    entry: SearchEntry,
    deployment: Deployment | None,
    scenario: dict[str, object],
    concurrencies: Sequence[int],
    fingerprint: str | None = None,
) -> list[Identity]:
    """Identities of several concurrencies of one entry; `fingerprint` is the deployment's where it is
    known."""
    if deployment is not None and fingerprint is None:
        fingerprint = deployment.fingerprint()
    canonical: dict[str, object] = {
        "arm": arm.key,
        "concurrency": 0,
        "deployment": fingerprint,
        "framework": arm.framework,
        "hardware": arm.runner,
        "image": arm.image,
        "kv_offloading": entry.kv_offloading,
        "model": arm.model,
        "precision": arm.precision,
        "scenario": scenario,
        "spec_decoding": entry.spec_decoding,
        "stated": _stated(arm, entry),
        "suite": suite,
        "topology": _topology(entry, deployment),
    }
    if deployment is None and entry.config_file is not None:
        canonical["recipe"] = entry.config_file
    series: dict[str, object] = {
        "suite": suite,
        "arm": arm.key,
        "topology": entry.topology,
        "scenario": scenario,
        "concurrency": 0,
    }
    if deployment is not None and deployment.weights is not None:  # never one history with the model's own
        canonical["weights"] = series["weights"] = deployment.weights
    point, line = canonical_json(canonical), canonical_json(series)
    return [
        Identity(_hash(point, value), _hash(line, value), canonical | {"concurrency": value})
        for value in concurrencies
    ]


def _hash(text: str, concurrency: int) -> str:
    """As `content_hash` of the value with this concurrency. Quotes inside texts are escaped in JSON and
    keys are sorted, so that the first `,"concurrency":0,` is the field itself."""
    body = text.replace(_CONCURRENCY.format(0), _CONCURRENCY.format(concurrency), 1)
    return hashlib.sha256(body.encode("utf-8")).hexdigest()[:ID_LENGTH]


def _topology(entry: SearchEntry, deployment: Deployment | None) -> list[dict[str, object]]:
    if deployment is not None:
        return [
            {
                "role": r.role,
                "workers": r.workers,
                "gpus_per_worker": r.gpus,
                "tp": entry.prefill.tp if r.role != "decode" else entry.decode.tp,
            }
            for r in deployment.roles
        ]
    first = "aggregated" if entry.decode.num_worker == 0 else "prefill"
    blocks = ((first, entry.prefill), ("decode", entry.decode))
    return [
        {"role": role, "workers": b.num_worker, "gpus_per_worker": b.gpus, "tp": b.tp}
        for role, b in blocks
        if b.num_worker > 0
    ]


def _stated(arm: Arm, entry: SearchEntry) -> dict[str, object]:
    """What the master entry states beside the sizes above and that launch scripts act on."""
    scenario = entry.scenario
    return {
        "dram_utilization": scenario.dram_utilization if scenario is not None else None,
        "kv_offload_backend": _component(entry.kv_offload_backend),
        "kv_p2p_transfer": arm.transfer_of(entry),
        "router": _component(arm.router_of(entry)),
        "shapes": [entry.prefill.shape, entry.decode.shape if entry.decode.num_worker else None],
        "settings": [_settings(entry.prefill), _settings(entry.decode)],
    }


def _component(component: Component | None) -> list[str | None] | None:
    return None if component is None else [component.name, component.version]


def _settings(block: WorkerBlock) -> list[str]:
    return sorted(f"{name}={value}" for name, value in block.settings if name != "CONFIG_FILE")
