"""The determinism probe against a server, and its file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from servemark.base.files import make_folder, write_atomic
from servemark.evals.determinism import Pass, Probe, probe
from servemark.evals.tasks import EvalTask
from servemark.replay.client import Client, Target, run
from servemark.replay.stop import StopSignal
from servemark.runs.eval_send import sender
from servemark.runs.replay_run import Signals

DETERMINISM: Final = "determinism.json"


def run_probe(
    target: Target,
    task: EvalTask,
    concurrency: int,
    folder: Path,
    on_pass: Callable[[Pass], None] | None = None,
) -> Probe:
    """Probe a server and keep the result in `folder`. One Ctrl-C ends it in order. Raises ServemarkError."""

    async def main() -> Probe:
        ended = asyncio.Event()
        async with Client(target) as client:
            with stop.watched(ended.set):
                return await probe(task, sender(client, task), concurrency, on_pass, ended)

    make_folder(folder)
    stop = StopSignal()
    with Signals(stop):
        found = run(main())
    write_atomic(
        folder / DETERMINISM, json.dumps(probe_json(found), ensure_ascii=False, indent=1).encode() + b"\n"
    )
    return found


def probe_json(found: Probe) -> dict[str, object]:
    """A probe as JSON."""
    return {"schema": 1, "same": found.same, **asdict(found)}
