"""Pools of blocks against a tiny model that keeps one Python list in order, written here and apart from the code."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.predict.cache import CacheConfig, StateRule, build
from servemark.predict.cache_pool import as_ids
from servemark.predict.cache_stack import StackDistances, least_capacity
from servemark.predict.types import CacheRequest


class Prompts:
    """Prompts as tuples of words -> requests of one-token blocks times `size`; numbers by dictionary of whole prefixes."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.numbers: dict[tuple[str, ...], int] = {}
        self.made = 0

    def request(self, words: str, reply: int = 0, tree: str = "t") -> CacheRequest:
        """A letter is a block of `size` tokens; a last letter in lower case is half a block."""
        letters = tuple(words)
        blocks = [self.numbers.setdefault(letters[: i + 1], len(self.numbers)) for i in range(len(letters))]
        half = words[-1].islower()
        tokens = len(words) * self.size - (self.size // 2 if half else 0)
        self.made += 1
        return CacheRequest(tree, "", self.made, blocks, self.size, tokens, reply)


class ListModel:
    """A least-recently-used list of blocks with pins: the first entry is given away first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.order: list[object] = []
        self.pins: dict[object, int] = {}
        self.nameless = 0

    def begin(self, prefixes: list[str], limit: int, extra: int) -> int:
        hit = 0
        while hit < limit and prefixes[hit] in self.pins | dict.fromkeys(self.order, 0):
            hit += 1
        for prefix in prefixes:
            if prefix in self.order:
                self.order.remove(prefix)
            self.pins[prefix] = self.pins.get(prefix, 0) + 1
        self.nameless += extra
        self._shrink()
        return hit

    def end(self, prefixes: list[str], kept: int, spare: int, name: object) -> None:
        self.nameless -= kept + spare
        self.order += [(name, i) for i in range(kept)]
        for prefix in reversed(prefixes):
            self.pins[prefix] -= 1
            if not self.pins[prefix]:
                del self.pins[prefix]
                self.order.append(prefix)
        self._shrink()

    def _shrink(self) -> None:
        while len(self.order) + len(self.pins) + self.nameless > self.capacity and self.order:
            self.order.pop(0)


@settings(max_examples=150, deadline=None)
@given(st.integers(4, 20), st.integers(0, 2**32), st.booleans())
def test_blocks_are_given_away_as_in_a_list(capacity: int, seed: int, overlapping: bool) -> None:
    """Random prompts of two letters, replies of 0 to 5 tokens, up to three at a time, blocks of two tokens."""
    rng = random.Random(seed)
    cache = build(CacheConfig(block_tokens=2, gpu_tokens=capacity * 2))
    model, prompts = ListModel(capacity), Prompts(2)
    running: list[tuple[CacheRequest, list[str], int, int]] = []
    for step in range(60):
        if running and (len(running) == (3 if overlapping else 1) or rng.random() < 0.5):
            request, prefixes, kept, spare = running.pop(rng.randrange(len(running)))
            cache.end(request, float(step))
            model.end(prefixes, kept, spare, step)
            continue
        words = "".join(rng.choice("AB") for _ in range(rng.randint(1, 3)))
        if rng.random() < 0.3:
            words = words[:-1] + words[-1].lower()
        reply = rng.randint(0, 5)
        request = prompts.request(words, reply)
        full = request.input_tokens // 2
        prefixes = [words[: i + 1] for i in range(full)]
        written = request.input_tokens + max(0, reply - 1)  # a reply's last token is never computed
        extra = -(-written // 2) - full
        if running and not cache.room(request):
            continue
        hit = cache.begin(request, float(step))
        want = model.begin(prefixes, min(full, (request.input_tokens - 1) // 2), extra)
        assert hit.gpu_tokens == want * 2
        kept = written // 2 - full
        running.append((request, prefixes, kept, extra - kept))


def test_vllm_by_hand() -> None:
    """Blocks of one token, 4 of them. ABC fills three; AD finds A, needs one more: the free one. Then E needs one: C, the
    last of the oldest prompt, goes first, so AB is still there."""
    cache, prompts = build(CacheConfig(block_tokens=1, gpu_tokens=4)), Prompts()

    def play(words: str) -> int:
        request = prompts.request(words)
        hit = cache.begin(request, 0.0).cached_tokens
        cache.end(request, 0.0)
        return hit

    assert play("ABC") == 0
    assert play("ADX") == 1  # A; D and X take the free place and C's
    assert play("ABC") == 2
    assert cache.counts.evicted_gpu_tokens == 1 + 1  # C for X, then X for C
    assert play("ABC") == 2  # the last token is always computed


def test_a_partial_last_block_is_never_found() -> None:
    """Blocks of 4: a prompt of 10 tokens leaves two blocks, whatever asks for it again."""
    cache = build(CacheConfig(block_tokens=4))
    for number, want in ((0, 0), (1, 8)):
        request = CacheRequest("t", "", number, [0, 1, 2], 4, 10, None)
        assert cache.begin(request, 0.0).cached_tokens == want
        cache.end(request, 0.0)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_stack_distances_are_the_hits_of_every_size(seed: int) -> None:
    """Against the pool itself run at each size, one request at a time."""
    rng = random.Random(seed)
    prompts = Prompts(1)
    asked = []
    for _ in range(40):
        words = "".join(rng.choice("ABC") for _ in range(rng.randint(1, 5)))
        asked.append(prompts.request(words, rng.randint(0, 3)))
    stack = StackDistances()
    for request in asked:
        full = request.input_tokens
        stack.use(as_ids(request.blocks), full - 1, max(0, (request.output_tokens or 0) - 1))
    for capacity in range(9, 40, 3):  # the longest prompt and reply need 8
        cache = build(CacheConfig(block_tokens=1, gpu_tokens=capacity))
        for request in asked:
            cache.begin(request, 0.0)
            cache.end(request, 0.0)
        assert cache.counts.gpu_tokens == stack.hits(capacity)
    most = stack.hits(None)
    least = least_capacity([stack], most)
    assert stack.hits(least) == most and (least == 0 or stack.hits(least - 1) < most)


def test_states_by_hand() -> None:
    """A hybrid model, blocks of one token. ABCD leaves states after D alone, so ABX finds nothing though AB is there; its
    own end X is kept. ABXY then finds ABX. With boundaries seen twice, ABX has kept AB, which ABZ finds."""
    for twice, want in ((False, [0, 0, 3, 0]), (True, [0, 0, 3, 2])):
        rule = StateRule(state_tokens=1, seen_twice=twice)
        cache, prompts = build(CacheConfig(block_tokens=1, states=rule)), Prompts()
        got = []
        for words in ("ABCD", "ABX", "ABXY", "ABZ"):
            request = prompts.request(words)
            got.append(cache.begin(request, 0.0).cached_tokens)
            cache.end(request, 0.0)
        assert got == want


def test_a_state_takes_its_room() -> None:
    """8 tokens' room, a state costs 3: AB and its state are 5; CD and its own push the first state out (and the blocks
    behind nothing), so ABE finds no state."""
    cache, prompts = build(CacheConfig(block_tokens=1, gpu_tokens=8, states=StateRule(3))), Prompts()
    for words in ("AB", "CD"):
        request = prompts.request(words)
        cache.begin(request, 0.0)
        cache.end(request, 0.0)
    assert cache.counts.evicted_gpu_tokens == 3
    request = prompts.request("ABE")
    assert cache.begin(request, 0.0).cached_tokens == 0


def test_sglang_evicts_whole_leaves() -> None:
    """Room for 6: ABCD and EF fill it. GH needs two: the oldest leaf is ABCD, which leaves as a whole, so nothing of it is
    found; a pool of blocks would have kept AB."""
    for policy, want in (("sglang", 0), ("vllm", 2)):
        cache, prompts = build(CacheConfig(policy=policy, block_tokens=1, gpu_tokens=6)), Prompts()  # type: ignore[arg-type]
        for words in ("ABCD", "EF", "GH"):
            request = prompts.request(words)
            cache.begin(request, 0.0)
            cache.end(request, 0.0)
        request = prompts.request("ABCX")
        assert cache.begin(request, 0.0).cached_tokens == want


@settings(max_examples=100, deadline=None)
@given(st.integers(4, 16), st.integers(0, 2**32))
def test_sglang_against_a_dictionary_of_leaves(capacity: int, seed: int) -> None:
    """Never finds what was not there, never holds more than its room, and finds everything when nothing was evicted."""
    rng = random.Random(seed)
    cache = build(CacheConfig(policy="sglang", block_tokens=1, gpu_tokens=capacity))
    prompts = Prompts()
    seen: set[str] = set()
    for _ in range(60):
        words = "".join(rng.choice("AB") for _ in range(rng.randint(1, 4)))
        request = prompts.request(words)
        hit = cache.begin(request, 0.0).cached_tokens
        ceiling = 0
        while ceiling < len(words) - 1 and words[: ceiling + 1] in seen:
            ceiling += 1
        assert hit <= ceiling
        if not cache.counts.evicted_gpu_tokens:
            assert hit == ceiling
        cache.end(request, 0.0)
        seen |= {words[: i + 1] for i in range(len(words))}
        assert cache.held_tokens()["gpu"] <= capacity


@pytest.mark.parametrize(("routing", "want"), [("affinity", 2), ("round-robin", 0)])
def test_routing(routing: str, want: int) -> None:
    """Two trees of two turns on two workers: with affinity the second turns find the first ones' A; request by request,
    with the trees' turns in the order 1, 2, 2, 1, each second turn lands on the other worker."""
    cache = build(CacheConfig(block_tokens=1, workers=2, routing=routing))  # type: ignore[arg-type]
    prompts = Prompts()
    hits = 0
    for tree, words in (("1", "AB"), ("2", "CD"), ("2", "CDE"), ("1", "ABC")):
        request = prompts.request(words, tree=tree)
        hits += cache.begin(request, 0.0).cached_tokens > 0
        cache.end(request, 0.0)
    assert hits == want
