"""What an engine adapter must offer: command and environment, readiness, identity, counters, stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What the launcher asks an adapter to run: one worker of one role on this host, loopback only."""

    model: str
    served_name: str
    host: str
    port: int
    args: Mapping[str, object] = field(default_factory=dict)
    """Engine arguments of the recipe's role, names as the recipe spells them."""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """argv (a list, never a shell string), extra environment, and files whose identity goes into the row."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    model_files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What the engine says of itself, read from what ran. Absent is None."""

    engine: str
    version: str | None
    build: str | None
    served_model: str | None
    model_file: str | None
    model_sha256: str | None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Monotonic counters read from the engine's own report at one moment; absent is None."""

    prompt_tokens: float | None
    """Prompt tokens in all, cached ones included."""
    cached_prompt_tokens: float | None
    generated_tokens: float | None
    raw: Mapping[str, float] = field(default_factory=dict)


class EngineAdapter(Protocol):
    """One engine. Stateless; every method may be called for several instances."""

    name: str

    def check_installed(self) -> None:
        """Raise ServemarkError (layer install or model) naming the command that mends it; import nothing
        heavy."""

    def command(self, request: EngineRequest) -> EngineCommand:
        """argv and env for one worker; raises ServemarkError for a model file that is missing or
        truncated."""

    def ready(self, base_url: str, request: EngineRequest) -> bool:
        """True when *this* worker (not another server on its port) answers and can serve the model."""

    def identity(self, base_url: str, command: EngineCommand) -> EngineIdentity:
        """Read from the running server and the files it loaded."""

    def counters(self, base_url: str) -> EngineCounters:
        """Read now. Raises ServemarkError (layer engine) when the server does not answer."""

    def failure_hint(self, log_tail: str) -> tuple[str, dict[str, object]] | None:
        """Message key and values for a known failure signature in a log, else None."""

    def tokenize(self, base_url: str, content: str) -> list[int]:
        """Token ids of a text by the server's own tokenizer; ServemarkError (layer engine) when it cannot."""

    def count_prompt(self, base_url: str, messages: Sequence[Mapping[str, object]]) -> int:
        """Prompt tokens of a chat request as the server will count them: its template and the reply's opening
        included."""
