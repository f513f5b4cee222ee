"""The shared store and llama.cpp's slots, by hand."""

from __future__ import annotations

import pytest

from servemark.base.errors import ServemarkError
from servemark.predict.cache import CacheConfig, Deployment, StateRule, build
from servemark.predict.types import CacheHit, CacheRequest


class Chain:
    """Prompts of one-token blocks named by letters; equal beginnings have equal numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.made = 0

    def request(self, words: str, reply: int = 0, tree: str = "t") -> CacheRequest:
        """A prompt of one token a letter."""
        self.made += 1
        blocks = [self.numbers.setdefault(words[: i + 1], len(self.numbers)) for i in range(len(words))]
        return CacheRequest(tree, "", self.made, blocks, 1, len(words), reply)


def play(cache: Deployment, request: CacheRequest, now_s: float = 0.0) -> CacheHit:
    """Begin and end at once."""
    hit = cache.begin(request, now_s)
    cache.end(request, now_s)
    return hit


def store(**more: float) -> Deployment:
    """No GPU pool; a store of 20 blocks, which evicts above 16 of them (0.8) a quarter of its objects."""
    return build(
        CacheConfig(block_tokens=1, gpu_tokens=0, store_tokens=20, high_watermark=0.8, evict_ratio=0.25, **more)  # type: ignore[arg-type]
    )


def test_the_store_evicts_a_share_above_its_watermark() -> None:
    """16 blocks are at the watermark: nothing goes. The 17th tips it: used 0.85, so max(0.25, 0.05 + 0.25) of 17 objects
    are dropped, ceil(5.1) = 6, the first written first."""
    cache, chain = store(lease_s=0.0), Chain()
    play(cache, chain.request("ABCDEFGH"), 1.0)
    play(cache, chain.request("abcdefgh"), 2.0)
    assert cache.counts.evicted_store_tokens == 0
    play(cache, chain.request("x"), 3.0)
    assert cache.counts.evicted_store_tokens == 6
    assert cache.begin(chain.request("ABCDEFGHX"), 4.0).store_tokens == 0  # A to F are gone: no prefix is left
    assert cache.begin(chain.request("abcdefghX"), 5.0).store_tokens == 8


def test_a_lease_keeps_what_was_looked_up() -> None:
    """A to H are looked up at 2 s and leased for 60 s; so at 3 s the ones written since go, though they are younger."""
    cache, chain = store(lease_s=60.0), Chain()
    play(cache, chain.request("ABCDEFGH"), 1.0)
    assert play(cache, chain.request("ABCDEFGH"), 2.0).store_tokens == 7
    play(cache, chain.request("abcdefghi"), 3.0)
    assert cache.counts.evicted_store_tokens == 6
    assert play(cache, chain.request("ABCDEFGHX"), 4.0).store_tokens == 7  # H was never looked up, and went with the rest


def test_a_write_without_room_is_lost() -> None:
    """Seven blocks are leased; of 20 more 13 fit, the last seven are lost. Above the watermark afterwards, so some go."""
    cache, chain = store(lease_s=60.0), Chain()
    play(cache, chain.request("ABCDEFG"), 1.0)
    play(cache, chain.request("ABCDEFGH"), 2.0)
    assert cache.counts.rejected_store_tokens == 0
    play(cache, chain.request("abcdefghijklmnopqrst"), 3.0)
    assert cache.counts.rejected_store_tokens == 7
    assert cache.held_tokens()["store"] <= 16


def test_tiers_are_asked_in_turn_and_loads_are_counted() -> None:
    """A GPU of 4 blocks, DRAM of 6, a store. ABCD, EFGH and IJKL pass; ABCDX finds nothing on the GPU and AB in DRAM
    (CD were its oldest), and CD in the store: two tokens by each, 10 bytes a token loaded."""
    config = CacheConfig(block_tokens=1, gpu_tokens=4, dram_tokens=6, store_tokens=100, token_bytes=10.0)
    cache, chain = build(config), Chain()
    for words in ("ABCD", "EFGH"):
        assert play(cache, chain.request(words)).cached_tokens == 0
    hit = play(cache, chain.request("ABCDX"))
    assert (hit.gpu_tokens, hit.dram_tokens, hit.store_tokens, hit.bytes_loaded) == (0, 2, 2, 40)
    assert cache.counts.loaded_tokens == 4


def test_workers_share_the_store_alone() -> None:
    """Two workers in turn: the second prompt is on the other GPU's worker, and comes from the store."""
    config = CacheConfig(block_tokens=1, store_tokens=None, workers=2, routing="round-robin")
    cache, chain = build(config), Chain()
    play(cache, chain.request("ABCD"))
    hit = play(cache, chain.request("ABCD"))
    assert (hit.gpu_tokens, hit.store_tokens) == (0, 3)


def test_a_state_comes_from_the_store() -> None:
    """A hybrid model whose GPU holds one prompt with its state (4 + 2 of 6): the store has the other's. The state's two
    tokens are loaded with the four of the prefix; without it nothing could be."""
    config = CacheConfig(block_tokens=1, gpu_tokens=6, store_tokens=None, states=StateRule(2), token_bytes=1.0)
    cache, chain = build(config), Chain()
    play(cache, chain.request("ABCD"))
    play(cache, chain.request("EFGH"))
    hit = cache.begin(chain.request("ABCD" + "X"), 0.0)
    assert (hit.gpu_tokens, hit.store_tokens, hit.bytes_loaded) == (0, 4, 6)


def slots(count: int, cache_tokens: int | None = 0, **more: bool) -> Deployment:
    """llama.cpp's server."""
    return build(CacheConfig(policy="llamacpp", block_tokens=1, slots=count, dram_tokens=cache_tokens, **more))  # type: ignore[arg-type]


def test_a_slot_is_chosen_by_similarity_then_by_age() -> None:
    """Two slots. ABCD and EFGH take one each; ABCX goes to the first (3 of 4 alike); IJKL is like neither, so it takes
    the one idle longest, EFGH's; EFGY then finds nothing."""
    cache, chain = slots(2), Chain()
    got = [
        play(cache, chain.request(w), float(n)).cached_tokens
        for n, w in enumerate(("ABCD", "EFGH", "ABCX", "IJKL", "EFGY"))
    ]
    assert got == [0, 0, 3, 0, 0]


def test_a_share_below_the_threshold_is_found_only_by_age() -> None:
    """One slot: A of A and eleven others is less than a tenth, so the slot is taken for its age, and A is kept all the
    same: a slot is not emptied."""
    cache, chain = slots(1), Chain()
    play(cache, chain.request("A" + "b" * 11))
    assert play(cache, chain.request("A" + "c" * 11)).cached_tokens == 1


def test_the_host_cache_brings_a_prompt_back() -> None:
    """One slot with a host cache: EFGH saves ABCD, and ABCX brings it back: the hit counts as the host cache's."""
    cache, chain = slots(1, 100), Chain()
    play(cache, chain.request("ABCD"))
    play(cache, chain.request("EFGH"))
    hit = play(cache, chain.request("ABCX"))
    assert (hit.gpu_tokens, hit.dram_tokens) == (0, 3)


def test_the_oldest_prompt_leaves_the_host_cache() -> None:
    """Room for two prompts of four beside the slot: after four others the first is gone, the third is there."""
    for again, want in (("ABCX", 0), ("IJKX", 3)):
        cache, chain = slots(1, 8), Chain()
        for words in ("ABCD", "EFGH", "IJKL", "MNOP"):
            play(cache, chain.request(words))
        assert play(cache, chain.request(again)).cached_tokens == want


def test_little_of_a_long_prompt_is_not_loaded() -> None:
    """The cached prompt would be kept to one part in five: below a quarter it is left alone."""
    cache, chain = slots(1, 100), Chain()
    play(cache, chain.request("AB" + "c" * 8))
    play(cache, chain.request("EFGH"))
    assert play(cache, chain.request("ABXYZ")).cached_tokens == 0


def test_a_shared_buffer_empties_idle_slots() -> None:
    """Two slots in one buffer, no host cache, 6 tokens: ABCD is emptied for EFGH; with 8 both stay."""
    for tokens, want in ((6, 0), (8, 3)):
        config = CacheConfig(policy="llamacpp", block_tokens=1, slots=2, unified=True, gpu_tokens=tokens)
        cache, chain = build(config), Chain()
        play(cache, chain.request("ABCD"), 1.0)
        play(cache, chain.request("EFGH"), 2.0)
        assert play(cache, chain.request("ABCX"), 3.0).cached_tokens == want


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"block_tokens": 0}, "predict.cache.bad_number"),
        ({"high_watermark": 0.0}, "predict.cache.bad_share"),
        ({"policy": "sglang", "states": StateRule(1)}, "predict.cache.states_policy"),
        ({"policy": "llamacpp", "store_tokens": 1}, "predict.cache.no_store"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, object], key: str) -> None:
    """In words, with exit code 2."""
    with pytest.raises(ServemarkError) as error:
        CacheConfig(**more)  # type: ignore[arg-type]
    assert (error.value.key, error.value.exit_code) == (key, 2)


def test_other_blocks_are_refused() -> None:
    """A request of blocks of one token is no question to a cache of 16."""
    with pytest.raises(ServemarkError, match="blocks of 1 tokens"):
        build(CacheConfig(block_tokens=16)).begin(Chain().request("AB"), 0.0)
