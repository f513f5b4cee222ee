"""A workload's prompts as numbered cache blocks: equal numbers mean that the whole prompt up to there is equal.

Prompts are runs of tokens (a trace's blocks, a message's segments, what a template puts around them). They are walked
through a tree of runs and cut every `block_tokens` tokens; each cut has a number. A turn that goes on from the one before
it costs what it adds. No text is made, and one session of a lazy workload is in memory at a time. Prompts of hashed blocks
that a session shares with nobody are worked out in `cache_chains`, all at once.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from servemark.base.errors import input_error
from servemark.predict.cache_chains import SessionBlocks, session_blocks
from servemark.predict.types import CacheRequest
from servemark.traces.block_prompts import BlockPrompt, PackedStream
from servemark.traces.template import TemplateTokens
from servemark.traces.types import CacheBust, Message, Session, Turn, Workload

_Run = tuple[int, int]
"""(name, tokens)."""


@dataclass(slots=True)
class _Tree:
    """Runs that follow each other. Node 0 is the empty prompt. `cuts` holds for (node, name) the numbers of the cuts in
    the run that follows: (first number, count) for each time that it had to grow."""

    children: dict[tuple[int, int, int], int] = field(default_factory=dict)
    cuts: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    nodes: int = 0


_NO_TEMPLATE = TemplateTokens()


class BlockMaker:
    """Makes the requests of sessions, in any order and interleaved. Numbers of whole blocks count from 0, those of partial
    last ones are negative; `numbers` were given, for `distinct_tokens` that no earlier prompt began with.

    `template`: tokens that the engine's chat template adds (none: the trace's own tokens alone). `cache_bust`: scope of
    the marker that makes prompts differ; it is of the session tree or of every request.
    """

    def __init__(
        self, block_tokens: int, *, template: TemplateTokens | None = None, cache_bust: CacheBust = "none"
    ) -> None:
        if block_tokens < 1:
            raise input_error("predict.cache.bad_number", name="block_tokens", value=block_tokens, least=1)
        self.block_tokens = block_tokens
        self.numbers = 0
        self.distinct_tokens = 0
        self._template = template
        self._bust = cache_bust
        self._trees: dict[object, _Tree] = {}
        self._local: dict[str, set[object]] = {}
        self._names: dict[str, int] = {}
        self._partials = 0
        self._bases: dict[object, tuple[int, int]] = {}

    def plan(self, session: Session) -> SessionBlocks | None:
        """All prompts of a session that shares nothing with others, for `base` and SessionBlocks.request; None for one
        that does."""
        return None if self._template is not None else session_blocks(session, self.block_tokens, self._bust)

    def base(self, plan: SessionBlocks, session: str, tree: str) -> tuple[int, int]:
        """Where the numbers of a tree that plays the session begin: without a marker all that play it have the same."""
        scope = session, None if self._bust == "none" else tree
        found = self._bases.get(scope)
        if found is None:
            found = self._bases[scope] = self.numbers, self._partials
            self.numbers += plan.numbers
            self._partials += plan.partials
            self._local.setdefault(session, set()).add(scope)
        return found

    def streams(self, session: Session, tree: str | None = None) -> dict[str, Iterator[CacheRequest]]:
        """The streams of a session tree by name ("" is the main one), each giving its turns in order as they are asked
        for. `tree` names the tree in the requests and in its marker: a session that is played again has another name.

        A request raises ServemarkError (exit code 2) where the tokens of its prompt are not known.
        """
        key = session.id if tree is None else tree
        plan = self.plan(session)
        if plan is not None:
            before = self.numbers, self._partials
            base = self.base(plan, session.id, key)
            return {name: self._planned(plan, key, name, base, new=base == before) for name in plan.streams}
        return {name: self._requests(session.id, key, name, turns) for name, turns in session.streams()}

    def forget(self, session: Session) -> None:
        """Let go of what no other session can share; played again, it would share nothing with its first time."""
        for scope in self._local.pop(session.id, ()):
            self._trees.pop(scope, None)
            self._bases.pop(scope, None)

    def _planned(
        self, plan: SessionBlocks, tree: str, name: str, base: tuple[int, int], *, new: bool
    ) -> Iterator[CacheRequest]:
        for number, turn in enumerate(plan.streams[name]):
            self.distinct_tokens += turn.distinct_tokens if new else 0
            yield plan.request(tree, name, number, base)

    def _requests(self, session: str, tree: str, name: str, turns: Sequence[Turn]) -> Iterator[CacheRequest]:
        path = _Path(self)
        for number, turn in enumerate(turns):
            total = self._prompt(path, session, (tree, name, number), turn)
            yield CacheRequest(
                tree, name, number, path.cut(total), self.block_tokens, total, turn.output_tokens
            )

    def _prompt(self, path: _Path, session: str, of: tuple[str, str, int], turn: Turn) -> int:
        """Take a turn to the path's end; its tokens. `of`: tree, stream and number."""
        marker: object = None
        if self._bust != "none":
            marker = of[0] if self._bust == "session" else of
        messages = turn.messages
        if self._template is None and isinstance(messages, BlockPrompt):
            stream = messages.stream
            scope = (stream.rule.scope, marker)
            if stream.rule.local or marker is not None:
                self._local.setdefault(session, set()).add(scope)
            path.follow(self._tree(scope), _Blocks(stream, messages.number))
            return stream.tokens(messages.number)
        self._follow(path, turn, marker, session)
        return path.tokens

    def _follow(self, path: _Path, turn: Turn, marker: object, session: str) -> None:
        """Take the next turn as messages; one that goes on from the turn before costs what it adds."""
        messages, tree = tuple(turn.messages), self._tree(None)
        known = _same_front(path.said, messages) if path.holds(tree, marker) else 0
        ends = path.said_ends
        del ends[known:]
        path.on_from(tree, ends[-1] if ends else 0)
        for index in range(known, len(messages)):
            path.on(self._runs(index, messages[index], marker, session))
            ends.append(path.runs)
        path.said, path.marker = messages, marker
        path.on(self._generation())

    def _tree(self, scope: object) -> _Tree:
        found = self._trees.get(scope)
        if found is None:
            found = self._trees[scope] = _Tree()
        return found

    def partial(self) -> int:
        """A number for a partial last block: no whole block has it, so that whole ones stay neighbours."""
        self._partials += 1
        return -self._partials

    def named(self, name: str) -> int:
        """The number of a run's name; negative, so that it is no block's id."""
        return self._names.setdefault(name, -1 - len(self._names))

    def _runs(self, index: int, message: Message, marker: object, session: str) -> Iterator[_Run]:
        """One message with what the template puts around it."""
        template = self._template or _NO_TEMPLATE
        if index == 0 and message.role != "system" and template.preamble:
            yield self.named("preamble"), template.preamble
        opening = template.opening(message.role)
        if opening:
            yield self.named(f"open {message.role}"), opening
        if index == 0 and marker is not None:
            yield self.named(f"marker {marker}"), template.marker
        yield from self._message(message, session)
        if template.closing:
            yield self.named("close"), template.closing

    def _generation(self) -> tuple[_Run, ...]:
        """What opens the reply."""
        template = self._template or _NO_TEMPLATE
        if not template.generation:
            return ()
        same = template.generation == template.assistant
        return ((self.named("open assistant" if same else "generation"), template.generation),)

    def _message(self, message: Message, session: str) -> Iterator[_Run]:
        if message.raw is None:
            for segment in message.segments:
                yield self.named(f"s{segment.id}"), segment.tokens
            return
        if message.raw_tokens is None:
            raise input_error("predict.cache.unknown_tokens", session=session)
        yield self.named(f"r{hashlib.sha256(message.raw).hexdigest()}"), message.raw_tokens


@dataclass(frozen=True, slots=True)
class _Blocks:
    """One turn of a packed stream."""

    stream: PackedStream
    number: int

    def runs(self, first: int) -> Iterator[_Run]:
        """Runs from block `first` on: the blocks that the turn adds, as long as the prompt has tokens for them."""
        rule = self.stream.rule
        step = rule.block * rule.scale
        end = self.stream.tokens(self.number)
        start = round(first * step)
        for index, block in enumerate(self.stream.added(self.number), first):
            stop = min(end, round((index + 1) * step))
            if stop > start:
                yield block, stop - start
            start = stop

    def tail(self, blocks: int) -> int:
        """Tokens after all blocks; no other prompt has them."""
        rule = self.stream.rule
        return max(0, self.stream.tokens(self.number) - round(blocks * rule.block * rule.scale))


class _Path:
    """The last prompt of a stream. After its run i come node `nodes[i]`, `ends[i]` tokens and `counts[i]` cuts."""

    def __init__(self, maker: BlockMaker) -> None:
        self._maker = maker
        self._tree = _Tree()
        self._runs: list[_Run] = []
        self._nodes: list[int] = []
        self._ends: list[int] = []
        self._counts: list[int] = []
        self._cuts = array("q")
        self._blocks = 0
        self.said: tuple[Message, ...] = ()
        """Messages that the path holds, under `marker`; `said_ends` are the runs up to each one's end."""
        self.said_ends: list[int] = []
        self.marker: object = None

    @property
    def tokens(self) -> int:
        """Tokens of the prompt."""
        return self._ends[-1] if self._ends else 0

    def follow(self, tree: _Tree, turn: _Blocks) -> None:
        """Take the next turn of a packed stream: what it keeps of the turn before stays."""
        kept = turn.stream.kept(turn.number)
        end = turn.stream.tokens(turn.number)
        step = turn.stream.rule.block * turn.stream.rule.scale
        if tree is not self._tree or turn.number == 0:
            self._tree = tree
            self._back(0)
            ids = turn.stream.ids(turn.number) if turn.number else turn.stream.added(0)
            runs = _packed_runs(ids, 0, step, end)
            self._blocks = len(ids)
        else:
            whole = min(kept, self._blocks, int(end // step))
            while whole and (round(whole * step) > end or whole > len(self._ends)):
                whole -= 1
            while whole and self._ends[whole - 1] != round(whole * step):
                whole -= 1  # a block that the turn before had only in part
            self._back(whole)
            added = turn.stream.added(turn.number)
            self._blocks = kept + len(added)
            again = turn.stream.ids(turn.number)[whole:] if whole < kept else added
            runs = _packed_runs(again, whole, step, end)
        self.on(runs)
        rest = end - self.tokens
        if rest > 0:
            self._alone(rest)

    def holds(self, tree: _Tree, marker: object) -> bool:
        """Whether its messages are of this tree and under this marker."""
        return tree is self._tree and self.marker == marker

    def on_from(self, tree: _Tree, runs: int) -> None:
        """Go back to where the first `runs` runs end, in this tree."""
        self._tree = tree
        self._back(runs)

    @property
    def runs(self) -> int:
        """Runs of the prompt."""
        return len(self._runs)

    def cut(self, total: int) -> array[int]:
        """Numbers of the prompt's blocks, a partial last one included: it has a number of its own."""
        size = self._maker.block_tokens
        found = self._cuts[:]
        if total % size:
            tree = self._tree
            key = (self._nodes[-1] if self._nodes else 0, -1 << 62)
            known = tree.cuts.get(key)
            if known is None:
                known = tree.cuts[key] = [(self._maker.partial(), 1)]
            found.append(known[0][0])
        return found

    def _back(self, runs: int) -> None:
        del self._runs[runs:], self._nodes[runs:], self._ends[runs:], self._counts[runs:]
        del self._cuts[self._counts[-1] if self._counts else 0 :]

    def on(self, runs: Iterable[_Run]) -> None:
        """Go on by these runs; some hundred thousand times a second, so everything is a local name."""
        tree, maker = self._tree, self._maker
        cuts, all_cuts, children, size = self._cuts, tree.cuts, tree.children, maker.block_tokens
        held, nodes, ends, counts = self._runs, self._nodes, self._ends, self._counts
        node = nodes[-1] if nodes else 0
        start = ends[-1] if ends else 0
        for run in runs:
            name, tokens = run
            end = start + tokens
            wanted = end // size - start // size
            if wanted:
                spot = node, name
                known = all_cuts.get(spot)
                if known is None:
                    known = all_cuts[spot] = []
                for first, count in known:
                    take = count if count < wanted else wanted
                    cuts.extend(range(first, first + take))
                    wanted -= take
                    if not wanted:
                        break
                if wanted:
                    first = maker.numbers
                    known.append((first, wanted))
                    cuts.extend(range(first, first + wanted))
                    maker.numbers = first + wanted
            key = node, name, tokens
            child = children.get(key)
            if child is None:
                tree.nodes += 1
                maker.distinct_tokens += tokens
                child = children[key] = tree.nodes
            node, start = child, end
            held.append(run)
            nodes.append(child)
            ends.append(end)
            counts.append(len(cuts))

    def _alone(self, tokens: int) -> None:
        """On by tokens that no other prompt has."""
        tree, maker = self._tree, self._maker
        start = self.tokens
        size = maker.block_tokens
        new = (start + tokens) // size - start // size
        self._cuts.extend(range(maker.numbers, maker.numbers + new))
        maker.numbers += new
        tree.nodes += 1
        maker.distinct_tokens += tokens
        self._runs.append((-1 << 62, tokens))
        self._nodes.append(tree.nodes)
        self._ends.append(start + tokens)
        self._counts.append(len(self._cuts))


def _packed_runs(ids: Sequence[int], first: int, step: float, end: int) -> Iterator[_Run]:
    """Runs of blocks `first`, first + 1, ... with these ids, as far as the prompt's `end` tokens go."""
    start = round(first * step)
    for index, block in enumerate(ids, first + 1):
        stop = min(end, round(index * step))
        if stop <= start and stop == end:
            return
        yield block, stop - start
        start = stop


def _same_front(before: tuple[Message, ...], now: tuple[Message, ...]) -> int:
    """How many messages both begin with."""
    size = min(len(before), len(now))
    if before[:size] == now[:size]:
        return size
    return next(place for place in range(size) if before[place] != now[place])


def requests_of(
    workload: Workload,
    block_tokens: int,
    *,
    template: TemplateTokens | None = None,
    cache_bust: CacheBust = "none",
) -> Iterator[CacheRequest]:
    """All requests of a workload, session after session and stream after stream, one at a time in memory.

    `BlockMaker` gives the streams of a session apart, for a caller that interleaves them. Raises ServemarkError (exit
    code 2) where prompts have no known content or tokens.
    """
    require_content(workload)
    maker = BlockMaker(block_tokens, template=template, cache_bust=cache_bust)
    for session in workload.sessions:
        for requests in maker.streams(session).values():
            yield from requests
        maker.forget(session)


def require_content(workload: Workload) -> None:
    """Raises ServemarkError (exit code 2) for a trace that has lengths alone: what its prompts share is not known."""
    if workload.source.get("content_known", True) is not True:
        raise input_error("predict.cache.no_content", trace=workload.name)
