"""llama.cpp's server: slots that keep their last prompt, and a host cache of whole prompts beside them.

A request takes the idle slot whose prompt shares the largest part of its own, above `similarity`; else the slot that has
been idle longest. Where less than half of the slot's prompt would be kept, that prompt is saved to the host cache and the
best one there is loaded in its place, if it fits better. Whole prompts leave the host cache, the oldest first. With a
shared KV buffer idle slots are saved and emptied when another request starts; without, a copy of them is saved.
Source: llama.cpp `server_context::get_available_slot`, `server_prompt_cache`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from servemark.predict.cache_pool import Ids, as_ids
from servemark.predict.cache_radix import common_blocks
from servemark.predict.types import CacheHit, CacheRequest

_KEEP_BEST = 0.5
_KEEP_LEAST = 0.25
"""A cached prompt of which less would be kept is left alone."""


@dataclass(slots=True, eq=False)
class _Prompt:
    """What a slot or the host cache holds: a prompt's blocks and its reply, which no other prompt goes on with."""

    ids: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    block: int = 1
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.input_tokens + self.output_tokens

    def shared(self, ids: Ids, input_tokens: int) -> int:
        """Tokens that it begins a prompt with."""
        return min(common_blocks(self.ids, ids) * self.block, self.input_tokens, input_tokens)

    def contains(self, other: _Prompt) -> bool:
        """Whether another is a beginning of it."""
        if other is self:
            return True
        if other.output_tokens:
            return False
        return other.shared(self.ids, self.input_tokens) == other.input_tokens


@dataclass(slots=True, eq=False)
class _Slot:
    prompt: _Prompt = field(default_factory=_Prompt)
    busy: bool = False
    last_used: float = -1.0


class SlotCache:
    """One server. `cache_tokens`: what the host cache holds; 0: there is none; None: without end."""

    def __init__(
        self,
        slots: int,
        cache_tokens: int | None,
        *,
        similarity: float = 0.1,
        unified: bool = False,
        save_idle: bool = True,
        context_tokens: int | None = None,
    ) -> None:
        self._slots = [_Slot() for _ in range(slots)]
        self._limit = cache_tokens
        self._similarity = similarity
        self._unified = unified
        self._save_idle = save_idle and cache_tokens != 0
        self._context = context_tokens
        self._cache: list[_Prompt] = []
        self.evicted = 0
        self.loaded = 0
        self.saved = 0

    def room(self) -> bool:
        """Whether a slot is idle."""
        return any(not slot.busy for slot in self._slots)

    @property
    def held(self) -> tuple[int, int]:
        """Tokens in slots and in the host cache."""
        return sum(s.prompt.tokens for s in self._slots), sum(p.tokens for p in self._cache)

    def begin(self, request: CacheRequest) -> tuple[CacheHit, _Slot]:
        """Give the request a slot; its hit, and the slot for `end`. All slots busy: the one idle longest ago is added
        to, as if it waited for no time."""
        ids = as_ids(request.blocks)
        slot, shared, refresh = self._choose(ids, request.input_tokens)
        loaded = False
        if refresh and self._limit != 0:
            loaded = self._swap(slot, ids, request.input_tokens)
            shared = slot.prompt.shared(ids, request.input_tokens)
        hit = max(0, min(shared, request.input_tokens - 1))
        slot.busy = True
        slot.prompt = _Prompt(ids, request.block_tokens, request.input_tokens)
        if self._save_idle:
            self._save_others()
        self._purge(request.input_tokens)
        return (CacheHit(0, dram_tokens=hit) if loaded else CacheHit(hit)), slot

    def end(self, slot: _Slot, output_tokens: int, now_s: float) -> None:
        """The slot is idle; it keeps prompt and reply."""
        slot.prompt.output_tokens = max(0, output_tokens - 1)  # the last token was never evaluated
        slot.busy = False
        slot.last_used = now_s

    def _choose(self, ids: Ids, tokens: int) -> tuple[_Slot, int, bool]:
        """(slot, tokens shared, whether its prompt is worth saving)."""
        best: _Slot | None = None
        most, similar = 0, 0.0
        for slot in self._slots:
            if slot.busy or not slot.prompt.tokens:
                continue
            shared = slot.prompt.shared(ids, tokens)
            share = shared / tokens
            if share > similar and share > self._similarity:
                best, most, similar = slot, shared, share
        if best is not None:
            return best, most, most / best.prompt.tokens < _KEEP_BEST
        idle = [slot for slot in self._slots if not slot.busy] or self._slots
        chosen = idle[0]
        for slot in idle[1:]:
            if slot.last_used <= chosen.last_used:
                chosen = slot
        return chosen, chosen.prompt.shared(ids, tokens), True

    def _swap(self, slot: _Slot, ids: Ids, tokens: int) -> bool:
        """Save the slot's prompt and load a better one; whether one was loaded."""
        prompt = slot.prompt
        self._save(prompt)
        shared = prompt.shared(ids, tokens)
        keep = shared / prompt.tokens if prompt.tokens else 0.0
        similar = shared / tokens
        best: _Prompt | None = None
        for cached in self._cache:
            shared = cached.shared(ids, tokens)
            kept, share = shared / cached.tokens, shared / tokens
            if kept < _KEEP_LEAST:
                continue
            if kept > keep and share > similar:
                best, keep, similar = cached, kept, share
        if best is None:
            return False
        self._cache.remove(best)
        self.loaded += best.tokens
        slot.prompt = best
        return True

    def _save(self, prompt: _Prompt) -> None:
        if not prompt.tokens or any(cached.contains(prompt) for cached in self._cache):
            return
        if self._limit is not None and prompt.tokens > self._limit:
            return
        self._cache = [cached for cached in self._cache if not prompt.contains(cached)]
        self._cache.append(prompt)
        self.saved += prompt.tokens
        if self._limit is None:
            return
        held = sum(cached.tokens for cached in self._cache)
        while held > self._limit and len(self._cache) > 1:
            oldest = self._cache.pop(0)
            held -= oldest.tokens
            self.evicted += oldest.tokens

    def _save_others(self) -> None:
        for slot in self._slots:
            if not slot.busy and slot.prompt.tokens:
                self._save(slot.prompt)
                if self._unified:
                    slot.prompt = _Prompt()

    def _purge(self, tokens: int) -> None:
        """Empty idle slots, the first first, until a shared buffer has room."""
        if not self._unified or self._context is None:
            return
        for slot in self._slots:
            if sum(s.prompt.tokens for s in self._slots) <= self._context:
                return
            if not slot.busy and slot.prompt.tokens:
                self.evicted += slot.prompt.tokens
                slot.prompt = _Prompt()
