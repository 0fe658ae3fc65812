"""The vocabulary as a preorder trie in flat arrays, and the compiled walks over it.

A node stands for a prefix of some token. Nodes are numbered in preorder, so the subtree of node i
is ``i .. skip[i] - 1``, and a walk that meets a dead end jumps to ``skip[i]``. The kernels release
the GIL and are compiled once per machine (numba's cache).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel

Int32s = NDArray[np.int32]
UInt8s = NDArray[np.uint8]

DEAD = 0
"""The automaton's state from which no answer can be completed, in transition tables."""

NODES_PER_STEP = 128
"""Nodes that a kernel visits in the time of one step of work."""


@dataclass(frozen=True, slots=True)
class Trie:
    """Byte strings as a preorder trie. Arrays have one entry per node if not said otherwise."""

    byte: UInt8s
    depth: Int32s
    """Length of the node's prefix minus one: 0 for first bytes."""
    skip: Int32s
    token: Int32s
    """Index of the string that ends here, -1 if none does."""
    duplicates: Int32s
    """Shape [D, 2]: (index in ``token``, index of another string with the same bytes)."""

    strings: int
    """Number of different strings."""

    @property
    def nodes(self) -> int:
        return len(self.byte)

    @property
    def arrays(self) -> tuple[UInt8s, Int32s, Int32s, Int32s]:
        """The first arguments of the walks."""
        return self.byte, self.depth, self.skip, self.token

    @classmethod
    def build(cls, strings: Sequence[bytes | None]) -> Trie:
        """The trie of ``strings`` by their index; None and b"" have no node."""
        first: dict[bytes, int] = {}
        for index, text in enumerate(strings):
            if text:
                first.setdefault(text, index)
        duplicates = [(first[s], i) for i, s in enumerate(strings) if s and first[s] != i]
        texts = sorted(first)
        unique = [first[text] for text in texts]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        flat = np.frombuffer(b"".join(texts), dtype=np.uint8)
        byte, depth, skip, token = _build_nodes(flat, ends, np.array(unique, dtype=np.int32))
        pairs = np.array(duplicates, dtype=np.int32).reshape(-1, 2)
        return cls(byte, depth, skip, token, pairs, len(unique))

    def find(self, text: bytes) -> int:
        """The node of prefix ``text`` (one or more bytes), or -1."""
        return int(_find(self.byte, self.skip, np.frombuffer(text, dtype=np.uint8)))

    def below(self, text: bytes) -> tuple[int, int, int]:
        """The nodes of longer prefixes than ``text``: the first, the end, and its depth."""
        if not text:
            return 0, self.nodes, 0
        node = self.find(text)
        return (node + 1, int(self.skip[node]), len(text)) if node >= 0 else (0, 0, len(text))


@kernel()
def _build_nodes(
    flat: UInt8s, ends: NDArray[np.int64], unique: Int32s
) -> tuple[UInt8s, Int32s, Int32s, Int32s]:
    """Nodes of sorted, distinct strings; ``flat`` holds them end to end."""
    count = len(flat)
    byte = np.empty(count, np.uint8)
    depth = np.empty(count, np.int32)
    skip = np.empty(count, np.int32)
    token = np.full(count, -1, np.int32)
    longest = 1
    previous_end = 0
    for end in ends:
        longest = max(longest, end - previous_end)
        previous_end = end
    path = np.empty(longest, np.int32)  # nodes of the current string's prefixes
    path_length = 0
    nodes = 0
    start = 0
    for string in range(len(ends)):
        length = ends[string] - start
        shared = 0
        while (
            shared < path_length and shared < length and byte[path[shared]] == flat[start + shared]
        ):
            shared += 1
        for level in range(shared, path_length):
            skip[path[level]] = nodes
        for level in range(shared, length):
            byte[nodes] = flat[start + level]
            depth[nodes] = level
            path[level] = nodes
            nodes += 1
        path_length = length
        token[nodes - 1] = unique[string]
        start = ends[string]
    for level in range(path_length):
        skip[path[level]] = nodes
    return byte[:nodes].copy(), depth[:nodes].copy(), skip[:nodes].copy(), token[:nodes].copy()


@kernel()
def _find(byte: UInt8s, skip: Int32s, text: UInt8s) -> int:
    node, end = 0, len(byte)
    for position in range(len(text)):
        while node < end and byte[node] != text[position]:
            node = skip[node]
        if node >= end:
            return -1
        if position < len(text) - 1:
            end = skip[node]
            node += 1
    return node


@kernel()
def walk(
    byte: UInt8s, depth: Int32s, skip: Int32s, token: Int32s, node: int, end: int, base: int,
    rows: Int32s, transitions: Int32s, stack: Int32s, found: Int32s, count: int,
) -> tuple[int, int]:  # fmt: skip
    """Run the automaton over the nodes from ``node`` to ``end``; returns (node, count) at its stop.

    ``stack[d]`` is the state before a byte at depth ``base`` + d; the caller sets ``stack[0]``.
    ``rows[state]`` is the state's row in ``transitions`` [R, 256], -1 if not computed yet. The walk
    stops at a node whose state ``stack[depth[node] - base]`` has no row, or if ``found`` is full,
    to be called again from there. ``found[:count]`` [N, 2] gets the live tokens and their states.
    """
    while node < end and count < len(found):
        level = depth[node] - base
        row = rows[stack[level]]
        if row < 0:
            break
        state = transitions[row, byte[node]]
        if state == DEAD:
            node = skip[node]
            continue
        stack[level + 1] = state
        if token[node] >= 0:
            found[count, 0] = token[node]
            found[count, 1] = state
            count += 1
        node += 1
    return node, count


@kernel()
def cover(
    byte: UInt8s, skip: Int32s, token: Int32s, text: UInt8s, tokens: Int32s, lengths: Int32s
) -> int:
    """Fewest tokens that spell each suffix of ``text``, by dynamic programming.

    ``tokens[i]``: how many spell ``text[i:]`` (2**30 if none do); ``lengths[i]``: bytes of the
    first of them. Both have ``len(text) + 1`` entries. Returns the number of nodes visited.
    """
    looked_at = 0
    size = len(text)
    tokens[size] = 0
    for start in range(size - 1, -1, -1):
        best = 1 << 30
        best_length = 0
        node, end, position = 0, len(byte), start
        while position < size:
            looked_at += 1
            while node < end and byte[node] != text[position]:
                node = skip[node]
                looked_at += 1
            if node >= end:
                break
            position += 1
            if token[node] >= 0 and tokens[position] + 1 <= best:
                best = tokens[position] + 1
                best_length = position - start
            end = skip[node]
            node += 1
        tokens[start] = best
        lengths[start] = best_length
    return looked_at


@kernel()
def classify(
    byte: UInt8s, depth: Int32s, skip: Int32s, token: Int32s,
    transitions: Int32s, accepting: NDArray[np.bool_], start: int, need: Int32s, crossing: Int32s,
) -> None:  # fmt: skip
    """Classify tokens inside a run of units of a prefix code (string characters).

    The unit's automaton has ``transitions`` [S, 256] and accepting states that nothing follows.
    ``need[token]``: units that a token within the run takes up, a last partial one included.
    ``crossing[token]``: (whole units before it leaves the run, bytes before it does). Entries of
    tokens of the other kind stay as they are.
    """
    longest = 1
    for node in range(len(depth)):
        longest = max(longest, depth[node] + 1)
    states = np.empty(longest + 1, np.int32)
    units = np.zeros(longest + 1, np.int32)
    states[0] = start
    node = 0
    while node < len(byte):
        level = depth[node]
        state = transitions[states[level], byte[node]]
        if state == DEAD:
            if states[level] == start:
                for below in range(node, skip[node]):
                    if token[below] >= 0:
                        crossing[token[below], 0] = units[level]
                        crossing[token[below], 1] = level
            node = skip[node]
            continue
        units[level + 1] = units[level]
        if accepting[state]:
            state = start
            units[level + 1] += 1
        states[level + 1] = state
        if token[node] >= 0:
            need[token[node]] = units[level + 1] + (1 if state != start else 0)
        node += 1
