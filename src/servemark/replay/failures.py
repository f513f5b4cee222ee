"""How a request can end other than well: a closed set of kinds, and the one internal exception that carries
them.

The kind is a code for machines and goes into `RequestRecord.error_kind`; its wording in both languages is
the message `replay.kind_<kind>`, so that no user-facing sentence is written into the evidence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from servemark.base.messages import find_text
from servemark.replay.record import Outcome

FailureKind = Literal[
    "resolve_failed",
    "connect_refused",
    "connect_failed",
    "connect_timeout",
    "tls_failed",
    "closed",
    "reset",
    "http_status",
    "redirect",
    "compressed",
    "bad_http",
    "bad_reply",
    "bad_event",
    "stream_error",
    "aborted_by_server",
    "truncated",
    "too_large",
    "idle_timeout",
    "total_timeout",
    "unencodable",
]
FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)

DETAIL_CHARACTERS = 300
_NOT_PRINTABLE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(slots=True)
class ReplyError(Exception):
    """A reply that ends its request. `detail` is evidence from the server or the system, untranslated and
    short."""

    outcome: Outcome
    kind: FailureKind
    detail: str | None = None


def short_detail(detail: str) -> str:
    """One printable line of at most 300 characters: servers may send pages, control codes or half
    characters."""
    line = _NOT_PRINTABLE.sub(" ", detail[: 4 * DETAIL_CHARACTERS]).strip()
    return line if len(line) <= DETAIL_CHARACTERS else line[: DETAIL_CHARACTERS - 1] + "…"


def describe(kind: str, lang: str | None = None) -> str:
    """The kind in words for a person; a kind this version does not know is shown as it is."""
    return find_text(f"replay.kind_{kind}", lang) or kind
