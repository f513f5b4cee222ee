"""A tree of prefixes whose least recently used leaves are given back, as SGLang keeps its GPU tokens.

A node is a run of blocks that one request added; it is cut in two where a later request leaves it, and leaves as a whole.
A leaf that a running request stands on stays. Source of the rules: SGLang's RadixCache (match_prefix, insert, evict).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from servemark.predict.cache_pool import Ids

_NONE = np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class _Node:
    """A run of blocks after `parent`. `size` is its blocks: more than `ids` where a reply's are nameless."""

    parent: _Node | None
    ids: Ids
    size: int
    used_at: int = 0
    locks: int = 0
    gone: bool = False
    children: dict[int, _Node] = field(default_factory=dict)
    nameless: set[_Node] = field(default_factory=set)

    @property
    def leaf(self) -> bool:
        """Nothing follows it."""
        return not self.children and not self.nameless


def _above(node: _Node) -> _Node:
    return node.parent or node


class RadixPool:
    """Blocks of one GPU pool. `capacity` in blocks, None: without end."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.free = capacity if capacity is not None else 1 << 62
        self.used = 0
        self.evicted = 0
        self.overcommitted = 0
        self._root = _Node(None, _NONE, 0, locks=1)
        self._clock = 0
        self._heap: list[tuple[int, int, _Node]] = []
        self._pushed = 0
        self._locked = 0

    def prefix(self, ids: Ids) -> int:
        """How many of the first blocks are here; the way there is used now."""
        return self._walk(ids)[1]

    def _walk(self, ids: Ids) -> tuple[_Node, int]:
        """The deepest node whose whole run begins these blocks, and how many blocks lie up to it. A run that is left
        in its middle is cut."""
        self._clock += 1
        node, at = self._root, 0
        while at < len(ids):
            child = node.children.get(int(ids[at]))
            if child is None:
                break
            same = common_blocks(child.ids, ids[at:])
            if same < len(child.ids):
                child = self._cut(child, same)
            child.used_at = self._clock
            node, at = child, at + same
            if same == 0:
                break
        return node, at

    def _cut(self, node: _Node, at: int) -> _Node:
        """Make the first `at` blocks of a node's run its parent; a request that stands on the node stands on both."""
        parent = _above(node)
        front = _Node(parent, node.ids[:at], at, node.used_at, node.locks)
        parent.children[int(node.ids[0])] = front
        node.parent, node.ids, node.size = front, node.ids[at:], node.size - at
        front.children[int(node.ids[0])] = node
        return front

    def room(self, ids: Ids, anonymous: int) -> bool:
        """Whether these blocks, and so many nameless ones, fit beside what is in use."""
        if self.capacity is None:
            return True
        return len(ids) - self.prefix(ids) + anonymous <= self.capacity - self._locked

    def pin(self, ids: Ids, anonymous: int = 0) -> tuple[_Node, int]:
        """Use these blocks, making room for those that are not here. Returns a handle for `unpin` and how many were
        new."""
        node, at = self._walk(ids)
        self._lock(node, 1)
        new = len(ids) - at
        self._take(new + anonymous)
        self._locked += anonymous
        if new:
            fresh = _Node(node, ids[at:], new, self._clock)
            node.children[int(ids[at])] = fresh
            self._lock(node, -1)
            node = fresh
            self._lock(node, 1)
        return node, new

    def unpin(self, handle: _Node, kept_anonymous: int = 0, free_anonymous: int = 0) -> None:
        """The request has ended: its way may be given back; `kept_anonymous` blocks of its reply follow its prompt as a
        leaf of their own."""
        self._clock += 1
        self._locked -= kept_anonymous + free_anonymous
        self.free += free_anonymous
        self.used -= free_anonymous
        node: _Node | None = handle
        while node is not None:
            node.used_at = self._clock
            node = node.parent
        if kept_anonymous:
            leaf = _Node(handle, _NONE, kept_anonymous, self._clock)
            handle.nameless.add(leaf)
            self._offer(leaf)
        self._lock(handle, -1)
        if self.free < 0:
            self._evict(-self.free)

    def _lock(self, node: _Node | None, by: int) -> None:
        while node is not None and node.parent is not None:
            if node.locks == 0:
                self._locked += node.size
            node.locks += by
            if node.locks == 0:
                self._locked -= node.size
                if node.leaf:
                    self._offer(node)
            node = node.parent

    def _offer(self, node: _Node) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (node.used_at, self._pushed, node))

    def _take(self, blocks: int) -> None:
        if blocks > self.free:
            self._evict(blocks - self.free)
        if blocks > self.free:
            self.overcommitted += blocks - self.free
        self.free -= blocks
        self.used += blocks

    def _evict(self, blocks: int) -> None:
        while blocks > 0 and self._heap:
            used_at, _, node = heapq.heappop(self._heap)
            if node.gone or node.locks or not node.leaf:
                continue
            if node.used_at != used_at:
                self._offer(node)
                continue
            parent = _above(node)
            node.gone = True
            if len(node.ids):
                del parent.children[int(node.ids[0])]
            else:
                parent.nameless.discard(node)
            self.free += node.size
            self.used -= node.size
            self.evicted += node.size
            blocks -= node.size
            if parent.parent is not None and parent.leaf and not parent.locks:
                self._offer(parent)


def common_blocks(left: Ids, right: Ids) -> int:
    """Blocks that two runs begin with alike. A number stands for all before it, so equal ones form a front."""
    size = min(len(left), len(right))
    if size == 0 or left[size - 1] == right[size - 1]:
        return size
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) // 2
        if left[middle] == right[middle]:
            low = middle + 1
        else:
            high = middle
    return low
