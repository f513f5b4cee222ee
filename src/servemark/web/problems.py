"""What goes wrong with a request, as the problem JSON that a reader gets (`title`, `detail`, `next`; RFC 9457).

Nothing of this machine is in it: no path, no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from servemark.base.errors import Layer, ServemarkError
from servemark.base.messages import find_text, text

MEDIA = "application/problem+json"
BUSY = 503
_LAYERS: Mapping[Layer, int] = {
    Layer.INPUT: 400,
    Layer.STORE: 503,
    Layer.HOME: 503,
}
_NOT_FOUND = frozenset({"analysis.point.unknown", "analysis.log.unknown"})


class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """A refusal with its HTTP status; `key` is a message, `<key>.next` what to do. `headers` go with the answer."""

    def __init__(
        self, status: int, key: str, *, headers: Mapping[str, str] | None = None, **values: object
    ) -> None:
        self.status = status
        self.key = key
        self.values = values
        self.headers = dict(headers or {})
        super().__init__(key)


class ProblemBody(msgspec.Struct, frozen=True):
    """The body: `title` names the kind of problem, `detail` says what is wrong here, `next` what to do (may be
    absent)."""

    status: int
    title: str
    detail: str
    next: str | None = None


def problem_of(error: ServemarkError, secrets: Iterable[str] = ()) -> Problem:
    """An expected failure of another room; its texts are made without the folders in `secrets`."""
    values = {name: _without(value, secrets) for name, value in error.values.items()}
    status = 400 if error.exit_code == 2 and error.layer is not Layer.STORE else _LAYERS.get(error.layer, 500)
    if error.key in _NOT_FOUND:
        status = 404
    headers = {"retry-after": "2"} if status == BUSY else None
    return Problem(
        status, error.key, headers=headers, **{f"_{k}" if k in _TAKEN else k: v for k, v in values.items()}
    )


_TAKEN = frozenset({"status", "key", "headers"})


def _without(value: object, secrets: Iterable[str]) -> object:
    """A value without the folders of this machine; numbers stay what they are, since texts may format them."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    said = str(value)
    for each in secrets:
        said = said.replace(f"{each}/", "").replace(each, ".")
    return said.rsplit("/", 1)[-1] if said.startswith("/") else said


def problem_body(problem: Problem, lang: str) -> bytes:
    """The JSON text of a problem in a language."""
    values = {
        name.removeprefix("_") if name.startswith("_") else name: each
        for name, each in problem.values.items()
    }
    title = find_text(f"serve.status.{problem.status}", lang) or text("serve.status.other", lang)
    detail = find_text(problem.key, lang, **values) or title
    body = ProblemBody(problem.status, title, detail, find_text(f"{problem.key}.next", lang, **values))
    return msgspec.json.encode(body)
