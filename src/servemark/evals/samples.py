"""Samples: what became of each item, one JSON object a line of `samples.jsonl`, written as each item ends.

A line is whole only with its line end: whoever is killed while writing leaves at most one line without it, and every
line before that one is good. Absent is null; times are seconds; replies are cut at `MAX_REPLY_CHARS`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import msgspec

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import disk_error
from servemark.evals.tasks import ChatMessage
from servemark.replay.record import Outcome

SAMPLES_NAME: Final = "samples.jsonl"
MAX_REPLY_CHARS: Final = 10_000
"""More of a reply is neither judged nor kept."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""No sample is longer: prompts of a million tokens are refused where tasks are read."""


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """What became of one item at one concurrency.

    `prompt` is the last user message, `before` what this item sent ahead of it after the task's preamble, with the
    model's own replies. `failures` names the failed attempts before the last one; `outcome` is the last attempt's.
    `refused`: the model answered and declined. `suspect` names why a wrong verdict may be the deployment's fault and
    not the model's (`evals.suspect`); None where nothing points there. Absent is None: a reply that never came, a
    latency that was not seen.
    """

    item: str
    kind: str
    prompt: str
    expected: str
    reply: str | None
    extracted: str | None
    correct: bool
    outcome: Outcome
    error_kind: str | None
    finish_reason: str | None
    latency_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    failures: tuple[str, ...] = ()
    refused: bool = False
    suspect: str | None = None
    before: tuple[ChatMessage, ...] = ()
    task: str = ""
    version: str = ""
    concurrency: int | None = None

    @property
    def truncated(self) -> bool:
        """The token limit cut the reply off."""
        return self.finish_reason == "length"

    @property
    def retries(self) -> int:
        """How many times the item was asked again after a failed request."""
        return len(self.failures)

    @property
    def key(self) -> tuple[str, int | None, str]:
        """(task, concurrency, item): what a sample is of; unique in a file."""
        return self.task, self.concurrency, self.item


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SampleRecord).decode


class SampleWriter:
    """Appends samples to a file, each in one write, so that a kill costs at most the one being written.

    Raises ServemarkError (layer home) when the disk refuses, also from `write`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: BinaryIO | None = None

    def __enter__(self) -> Self:
        try:
            self._stream = self.path.open("ab", buffering=0)
        except OSError as error:
            raise disk_error(error, self.path) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                os.fsync(stream.fileno())
                stream.close()
            except OSError as failed:
                raise disk_error(failed, self.path) from failed

    def write(self, sample: SampleRecord) -> None:
        """Append one sample."""
        if self._stream is None:
            raise RuntimeError("a SampleWriter is used inside `with`")
        try:
            line = memoryview(_encode(sample) + b"\n")
            while line:  # an unbuffered write may take a part
                line = line[self._stream.write(line) or 0 :]
        except OSError as error:
            raise disk_error(error, self.path) from error


def write_samples(path: Path, samples: Iterable[SampleRecord]) -> None:
    """A new file of these samples; one that is there is replaced. Raises ServemarkError (layer home)."""
    path.unlink(missing_ok=True)
    with SampleWriter(path) as writer:
        for sample in samples:
            writer.write(sample)


def read_samples(path: Path, *, lenient_end: bool = False) -> Iterator[SampleRecord]:
    """Each sample of a file in its order, one in memory at a time. With `lenient_end` a last line without its end,
    which a kill leaves, is passed over. Raises ServemarkError (layer evals, exit code 2) naming file and line."""
    number = 0
    try:
        with _open(path) as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if not line.endswith(b"\n"):
                    if lenient_end and len(line) <= MAX_LINE_BYTES:
                        return
                    raise _bad(path, number, "the line has no end")
                try:
                    yield _decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise _bad(path, number, str(error)[:200]) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServemarkError(
            "evals.cannot_read", Layer.EVALS, exit_code=2, where=str(path), reason=reason
        ) from error


def _open(path: Path) -> BinaryIO:
    """The file for reading, if it is a regular one: a pipe might never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ServemarkError("evals.not_a_file", Layer.EVALS, exit_code=2, where=str(path))
    return path.open("rb")


def _bad(path: Path, line: int, reason: str) -> ServemarkError:
    return ServemarkError(
        "evals.bad_samples", Layer.EVALS, exit_code=2, where=f"{path}:{line}", reason=reason
    )
