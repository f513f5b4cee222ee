"""The engine of a line while it lives: started, ready, identified, restarted for a cold point, stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.engines.protocol import (
    EngineAdapter,
    EngineCommand,
    EngineCounters,
    EngineIdentity,
    EngineRequest,
)
from servemark.launch.local import LocalLauncher
from servemark.launch.ports import free_port
from servemark.launch.process import RunningWorker
from servemark.runs.interrupts import Interrupts
from servemark.runs.request import LineRequest
from servemark.runs.view import RunView
from servemark.traces.template import TemplateTokens
from servemark.traces.types import Role

STOP_GRACE_S = 5.0
T = TypeVar("T")


@dataclass(slots=True)
class LiveEngine:
    """One worker of the embedded kind of deployment: aggregated, this host."""

    request: LineRequest
    adapter: EngineAdapter
    served_name: str
    log_path: Path
    view: RunView
    interrupts: Interrupts
    launcher: LocalLauncher = field(default_factory=LocalLauncher)
    worker: RunningWorker | None = None
    engine_request: EngineRequest | None = None
    command: EngineCommand | None = None
    restarts: int = 0
    phases_s: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Start and wait until healthy. Raises ServemarkError (layers model, launch, engine) with the log's word."""
        begun = time.monotonic()
        self.view.phase("launch", None)
        role = self.request.choice.deployment.roles[0]
        port = self.request.port
        if port is None:
            port = free_port()
        self.engine_request = EngineRequest(
            model=self.request.choice.deployment.model_path,
            served_name=self.served_name,
            host="127.0.0.1",
            port=port,
            args=role.args,
            env=role.env,
        )
        self.command = self.adapter.command(self.engine_request)
        self.worker = self.launcher.start(
            self.adapter, self.engine_request, self.log_path, self.log_path.parent
        )
        self.phases_s["launch"] = time.monotonic() - begun
        self.view.phase("ready", None)
        budget = self.request.choice.deployment.ready_budget_s
        try:
            self.phases_s["ready"] = self.launcher.wait_ready(
                self.worker,
                self.adapter,
                self.engine_request,
                budget,
                on_tick=lambda tick: self.view.waiting(tick.elapsed_s, budget),
                cancelled=lambda: self.interrupts.requested,
            )
        except ServemarkError:
            self.interrupts.check()  # a signal is the cause then, whatever the launcher saw
            raise
        self.interrupts.check()

    def restart(self) -> None:
        """A cold start: nothing of the old process is left."""
        self.stop()
        self.restarts += 1
        self.start()

    def stop(self) -> None:
        """Stop the worker and all its processes; safe to call at any time."""
        if self.worker is not None:
            worker, self.worker = self.worker, None
            worker.stop(STOP_GRACE_S)

    @property
    def base_url(self) -> str:
        """Where the worker listens."""
        return self._live().base_url

    def _live(self) -> RunningWorker:
        if self.worker is None:
            raise RuntimeError("the engine is not running")
        return self.worker

    def exited(self) -> ServemarkError | None:
        """The error to raise when the engine has ended by itself, else None."""
        worker = self._live()
        status = worker.poll()
        return None if status is None else self.launcher.exit_error(worker, self.adapter, status)

    def identity(self) -> EngineIdentity:
        """What the running server and its files say of themselves."""
        command = self.command
        if command is None:
            raise RuntimeError("the engine was never started")
        return self._asked(lambda: self.adapter.identity(self.base_url, command))

    def counters(self) -> EngineCounters | None:
        """The engine's own counters now, or None when it does not answer in time."""
        try:
            return self.adapter.counters(self.base_url)
        except ServemarkError:
            return None

    def tokenize(self, content: str) -> list[int]:
        """Token ids of a text by the server's own tokenizer."""
        return self._asked(lambda: self.adapter.tokenize(self.base_url, content))

    def count_prompt(self, messages: Sequence[tuple[Role, str]]) -> int:
        """Prompt tokens of a chat request as the server counts them."""
        plain = [{"role": role, "content": content} for role, content in messages]
        return self._asked(lambda: self.adapter.count_prompt(self.base_url, plain))

    def _asked(self, ask: Callable[[], T]) -> T:
        """Ask the server; when it is gone, its own word is the error."""
        try:
            return ask()
        except ServemarkError as error:
            raise self.exited() or error from error


def check_deployment(request: LineRequest, adapter: EngineAdapter) -> None:
    """Everything that can be said of the recipe's role without starting it: arguments, environment, model file.

    Raises ServemarkError with the role's position.
    """
    role = request.choice.deployment.roles[0]
    model = request.choice.deployment.model_path
    try:
        adapter.command(EngineRequest(model, "check", "127.0.0.1", request.port or 1, role.args, role.env))
    except ServemarkError as error:
        error.where = error.where or str(role.at)
        raise


def require_fits(request: LineRequest, limit: int | None, template: TemplateTokens) -> None:
    """Stop before replay when the longest request, template and marker included, cannot fit one context."""
    marked = request.cache_bust != "none"
    longest = 0
    for session in request.workload.sessions:
        for _, turns in session.streams():
            for turn in turns:
                prompt = template.prompt_tokens(turn, marked=marked)
                longest = max(longest, (prompt or 0) + (turn.output_tokens or 0))
    if limit is not None and longest > limit:
        raise ServemarkError(
            "runs.context_too_small",
            Layer.INPUT,
            exit_code=2,
            where=str(request.choice.deployment.roles[0].at),
            longest=longest,
            limit=limit,
            scale=f"{limit / longest:.2f}",
        )
