"""What changes something: overlays that come and go, and a browser's session. Each wants the page's own header."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from servemark.base.printable import one_line
from servemark.web.api.base import JSON
from servemark.web.guard import COOKIE, Sessions
from servemark.web.login import give_cookie
from servemark.web.overlays import CPU_S, Overlays, Read
from servemark.web.problems import Problem
from servemark.web.site import Site

MAX_BYTES = 64 * 2**20
BLOCK_S = 20.0
"""How long a sender may send nothing."""
AT_ONCE = 2
WAITING = 8
READ_S = CPU_S + 15.0
NAME_HEADER = "x-servemark-name"
MAX_NAME = 200
_TOO_MANY = 3


@dataclass(slots=True)
class Uploads:
    """Handlers of requests that change something. For one event loop."""

    site: Site
    overlays: Overlays
    language: Callable[[Request], str]
    sessions: Sessions | None
    _at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _waiting: int = 0
    _children: set[asyncio.subprocess.Process] = field(default_factory=set)

    async def add(self, request: Request) -> Response:
        """POST /overlays: the body is a file."""
        keep = _only(request, "keep") == "yes"
        if keep and not self.site.allow_writes:
            raise Problem(403, "serve.no_writes")
        if self._waiting >= WAITING:
            raise Problem(503, "serve.busy", headers={"retry-after": "5"})
        self._waiting += 1
        try:
            async with self._at_once:
                name = _name(request)
                read = await self._read(request, name, self.language(request), keep=keep)
        finally:
            self._waiting -= 1
        if not read.points and not read.files and not read.problems:
            raise Problem(400, "serve.overlay.empty")
        into = request.query_params.get("into")
        held = self.overlays.add(name, read.points, into)
        body = {
            "id": held.id,
            "files": read.files,
            "points": len(read.points),
            "problems": read.problems,
            "stored": read.stored,
            "expires_s": self.overlays.ttl_s,
        }
        return _json(body, 201)

    async def remove(self, request: Request) -> Response:
        """DELETE /overlays/{id}."""
        if not self.overlays.remove(request.path_params["id"]):
            raise Problem(404, "serve.overlay.gone", name=request.path_params["id"][:40])
        return Response(status_code=204)

    async def begin_session(self, request: Request) -> Response:
        """POST /session: the guard has seen the token; the browser gets a cookie for it, which scripts cannot read."""
        response = Response(status_code=204)
        if self.sessions is not None:
            give_cookie(request, response, self.sessions)
        return response

    async def end_session(self, request: Request) -> Response:
        """DELETE /session."""
        del request
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    async def _read(self, request: Request, name: str, lang: str, *, keep: bool) -> Read:
        with tempfile.TemporaryDirectory(prefix="servemark-") as folder:
            path = Path(folder, "upload")
            size = await _receive(request, path)
            if not size:
                raise Problem(400, "serve.overlay.empty")
            return await self._in_child(path, name, lang, keep=keep)

    async def _in_child(self, path: Path, name: str, lang: str, *, keep: bool) -> Read:
        home = [str(self.site.home.root)] if keep else []
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "servemark.web.overlay_child",
            str(path),
            name,
            lang,
            *home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=_child_env(),
        )
        self._children.add(child)
        try:
            async with asyncio.timeout(READ_S):
                out, _ = await child.communicate()
        except TimeoutError as error:
            raise Problem(413, "serve.overlay.heavy") from error
        finally:
            self._children.discard(child)
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode == _TOO_MANY:
            raise Problem(413, "serve.overlay.points", limit=self.overlays.max_points)
        if child.returncode != 0:
            raise Problem(413, "serve.overlay.heavy")
        read = pickle.loads(out)  # noqa: S301 - written by our own child process
        if not isinstance(read, Read):
            raise Problem(500, "serve.fault")
        return read

    def close(self) -> None:
        """End what is being read."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()


def _child_env() -> dict[str, str]:
    """What finding the program needs, and no more."""
    wanted = ("PATH", "PYTHONPATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in wanted if name in os.environ} | {"PYTHONUTF8": "1"}


async def _receive(request: Request, path: Path) -> int:
    """The body into a file, block by block; Problem 413 for one too large, 408 for one too slow."""
    said = request.headers.get("content-length", "0")
    if said.isascii() and said.isdecimal() and int(said[:20]) > MAX_BYTES:
        raise Problem(413, "serve.overlay.large", limit=MAX_BYTES // 2**20)
    size = 0
    blocks = request.stream().__aiter__()
    with path.open("wb") as out:
        while True:
            try:
                async with asyncio.timeout(BLOCK_S):
                    block = await anext(blocks, None)
            except TimeoutError as error:
                raise Problem(408, "serve.overlay.slow", headers={"connection": "close"}) from error
            except ClientDisconnect as error:
                raise Problem(400, "serve.overlay.empty") from error
            if block is None:
                return size
            size += len(block)
            if size > MAX_BYTES:
                raise Problem(413, "serve.overlay.large", limit=MAX_BYTES // 2**20)
            out.write(block)


def _name(request: Request) -> str:
    """What the reader calls the file: for its eyes alone, never a path here."""
    said = request.query_params.get("name") or unquote(request.headers.get(NAME_HEADER, ""))
    return one_line(said)[:MAX_NAME].replace("\\x00", "").lstrip("-") or "upload"


_KNOWN = frozenset({"name", "keep", "into", "lang"})


def _only(request: Request, key: str) -> str | None:
    for name in request.query_params:
        if name not in _KNOWN:
            raise Problem(400, "serve.query.unknown", name=name[:40], keys=", ".join(sorted(_KNOWN)))
    return request.query_params.get(key)


def _json(body: object, status: int) -> Response:
    return Response(msgspec.json.encode(body), status, {"cache-control": "no-store"}, JSON)
