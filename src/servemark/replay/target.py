"""Where requests go and what one request is: plain values, checked when made."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlsplit

from servemark import __version__
from servemark.base.errors import input_error
from servemark.replay.chat import RESERVED_FIELDS
from servemark.replay.protocols import PROTOCOLS, WIRES, ProtocolName, Wire
from servemark.replay.record import Phase, RequestRecord

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name by RFC 9110, section 5.6.2."""

_OWN_HEADERS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
        "x-correlation-id",
        "x-dynamo-parent-session-id",
        "x-dynamo-session-id",
        "x-request-id",
        "x-session-id",
        "x-smg-routing-key",
    }
)

Affinity = Literal["none", "session", "smg", "dynamo", "correlation"]
"""Which header tells a router the session, so that its turns meet their cache: none; `X-Session-ID`; SGLang gateway's
`X-SMG-Routing-Key`; Dynamo's `X-Dynamo-Session-ID`, with the parent's for a sub-agent; `X-Correlation-ID`."""

_AFFINITY_HEADERS: Final[Mapping[str, str]] = {
    "session": "X-Session-ID",
    "smg": "X-SMG-Routing-Key",
    "dynamo": "X-Dynamo-Session-ID",
    "correlation": "X-Correlation-ID",
}
AFFINITIES: tuple[str, ...] = ("none", *_AFFINITY_HEADERS)
MAX_RETRY_WAIT_S: Final = 60.0
_VISIBLE: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) != "%")
_HEADER_VALUE_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Target:
    """One model behind one or several endpoints. Raises ServemarkError (layer input) for what can never work.

    `base_url` is `http://host:port` or `https://…`, with or without a path that ends in `/v1`; `more_urls` are further
    endpoints of the same kind: requests go to them in turn, or with `sticky` all of a session to one. No proxy is ever
    used. Certificates are checked, against `ca_file` (PEM) where it is given. The API key is read from the
    environment variable `api_key_env` when a client is made and is kept nowhere else. `extra_body` is merged into every
    request's body. Time limits are in seconds: `idle_timeout_s` without a byte, `total_timeout_s` from the start,
    `connect_timeout_s` for connecting (a TLS handshake included). `retries` allows so many further attempts after 429 and
    5xx, each after the server's Retry-After (at most 60 s); the waits count into the request's latencies.
    """

    base_url: str
    model: str
    api_key_env: str | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    idle_timeout_s: float = 60.0
    total_timeout_s: float = 600.0
    connect_timeout_s: float = 10.0
    protocol: ProtocolName = "chat"
    more_urls: tuple[str, ...] = ()
    sticky: bool = False
    affinity: Affinity = "session"
    ca_file: Path | None = None
    retries: int = 0

    def __post_init__(self) -> None:
        for url in self.urls:
            split_url(url)
        if self.protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise input_error("replay.bad_choice", field="protocol", value=self.protocol, known=known)
        if self.affinity not in AFFINITIES:
            known = ", ".join(AFFINITIES)
            raise input_error("replay.bad_choice", field="affinity", value=self.affinity, known=known)
        if not 0 <= self.retries <= 100:
            raise input_error("replay.bad_retries", value=self.retries)
        clash = RESERVED_FIELDS.intersection(self.extra_body)
        if clash:
            raise input_error("replay.reserved_field", field=sorted(clash)[0])
        for name, value in self.headers.items():
            _check_header(name, value, with_key=self.api_key_env is not None)
        for name in ("idle_timeout_s", "total_timeout_s", "connect_timeout_s"):
            value_s = getattr(self, name)
            if not 0 < value_s < float("inf"):
                raise input_error("replay.bad_timeout", field=name, value=value_s)

    @property
    def urls(self) -> tuple[str, ...]:
        """Every endpoint, in order."""
        return (self.base_url, *self.more_urls)

    @property
    def wire(self) -> Wire:
        """How its protocol is spoken."""
        return WIRES[self.protocol]


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL taken apart: where to connect, and the path that ends in `/v1`."""

    host: str
    port: int
    authority: str
    prefix: str
    tls: bool


@dataclass(slots=True)
class ChatRequest:
    """One request to be sent, in whatever protocol the target speaks. `messages` are chat messages, or a JSON array of
    them that is already encoded; `tools` is a JSON array. `agent` and `parent` name a sub-agent's stream in its session.

    `id` is unique among the requests of a point. `intended_send_s` is in seconds since the client's zero.
    `keep_text` keeps the visible text of the reply in the record. `extra` is merged into the body last.
    """

    id: str
    session: str
    turn: int
    phase: Phase
    messages: Sequence[Mapping[str, object]] | bytes
    max_tokens: int | None
    temperature: float = 0.0
    stream: bool = True
    ignore_eos: bool = False
    stop: list[str] | None = None
    keep_text: bool = False
    intended_send_s: float | None = None
    expected_input_tokens: int | None = None
    lane: int | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    tools: bytes | None = None
    agent: str | None = None
    parent: str | None = None
    process: int | None = None

    def new_record(self) -> RequestRecord:
        """The record of this request before anything has happened: outcome `cancelled`, no times."""
        return RequestRecord(
            id=self.id,
            session=self.session,
            turn=self.turn,
            phase=self.phase,
            lane=self.lane,
            intended_send_s=self.intended_send_s,
            requested_output_tokens=self.max_tokens,
            expected_input_tokens=self.expected_input_tokens,
            agent=self.agent,
            parent=self.parent,
            process=self.process,
        )


def split_url(base_url: str) -> Address:
    """Take a base URL apart. Raises ServemarkError (layer input) that never repeats a password out of the
    URL."""
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise input_error("replay.bad_url", url=_without_user(base_url)) from None
    if "@" in parts.netloc:
        raise input_error("replay.url_has_user", url=_without_user(base_url))
    odd = any(not 0x21 <= ord(c) <= 0x7E for c in base_url)
    if parts.scheme not in ("http", "https") or not host or port == 0 or parts.query or parts.fragment or odd:
        raise input_error("replay.bad_url", url=_without_user(base_url))
    shown = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/")
    prefix = path if path.endswith("/v1") else f"{path}/v1"
    tls = parts.scheme == "https"
    authority = f"{shown}:{port}" if port else shown
    return Address(host, port or (443 if tls else 80), authority, prefix, tls)


SECRET_CHARACTERS = 8
"""Shorter words of a header are too common to be struck out of what a server says; the key is, however short."""


def secrets_of(target: Target) -> tuple[str, ...]:
    """What must not be repeated: the API key, values of extra headers and their words, the longest first. Raises as
    `read_api_key`."""
    key = read_api_key(target)
    hidden = {key or "", *target.headers.values()}
    hidden |= {word for value in target.headers.values() for word in value.split()}
    found = {each for each in hidden if len(each) >= SECRET_CHARACTERS} | ({key} if key else set())
    return tuple(sorted(found, key=len, reverse=True))


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """The text with each of them struck out."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def read_api_key(target: Target) -> str | None:
    """The key out of the environment. Raises ServemarkError (layer input) when it is asked for and not
    usable."""
    if target.api_key_env is None:
        return None
    key = os.environ.get(target.api_key_env)
    if not key:
        raise input_error("replay.api_key_missing", name=target.api_key_env)
    if any(not 0x21 <= ord(c) <= 0x7E for c in key):
        raise input_error("replay.api_key_bad", name=target.api_key_env)
    return key


def request_head(target: Target, address: Address, api_key: str | None) -> bytes:
    """The part of the head that all requests share, without the final blank line."""
    lines = [
        f"POST {address.prefix}{target.wire.path} HTTP/1.1",
        f"Host: {address.authority}",
        f"User-Agent: servemark/{__version__}",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
    ]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
        if target.wire.key_header is not None:
            lines.append(f"{target.wire.key_header}: {api_key}")
    lines += [f"{name}: {value}" for name, value in target.wire.headers]
    lines += [f"{name}: {value}" for name, value in target.headers.items()]
    return ("\r\n".join(lines) + "\r\n").encode("ascii")


def request_ids(target: Target, request: ChatRequest) -> bytes:
    """The headers of one request that carry ids: `X-Request-ID`, and the session by the target's affinity."""
    lines = [f"X-Request-ID: {header_value(request.id)}"]
    name = _AFFINITY_HEADERS.get(target.affinity)
    if target.affinity == "dynamo" and request.agent is not None:
        parent = request.session if request.parent is None else f"{request.session}/{request.parent}"
        lines.append(f"{name}: {header_value(f'{request.session}/{request.agent}')}")
        lines.append(f"X-Dynamo-Parent-Session-ID: {header_value(parent)}")
    elif name is not None:
        lines.append(f"{name}: {header_value(request.session)}")
    return ("\r\n".join(lines) + "\r\n").encode("ascii")


def header_value(value: str) -> str:
    """An id as a header's value: what is not visible ASCII is percent-encoded; a long one ends in its hash
    instead.

    Ids come out of trace files; a line end in one must not become a header of its own.
    """
    plain = quote(value.encode("utf-8", "replace"), safe=_VISIBLE)
    if len(plain) <= _HEADER_VALUE_BYTES:
        return plain
    digest = hashlib.sha256(plain.encode("ascii")).hexdigest()[:16]
    return f"{plain[: _HEADER_VALUE_BYTES - len(digest) - 1]}-{digest}"


def _check_header(name: str, value: str, *, with_key: bool) -> None:
    plain = all(0x20 <= ord(c) <= 0x7E for c in value)
    taken = name.lower() in _OWN_HEADERS or (with_key and name.lower() == "authorization")
    if not _TOKEN.fullmatch(name) or not plain or taken:
        raise input_error("replay.bad_header", name=name.encode("ascii", "backslashreplace").decode())


def _without_user(url: str) -> str:
    """The URL with everything before the last @ of its authority struck out, for messages."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else url
