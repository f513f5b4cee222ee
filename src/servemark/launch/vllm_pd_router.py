"""The P/D router for vLLM: each request goes to a prefill and a decode worker, whose KV connector moves the blocks.

Run as a script: `python -P vllm_pd_router.py CONFIG`, CONFIG a JSON object: `host`, `port`, `idle_s`, `connector`, and
`prefill` and `decode`, lists of workers with `name`, `url` and, for prefill, `bootstrap`. What the two workers must be
told to find each other depends on the connector (vLLM 0.11 and later, its documentation of disaggregated prefilling):

* `nixl`: the prefill worker computes the prompt and one token, and its reply's `kv_transfer_params` go with the request
  to the decode worker, which pulls the blocks;
* `mooncake`: both get the request at once with one transfer id; the decode worker also gets the prefill worker's
  bootstrap address and engine id, which that address tells.

A worker is chosen by the longest beginning that the prompt shares with its recent ones, then by what it has in flight.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError, web

from servemark.launch.pd_http import CHAT, Front, SideError, common, serve_until_signal

RECENT = 64
"""Prompts that are remembered a worker: sessions beyond so many are spread by load alone."""


@dataclass(slots=True)
class Worker:
    """One engine instance. `bootstrap` is where a Mooncake prefill worker tells its engine id."""

    name: str
    url: str
    bootstrap: str | None = None
    engine_id: str | None = None
    in_flight: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT))


@asynccontextmanager
async def taken(workers: Sequence[Worker], prompt: str) -> AsyncIterator[Worker]:
    """The worker that knows most of the prompt, the least busy of those."""

    def worth(worker: Worker) -> tuple[int, int]:
        return max((common(old, prompt) for old in worker.recent), default=0), -worker.in_flight

    worker = max(workers, key=worth)
    worker.in_flight += 1
    worker.recent.append(prompt)
    try:
        yield worker
    finally:
        worker.in_flight -= 1


class VllmRouter(Front):
    """The handlers."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.prefill = [Worker(**w) for w in config["prefill"]]
        self.decode = [Worker(**w) for w in config["decode"]]
        self.connector = str(config["connector"])
        deployed = [*self.prefill, *self.decode]
        super().__init__(deployed, self.decode[0], float(config["idle_s"]), ("prefill_seconds",))

    async def serve(self, request: web.Request, body: dict[str, Any], prompt: str) -> web.StreamResponse:
        """Hand the request to both sides as the connector wants it."""
        async with taken(self.prefill, prompt) as first, taken(self.decode, prompt) as second:
            if self.connector == "nixl":
                reply = await self._prefill(first, body, _NIXL)
                params = reply.get("kv_transfer_params")
                if not isinstance(params, dict):
                    raise SideError(502, first.name, "transfer", "the reply has no kv_transfer_params")
                asked = {**body, "kv_transfer_params": params}
                return await self.pass_on(request, second, asked, lambda: _cached(reply))
            return await self._mooncake(request, body, first, second)

    async def _mooncake(
        self, request: web.Request, body: dict[str, Any], first: Worker, second: Worker
    ) -> web.StreamResponse:
        """Both at once. A prefill that fails ends the decode, which would wait for blocks that never come."""
        transfer = f"servemark-{uuid.uuid4().hex}"
        engine = await self._engine_id(first)
        mine = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer}
        theirs = {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "remote_bootstrap_addr": first.bootstrap,
            "remote_engine_id": engine,
            "transfer_id": transfer,
        }
        prefill = asyncio.ensure_future(self._prefill(first, body, mine))
        asked = {**body, "kv_transfer_params": theirs}

        def cached() -> int | None:
            done = prefill.done() and not prefill.cancelled() and prefill.exception() is None
            return _cached(prefill.result()) if done else None

        decode = asyncio.ensure_future(self.pass_on(request, second, asked, cached))
        try:
            await asyncio.wait({prefill, decode}, return_when=asyncio.FIRST_COMPLETED)
            if prefill.done() and prefill.exception() is not None and not decode.done():
                first.engine_id = None  # a worker that came back has a new one
                raise prefill.exception() or RuntimeError("unreachable")
            return await decode
        finally:
            for task in (prefill, decode):
                task.cancel()
            await asyncio.gather(prefill, decode, return_exceptions=True)

    async def _prefill(self, worker: Worker, body: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Compute the prompt and one token; the reply."""
        dropped = ("stream", "stream_options", "max_completion_tokens", "min_tokens", "n")
        asked = {name: value for name, value in body.items() if name not in dropped}
        asked |= {"max_tokens": 1, "stream": False, "kv_transfer_params": params}
        begun = time.monotonic()
        try:
            return await self.ask(worker.name, "prefill", f"{worker.url}{CHAT}", asked)
        finally:
            self.counters["prefill_seconds"] += time.monotonic() - begun

    async def _engine_id(self, worker: Worker) -> str:
        """What the worker's bootstrap server calls its engine; asked once."""
        if worker.engine_id is None:
            try:
                async with self.session.get(f"{worker.bootstrap}/query") as reply:
                    worker.engine_id = engine_id_of(json.loads(await reply.read()))
            except (ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
                detail = f"{type(error).__name__}: {error}"[:300]
                raise SideError(502, worker.name, "bootstrap", detail) from error
        return worker.engine_id


_NIXL: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


def engine_id_of(answer: object) -> str:
    """The engine id in a bootstrap server's answer: its own, or the first of its ranks'.

    Raises ValueError when there is none.
    """
    entries: list[object] = []
    if isinstance(answer, dict):
        entries = [answer, *answer.values()]
    elif isinstance(answer, list):
        entries = answer
    for entry in entries:
        found = entry.get("engine_id") if isinstance(entry, dict) else None
        if isinstance(found, str) and found:
            return found
    raise ValueError("the answer names no engine_id")


def _cached(reply: dict[str, Any]) -> int | None:
    """Cached prompt tokens of the prefill side, where it was started to tell them."""
    usage = reply.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    found = details.get("cached_tokens") if isinstance(details, dict) else None
    return found if isinstance(found, int) else None


def main() -> None:
    """Serve until a signal."""
    config = json.loads(sys.argv[1])
    serve_until_signal(VllmRouter(config), config)


if __name__ == "__main__":
    main()
