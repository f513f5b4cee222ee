"""Canonical JSON and the hashes made from it: the only way in which servemark makes an id."""

from __future__ import annotations

import hashlib
import json

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode  # once: `json.dumps` makes an encoder for each call


def canonical_json(value: object) -> str:
    """Keys sorted, no spaces, UTF-8 text, no NaN: equal values give equal text on every machine.

    Raises ValueError for NaN or infinity and TypeError for what JSON cannot hold.
    """
    return _encode(value)


def content_hash(value: object, length: int = 64) -> str:
    """The first `length` hex digits of SHA-256 over the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode("utf-8")).hexdigest()[:length]
