"""What every request passes before anything else sees it: size, host, rate, token, origin; and the headers that every
answer carries.

The reasons: a page of another site must not read this one through a name that it points here (DNS rebinding: the Host
header), nor change anything through its reader's browser (CSRF: a header of our own that a foreign page cannot send without
asking first, and the Origin).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from servemark.web.api.base import PREFIX
from servemark.web.problems import Problem
from servemark.web.rate_limit import RateLimit, client_name

MAX_URL = 8192
COOKIE = "servemark_session"
LOGIN = "/session"
WRITES = (f"{PREFIX}/overlays", f"{PREFIX}/session", LOGIN)
"""Nothing else takes another method than GET and HEAD."""
LOGIN_COST = 20.0
"""A try of a token counts as so many requests."""
SESSION_S = 12 * 3600
OWN_HEADER = "x-servemark"
SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}
_SECURITY = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may do what. `token` None: nobody is asked for one. `public_read`: a token is asked for writes only. `open_writes`
    False: nothing that takes an upload is allowed without a token. `hosts` are names under which this server may be asked
    for, beside its own and numbers. `per_s` and `burst`: requests of one client; loopback's are not counted."""

    token: str | None = None
    public_read: bool = False
    open_writes: bool = True
    hosts: frozenset[str] = frozenset()
    per_s: float = 50.0
    burst: float = 300.0


def own_names() -> frozenset[str]:
    """`localhost` and what this machine calls itself."""
    return frozenset({"localhost", socket.gethostname().lower()})


def host_name(header: str) -> str | None:
    """The name or number of a Host header without its port, lower case; None for one that is malformed."""
    name, port = header, ""
    if header.startswith("["):
        name, bracket, rest = header[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    elif ":" in header:
        name, _, port = header.partition(":")
    if not name or (port and not (port.isascii() and port.isdecimal())):
        return None
    return name.lower().rstrip(".")


@lru_cache(maxsize=256)
def host_allowed(header: str, names: frozenset[str]) -> bool:
    """A number is always ours: a page that asked for it by number came from here. A name only when it is known."""
    name = host_name(header)
    if name is None:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names or name.endswith(".localhost")
    return True


@dataclass(slots=True)
class Sessions:
    """Cookies that stand for the token in a browser. Nothing is kept: a cookie is its end and a MAC of it."""

    token: str

    def make(self, now: float | None = None) -> str:
        """A cookie's value, good for `SESSION_S`."""
        end = str(int((time.time() if now is None else now) + SESSION_S))
        return f"{end}.{self._mac(end)}"

    def good(self, value: str, now: float | None = None) -> bool:
        """Whether it is one of ours, in its time."""
        end, _, mac = value.partition(".")
        if not (end.isascii() and end.isdecimal() and len(end) < 12):
            return False
        return hmac.compare_digest(mac.encode(), self._mac(end).encode()) and int(end) > (
            time.time() if now is None else now
        )

    def is_token(self, given: str) -> bool:
        """Whether it is the token; the time that this takes tells nothing of it."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def _mac(self, end: str) -> str:
        return hmac.new(self.token.encode(), f"servemark session {end}".encode(), hashlib.sha256).hexdigest()


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a client is on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in {"", "testclient"}


@dataclass(slots=True)
class Guard:
    """ASGI middleware."""

    app: ASGIApp
    rules: Rules
    refuse: Callable[[Request, Exception], Awaitable[Response]]
    """Makes an answer of what was raised."""
    limit: RateLimit = field(init=False)
    names: frozenset[str] = field(init=False)
    sessions: Sessions | None = field(init=False)

    def __post_init__(self) -> None:
        """What the rules imply."""
        self.limit = RateLimit(self.rules.per_s, self.rules.burst)
        self.names = own_names() | self.rules.hosts
        self.sessions = Sessions(self.rules.token) if self.rules.token is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Only HTTP is spoken here."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        started = False

        async def safe_send(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *_SECURITY]
            await send(message)

        try:
            self.check(scope)
            await self.app(scope, receive, safe_send)
        except Exception as error:
            if started:
                raise
            response = await self.refuse(Request(scope, receive), error)
            await response(scope, receive, safe_send)
            if not isinstance(error, Problem):
                raise

    def check(self, scope: Scope) -> None:
        """Raises Problem for a request that may not go on."""
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL:
            raise Problem(414, "serve.url_long", limit=MAX_URL)
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not host_allowed(hosts[0], self.names):
            raise Problem(421, "serve.host", host=(hosts[0] if hosts else "")[:80])
        login = scope["path"] == LOGIN and scope["method"] == "POST"
        client = (scope.get("client") or ("", 0))[0]
        cost = LOGIN_COST if login else 1.0
        wait = 0.0 if is_loopback(client) else self.limit.take(client_name(client), cost)
        if wait:
            headers_of_wait = {"retry-after": str(math.ceil(wait))}
            raise Problem(429, "serve.rate", headers=headers_of_wait, wait=math.ceil(wait))
        reads = scope["method"] in _READS
        if not reads and not scope["path"].startswith(WRITES):
            raise Problem(405, "serve.no_method", headers={"allow": "GET, HEAD"})
        open_to_read = self.rules.public_read or self.rules.token is None
        public = login or scope["path"].startswith("/static/")
        if not public and not (reads and open_to_read):
            self._authorize(headers, reads=reads)
        if not reads:
            self._same_site(headers, hosts[0], own_header=not login)

    def _authorize(self, headers: Headers, *, reads: bool) -> None:
        if self.sessions is None:
            if not reads and not self.rules.open_writes:
                raise Problem(403, "serve.read_only")
            return
        if not knows_token(headers, self.sessions):
            raise Problem(401, "serve.token", headers={"www-authenticate": 'Bearer realm="servemark"'})

    def _same_site(self, headers: Headers, host: str, *, own_header: bool) -> None:
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2].lower() != host.lower()
        site = headers.get("sec-fetch-site", "same-origin")
        missing = own_header and headers.get(OWN_HEADER) != "1"
        if missing or foreign or site not in {"same-origin", "none"}:
            raise Problem(403, "serve.foreign")


def knows_token(headers: Headers, sessions: Sessions) -> bool:
    """Whether a request has the token, or a session for it."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and sessions.is_token(given.strip()):
        return True
    return sessions.good(_cookie(headers.get("cookie", "")))


def _cookie(header: str) -> str:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(header[:4096])
    except CookieError:
        return ""
    found = jar.get(COOKIE)
    return found.value if found is not None else ""
