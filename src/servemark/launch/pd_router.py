"""The P/D router: chat requests go through a prefill worker, their KV through a store, the answer from a decode worker.

Run as a script: `python -P pd_router.py CONFIG`, CONFIG a JSON object (see `Settings`). For each request it

1. picks the prefill worker and slot whose last prompt begins most like this one (so that a session's prefix stays
   cached), and has it compute the prompt and one token;
2. has the worker save the slot, and its agent store the file as an object (kv_agent.py);
3. has a decode worker's agent fetch the object, and the worker restore it into a free slot;
4. sends the client's request to that slot and passes the answer on chunk by chunk as it arrives.

`usage.prompt_tokens_details.cached_tokens` is the prefill worker's figure: tokens that nobody computed for this
request. The decode worker's own, all that was handed over, is beside it as `transferred_tokens`.
It imports little beside aiohttp (a dependency of Mooncake's own client).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError, web

from servemark.launch.pd_http import CHAT, Front, SideError, common, serve_until_signal


@dataclass(slots=True)
class Worker:
    """One engine instance and its slots."""

    name: str
    url: str
    agent: str
    slots: int
    last: list[str] = field(default_factory=list)
    busy: list[bool] = field(default_factory=list)
    used_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last, self.busy, self.used_s = [""] * self.slots, [False] * self.slots, [0.0] * self.slots


class Pool:
    """The workers of one role; a slot is held from `take` to leaving it."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def take(self, prompt: str) -> AsyncIterator[tuple[Worker, int]]:
        """A free slot: of those the longest shared beginning, then the least busy worker, then the longest unused."""
        async with self._freed:
            while (found := self._best(prompt)) is None:
                await self._freed.wait()
            worker, slot = found
            worker.busy[slot] = True
        worker.last[slot] = prompt
        try:
            yield worker, slot
        except BaseException:  # also a client that went away: what the slot holds is unknown then
            worker.last[slot] = ""
            raise
        finally:
            worker.busy[slot], worker.used_s[slot] = False, time.monotonic()
            async with self._freed:
                self._freed.notify()

    def _best(self, prompt: str) -> tuple[Worker, int] | None:
        free = [(w, s) for w in self.workers for s in range(w.slots) if not w.busy[s]]
        return max(
            free,
            key=lambda at: (common(at[0].last[at[1]], prompt), -sum(at[0].busy), -at[0].used_s[at[1]]),
            default=None,
        )


class Router(Front):
    """The handlers. `run` prefixes the keys of objects, so that several runs may share a store."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.prefill = Pool([Worker(**w) for w in config["prefill"]])
        self.decode = Pool([Worker(**w) for w in config["decode"]])
        self.run = str(config["run"])
        self.numbers = itertools.count()
        counters = (
            "prefill_seconds",
            "transfer_seconds",
            "transfer_bytes",
            "save_seconds",
            "put_seconds",
            "get_seconds",
            "restore_seconds",
        )
        deployed = self.prefill.workers + self.decode.workers
        super().__init__(deployed, self.decode.workers[0], float(config["idle_s"]), counters)

    async def serve(self, request: web.Request, body: dict[str, Any], prompt: str) -> web.StreamResponse:
        """Prefill, save, store; fetch, restore, decode."""
        name = f"{self.run}-{next(self.numbers)}"
        begun = time.monotonic()
        async with self.prefill.take(prompt) as (worker, slot):
            cached = await self._prefill(worker, slot, body)
            done = time.monotonic()
            self.counters["prefill_seconds"] += done - begun
            saved = await self._save(worker, slot, name)
            self.counters["save_seconds"] += time.monotonic() - done
            stored = await self._put(worker, name, saved)
            self.counters["put_seconds"] += float(stored.get("seconds", 0.0))
            self.counters["transfer_bytes"] += float(saved.get("n_written", 0))
        async with self.decode.take("") as (worker, slot):
            got = await self.ask(worker.name, "get", f"{worker.agent}/get", {"file": name, "key": name})
            self.counters["get_seconds"] += float(got.get("seconds", 0.0))
            before = time.monotonic()
            try:
                await self.ask(
                    worker.name, "restore", f"{worker.url}/slots/{slot}?action=restore", {"filename": name}
                )
            finally:
                with contextlib.suppress(SideError):
                    await self.ask(worker.name, "drop", f"{worker.agent}/drop", {"file": name})
            self.counters["restore_seconds"] += time.monotonic() - before
            self.counters["transfer_seconds"] += time.monotonic() - done
            asked = {**body, "id_slot": slot, "cache_prompt": True}
            return await self.pass_on(request, worker, asked, lambda: cached)

    async def _save(self, worker: Worker, slot: int, name: str) -> dict[str, Any]:
        """Slot -> file. The engine does not say why it cannot, so the room on its disk is told too."""
        try:
            return await self.ask(
                worker.name, "save", f"{worker.url}/slots/{slot}?action=save", {"filename": name}
            )
        except SideError as error:
            free = "?"
            with contextlib.suppress(ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
                async with self.session.get(f"{worker.agent}/counters") as reply:
                    free = str((await reply.json())["disk_free_bytes"])
            detail = f"{error.detail} ({free} bytes free on the disk of its slot files)"
            raise SideError(502, worker.name, "save", detail) from error

    async def _put(self, worker: Worker, name: str, saved: dict[str, Any]) -> dict[str, Any]:
        """Slot file -> object. The agent is told the size that the engine meant to write."""
        body = {"file": name, "key": name, "bytes": saved.get("n_written")}
        return await self.ask(worker.name, "put", f"{worker.agent}/put", body)

    async def _prefill(self, worker: Worker, slot: int, body: dict[str, Any]) -> int | None:
        """Compute the prompt; how many of its tokens were cached there."""
        asked = {
            k: v
            for k, v in body.items()
            if k not in ("stream", "stream_options", "max_completion_tokens", "n")
        }
        asked |= {"max_tokens": 1, "id_slot": slot, "cache_prompt": True}
        reply = await self.ask(worker.name, "prefill", f"{worker.url}{CHAT}", asked)
        usage = reply.get("usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        return cached if isinstance(cached, int) else None


def main() -> None:
    """Serve until a signal."""
    config = json.loads(sys.argv[1])
    serve_until_signal(Router(config), config)


if __name__ == "__main__":
    main()
