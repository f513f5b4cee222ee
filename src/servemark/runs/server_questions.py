"""What a server that somebody else runs can be asked beside the replay: its models, its tokenizer, its counters.

Uses the replay's own target, so that TLS, the API key and the absence of proxies are the same; blocking, bounded in time
and size. Nothing here is measured.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from servemark.base.errors import Layer, ServemarkError
from servemark.base.printable import one_line, printable
from servemark.launch.engines.prometheus import parse_prometheus
from servemark.launch.engines.protocol import EngineCounters
from servemark.launch.engines.readers import WORDS, total
from servemark.replay.client import tls_context
from servemark.replay.target import Target, read_api_key, secrets_of, split_url, without_secrets
from servemark.traces.text import Tokenize
from servemark.traces.tokenizers import Engine, server_tokenizer

MAX_REPLY_BYTES = 8 << 20
CONNECT_S = 10.0
TOKENIZE_S = 10.0
GRACE_S = 0.5
_TOKENIZE_FORMS: tuple[Engine, ...] = ("llamacpp", "vllm")
_PROBE = " the river and the bridge"


class NoAnswerError(Exception):
    """Refused, too slow, too long, or not what was asked for. The text is the technical reason, without secrets."""


@dataclass(frozen=True, slots=True)
class Server:
    """The first endpoint of a target. Raises ServemarkError (layer input) for a key or certificate that cannot be used."""

    root: str
    headers: dict[str, str]
    tls: ssl.SSLContext | None
    secrets: tuple[str, ...] = ()
    mute: list[str] = field(default_factory=list)
    """Questions that it let time out: after one, no other is asked, so that waits do not add up."""

    @classmethod
    def of(cls, target: Target) -> Server:
        """`/v1` at the end of the URL belongs to the API, not to the server."""
        root = target.base_url.rstrip("/").removesuffix("/v1")
        headers = {"Accept-Encoding": "identity", **target.headers}
        key = read_api_key(target)
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        tls = tls_context(target) if root.startswith("https:") else None
        return cls(root, headers, tls, secrets_of(target))

    def ask(self, path: str, body: object | None = None, timeout_s: float = 5.0) -> bytes:
        """GET, or POST `body` as JSON. Raises NoAnswerError for everything but a complete 200, and at once for a
        server that has let a question time out."""
        if self.mute:
            raise NoAnswerError(f"{self.mute[0]} was not answered in time")
        found: list[bytes | NoAnswerError] = []

        def asking() -> None:
            try:
                found.append(self._ask(path, body, timeout_s))
            except NoAnswerError as error:
                found.append(error)

        # A socket's time limit is for one read: a server that drips would hold this up for ever. So the whole question
        # has one, and is left to its thread when that is over.
        thread = threading.Thread(target=asking, name="question", daemon=True)
        thread.start()
        thread.join(timeout_s + GRACE_S)
        if not found:
            self.mute.append(path)
            raise NoAnswerError(f"{path} was not answered in time")
        if isinstance(found[0], NoAnswerError):
            raise found[0]
        return found[0]

    def _ask(self, path: str, body: object | None, timeout_s: float) -> bytes:
        data = None if body is None else json.dumps(body).encode("utf-8", "replace")
        headers = self.headers if data is None else {**self.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(self.root + path, data=data, headers=headers)  # noqa: S310 - http(s) by Target
        openers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if self.tls is not None:
            openers.append(urllib.request.HTTPSHandler(context=self.tls))
        try:
            with urllib.request.build_opener(*openers).open(request, timeout=timeout_s) as reply:
                read: bytes = reply.read(MAX_REPLY_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise NoAnswerError(f"HTTP {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            if isinstance(getattr(error, "reason", error), TimeoutError):
                self.mute.append(path)
            said = without_secrets(f"{type(error).__name__}: {error}", self.secrets)
            raise NoAnswerError(one_line(said)[:200]) from None
        if len(read) > MAX_REPLY_BYTES:
            raise NoAnswerError("reply is too long")
        return read

    def ask_json(self, path: str, body: object | None = None, timeout_s: float = 5.0) -> object:
        """The same, decoded."""
        try:
            return json.loads(self.ask(path, body, timeout_s))
        except (ValueError, RecursionError):
            raise NoAnswerError("reply is not JSON") from None

    def models(self) -> list[str]:
        """Model ids that /v1/models lists. One that repeats a secret, or is no text that can be written, is none."""
        reply = self.ask_json("/v1/models")
        data = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(data, list):
            raise NoAnswerError("/v1/models has no list of models")
        listed = [each["id"] for each in data if isinstance(each, dict) and isinstance(each.get("id"), str)]
        return [name for name in listed if without_secrets(name, self.secrets) == name and _encodes(name)]

    def only_model(self) -> str:
        """The one model that it serves. Raises ServemarkError when it does not answer, or serves several."""
        try:
            found = self.models()
        except NoAnswerError as error:
            raise ServemarkError(
                "runs.replay_no_models", Layer.ENGINE, url=self.root, reason=str(error)
            ) from error
        if len(found) != 1:
            names = ", ".join(found[:8]) or "-"
            raise ServemarkError(
                "runs.replay_models", Layer.INPUT, exit_code=2, url=self.root, count=len(found), names=names
            )
        return found[0]

    def tokenizer(self, model: str) -> Tokenize | None:
        """The server's own tokenizer through /tokenize, in llama.cpp's or vLLM's and SGLang's form; None without one."""
        for engine in _TOKENIZE_FORMS:
            tokenize = server_tokenizer(self._post_tokenize, engine, model)
            try:
                if len(tokenize(_PROBE)) >= 1 and len(tokenize(_PROBE * 8)) > len(tokenize(_PROBE)):
                    return tokenize
            except (NoAnswerError, ServemarkError):
                continue
        return None

    def _post_tokenize(self, body: Mapping[str, object]) -> object:
        return self.ask_json("/tokenize", body, TOKENIZE_S)

    def counters(self) -> EngineCounters | None:
        """Its own counters now, whatever engine it is by their names; None where it shows none."""
        for path in dict.fromkeys(words.metrics for words in WORDS.values()):
            try:
                raw = parse_prometheus(self.ask(path).decode("utf-8", "replace"))
            except (NoAnswerError, ValueError):
                continue
            for words in WORDS.values():
                prompt = total(raw, words.prompt)
                if words.metrics == path and prompt is not None:
                    return EngineCounters(prompt, total(raw, words.cached), total(raw, words.generated), raw)
        return None


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell
        return False
    return True


def check_reachable(target: Target) -> None:
    """Raises ServemarkError (layer engine) for the first endpoint that takes no connection: better before a run folder
    is made than in every record."""
    for url in target.urls:
        address = split_url(url)
        try:
            socket.create_connection((address.host, address.port), timeout=CONNECT_S).close()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ServemarkError(
                "runs.replay_unreachable", Layer.ENGINE, url=url, reason=printable(reason)[:200]
            ) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key must not follow a redirect to another host."""

    def redirect_request(self, *_: object) -> None:
        """Never."""
