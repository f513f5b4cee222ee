"""Where requests go and what one request is: plain values, checked when made."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

from servemark import __version__
from servemark.base.errors import input_error
from servemark.replay.chat import RESERVED_FIELDS
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
        "x-request-id",
        "x-session-id",
    }
)
_VISIBLE: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) != "%")
_HEADER_VALUE_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Target:
    """One OpenAI-compatible server. Raises ServemarkError (layer input) for what can never work.

    `base_url` is `http://host:port`, with or without a path that ends in `/v1`. The API key is read from
    the environment variable `api_key_env` when a client is made and is kept nowhere else. `extra_body` is
    merged into every request's body. Time limits are in seconds: `idle_timeout_s` without a byte,
    `total_timeout_s` from the start, `connect_timeout_s` for connecting.
    """

    base_url: str
    model: str
    api_key_env: str | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    idle_timeout_s: float = 60.0
    total_timeout_s: float = 600.0
    connect_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        split_url(self.base_url)
        clash = RESERVED_FIELDS.intersection(self.extra_body)
        if clash:
            raise input_error("replay.reserved_field", field=sorted(clash)[0])
        for name, value in self.headers.items():
            _check_header(name, value, with_key=self.api_key_env is not None)
        for name in ("idle_timeout_s", "total_timeout_s", "connect_timeout_s"):
            value_s = getattr(self, name)
            if not 0 < value_s < float("inf"):
                raise input_error("replay.bad_timeout", field=name, value=value_s)


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL taken apart: where to connect, and the path of chat completions."""

    host: str
    port: int
    authority: str
    path: str


@dataclass(slots=True)
class ChatRequest:
    """One request to be sent. `messages` are chat messages, or a JSON array of them that is already encoded.

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
    if parts.scheme == "https":
        raise input_error("replay.https", url=base_url)
    odd = any(not 0x21 <= ord(c) <= 0x7E for c in base_url)
    if parts.scheme != "http" or not host or port == 0 or parts.query or parts.fragment or odd:
        raise input_error("replay.bad_url", url=_without_user(base_url))
    shown = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/")
    prefix = path if path.endswith("/v1") else f"{path}/v1"
    return Address(host, port or 80, f"{shown}:{port}" if port else shown, f"{prefix}/chat/completions")


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
        f"POST {address.path} HTTP/1.1",
        f"Host: {address.authority}",
        f"User-Agent: servemark/{__version__}",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
    ]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    lines += [f"{name}: {value}" for name, value in target.headers.items()]
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
