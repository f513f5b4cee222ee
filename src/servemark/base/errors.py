"""The one expected-error type. Anything else that escapes is a bug and shows its trace."""

from __future__ import annotations

from enum import StrEnum

from servemark.base.messages import find_text, text
from servemark.base.printable import one_line


class Layer(StrEnum):
    """Which part of the line of work failed; named in every message and stored with a failed run."""

    INPUT = "input"
    HOME = "home"
    INSTALL = "install"
    MODEL = "model"
    ALLOCATION = "allocation"
    PREFLIGHT = "preflight"
    IMAGE = "image"
    SERVICE = "service"
    LAUNCH = "launch"
    ENGINE = "engine"
    REPLAY = "replay"
    EVALS = "evals"
    RESULTS = "results"
    STORE = "store"
    REPORT = "report"
    INTERRUPT = "interrupt"


class ServemarkError(Exception):
    """A failure that a person can act on.

    `key` names a message in the catalogues: its text says what is wrong, where, and why it matters;
    `<key>.next` says what to do and may be absent. Values fill the placeholders of both.
    `exit_code` is 2 for bad use or unreadable input and 1 for a run that failed.
    """

    def __init__(
        self, key: str, layer: Layer, *, exit_code: int = 1, where: str | None = None, **values: object
    ) -> None:
        self.key = key
        self.layer = layer
        self.exit_code = exit_code
        self.where = where
        self.values = values
        super().__init__(self.what("en"))

    def what(self, lang: str | None = None) -> str:
        """The message in one language, with its position (file:line:column) in front when it has one."""
        body = text(self.key, lang, **self.values)
        return f"{one_line(self.where)}: {body}" if self.where else body

    def next_step(self, lang: str | None = None) -> str | None:
        """What to do now, or None when the message already says all there is to say."""
        return find_text(f"{self.key}.next", lang, **self.values)


def input_error(key: str, *, where: str | None = None, **values: object) -> ServemarkError:
    """Bad use or unreadable input: exit code 2."""
    return ServemarkError(key, Layer.INPUT, exit_code=2, where=where, **values)
