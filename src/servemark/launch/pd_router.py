"""The P/D router: chat requests go through a prefill worker, their KV through a store, the answer from a decode worker.

Run as a script: `python -P pd_router.py CONFIG`, CONFIG a JSON object (see `Settings`). For each request it

1. picks the prefill worker and slot whose last prompt begins most like this one (so that a session's prefix stays
   cached), and has it compute the prompt and one token;
2. has the worker save the slot, and its agent store the file as an object (kv_agent.py);
3. has a decode worker's agent fetch the object, and the worker restore it into a free slot;
4. sends the client's request to that slot and passes the answer on chunk by chunk as it arrives.

`usage.prompt_tokens_details.cached_tokens` is the prefill worker's figure: tokens that nobody computed for this
request. The decode worker's own, all that was handed over, is beside it as `transferred_tokens`.
It imports the standard library and aiohttp (a dependency of Mooncake's own client) only.
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

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

MAX_BODY = 64 << 20
CONNECT_S = 5.0
USAGE = b'"usage"'


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


class SideError(Exception):
    """A side failed: `status` for the client, `side` names the instance and the step."""

    def __init__(self, status: int, side: str, step: str, detail: str) -> None:
        super().__init__(f"{side}: {step}: {detail}")
        self.status, self.side, self.step, self.detail = status, side, step, detail

    def body(self) -> dict[str, object]:
        """As OpenAI's servers say errors."""
        kind = "invalid_request_error" if self.status < 500 else f"{self.step}_failed"
        return {"error": {"message": str(self), "type": kind, "code": self.status, "param": None}}


def common(a: str, b: str) -> int:
    """Characters at the beginning that two texts share."""
    if a == b:
        return len(a)
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


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


class Router:
    """The handlers. `run` prefixes the keys of objects, so that several runs may share a store."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.prefill = Pool([Worker(**w) for w in config["prefill"]])
        self.decode = Pool([Worker(**w) for w in config["decode"]])
        self.run = str(config["run"])
        self.idle_s = float(config["idle_s"])
        self.numbers = itertools.count()
        self.counters: dict[str, float] = dict.fromkeys(
            (
                "requests",
                "errors_prefill",
                "errors_transfer",
                "errors_decode",
                "client_gone",
                "prefill_seconds",
                "transfer_seconds",
                "transfer_bytes",
                "save_seconds",
                "put_seconds",
                "get_seconds",
                "restore_seconds",
            ),
            0.0,
        )
        self.session: ClientSession

    async def session_context(self, _: web.Application) -> AsyncIterator[None]:
        """One session for the process; no total time-out, an answer may be long. Silence ends it."""
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self.idle_s)
        async with ClientSession(
            timeout=timeout, connector=TCPConnector(limit=0), trust_env=False
        ) as session:
            self.session = session
            yield

    async def ask(self, side: str, step: str, url: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST JSON, get a JSON object; SideError for anything else."""
        try:
            async with self.session.post(url, json=body) as reply:
                data = await reply.read()
                if reply.status != 200:
                    status = reply.status if reply.status < 500 and step == "prefill" else 502
                    raise SideError(status, side, step, data.decode("utf-8", "replace")[:500])
                value = json.loads(data)
        except (ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
            raise SideError(502, side, step, f"{type(error).__name__}: {error}"[:300]) from error
        if not isinstance(value, dict):
            raise SideError(502, side, step, "the answer is no object")
        return value

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        self.counters["requests"] += 1
        try:
            body = json.loads(await request.read())
            if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
                raise ValueError("messages is no list")
            prompt = json.dumps(body["messages"], ensure_ascii=False)
        except (ValueError, RecursionError) as error:
            return web.json_response(SideError(400, "router", "request", str(error)[:200]).body(), status=400)
        try:
            return await self._serve(request, body, prompt)
        except SideError as error:
            place = {"prefill": "prefill", "decode": "decode"}.get(error.step, "transfer")
            self.counters[f"errors_{place}"] += 1
            print(f"error: {error}", flush=True)
            return web.json_response(error.body(), status=error.status)
        except asyncio.CancelledError:
            self.counters["client_gone"] += 1
            raise

    async def _serve(self, request: web.Request, body: dict[str, Any], prompt: str) -> web.StreamResponse:
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
            return await self._decode(request, worker, slot, body, cached)

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
        reply = await self.ask(worker.name, "prefill", f"{worker.url}/v1/chat/completions", asked)
        usage = reply.get("usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        return cached if isinstance(cached, int) else None

    async def _decode(
        self, request: web.Request, worker: Worker, slot: int, body: dict[str, Any], cached: int | None
    ) -> web.StreamResponse:
        """Pass the answer on. Once it has begun, a failure can only be told inside the stream."""
        asked = {**body, "id_slot": slot, "cache_prompt": True}
        answer: web.StreamResponse | None = None
        try:
            async with self.session.post(f"{worker.url}/v1/chat/completions", json=asked) as reply:
                if reply.status != 200:
                    text = (await reply.read()).decode("utf-8", "replace")[:500]
                    raise SideError(reply.status if reply.status < 500 else 502, worker.name, "decode", text)
                kind = reply.headers.get("Content-Type", "application/json")
                if "event-stream" not in kind:
                    data = with_cached(await reply.read(), cached)
                    return web.Response(body=data, headers={"Content-Type": kind})
                answer = web.StreamResponse(headers={"Content-Type": kind, "Cache-Control": "no-cache"})
                await answer.prepare(request)
                rest = b""
                async for chunk in reply.content.iter_any():
                    # Whole lines go on at once; nobody can read a part of one.
                    lines, newline, rest = (rest + chunk).rpartition(b"\n")
                    if newline:
                        await answer.write(with_cached_events(lines, cached) + newline)
                if rest:
                    await answer.write(rest)
                await answer.write_eof()
                return answer
        except (ClientError, OSError, TimeoutError) as error:
            if request.transport is None or request.transport.is_closing():
                self.counters["client_gone"] += 1
                raise
            failed = SideError(502, worker.name, "decode", f"{type(error).__name__}: {error}"[:300])
            if answer is None:
                raise failed from error
            self.counters["errors_decode"] += 1
            print(f"error: {failed}", flush=True)
            with contextlib.suppress(OSError, ClientError):
                await answer.write(b"data: " + json.dumps(failed.body()).encode() + b"\n\n")
            if request.transport is not None:
                request.transport.close()  # no [DONE] and no proper end: the client must not take it for whole
            return answer

    async def health(self, _: web.Request) -> web.Response:
        """200 when every worker answers its own /health."""
        bad = []
        for worker in self.prefill.workers + self.decode.workers:
            try:
                async with self.session.get(
                    f"{worker.url}/health", timeout=ClientTimeout(total=2.0)
                ) as reply:
                    if reply.status != 200:
                        bad.append(worker.name)
            except (ClientError, OSError, TimeoutError):
                bad.append(worker.name)
        return web.json_response(
            {"status": "ok" if not bad else "error", "bad": bad}, status=503 if bad else 200
        )

    async def models(self, _: web.Request) -> web.Response:
        """The decode worker's list."""
        worker = self.decode.workers[0]
        try:
            async with self.session.get(f"{worker.url}/v1/models", timeout=ClientTimeout(total=5.0)) as reply:
                return web.Response(
                    body=await reply.read(), status=reply.status, content_type="application/json"
                )
        except (ClientError, OSError, TimeoutError) as error:
            failed = SideError(502, worker.name, "models", type(error).__name__)
            return web.json_response(failed.body(), status=502)

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        lines = [f"servemark_pd_{name}_total {value:.9g}" for name, value in self.counters.items()]
        return web.Response(text="\n".join(lines) + "\n")


def with_cached(data: bytes, cached: int | None) -> bytes:
    """A JSON body whose usage tells the cached tokens of the prefill side; unchanged when it has no usage."""
    try:
        value = json.loads(data)
        usage = value.get("usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    except (ValueError, AttributeError, RecursionError):
        return data
    if not isinstance(details, dict) or cached is None:
        return data
    details["transferred_tokens"] = details.get("cached_tokens")
    details["cached_tokens"] = cached
    return json.dumps(value, ensure_ascii=False).encode()


def with_cached_events(whole: bytes, cached: int | None) -> bytes:
    """The same for the lines of a stream of events; the very same bytes where none tells a usage."""
    if USAGE not in whole:
        return whole
    lines = whole.split(b"\n")
    for number, line in enumerate(lines):
        if line.startswith(b"data: {") and USAGE in line:
            lines[number] = b"data: " + with_cached(line[6:], cached)
    return b"\n".join(lines)


def application(config: dict[str, Any]) -> web.Application:
    """The router as an aiohttp application."""
    router = Router(config)
    app = web.Application(client_max_size=MAX_BODY)
    app.cleanup_ctx.append(router.session_context)
    app.router.add_post("/v1/chat/completions", router.chat)
    app.router.add_get("/health", router.health)
    app.router.add_get("/v1/models", router.models)
    app.router.add_get("/metrics", router.metrics)
    return app


def main() -> None:
    """Serve until a signal."""
    config = json.loads(sys.argv[1])
    try:
        web.run_app(
            application(config),
            host=config["host"],
            port=config["port"],
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=1.0,
            print=lambda *_: print(f"servemark: routing on {config['host']}:{config['port']}", flush=True),
        )
    except OSError as error:
        sys.exit(f"error: bind() failed on {config['host']}:{config['port']}: {error.strerror}")


if __name__ == "__main__":
    main()
