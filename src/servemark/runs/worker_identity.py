"""What every worker says of itself, put beside what the recipe declares: version, build, model, image, GPUs, revision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from servemark.catalog.deployment import Deployment
from servemark.launch.engines.protocol import EngineIdentity
from servemark.launch.job import PlannedStep

NO_IMAGE = "-"
"""Observed where a worker runs outside of any image."""
_REVISION = re.compile(r"(?:^|/)snapshots/([0-9a-f]{40})(?:/|$)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker as it ran. `gpus`: names of its node's GPUs, None where nobody looked; `image`: the digest of what it
    runs in, None where an image is not recorded with one."""

    step: PlannedStep
    identity: EngineIdentity
    gpus: Sequence[str] | None
    image: str | None

    def plain(self) -> dict[str, object]:
        """For the row."""
        said = self.identity
        return {
            "node": self.step.node.name,
            "version": said.version,
            "build": said.build,
            "served_model": said.served_model,
            "model_revision": revision_of(said),
            "image_digest": self.image,
            "gpus": None if self.gpus is None else list(self.gpus),
            **dict(said.details),
        }


def revision_of(identity: EngineIdentity) -> str | None:
    """The model's revision that the server names, or that its model's path in a hub cache holds."""
    stated = identity.details.get("model_revision")
    if isinstance(stated, str) and stated:
        return stated
    found = _REVISION.search(identity.model_file or "")
    return found.group(1) if found else None


def differences(
    deployment: Deployment, served: str, workers: Sequence[Worker], *, image_entered: bool
) -> tuple[dict[str, str], ...]:
    """Every fact of a worker that is not what was declared: worker, fact, declared, observed. Only what both state."""
    found = []
    for worker in workers:
        for fact, declared, observed in _facts(deployment, served, worker, image_entered=image_entered):
            if declared is not None and observed is not None and not _agree(fact, declared, observed):
                entry = {"worker": worker.step.name, "fact": fact}
                found.append({**entry, "declared": declared[:200], "observed": observed[:200]})
    return tuple(found)


def _facts(
    deployment: Deployment, served: str, worker: Worker, *, image_entered: bool
) -> Iterator[tuple[str, str | None, str | None]]:
    identity, frameworks = worker.identity, deployment.identity.get("frameworks")
    stated = frameworks.get(deployment.engine) if isinstance(frameworks, Mapping) else None
    yield "version", None if stated is None else str(stated), identity.version
    for software in deployment.software:
        if software.kind == "hash" and software.name == deployment.engine:
            yield "build", software.value, identity.build
    yield "served_model", served, identity.served_model
    model = deployment.identity.get("model")
    revision = model.get("revision") if isinstance(model, Mapping) else None
    yield "model_revision", None if revision is None else str(revision), revision_of(identity)
    image, _, digest = deployment.container.partition("@")
    if not image.startswith("pypi#"):
        if not image_entered:
            yield "image", deployment.container, NO_IMAGE
        elif _DIGEST.match(digest):
            yield "image", digest, worker.image
    if worker.step.gpus and deployment.gpu_type:
        for name in worker.gpus or ():
            yield "gpu", deployment.gpu_type, name


def _agree(fact: str, declared: str, observed: str) -> bool:
    if fact == "version":
        return _version(declared) == _version(observed)
    if fact in ("build", "model_revision"):
        return declared.startswith(observed) or observed.startswith(declared)
    if fact == "gpu":
        return _folded(declared) in _folded(observed)
    return declared == observed


def _version(text: str) -> str:
    """`v0.23.0+cu130` -> `0.23.0`: a local part says how it was built, not what it is."""
    return text.strip().removeprefix("v").partition("+")[0]


def _folded(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
