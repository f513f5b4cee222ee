"""Answers of the JSON interface: read the query, take what is finished, else make it in a worker thread, once for all who
ask the same at one time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from servemark.analysis.front_query import beginning
from servemark.analysis.selection import Selection
from servemark.base.errors import Layer, ServemarkError
from servemark.web.api.base import Body, Query, Route, read_query
from servemark.web.depends import Depends
from servemark.web.problems import Problem, problem_of
from servemark.web.reply_cache import Finished, ReplyCache, pack
from servemark.web.site import Context, Site

WORKERS = 2
"""Answers are made under one interpreter lock; more threads would only make each of them later."""
MAX_WAITING = 200
ANSWER_TIMEOUT_S = 30.0
MAX_FIRST = 5_000
"""Points that are read before anybody has asked for them."""
_ENCODER = msgspec.json.Encoder(enc_hook=str)


@dataclass(slots=True)
class Answers:
    """Makes and keeps answers. For one event loop."""

    site: Site
    cache: ReplyCache = field(default_factory=ReplyCache)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS, "answer"))
    _making: dict[str, asyncio.Future[Finished]] = field(default_factory=dict)

    async def get(self, route: Route, raw_query: bytes, path: Mapping[str, str], lang: str) -> Finished:
        """The answer to a request. Raises Problem."""
        try:
            version = self.site.version(route.depends)
            if b"overlay" in raw_query:
                version += f"/{self.site.overlay_state()}"
        except OSError as error:
            raise Problem(503, "serve.unavailable", headers={"retry-after": "2"}) from error
        key = f"{route.path}\n{sorted(path.items())}\n{raw_query!r}\n{lang}\n{version}"
        found = self.cache.get(key) if route.depends is not Depends.NOTHING else None
        if found is not None:
            return found
        making = self._making.get(key)
        if making is None:
            query = self._read(route, raw_query, path, lang)
            if len(self._making) >= MAX_WAITING:
                raise Problem(503, "serve.busy", headers={"retry-after": "1"})
            loop = asyncio.get_running_loop()
            making = loop.run_in_executor(self.pool, self._make, route, query, key)
            self._making[key] = making
            making.add_done_callback(lambda done: self._made(route, key, done))
        try:
            return await asyncio.wait_for(asyncio.shield(making), ANSWER_TIMEOUT_S)
        except TimeoutError as error:
            raise Problem(503, "serve.slow", headers={"retry-after": "30"}) from error

    def _read(self, route: Route, raw: bytes, path: Mapping[str, str], lang: str) -> Query:
        try:
            return read_query(route, raw, path, lang)
        except ServemarkError as error:
            raise problem_of(error, self.site.secrets()) from error

    def _make(self, route: Route, query: Query, key: str) -> Finished:
        """In a worker thread."""
        try:
            made = route.reply(Context(self.site), query)
            if not isinstance(made, Body):
                made = Body(_ENCODER.encode(made), route.media)
        except ServemarkError as error:
            if error.layer is Layer.STORE:
                self.site.forget_store()
            raise problem_of(error, self.site.secrets()) from error
        except Problem:
            raise
        except (
            Exception
        ) as error:  # a fault of the program: its trace is for the one who runs it, never for a reader
            traceback.print_exc(file=sys.stderr)
            raise Problem(500, "serve.fault") from error
        data, packed = pack(made.data)
        etag = f'W/"{hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24]}"'
        return Finished(data, packed, etag, made.media, made.filename)

    def _made(self, route: Route, key: str, done: asyncio.Future[Finished]) -> None:
        """On the event loop."""
        self._making.pop(key, None)
        if not done.cancelled() and done.exception() is None and route.depends is not Depends.NOTHING:
            self.cache.put(key, done.result())

    def prepare(self) -> None:
        """Work out what the first front would wait for, meanwhile: the noise, and the points that most begin with."""

        def first() -> None:
            with contextlib.suppress(
                ServemarkError, Problem
            ):  # no store yet, or none that can be read: the first answer says so
                self.site.noise()
                self.site.for_front(beginning(self.site.store(), Selection()), MAX_FIRST)

        self.pool.submit(first)

    def close(self) -> None:
        """Take no more; what is being made goes on until it is done."""
        self.pool.shutdown(wait=False, cancel_futures=True)
