"""Preflight on every node of an allocation: one line a node, put side by side, the odd node out named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import make_folder, write_atomic
from servemark.launch.allocation import AllocatedNode, Allocation, Container, StepRequest
from servemark.preflight.merge import Merged, merge_nodes, read_nodes

MERGED_FILE = "preflight.jsonl"
_TIMEOUT_S = 300.0
_AT_ONCE = 16
_LOG_BYTES = 16 << 20


def preflight_argv(python: str, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """`python -m servemark preflight ARGUMENTS --json`: `python` is the nodes' own interpreter with servemark in it."""
    return (python, "-m", "servemark", "preflight", *arguments, "--json")


def preflight_nodes(
    allocation: Allocation,
    argv: Sequence[str],
    folder: Path,
    *,
    container: Container | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> Merged:
    """Run `argv` once on each node and merge what the nodes say; the lines stay in `folder/preflight.jsonl`.

    `argv` prints one JSON line of `servemark preflight --json`. Raises ServemarkError (layer preflight) naming the
    nodes that said nothing usable: a node that cannot even be looked at is no node to measure on.
    """
    make_folder(folder)
    nodes = list({node.name: node for node in allocation.nodes}.values())
    with ThreadPoolExecutor(min(_AT_ONCE, len(nodes))) as pool:
        lines = list(
            pool.map(
                lambda node: _line(allocation, node, argv, folder, container=container, timeout_s=timeout_s),
                nodes,
            )
        )
    silent = [node.name for node, line in zip(nodes, lines, strict=True) if line is None]
    if silent:
        raise ServemarkError(
            "launch.preflight_silent", Layer.PREFLIGHT, nodes=", ".join(silent), folder=str(folder)
        )
    file = folder / MERGED_FILE
    write_atomic(file, "".join(f"{line}\n" for line in lines).encode())
    return merge_nodes(read_nodes([file])[0])


def _line(
    allocation: Allocation,
    node: AllocatedNode,
    argv: Sequence[str],
    folder: Path,
    *,
    container: Container | None,
    timeout_s: float,
) -> str | None:
    """The node's line, None when there is none. Exit code 1 says that something is not ready: the line is there."""
    log = folder / f"preflight-{node.name}.log"
    request = StepRequest(
        f"preflight-{node.name}", node, tuple(argv), log, folder, container=container, critical=False
    )
    step = allocation.start(request)
    try:
        step.wait(timeout_s)
    finally:
        step.stop(0.0)
    return line_of(step.log_tail(_LOG_BYTES))


def line_of(log: str) -> str | None:
    """The last line of a log that is a preflight's JSON object."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                body = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(body, dict) and body.get("kind") == "preflight":
                return line
    return None
