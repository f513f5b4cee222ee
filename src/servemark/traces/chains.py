"""Mooncake rows -> sessions: rows are linked by the prefix that they share, and replayed as growing prompts.

The trace does not say which requests belong together, and single rows share almost nothing with their
neighbours, so a row joins the chain that owns the longest prefix it shares. The rule is deterministic and is
named in `Workload.source`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from servemark.base.errors import input_error
from servemark.base.files import sha256_file
from servemark.traces.identity import workload_id
from servemark.traces.mooncake import BLOCK_TOKENS, MAX_TOKENS, MooncakeRow, read_mooncake
from servemark.traces.types import Message, Segment, Session, Turn, Workload

LINK_RULE = "longest-shared-prefix/1"
MIN_SHARED_BLOCKS = 2
"""One block is not enough: nearly all rows share the first, which holds the service's own system prompt."""
DEFAULT_THINK_SCALE = 0.01
DEFAULT_THINK_CAP_S = 60.0
MAX_SCALE = 100.0

Chain = tuple[MooncakeRow, ...]


def link_chains(rows: Sequence[MooncakeRow], min_shared_blocks: int = MIN_SHARED_BLOCKS) -> list[Chain]:
    """Rows in order; each joins the chain whose rows hold the longest prefix of its blocks, if that prefix
    has at least `min_shared_blocks` blocks, and begins a chain otherwise. A prefix belongs to the chain that
    had it first. Chains come in order of their first row. Linear in the number of blocks.
    """
    children: dict[tuple[int, int], int] = {}  # (node, block id) -> node of the prefix tree; 0 is the root
    owner = [-1]
    chains: list[list[MooncakeRow]] = []
    for row in rows:
        node = depth = 0
        for block in row.hash_ids:
            found = children.get((node, block))
            if found is None:
                break
            node = found
            depth += 1
        if depth >= min_shared_blocks:
            chain = owner[node]
        else:
            chain = len(chains)
            chains.append([])
        chains[chain].append(row)
        for block in row.hash_ids[depth:]:
            children[node, block] = node = len(owner)
            owner.append(chain)
    return [tuple(chain) for chain in chains]


def select_sessions(
    chains: Sequence[Chain], count: int, min_turns: int = 4, max_turns: int = 6
) -> list[Chain]:
    """The first `count` chains of `min_turns` to `max_turns` requests, in order of first appearance.

    Raises ServemarkError when there are fewer, or when the bounds make no sense.
    """
    if count < 1 or not 1 <= min_turns <= max_turns:
        raise input_error("traces.bad_selection", count=count, min_turns=min_turns, max_turns=max_turns)
    fitting = [chain for chain in chains if min_turns <= len(chain) <= max_turns]
    if len(fitting) < count:
        raise input_error(
            "traces.too_few_sessions",
            count=count,
            found=len(fitting),
            min_turns=min_turns,
            max_turns=max_turns,
        )
    return fitting[:count]


def mooncake_workload(
    path: Path,
    *,
    sessions: int,
    scale_lengths: float = 1.0,
    think_scale: float = DEFAULT_THINK_SCALE,
    think_cap_s: float = DEFAULT_THINK_CAP_S,
    min_turns: int = 4,
    max_turns: int = 6,
) -> Workload:
    """The workload of a Mooncake trace: `sessions` linked chains, lengths scaled, equal blocks equal text.

    Block i of a prompt spans tokens round(i*512*F) to round((i+1)*512*F), cut at round(input_length*F); a
    prompt has at least one token, an output at least one. The first block, which nearly all prompts share,
    becomes the system message and the rest one user message (a prompt of one block is a user message alone):
    the trace knows no roles.

    Think time = the gap between the arrivals of two chained rows, at most `think_cap_s`, times `think_scale`.
    The gap still contains the earlier request's service time, which the trace does not tell, and negative
    gaps count as 0. The default scale is small, so that a first look takes a minute, not the trace's hour.
    Raises ServemarkError for options out of range and for everything that `read_mooncake` raises.
    """
    _check("scale_lengths", scale_lengths, 0.0, MAX_SCALE, above=True)
    _check("think_scale", think_scale, 0.0, 1000.0)
    _check("think_cap_s", think_cap_s, 0.0, 86_400.0)
    rows = read_mooncake(path)
    chosen = select_sessions(link_chains(rows), sessions, min_turns, max_turns)
    for row in (row for chain in chosen for row in chain):
        tokens = round(max(row.input_length, row.output_length) * scale_lengths)
        if tokens > MAX_TOKENS:
            raise input_error(
                "traces.prompt_too_long", where=f"{path}:{row.line}", tokens=tokens, limit=MAX_TOKENS
            )
    made = tuple(
        Session(f"m{chain[0].line:06d}", _turns(chain, scale_lengths, think_scale, think_cap_s))
        for chain in chosen
    )
    name = path.name.encode("utf-8", "replace").decode("utf-8")  # a file name may be no text at all
    source: dict[str, object] = {
        "kind": "mooncake",
        "file": name,
        "sha256": _sha256(path),
        "rows": len(rows),
        "link_rule": f"{LINK_RULE}, at least {MIN_SHARED_BLOCKS} blocks",
        "sessions": sessions,
        "turns": [min_turns, max_turns],
        "scale_lengths": scale_lengths,
        "block_tokens": BLOCK_TOKENS,
        "think_rule": "arrival gap within the chain, service time not subtracted (unknown)",
        "think_scale": think_scale,
        "think_cap_s": think_cap_s,
    }
    return Workload(workload_id(made), name, made, source)


def _sha256(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:  # the file went away after it was read
        reason = error.strerror or str(error)
        raise input_error("traces.cannot_read", path=str(path), reason=reason) from error


def _check(option: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    good = math.isfinite(value) and low <= value <= high and not (above and value == low)
    if not good:
        shown = f"{low:g} < {option}" if above else f"{low:g} <= {option}"
        raise input_error(
            "traces.option_out_of_range", option=option, value=value, low=shown, high=f"{high:g}"
        )


def _turns(chain: Chain, scale: float, think_scale: float, think_cap_s: float) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    before: float | None = None
    for row in chain:
        gap_s = 0.0 if before is None else max(0.0, (row.timestamp_ms - before) / 1000)
        before = row.timestamp_ms
        think_s = round(min(gap_s, think_cap_s) * think_scale, 3)
        turns.append(Turn(_messages(row, scale), max(1, round(row.output_length * scale)), think_s))
    return tuple(turns)


def _messages(row: MooncakeRow, scale: float) -> tuple[Message, ...]:
    end = round(row.input_length * scale)
    segments: list[Segment] = []
    for index, block in enumerate(row.hash_ids):
        first = round(index * BLOCK_TOKENS * scale)
        tokens = min(end, round((index + 1) * BLOCK_TOKENS * scale)) - first
        if tokens > 0:
            segments.append(Segment(f"mooncake/{block}", tokens))
    if not segments:  # scaled so far down that even the first block rounds to nothing
        segments.append(Segment(f"mooncake/{row.hash_ids[0]}", 1))
    if len(segments) == 1:
        return (Message("user", tuple(segments)),)
    return (Message("system", (segments[0],)), Message("user", tuple(segments[1:])))
