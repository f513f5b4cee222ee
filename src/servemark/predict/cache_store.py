"""A store that all workers share, as Mooncake's master keeps its objects: a high watermark, an evicted share, a lease.

Above the watermark (or when a write finds no room) the objects whose leases ran out longest ago are dropped: at least
`evict_ratio` of all. Looking an object up renews its lease; a written one has none. A write that finds no room is lost.
The store knows nothing of prefixes: of objects whose leases end together, the one written first goes first.
Source: Mooncake `MasterService::EvictionThreadFunc` and `BatchEvict`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from servemark.predict.cache_pool import Ids, LruPool


class SharedStore:
    """Objects by number. `capacity` in blocks; sizes and rules as CacheConfig has them."""

    def __init__(
        self,
        capacity: int | None,
        state_blocks: int | None = None,
        *,
        high_watermark: float = 0.95,
        evict_ratio: float = 0.10,
        lease_s: float = 60.0,
    ) -> None:
        self.capacity = capacity
        self.used = 0
        self.evicted = 0
        self.rejected = 0
        """Blocks whose write found no room."""
        self._pool = LruPool(None, state_blocks)
        self._watermark = high_watermark
        self._ratio = evict_ratio
        self._lease = lease_s
        self._until = np.full(1024, np.nan)

    def _grow(self, ids: Ids) -> None:
        number = int(ids.max()) + 1 if len(ids) else 0
        have = len(self._until)
        if number > have:
            self._pool.grow(number)  # says so when there are too many
            size = max(number, have + have // 2)
            self._until = np.concatenate([self._until, np.full(size - have, np.nan)])

    def present(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of the objects are here."""
        self._grow(ids)
        here: npt.NDArray[np.bool_] = np.logical_not(np.isnan(self._until[ids]))
        return here

    def renew(self, ids: Ids, now_s: float) -> None:
        """These objects, all here, were looked up."""
        self._until[ids] = np.maximum(self._until[ids], now_s + self._lease)

    def put(self, ids: Ids, now_s: float) -> int:
        """Write the objects that are not here. Returns blocks written."""
        new = ids[~self.present(ids)]
        if not len(new):
            return 0
        weights = self._pool.weigh(new)
        wanted = int(weights.sum())
        if self.capacity is not None and self.used + wanted > self.capacity:
            self._evict(now_s, need=self.used + wanted - self.capacity)
            fits = int(np.searchsorted(np.cumsum(weights), self.capacity - self.used, side="right"))
            self.rejected += wanted - int(weights[:fits].sum())
            new, weights = new[:fits], weights[:fits]
        self._until[new] = now_s
        written = int(weights.sum())
        self.used += written
        if self.capacity is not None and self.used > self._watermark * self.capacity:
            self._evict(now_s, need=0)
        return written

    def _evict(self, now_s: float, need: int) -> None:
        """One round: the watermark's share of all objects, and again while a write needs more and leases allow it."""
        capacity = self.capacity or 0
        while True:
            here = np.flatnonzero(~np.isnan(self._until))
            over = self.used / capacity - self._watermark if capacity else 1.0
            share = min(1.0, max(self._ratio, over + self._ratio))
            count = math.ceil(len(here) * share)
            free = here[self._until[here] <= now_s]
            gone = free[np.lexsort((free, self._until[free]))][:count]
            freed = int(self._pool.weigh(gone).sum())
            self._until[gone] = np.nan
            self.used -= freed
            self.evicted += freed
            need -= freed
            if need <= 0 or not len(gone):
                return
