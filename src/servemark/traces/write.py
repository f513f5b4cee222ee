"""Traces written: seeded session trees, and a workload in another format, with what that format cannot hold.

OUT ending in .jsonl is one file, a session or request a line; any other name is a new folder with one .json file
a session (weka only). Both appear under their name only when whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from servemark.base.errors import input_error
from servemark.base.files import disk_error
from servemark.traces.agentic_tree import TreeRecipe, make_sessions
from servemark.traces.mooncake import BLOCK_TOKENS
from servemark.traces.types import SubAgent, Turn, Workload
from servemark.traces.weka import WekaOptions, WekaRow, WekaSession, session_of

Lost = Literal[
    "roles",
    "text",
    "sessions",
    "gaps",
    "arrivals",
    "cross_session",
    "server_times",
    "tools",
    "clock",
    "cap",
    "content",
]
"""What a conversion leaves behind; the messages `traces.lost.*` say it."""
WEKA_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: sessions (or rows), requests, bytes, SHA-256 of all bytes in order, and what was lost."""

    sessions: int
    requests: int
    size: int
    sha256: str
    lost: tuple[Lost, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """One session's bytes (with a newline), its name and its requests."""

    name: str
    data: bytes
    requests: int


def write_made(recipe: TreeRecipe, out: Path, to: str, *, force: bool = False) -> Written:
    """Write the sessions of a recipe as `weka` or `messages`: equal recipes give equal bytes.

    Raises ServemarkError for a recipe out of range, and when OUT exists (without `force`) or cannot be written.
    """
    from servemark.traces.messages_format import encode  # noqa: PLC0415

    recipe.check()

    def items() -> Iterator[_Item]:
        for made in make_sessions(recipe):
            session = session_of(made, made.id, WekaOptions())
            data = msgspec.json.encode(made) + b"\n" if to == "weka" else encode(session)
            yield _Item(made.id, data, session.requests)

    return _write(items(), out, folder_allowed=to == "weka", force=force)


def convert_workload(workload: Workload, out: Path, to: str, *, force: bool = False) -> Written:
    """Write a workload as `weka`, `mooncake` or `messages`, and say what that format does not hold.

    Raises ServemarkError where the meaning cannot be kept: hashed formats need token counts, and Mooncake needs
    arrival times.
    """
    from servemark.traces.messages_format import encode  # noqa: PLC0415

    lost: dict[Lost, None] = {}
    if workload.source.get("content_known", True) is not True:
        lost["content"] = None
    if to == "messages":
        items: Iterable[_Item] = (_Item(s.id, encode(s), s.requests) for s in workload.sessions)
        if workload.source.get("kind") == "weka":
            lost["server_times"] = None
    elif to == "weka":
        items = _weka_items(workload, lost)
    else:
        items = _mooncake_items(workload, lost)
    done = _write(items, out, folder_allowed=to == "weka", force=force)
    return Written(done.sessions, done.requests, done.size, done.sha256, tuple(lost))


class _Blocks:
    """Ids of blocks of `size` tokens by what they hold, counted up in the order in which they are first seen."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.known: dict[tuple[object, ...], int] = {}

    def of(self, turn: Turn, whole_only: bool) -> list[int]:
        """A prompt's blocks; a partial last one has an id of its own, or none with `whole_only`."""
        ids: list[int] = []
        block: list[object] = []
        room = self.size
        for message in turn.messages:
            pieces: list[tuple[object, int]] = [(s.id, s.tokens) for s in message.segments]
            if message.raw is not None:
                pieces = [(hashlib.sha256(message.raw).digest(), message.raw_tokens or 0)]
            for name, tokens in pieces:
                done = 0
                while done < tokens:
                    take = min(room, tokens - done)
                    block.append((name, done, take))
                    done += take
                    room -= take
                    if not room:
                        ids.append(self.known.setdefault(tuple(block), len(self.known)))
                        block, room = [], self.size
        if block and not whole_only:
            ids.append(self.known.setdefault(tuple(block), len(self.known)))
        return ids


def _counted(turn: Turn) -> tuple[int, int]:
    tokens = turn.input_tokens
    if tokens is None or turn.output_tokens is None:
        raise input_error("traces.convert_unknown")
    return tokens, turn.output_tokens


def _note(turn: Turn, lost: dict[Lost, None]) -> None:
    if any(m.raw is not None for m in turn.messages):
        lost["text"] = None
    lost["roles"] = None
    if turn.tools is not None:
        lost["tools"] = None


def _weka_items(workload: Workload, lost: dict[Lost, None]) -> Iterator[_Item]:
    if workload.source.get("kind") == "mooncake" or workload.source.get("kind") == "agentic":
        lost["cross_session"] = None
    for session in workload.sessions:
        if session.start_s is not None:
            lost["arrivals"] = None
        blocks = _Blocks(WEKA_BLOCK)
        rows = _weka_rows(session.turns, session.children, 0.0, blocks, lost)
        found = WekaSession(session.id, WEKA_BLOCK, "local", rows)
        yield _Item(session.id, msgspec.json.encode(found) + b"\n", session.requests)


def _weka_rows(
    turns: Sequence[Turn], children: Sequence[SubAgent], start: float, blocks: _Blocks, lost: dict[Lost, None]
) -> list[WekaRow]:
    """Rows of a stream with its groups after the turns that start them. Where no times are recorded, requests
    are taken to last no time, and `clock` is lost."""
    rows: list[WekaRow] = []
    clock = start
    for number, turn in enumerate(turns):
        tokens, output = _counted(turn)
        _note(turn, lost)
        if turn.at_s is None:
            lost["clock"] = None
            clock += turn.think_s
        else:
            clock = turn.at_s
        row = WekaRow(t=round(clock, 6), type="n", model="", in_=tokens, out=output)
        row.hash_ids = blocks.of(turn, whole_only=True)
        row.think_time = turn.think_s if number else None
        rows.append(row)
        for child in children:
            if max(0, child.after_turn) == number:
                below = _weka_rows(child.turns, child.children, clock + child.delay_s, blocks, lost)
                rows.append(WekaRow(t=below[0].t, type="subagent", agent_id=child.id, requests=below))
                lost["clock"] = None
    return rows


def _mooncake_items(workload: Workload, lost: dict[Lost, None]) -> Iterator[_Item]:
    blocks = _Blocks(BLOCK_TOKENS)
    rows: list[tuple[float, str, bytes]] = []
    alone = len(workload.sessions) == 1
    for session in workload.sessions:
        start = session.start_s if session.start_s is not None else 0.0 if alone else None
        for _, turns in session.streams():
            for number, turn in enumerate(turns):
                tokens, output = _counted(turn)
                if start is None or turn.at_s is None:
                    raise input_error("traces.convert_no_times", where=session.id)
                _note(turn, lost)
                if session.requests > 1:
                    lost["sessions"] = lost["gaps"] = None
                at = start + turn.at_s
                row = {
                    "timestamp": round(at * 1000), "input_length": tokens, "output_length": output,
                    "hash_ids": blocks.of(turn, whole_only=False),
                }  # fmt: skip
                rows.append((at, f"{session.id}/{number}", msgspec.json.encode(row) + b"\n"))
    rows.sort(key=lambda r: r[0])
    return iter([_Item(name, data, 1) for _, name, data in rows])


def _write(items: Iterable[_Item], out: Path, *, folder_allowed: bool, force: bool) -> Written:
    lined = out.suffix == ".jsonl"
    if not lined and not folder_allowed:
        raise input_error("traces.out_name", path=str(out))
    replaceable = force and out.is_file()  # a folder never is: it may hold what this program did not write
    if (out.is_symlink() or out.exists()) and not replaceable:
        raise input_error("traces.out_exists", path=str(out))
    try:
        return _write_lines(items, out) if lined else _write_folder(items, out)
    except OSError as error:
        raise disk_error(error, out) from error


def _write_lines(items: Iterable[_Item], out: Path) -> Written:
    handle, temporary = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)
    digest, count, requests, size = hashlib.sha256(), 0, 0, 0
    try:
        with os.fdopen(handle, "wb") as stream:
            for item in items:
                stream.write(item.data)
                digest.update(item.data)
                count, requests, size = count + 1, requests + item.requests, size + len(item.data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(out)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    return Written(count, requests, size, digest.hexdigest())


def _write_folder(items: Iterable[_Item], out: Path) -> Written:
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
    digest, count, requests, size = hashlib.sha256(), 0, 0, 0
    try:
        for item in items:
            # A session's id comes out of a file and may try to name a path.
            safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in item.name).strip(".")[:100]
            (temporary / f"{count:06d}-{safe}.json").write_bytes(item.data)
            digest.update(item.data)
            count, requests, size = count + 1, requests + item.requests, size + len(item.data)
        temporary.chmod(0o755)
        temporary.rename(out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Written(count, requests, size, digest.hexdigest())
