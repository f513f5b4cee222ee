"""What an engine's start-up log says of memory: vLLM, SGLang and llama.cpp.

The text is untrusted and may be large: it is read line by line, bounded, and only known lines count. Every rank
prints its own figures; the tightest pool and the fullest weights count, and ranks that disagree are told.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from servemark.base.errors import input_error
from servemark.sizing.log_patterns import (
    FINISHED,
    PATTERNS,
    STARTS,
    VERSION,
    WORDS,
    Engine,
    Pattern,
    device_of,
    plain,
    rank_of,
)

MAX_LOG_BYTES = 256 << 20
MAX_LINE = 8000
MAX_SAID = 32
"""Figures kept of one rank and fact; a start says at most a handful."""
MAX_RANKS = 8192
SPREAD = 0.01
"""Ranks whose figures differ by more than this share are told: allocators differ by less."""
COUNTED_BY_BLOCKS = 0.02
_PARTS = (
    "kv_bytes", "kv_tokens", "max_tokens", "full_tokens", "available_bytes", "window_pool_bytes", "window_full_tokens",
)  # fmt: skip
_TOKENS = re.compile(r"#tokens: ([\d,]{1,20})")
_WINDOW = re.compile(r"swa size: (\d{1,15}), full size: (\d{1,15})")


@dataclass(frozen=True, slots=True)
class Reading:
    """One fact of a log: its value in bytes or tokens, and where it stands."""

    value: float
    line: int
    text: str
    rank: str = ""


@dataclass(frozen=True, slots=True)
class RankSpread:
    """Ranks that say different figures of one fact: the least and the most, of how many ranks."""

    name: str
    least: Reading
    most: Reading
    ranks: int


@dataclass(frozen=True, slots=True)
class StartupLog:
    """Facts of one start. Names: weights_bytes (drafts included), pool_bytes (all that caches: entries, drafts, states,
    windows), pool_tokens, graph_bytes, block_tokens, max_context, requests, compute_bytes, state_pool_bytes,
    state_slots, full_token_bytes, forced_blocks, block_pool_tokens."""

    engine: Engine
    facts: dict[str, Reading]
    file: str
    spreads: tuple[RankSpread, ...] = ()
    version: str | None = None
    starts: int = 1
    """Starts that the log holds; the facts are of the last."""

    def value(self, name: str) -> float | None:
        """A fact's value; None when the log does not say it."""
        found = self.facts.get(name)
        return None if found is None else found.value


@dataclass(slots=True)
class _Said:
    """What ranks said of one fact, in order."""

    pattern: Pattern
    ranks: dict[str, list[Reading]] = field(default_factory=dict)


def read_log(path: Path) -> StartupLog:
    """Facts of a log file.

    Raises ServemarkError (exit 2): no such file, not a regular one, too large, unreadable, or no known line in it.
    """
    shown = str(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise input_error("sizing.log_not_file", path=shown)
            if found.st_size > MAX_LOG_BYTES:
                raise input_error("sizing.log_large", path=shown, size=found.st_size, limit=MAX_LOG_BYTES)
            return log_facts(_lines(stream), shown)
    except OSError as error:
        raise input_error("sizing.log_unreadable", path=shown, reason=error.strerror or str(error)) from error


def _lines(stream: BinaryIO) -> Iterable[str]:
    """Lines of bounded length; the rest of a longer one is passed over."""
    while True:
        raw = stream.readline(MAX_LINE)
        if not raw:
            return
        whole = raw
        while len(whole) == MAX_LINE and not whole.endswith(b"\n"):
            whole = stream.readline(MAX_LINE)
        yield raw.decode("utf-8", "replace")


def log_facts(lines: Iterable[str], shown: str) -> StartupLog:
    """Facts of a log's lines; the engine is the one of which most lines are known."""
    said: dict[Engine, dict[str, _Said]] = {"vllm": {}, "sglang": {}, "llamacpp": {}}
    starts, version = 1, None
    for number, raw in enumerate(lines, 1):
        begins = STARTS.search(raw)
        if begins is not None and any(FINISHED & spoken.keys() for spoken in said.values()):
            starts += 1
            for spoken in said.values():
                spoken.clear()
        named = VERSION.search(raw)
        version = (named.group(1) or named.group(2)) if named is not None else version
        if any(word in raw for word in WORDS):
            _read(plain(raw), number, said)
    engine: Engine = max(said, key=lambda name: len(said[name]))
    if not said[engine]:
        raise input_error("sizing.log_foreign", path=shown)
    by_rank = {name: _per_rank(one) for name, one in said[engine].items()}
    if engine == "sglang":
        _sglang_pools(said[engine], by_rank)
    across = {pattern.name: pattern.across for pattern in PATTERNS if pattern.engine == engine}
    facts = {
        name: (max if across.get(name) == "most" else min)(ranks.values(), key=lambda one: one.value)
        for name, ranks in by_rank.items()
        if ranks
    }
    _comparable_tokens(facts)
    return StartupLog(engine, facts, shown, _spreads(by_rank), version if engine == "vllm" else None, starts)


def _read(line: str, number: int, said: dict[Engine, dict[str, _Said]]) -> None:
    for pattern in PATTERNS:
        value = pattern.value(line)
        if value is None:
            continue
        rank = device_of(line) if pattern.within == "devices" else rank_of(line)
        facts = said[pattern.engine].setdefault(pattern.name, _Said(pattern))
        if rank not in facts.ranks and len(facts.ranks) >= MAX_RANKS:
            continue
        readings = facts.ranks.setdefault(rank, [])
        if len(readings) < MAX_SAID:
            readings.append(Reading(value, number, line.strip(), rank))
        elif pattern.within == "last":
            readings[-1] = Reading(value, number, line.strip(), rank)


def _per_rank(said: _Said) -> dict[str, Reading]:
    """One reading a rank; devices of one process are added up."""
    within = said.pattern.within
    if within == "devices":
        first = [readings[0] for readings in said.ranks.values()]
        return {"": replace(first[0], value=sum(one.value for one in first), rank="")}
    if within == "sum":
        return {
            rank: replace(readings[0], value=sum(one.value for one in readings))
            for rank, readings in said.ranks.items()
        }
    taken = 0 if within == "first" else -1
    return {rank: readings[taken] for rank, readings in said.ranks.items()}


def _sglang_pools(said: dict[str, _Said], by_rank: dict[str, dict[str, Reading]]) -> None:
    """SGLang prints every pool apart: entries (the target's first, then the draft's), windows, states. The pool is
    their sum. A pool with windows prints its two parts as well, which are not counted twice."""
    pools: dict[str, Reading] = {}
    windows = said.get("window_pool_bytes")
    parts: dict[str, set[str]] = {}
    for rank, readings in (windows.ranks if windows is not None else {}).items():
        parts[rank] = {size for one in readings for found in _WINDOW.findall(one.text) for size in found}
    entries = said.get("kv_bytes")
    for rank, readings in (entries.ranks if entries is not None else {}).items():
        own = [one for one in readings if not _part_of_window(one.text, parts.get(rank, set()))]
        if own:
            pools[rank] = replace(own[0], value=sum(one.value for one in own))
    for name in ("window_pool_bytes", "state_pool_bytes"):
        for rank, reading in by_rank.get(name, {}).items():
            old = pools.get(rank)
            pools[rank] = reading if old is None else replace(old, value=old.value + reading.value)
    for rank, reading in by_rank.get("available_bytes", {}).items():
        cost, tokens = by_rank.get("full_token_bytes", {}).get(rank), by_rank.get("full_tokens", {}).get(rank)
        held = cost.value * tokens.value if cost is not None and tokens is not None else reading.value
        pools.setdefault(rank, replace(reading, value=min(reading.value, held)))
    if pools:
        by_rank["pool_bytes"] = pools
    for name in ("max_tokens", "full_tokens", "window_full_tokens", "kv_tokens"):
        if name in by_rank:
            by_rank["pool_tokens"] = by_rank[name]
            break
    for name in _PARTS:
        by_rank.pop(name, None)


def _part_of_window(line: str, sizes: set[str]) -> bool:
    found = _TOKENS.search(line)
    return found is not None and found.group(1).replace(",", "") in sizes


def _comparable_tokens(facts: dict[str, Reading]) -> None:
    """vLLM's token count of a hybrid model was blocks over groups in some releases; its concurrency at the longest
    context always counts what requests cost. Where they differ, concurrency times context is the pool's tokens."""
    tokens, requests, context = (facts.get(name) for name in ("pool_tokens", "requests", "max_context"))
    if tokens is None or requests is None or context is None:
        return
    if " per request: " not in requests.text or not tokens.value:
        return
    held = requests.value * context.value
    if abs(held / tokens.value - 1) > COUNTED_BY_BLOCKS:
        facts["block_pool_tokens"] = tokens
        facts["pool_tokens"] = replace(requests, value=held)


def _spreads(by_rank: dict[str, dict[str, Reading]]) -> tuple[RankSpread, ...]:
    """Facts of which ranks say different figures."""
    found = []
    for name in ("weights_bytes", "pool_bytes", "pool_tokens", "graph_bytes", "block_tokens"):
        readings = list(by_rank.get(name, {}).values())
        if len(readings) < 2:
            continue
        least, most = (pick(readings, key=lambda one: one.value) for pick in (min, max))
        if most.value - least.value > SPREAD * max(abs(most.value), abs(least.value)):
            found.append(RankSpread(name, least, most, len(readings)))
    return tuple(found)
