"""A tree of prompts as runs of tokens, and a walk through it that learns the prompt while it looks for it.

A piece is (key, name, tokens): a run of tokens that is shared as a whole or in part. Equal names and tokens have equal
keys; of two pieces of one name the shorter is a prefix of the longer.
"""

from __future__ import annotations

from collections.abc import Sequence

Piece = tuple[int, int, int]
TOKEN_BITS = 24
"""A block has fewer than 2^24 tokens."""


class PrefixTree:
    """All prompts so far. Node 0 is the empty prefix. What follows a piece that no other session has is `local`,
    and is let go of with its session."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._keys: dict[tuple[int, int], int] = {}
        self._nodes = 0
        self._shared: tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]] = ({}, {})
        self._local: tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]] = ({}, {})

    def named(self, name: str, tokens: int) -> Piece:
        """The piece of a name; its numbers are not negative, which leaves the negative ones to others."""
        number = self._numbers.setdefault(name, len(self._numbers))
        return self._keys.setdefault((number, tokens), len(self._keys)), number, tokens

    def forget_local(self) -> None:
        """A session has ended."""
        for part in self._local:
            part.clear()

    def walk(self, node: int = 0, passed: int = 0, *, local: bool = False) -> Walk:
        """A walk from the empty prefix, or on from a node that an earlier one reached after `passed` tokens."""
        return Walk(self, node, passed, local=local)


class Walk:
    """`node` is the place reached, `passed` the tokens up to it, `shared` those that were known when they came."""

    __slots__ = ("_children", "_known", "_longest", "_tree", "node", "passed", "shared")

    def __init__(self, tree: PrefixTree, node: int, passed: int, *, local: bool) -> None:
        self._tree = tree
        self._children, self._longest = tree._local if local else tree._shared
        self._known = True
        self.node = node
        self.passed = self.shared = passed

    def go_local(self) -> None:
        """From here on no other session can follow."""
        self._children, self._longest = self._tree._local

    def step(self, piece: Piece) -> bool:
        """On by one piece; True when the whole prompt up to and with it was known."""
        key, name, tokens = piece
        node = self.node
        self.passed += tokens
        if self._known:
            child = self._children.get((node, key))
            if child is not None:
                self.node = child
                self.shared = self.passed
                return True
            self._known = False
            self.shared += min(tokens, self._longest.get((node, name), 0))
        spot = (node, name)
        if tokens > self._longest.get(spot, 0):
            self._longest[spot] = tokens
        self._tree._nodes += 1
        self._children[node, key] = self.node = self._tree._nodes
        return False

    def blocks(self, ids: Sequence[int], sizes: Sequence[int], nodes: list[int], counted: list[int]) -> int:
        """On by blocks of ids and sizes in tokens; `nodes` and `counted` grow by the place and the tokens after each.
        Returns how many were known with all before them. As `step` for each, in one loop."""
        node, passed, number = self.node, self.passed, self._tree._nodes
        children, longest = self._children, self._longest
        known, found = self._known, 0
        for block, tokens in zip(ids, sizes, strict=True):
            key = node, -1 - (block << TOKEN_BITS | tokens)
            passed += tokens
            if known:
                child = children.get(key)
                if child is not None:
                    node = child
                    found += 1
                    nodes.append(node)
                    counted.append(passed)
                    continue
                known = False
                self.shared = passed - tokens + min(tokens, longest.get((node, -1 - block), 0))
            spot = node, -1 - block
            if tokens > longest.get(spot, 0):
                longest[spot] = tokens
            number += 1
            children[key] = node = number
            nodes.append(node)
            counted.append(passed)
        if known:
            self.shared = passed
        self.node, self.passed, self._tree._nodes, self._known = node, passed, number, known
        return found
