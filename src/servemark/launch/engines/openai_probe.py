"""Readiness of a server that speaks the OpenAI API: it must be healthy and must be *ours*."""

from __future__ import annotations

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.failure import printable
from servemark.launch.http_probe import ProbeError, fetch, fetch_json

_PROBE_TIMEOUT_S = 1.0


def served_models(base_url: str, timeout_s: float = _PROBE_TIMEOUT_S) -> list[str]:
    """Model ids that /v1/models lists; raises ProbeError when there is no such list."""
    return [str(entry["id"]) for entry in model_entries(base_url, timeout_s)]


def model_entries(base_url: str, timeout_s: float = _PROBE_TIMEOUT_S) -> list[dict[str, object]]:
    """The entries of /v1/models that have a text id; raises ProbeError when there is no such list."""
    reply = fetch_json(base_url, "/v1/models", timeout_s=timeout_s)
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list):
        raise ProbeError("/v1/models has no list of models")
    return [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def serves_ours(base_url: str, served_name: str) -> bool:
    """True when /health answers 200 and /v1/models lists `served_name`, a name that only our run uses.

    False while nothing answers, or the server says that it is loading. Raises ServemarkError
    (launch.other_server) when a server answers in full and serves something else: it is not the one that was
    started.
    """
    try:
        if fetch(base_url, "/health", timeout_s=_PROBE_TIMEOUT_S).status != 200:
            return False
        names = served_models(base_url)
    except ProbeError:
        return False
    if served_name in names:
        return True
    listed = ", ".join(printable(name, 60) for name in names[:3])
    raise ServemarkError(
        "launch.other_server", Layer.LAUNCH, url=base_url, served_name=served_name, listed=listed or "-"
    )
