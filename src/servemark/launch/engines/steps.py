"""What an engine makes of a placed worker: processes with argv, environment, files and a probe. Data only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from servemark.base.errors import input_error
from servemark.catalog.deployment import Deployment, RoleSpec
from servemark.launch.allocation import AllocatedNode
from servemark.launch.engines.openai_probe import serves_ours
from servemark.launch.http_probe import ProbeError, fetch, fetch_json

Bind = Literal["loopback", "node", "all"]
"""Where servers listen: this host only, the node's own address, or every interface (when a cluster says so)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Readiness: `path` of `base_url` answers 200; with `served_name`, the server must also list that model."""

    base_url: str
    path: str
    served_name: str | None = None
    workers: int | None = None
    """A Dynamo front end must know so many workers that generate."""

    def ready(self) -> bool:
        """Ask once, within a second. Raises ServemarkError (launch.other_server) for a foreign server."""
        if self.served_name is not None and not serves_ours(self.base_url, self.served_name):
            return False
        if self.workers is not None:
            return _dynamo_workers(self.base_url, self.path) >= self.workers
        if self.served_name is not None:
            return True
        try:
            return fetch(self.base_url, self.path, timeout_s=1.0).status == 200
        except ProbeError:
            return False


def _dynamo_workers(base_url: str, path: str) -> int:
    """Instances of the endpoint `generate` in the front end's health report; 0 when it gives none."""
    try:
        body = fetch_json(base_url, path, timeout_s=1.0)
    except ProbeError:
        return 0
    listed = body.get("instances") if isinstance(body, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return sum(entry.get("endpoint") == "generate" for entry in entries)


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process of a step. `files`: name in its working folder -> text, written before the start.

    `probe` None: a rank that serves nothing itself; its leader tells when it is ready. `ignored`: what of the recipe
    is not handed over, because the launcher decides it.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    probe: Probe | None = None
    agent_url: str | None = None
    model_files: tuple[Path, ...] = ()
    ignored: tuple[str, ...] = ()
    tasks: int = 1
    """MPI ranks of one program over all nodes of its worker; 1: a process of its own on one node."""
    grace_s: float | None = None
    """How long it may take to end when asked, where the launcher's own time is not right."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One node's part of a worker."""

    node: AllocatedNode
    gpus: tuple[int, ...]
    work_dir: Path
    config_dir: Path


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One worker to be rendered: role, instance number, its ranks with the leader first."""

    role: RoleSpec
    index: int
    ranks: tuple[Rank, ...]

    @property
    def name(self) -> str:
        """`decode-1`."""
        return f"{self.role.role}-{self.index}"

    @property
    def leader(self) -> AllocatedNode:
        """The node of rank 0."""
        return self.ranks[0].node


@dataclass(slots=True)
class JobContext:
    """What all steps of a job share. `services`: what started services offer, by name (see services.py)."""

    deployment: Deployment
    run_id: str
    served_name: str
    model: str
    head: AllocatedNode
    ports: Callable[[AllocatedNode, int], Sequence[int]]
    bind: Bind = "loopback"
    work_root: Path = field(default_factory=Path)
    config_root: Path = field(default_factory=Path)
    """Folders below: what a step writes while it runs, and settings that are written for it and kept."""
    fixed_port: int | None = None
    """The port of what takes requests, when somebody has chosen one."""
    services: dict[str, str] = field(default_factory=dict)
    store_config: dict[str, object] | None = None
    frontend: str = "none"

    def listen(self, node: AllocatedNode) -> str:
        """The address that a server on `node` binds to."""
        return {"loopback": "127.0.0.1", "node": node.address, "all": "0.0.0.0"}[self.bind]  # noqa: S104 - asked for

    def port(self, node: AllocatedNode) -> int:
        """One more free port of a node."""
        return self.ports(node, 1)[0]

    def front_port(self, node: AllocatedNode) -> int:
        """The port of the process that takes requests."""
        return self.fixed_port if self.fixed_port is not None else self.port(node)


def url(node: AllocatedNode, port: int) -> str:
    """`http://address:port` by which the launcher and other nodes reach a server."""
    host = f"[{node.address}]" if ":" in node.address else node.address
    return f"http://{host}:{port}"


_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}\Z", re.ASCII)


def flags(
    args: Mapping[str, object], own: frozenset[str], *, dashes: bool = True
) -> tuple[list[str], list[str]]:
    """(words, ignored names) of recipe arguments. True is a bare flag, False and null are nothing, a list repeats
    its values after the flag, JSON stays one word.

    `own` names (dashed) are the launcher's. Raises ServemarkError (input) for a name that is no flag.
    """
    words: list[str] = []
    ignored: list[str] = []
    for spelled, value in args.items():
        name = str(spelled).lstrip("-")
        if not _FLAG.match(name):
            raise input_error("launch.bad_flag", name=repr(str(spelled))[:80])
        if name.replace("_", "-") in own:
            ignored.append(name)
            continue
        flag = "--" + (name.replace("_", "-") if dashes else name)
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [flag, *(_word(name, item) for item in value)]
        else:
            words += [flag, _word(name, value)]
    return words, ignored


def _word(name: str, value: object) -> str:
    import json  # noqa: PLC0415 - only nested values need it

    text = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
    if "\0" in text:
        raise input_error("launch.argv_null", program=name)
    return text
