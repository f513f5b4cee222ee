"""Where the stand-in text of a replay gets its length from, and how exact it turned out to be.

A prompt's length must be right for the tokenizer that the server counts with. From the best source to the worst: a
`tokenizer.json`, the server's own /tokenize, the prompt tokens that its replies report, and plain words. Where the
server reports usage, texts of the workload's own lengths are sent once before the replay and counted by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median_low

from servemark.base.errors import Layer, ServemarkError
from servemark.replay.client import Client, run
from servemark.replay.record import RequestRecord
from servemark.replay.target import ChatRequest, Target
from servemark.runs.server_questions import NoAnswerError, Server, check_reachable
from servemark.traces.text import TextMaker, build_word_table, candidate_words, word_table_by_counts
from servemark.traces.tokenizers import file_tokenizer, usage_tokenizer
from servemark.traces.types import Segment, Workload

TEXT_SEED = "servemark"
SOURCES = ("auto", "server", "usage", "words")
"""What `--tokenizer` takes beside a path."""
PROBES = 5
PROBE_TOKENS = 4096
"""Texts that are sent to be counted, and the longest of them: the prompts of a trace may be far longer."""
PROBE_SESSIONS = 16
_PROBE_S = 20.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many of `asked` lengths the server counted to the token, and the largest distance in tokens."""

    asked: int
    exact: int
    worst_tokens: int


@dataclass(slots=True)
class ReplayText:
    """`source`: file, server, usage or words. `template_tokens`: what the server adds to one user message; None where
    it reports no usage, or none that grows with the text. `probe` counts texts without anything around them."""

    maker: TextMaker
    source: str
    template_tokens: int | None = None
    probe: Lengths | None = None
    why_not_better: str | None = None

    def facts(self, records: Iterable[RequestRecord]) -> dict[str, object]:
        """For the row, with the lengths of the real prompts."""
        seen = prompt_lengths(records)
        return {
            "source": self.source,
            "template_tokens": self.template_tokens,
            "probe": None if self.probe is None else asdict(self.probe),
            "prompts": None if seen is None else asdict(seen),
            "why_not_better": self.why_not_better,
        }


def prompt_lengths(records: Iterable[RequestRecord]) -> Lengths | None:
    """Prompts as the workload has them against usage; None where there is nothing to compare.

    A prompt holds the chat template's tokens and the cache-bust marker's beside its text. Both are taken to be the
    same for prompts of the same turn number, of which the median excess is their size: what differs from it is the
    text's, or a marker of another length (markers of 12 hex digits differ by a token or two).
    """
    excess: dict[tuple[bool, int], list[int]] = {}
    for record in records:
        if record.phase != "measured" or record.outcome != "ok":
            continue
        if record.input_tokens is not None and record.expected_input_tokens is not None:
            place = (record.agent is None, record.turn)
            excess.setdefault(place, []).append(record.input_tokens - record.expected_input_tokens)
    off = [abs(each - median_low(found)) for found in excess.values() for each in found]
    return Lengths(len(off), off.count(0), max(off)) if off else None


def replay_text(target: Target, asked: str, server: Server, workload: Workload) -> ReplayText:
    """The text maker for `--tokenizer`: a path, `server`, `usage`, `words`, or `auto` (the best there is).

    Raises ServemarkError for a file that cannot be read, for an endpoint that takes no connection, and where
    `server` or `usage` is asked for and not to be had.
    """
    table = None if asked in SOURCES else build_word_table(file_tokenizer(Path(asked)))
    check_reachable(target)
    if table is not None:
        return _probed(ReplayText(TextMaker(table, TEXT_SEED), "file"), target, workload)
    if asked == "words":
        return ReplayText(TextMaker(candidate_words(), TEXT_SEED), "words")
    reason = ""
    if asked in ("auto", "server"):
        try:
            tokenize = server.tokenizer(target.model)
            if tokenize is not None:
                made = ReplayText(TextMaker(build_word_table(tokenize), TEXT_SEED), "server")
                return _probed(made, target, workload)
            reason = "/tokenize"
        except (
            ServemarkError,
            NoAnswerError,
        ) as error:  # it stopped answering, or has too few one-token words
            reason = _said(error)
        if asked == "server":
            raise ServemarkError("runs.replay_no_tokenize", Layer.ENGINE, url=server.root, reason=reason)
    try:
        if server.mute:
            raise NoAnswerError(f"{server.mute[0]} was not answered in time")
        counter = _Counter(target)
        table = word_table_by_counts(usage_tokenizer(counter.count))
        return _probed(ReplayText(TextMaker(table, TEXT_SEED), "usage"), target, workload)
    except (ServemarkError, NoAnswerError) as error:
        if asked == "usage":
            raise ServemarkError(
                "runs.replay_no_usage", Layer.ENGINE, url=server.root, reason=_said(error)
            ) from error
        return ReplayText(TextMaker(candidate_words(), TEXT_SEED), "words", why_not_better=_said(error))


def _said(error: Exception) -> str:
    return (error.what("en") if isinstance(error, ServemarkError) else str(error))[:200]


class _Counter:
    """Prompt tokens of one user message, as the server's usage has them. One small request each time."""

    def __init__(self, target: Target) -> None:
        self._target = replace(
            target, idle_timeout_s=min(target.idle_timeout_s, _PROBE_S), total_timeout_s=_PROBE_S
        )
        self._number = 0

    def count(self, content: str) -> int:
        """Raises NoAnswerError for a request that fails or reports no prompt tokens."""
        self._number += 1
        request = ChatRequest(
            f"probe-{self._number}", "probe", self._number, "warmup", [{"role": "user", "content": content}], 1,
            stream=False,
        )  # fmt: skip

        async def ask() -> RequestRecord:
            async with Client(self._target) as client:
                return await client.send(request)

        record = run(ask())
        if record.outcome != "ok" or record.input_tokens is None:
            detail = f": {record.error_detail}" if record.error_detail else ""
            raise NoAnswerError(f"{record.outcome} {record.error_kind or 'without usage'}{detail}"[:200])
        return record.input_tokens


def _probed(made: ReplayText, target: Target, workload: Workload) -> ReplayText:
    """Have the server count texts of the workload's own lengths. A server that does not is no reason to fail."""
    counter = _Counter(target)
    word = made.maker.text(Segment("template", 1)).strip()
    try:
        one = counter.count(f" {word}")
        tokenize = usage_tokenizer(counter.count, word)
        off = [abs(len(tokenize(made.maker.text(Segment(f"probe {n}", n)))) - n) for n in _lengths(workload)]
    except (ServemarkError, NoAnswerError) as error:
        made.why_not_better = _said(error)
        return made
    made.template_tokens = one - 1
    made.probe = Lengths(len(off), off.count(0), max(off, default=0))
    return made


def _lengths(workload: Workload) -> list[int]:
    """Some of the first turns' prompt lengths, from the shortest to the longest, none above PROBE_TOKENS."""
    count = len(workload.sessions)
    take = min(count, PROBE_SESSIONS)
    some = {i * count // take for i in range(take)}
    found = set()
    for number in sorted(some):
        turns = workload.sessions[number].turns
        if len(turns) and turns[0].input_tokens:
            found.add(min(turns[0].input_tokens, PROBE_TOKENS))
    ordered = sorted(found)
    return sorted({ordered[i * (len(ordered) - 1) // (PROBES - 1)] for i in range(PROBES)}) if ordered else []
