"""What every P/D router of ours shares: an application that takes chat requests, asks workers, and passes answers on.

Imported by scripts that run as processes of their own; the standard library and aiohttp only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

MAX_BODY = 64 << 20
CONNECT_S = 5.0
USAGE = b'"usage"'
CHAT = "/v1/chat/completions"
Cached = Callable[[], int | None]
"""Tokens of the prompt that nobody computed, as the prefill side tells them; None while or where it does not."""


class Named(Protocol):
    """A worker as far as this module is concerned."""

    @property
    def name(self) -> str:
        """`decode-0`."""

    @property
    def url(self) -> str:
        """`http://host:port`."""


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


class Front(ABC):
    """The handlers that do not depend on how the KV moves. `deployed` are all workers, `listing` one that tells models."""

    def __init__(
        self, deployed: Sequence[Named], listing: Named, idle_s: float, counters: Sequence[str]
    ) -> None:
        self.deployed = deployed
        self.listing = listing
        self.idle_s = idle_s
        names = ("requests", "errors_prefill", "errors_transfer", "errors_decode", "client_gone")
        self.counters: dict[str, float] = dict.fromkeys((*names, *counters), 0.0)
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
            return await self.serve(request, body, prompt)
        except SideError as error:
            place = {"prefill": "prefill", "decode": "decode"}.get(error.step, "transfer")
            self.counters[f"errors_{place}"] += 1
            print(f"error: {error}", flush=True)
            return web.json_response(error.body(), status=error.status)
        except asyncio.CancelledError:
            self.counters["client_gone"] += 1
            raise

    @abstractmethod
    async def serve(self, request: web.Request, body: dict[str, Any], prompt: str) -> web.StreamResponse:
        """Answer one request; `prompt` is its messages as text. Raises SideError."""

    async def pass_on(
        self, request: web.Request, worker: Named, body: dict[str, Any], cached: Cached
    ) -> web.StreamResponse:
        """Pass the answer on. Once it has begun, a failure can only be told inside the stream."""
        answer: web.StreamResponse | None = None
        try:
            async with self.session.post(f"{worker.url}{CHAT}", json=body) as reply:
                if reply.status != 200:
                    text = (await reply.read()).decode("utf-8", "replace")[:500]
                    raise SideError(reply.status if reply.status < 500 else 502, worker.name, "decode", text)
                kind = reply.headers.get("Content-Type", "application/json")
                if "event-stream" not in kind:
                    data = with_cached(await reply.read(), cached())
                    return web.Response(body=data, headers={"Content-Type": kind})
                answer = web.StreamResponse(headers={"Content-Type": kind, "Cache-Control": "no-cache"})
                await answer.prepare(request)
                rest = b""
                async for chunk in reply.content.iter_any():
                    # Whole lines go on at once; nobody can read a part of one.
                    lines, newline, rest = (rest + chunk).rpartition(b"\n")
                    if newline:
                        await answer.write(with_cached_events(lines, cached()) + newline)
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
        for worker in self.deployed:
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
        """The list of one worker."""
        worker = self.listing
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

    def application(self) -> web.Application:
        """As an aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY)
        app.cleanup_ctx.append(self.session_context)
        app.router.add_post(CHAT, self.chat)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/metrics", self.metrics)
        return app


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


def serve_until_signal(front: Front, config: dict[str, Any]) -> None:
    """Serve on the configuration's host and port until a signal."""
    try:
        web.run_app(
            front.application(),
            host=config["host"],
            port=config["port"],
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=1.0,
            print=lambda *_: print(f"servemark: routing on {config['host']}:{config['port']}", flush=True),
        )
    except OSError as error:
        sys.exit(f"error: bind() failed on {config['host']}:{config['port']}: {error.strerror}")
