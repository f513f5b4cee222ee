"""What the closed and the open loop have in common: from connecting to the end, and one watch over both."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from servemark.replay.client import Client
from servemark.replay.outcome import LoopOutcome
from servemark.replay.progress import PROGRESS_INTERVAL_S, ProgressSnapshot
from servemark.replay.stop import StopSignal


@dataclass(frozen=True, slots=True)
class Ready:
    """What a shard knows before the window: seconds from t* to its earliest send."""

    first_offset_s: float


@dataclass(frozen=True, slots=True)
class Go:
    """When the window begins, on the client's clock, and the earliest offset of all shards."""

    start_s: float
    first_offset_s: float


Barrier = Callable[[Ready], Awaitable[Go]]
"""Called once, after warm-up: lets several processes begin together."""


class Loop(Protocol):
    """A replay in the making, of either kind."""

    async def run(
        self, on_progress: Callable[[ProgressSnapshot], None] | None, barrier: Barrier | None
    ) -> None:
        """To its end."""

    def on_stop(self) -> None:
        """The stop signal got stricter."""

    def outcome(self) -> LoopOutcome:
        """What was done."""


L = TypeVar("L", bound=Loop)


async def play(  # noqa: PLR0917 - the last three are optional
    make: Callable[[], L],
    connections: int,
    client: Client,
    stop: StopSignal,
    on_progress: Callable[[ProgressSnapshot], None] | None = None,
    barrier: Barrier | None = None,
    on_made: Callable[[L], None] | None = None,
) -> LoopOutcome:
    """Connect ahead, make the loop, and run it to its end or to a stop.

    While it runs, objects that existed before are hidden from Python's cycle collector: walking a large
    workload would stop the clock for everyone in flight.
    """
    await _warm(client, connections, stop)
    loop = make()
    if on_made is not None:
        on_made(loop)

    def on_stop() -> None:
        client.end_retries()
        loop.on_stop()

    gc.freeze()
    try:
        with stop.watched(on_stop):
            await loop.run(on_progress, barrier)
    except BaseExceptionGroup as group:
        raise first_error(group) from None
    finally:
        gc.unfreeze()
    return loop.outcome()


async def _warm(client: Client, connections: int, stop: StopSignal) -> None:
    """A server that takes no connections must not hold up a stop until the time-out."""
    connecting = asyncio.ensure_future(client.warm(connections))

    def give_up() -> None:
        connecting.cancel()

    try:
        with stop.watched(give_up):
            await asyncio.wait([connecting])
    finally:
        connecting.cancel()
    if not connecting.cancelled():
        connecting.result()


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def report(
    snapshot: Callable[[], ProgressSnapshot], on_progress: Callable[[ProgressSnapshot], None]
) -> None:
    """Tell the running numbers until cancelled."""
    while True:
        on_progress(snapshot())
        await asyncio.sleep(PROGRESS_INTERVAL_S)
