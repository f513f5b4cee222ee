"""A deployment's cache: workers with a GPU pool and host DRAM each, one shared store, and the way requests are routed.

A prompt's blocks are sought on the GPU, then in the worker's DRAM, then in the store, without a gap. What a lower tier has
is loaded to the GPU. When a request ends its prompt is written to the lower tiers (write-through). The last token of a
prompt is always computed, so a hit ends before it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from servemark.base.errors import input_error
from servemark.predict.cache_config import CacheConfig, StateRule
from servemark.predict.cache_pool import Ids, LruPool, as_ids, most_numbers
from servemark.predict.cache_radix import RadixPool
from servemark.predict.cache_runs import BlockRuns, RunPool, Runs, part_of, runs_of
from servemark.predict.cache_slots import SlotCache
from servemark.predict.cache_store import SharedStore
from servemark.predict.types import CacheHit, CacheRequest


@dataclass(slots=True)
class CacheCounts:
    """What a cache has done so far, in tokens (blocks times their size; a state counts as the tokens it costs)."""

    requests: int = 0
    prompt_tokens: int = 0
    gpu_tokens: int = 0
    dram_tokens: int = 0
    store_tokens: int = 0
    looked_up_blocks: int = 0
    evicted_gpu_tokens: int = 0
    evicted_dram_tokens: int = 0
    evicted_store_tokens: int = 0
    loaded_tokens: int = 0
    written_dram_tokens: int = 0
    written_store_tokens: int = 0
    rejected_store_tokens: int = 0
    overcommitted_tokens: int = 0

    def to_json(self) -> dict[str, int]:
        """Name -> count."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def written_tokens(request: CacheRequest) -> int:
    """Tokens of prompt and reply that an engine keeps: the last one of a reply is never computed."""
    return request.input_tokens + max(0, (request.output_tokens or 0) - 1)


@dataclass(slots=True)
class _Held:
    """What a running request holds of its worker."""

    worker: int
    handle: object
    entries: Any
    nameless: int


class _RunWorker:
    """GPU pool and DRAM of one worker in runs of blocks: vLLM's rules for a model without states, as `_BlockWorker`."""

    radix: None = None

    def __init__(
        self, config: CacheConfig, store: SharedStore | None, counts: CacheCounts, most: int
    ) -> None:
        self._size = config.block_tokens
        self._token_bytes = config.token_bytes
        self._store = store
        self._counts = counts
        gpu, dram = config.blocks(config.gpu_tokens), config.blocks(config.dram_tokens)
        self.lru = RunPool(gpu, most=most) if gpu != 0 else None
        self.dram = RunPool(dram, most=most) if config.dram_tokens != 0 else None

    def room(self, request: CacheRequest) -> bool:
        """Whether its blocks fit beside those in use."""
        if self.lru is None or self.lru.capacity is None:
            return True
        size = self._size
        full = request.input_tokens // size
        nameless = -(-written_tokens(request) // size) - full
        return self.lru.room(_whole(request, full), nameless)

    def begin(self, request: CacheRequest, now_s: float) -> tuple[CacheHit, object, Runs, int]:
        """Find and pin; the hit, no handle, the runs and the nameless blocks for `end`."""
        size, tokens = self._size, request.input_tokens
        full, limit = tokens // size, max(0, tokens - 1) // size
        runs = _whole(request, full)
        nameless = -(-written_tokens(request) // size) - full
        self._counts.looked_up_blocks += limit
        gpu = dram = store = 0
        if self.lru is not None:
            found, _ = self.lru.pin(runs, nameless)
            gpu = found if found < limit else limit
        at = gpu
        if at < limit and self.dram is not None:
            dram = self.dram.prefix(part_of(runs, at, limit))
            self.dram.touch(part_of(runs, at, at + dram))
            at += dram
        if at < limit and self._store is not None:
            ids = as_ids(BlockRuns(part_of(runs, at, limit)))
            here = self._store.present(ids)
            self._store.renew(ids[here], now_s)
            store = int(here.argmin()) if not here.all() else len(here)
        loaded = (dram + store) * size
        self._counts.loaded_tokens += loaded
        sent = round(loaded * self._token_bytes) if self._token_bytes else 0
        return CacheHit(gpu * size, dram * size, store * size, sent), None, runs, nameless

    def end(self, request: CacheRequest, held: _Held, now_s: float) -> None:
        """Give back, and write to the lower tiers."""
        size = self._size
        runs: Runs = held.entries
        kept = written_tokens(request) // size - request.input_tokens // size
        if self.lru is not None:
            self.lru.unpin(runs, kept, held.nameless - kept)
        if self.dram is not None:
            self._counts.written_dram_tokens += self.dram.touch(runs) * size
        if self._store is not None:
            self._counts.written_store_tokens += self._store.put(as_ids(BlockRuns(runs)), now_s) * size


def _whole(request: CacheRequest, full: int) -> Runs:
    """Runs of the first `full` blocks, the prompt's whole ones."""
    blocks = request.blocks
    return blocks.runs if isinstance(blocks, BlockRuns) else runs_of(blocks[:full])


class _BlockWorker:
    """GPU pool and DRAM of one worker block by block (vLLM's and SGLang's rules)."""

    def __init__(
        self, config: CacheConfig, store: SharedStore | None, counts: CacheCounts, most: int
    ) -> None:
        self._config = config
        self._states = config.states
        self._store = store
        self._counts = counts
        weight = config.state_blocks
        gpu = config.blocks(config.gpu_tokens)
        self.lru: LruPool | None = None
        self.radix: RadixPool | None = None
        if gpu != 0:
            if config.policy == "sglang":
                self.radix = RadixPool(gpu)
            else:
                self.lru = LruPool(gpu, weight, most=most)
        self.dram: LruPool | None = None
        if config.dram_tokens != 0:
            self.dram = LruPool(config.blocks(config.dram_tokens), weight, most=most)

    def _blocks(self, request: CacheRequest) -> tuple[Ids, int, int]:
        """(full blocks of the prompt, blocks that may hit, nameless blocks up to the reply's end)."""
        size = request.block_tokens
        full = request.input_tokens // size
        total = -(-written_tokens(request) // size)
        return as_ids(request.blocks)[:full], max(0, request.input_tokens - 1) // size, total - full

    def room(self, request: CacheRequest) -> bool:
        """Whether its blocks fit beside those in use."""
        ids, _, nameless = self._blocks(request)
        if self.radix is not None:
            return self.radix.room(ids, nameless)
        if self.lru is not None:
            return self.lru.room(ids * 2 if self._states else ids, nameless)
        return True

    def begin(self, request: CacheRequest, now_s: float) -> tuple[CacheHit, object, Ids, int]:
        """Find and pin; the hit, a handle, the entries and the nameless blocks for `end`."""
        ids, limit, nameless = self._blocks(request)
        self._counts.looked_up_blocks += limit
        if self._states is not None:
            hit, entries = self._begin_states(self._states, ids, limit, now_s)
        else:
            hit, entries = self._begin_plain(ids, limit, now_s), ids
        handle: object = None
        if self.radix is not None:
            handle, _ = self.radix.pin(entries, nameless)
        elif self.lru is not None:
            self.lru.pin(entries, nameless)
        return hit, handle, entries, nameless

    def _begin_plain(self, ids: Ids, limit: int, now_s: float) -> CacheHit:
        pool = self.radix or self.lru
        at = gpu = pool.prefix(ids[:limit]) if pool is not None else 0
        dram = store = 0
        if at < limit and self.dram is not None:
            dram = self.dram.prefix(ids[at:limit])
            self.dram.touch(ids[at : at + dram])
            at += dram
        if at < limit and self._store is not None:
            here = self._store.present(ids[at:limit])
            self._store.renew(ids[at:limit][here], now_s)
            store = int(here.argmin()) if not here.all() else len(here)
        return self._hit(gpu, dram, store, 0)

    def _hit(self, gpu: int, dram: int, store: int, states: int) -> CacheHit:
        """A hit from blocks by tier; `states`: states that a lower tier sent."""
        size, each = self._config.block_tokens, self._config.token_bytes
        tokens = (dram + store) * size + states * (self._states.state_tokens if self._states else 0)
        self._counts.loaded_tokens += tokens
        return CacheHit(gpu * size, dram * size, store * size, round(tokens * each) if each else 0)

    def _tiers(self, entries: Ids) -> list[npt.NDArray[np.bool_]]:
        none = np.zeros(len(entries), np.bool_)
        return [
            self.lru.present(entries) if self.lru is not None else none,
            self.dram.present(entries) if self.dram is not None else none,
            self._store.present(entries) if self._store is not None else none,
        ]

    def _begin_states(self, rule: StateRule, ids: Ids, limit: int, now_s: float) -> tuple[CacheHit, Ids]:
        """The hit ends at the last kept state within what is here of the prompt; the prompt's own states are kept."""
        blocks, states = ids * 2, ids * 2 + 1
        gpu, dram, store = self._tiers(blocks[:limit])
        here = gpu | dram | store
        reach = limit if here.all() else int(here.argmin())
        kept_gpu, kept_dram, kept_store = self._tiers(states[:reach])
        kept = np.flatnonzero(kept_gpu | kept_dram | kept_store)
        end = int(kept[-1]) + 1 if len(kept) else 0
        from_dram = int((dram & ~gpu)[:end].sum())
        from_store = int((store & ~dram & ~gpu)[:end].sum())
        sent = int(end > 0 and not kept_gpu[end - 1])
        if end and self._store is not None:
            asked = np.concatenate(
                [blocks[:end][store[:end]], states[end - 1 : end][kept_store[end - 1 : end]]]
            )
            self._store.renew(asked, now_s)
        if end and self.dram is not None:
            used = np.concatenate([blocks[:end][dram[:end]], states[end - 1 : end][kept_dram[end - 1 : end]]])
            self.dram.touch(used)
        hit = self._hit(end - from_dram - from_store, from_dram, from_store, sent)
        full = len(ids)
        marks = {full, end}
        if rule.seen_twice:
            marks.add(reach)
        if rule.every_tokens is not None:
            step = max(1, rule.every_tokens // self._config.block_tokens)
            marks |= set(range(step, full + 1, step))
        return hit, np.concatenate([blocks, states[[m - 1 for m in sorted(marks) if m > 0]]])

    def end(self, request: CacheRequest, held: _Held, now_s: float) -> None:
        """Give back, and write to the lower tiers."""
        size = request.block_tokens
        kept = written_tokens(request) // size - request.input_tokens // size
        spare = held.nameless - kept
        if self.radix is not None:
            self.radix.unpin(held.handle, kept, spare)  # type: ignore[arg-type]  # its own handle
        elif self.lru is not None:
            self.lru.unpin(held.entries, kept, spare)
        if self.dram is not None:
            self._counts.written_dram_tokens += self.dram.touch(held.entries) * size
        if self._store is not None:
            self._counts.written_store_tokens += self._store.put(held.entries, now_s) * size


def pools_of(config: CacheConfig) -> int:
    """Arrays over all distinct blocks that a simulation holds: of each worker the pool, the host cache and the stack
    distances, and the store's."""
    each = 2 + (config.dram_tokens != 0)
    return config.workers * each + (config.store_tokens != 0)


class Deployment:
    """A cache of all workers and tiers; see PrefixCache. `counts` grow as it is used. `by_block`: pools keep every block
    apart also where runs of them do the same."""

    def __init__(self, config: CacheConfig, *, by_block: bool = False) -> None:
        self.config = config
        self._counts = CacheCounts()
        most = most_numbers(pools_of(config))
        self._store: SharedStore | None = None
        if config.store_tokens != 0:
            self._store = SharedStore(
                config.blocks(config.store_tokens), config.state_blocks, high_watermark=config.high_watermark,
                evict_ratio=config.evict_ratio, lease_s=config.lease_s, most=most,
            )  # fmt: skip
        self._slots: list[SlotCache] = []
        self._workers: list[_BlockWorker | _RunWorker] = []
        kind = _BlockWorker if by_block or config.policy != "vllm" or config.states else _RunWorker
        for _ in range(config.workers):
            if config.policy == "llamacpp":
                self._slots.append(_slots(config))
            else:
                self._workers.append(kind(config, self._store, self._counts, most))
        self._random = random.Random(config.seed)  # noqa: S311 - a seeded simulation
        self._home: dict[str, int] = {}
        self._next = 0
        self._routed: dict[tuple[str, str, int], int] = {}
        self._held: dict[tuple[str, str, int], _Held] = {}

    def worker_of(self, request: CacheRequest) -> int:
        """The worker that a request goes to, the same whenever it is asked. affinity: a session tree stays with one,
        new trees go round; random: seeded; round-robin: request by request."""
        key = request.tree, request.stream, request.number
        found = self._routed.get(key)
        if found is not None:
            return found
        routing, workers = self.config.routing, self.config.workers
        if workers == 1:
            worker = 0
        elif routing == "random":
            worker = self._random.randrange(workers)
        elif routing == "affinity" and request.tree in self._home:
            worker = self._home[request.tree]
        else:
            worker = self._next % workers
            self._next += 1
            if routing == "affinity":
                self._home[request.tree] = worker
        self._routed[key] = worker
        return worker

    def forget(self, tree: str) -> None:
        """The tree has ended: played again it may go elsewhere. What is cached of it stays."""
        self._home.pop(tree, None)

    def room(self, request: CacheRequest) -> bool:
        """Whether its worker could begin it now beside what runs there; an engine lets it wait otherwise."""
        worker = self.worker_of(request)
        return self._slots[worker].room() if self._slots else self._workers[worker].room(request)

    def begin(self, request: CacheRequest, now_s: float) -> CacheHit:
        """See PrefixCache. Raises ServemarkError (exit code 2) for a request of other blocks than the cache's."""
        if request.block_tokens != self.config.block_tokens:
            raise input_error(
                "predict.cache.other_blocks", got=request.block_tokens, want=self.config.block_tokens
            )
        worker = self.worker_of(request)
        handle: object
        if self._slots:
            self._counts.looked_up_blocks += len(request.blocks)
            hit, handle = self._slots[worker].begin(request)
            held = _Held(worker, handle, as_ids(request.blocks), 0)
            self._counts.loaded_tokens += hit.dram_tokens
        else:
            hit, handle, entries, nameless = self._workers[worker].begin(request, now_s)
            held = _Held(worker, handle, entries, nameless)
        self._held[request.tree, request.stream, request.number] = held
        self._counts.requests += 1
        self._counts.prompt_tokens += request.input_tokens
        self._counts.gpu_tokens += hit.gpu_tokens
        self._counts.dram_tokens += hit.dram_tokens
        self._counts.store_tokens += hit.store_tokens
        return hit

    def end(self, request: CacheRequest, now_s: float) -> None:
        """See PrefixCache."""
        key = request.tree, request.stream, request.number
        held = self._held.pop(key)
        del self._routed[key]
        if self._slots:
            self._slots[held.worker].end(held.handle, request.output_tokens or 0, now_s)  # type: ignore[arg-type]
        else:
            self._workers[held.worker].end(request, held, now_s)

    @property
    def counts(self) -> CacheCounts:
        """What has happened so far."""
        found, size = self._counts, self.config.block_tokens
        if self._slots:
            found.evicted_dram_tokens = sum(s.evicted for s in self._slots)
            found.written_dram_tokens = sum(s.saved for s in self._slots)
            return found
        pools = [p for w in self._workers if (p := w.lru or w.radix) is not None]
        found.evicted_gpu_tokens = sum(p.evicted for p in pools) * size
        found.overcommitted_tokens = sum(p.overcommitted for p in pools) * size
        found.evicted_dram_tokens = sum(w.dram.evicted for w in self._workers if w.dram is not None) * size
        if self._store is not None:
            found.evicted_store_tokens = self._store.evicted * size
            found.rejected_store_tokens = self._store.rejected * size
        return found

    def held_tokens(self) -> Mapping[str, int]:
        """Tokens in use and kept, by tier, of all workers."""
        size = self.config.block_tokens
        if self._slots:
            both = [s.held for s in self._slots]
            return {"gpu": sum(g for g, _ in both), "dram": sum(d for _, d in both), "store": 0}
        return {
            "gpu": sum(p.used for w in self._workers if (p := w.lru or w.radix) is not None) * size,
            "dram": sum(w.dram.used for w in self._workers if w.dram is not None) * size,
            "store": self._store.used * size if self._store is not None else 0,
        }


def _slots(config: CacheConfig) -> SlotCache:
    return SlotCache(
        config.slots, config.dram_tokens, similarity=config.similarity, unified=config.unified,
        save_idle=config.save_idle, context_tokens=config.gpu_tokens,
    )  # fmt: skip
