"""Walks of an automaton over a trie: kernels, and the computation of rows that they lack.

If no byte both continues a head and begins its tail, they are walked one after the other, and the
result for the head is cached for any tail.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.bits import UInt32s, different
from app.constraint.automaton.trie import DEAD, Int32s, Trie, UInt8s, walk
from app.core.kernels import kernel

Bools = NDArray[np.bool_]


@kernel()
def walk_head(
    byte: UInt8s, depth: Int32s, skip: Int32s, token: Int32s, node: int, end: int, base: int,
    rows: Int32s, transitions: Int32s, accepting: Bools, stack: Int32s, found: Int32s, count: int,
    exits: Int32s, left: int, continues: Bools,
) -> tuple[int, int, int]:  # fmt: skip
    """As ``walk``, with the ends of the language; returns (node, count, left) at its stop.

    It may end at states that are ``accepting``. ``exits[:left]`` gets the nodes that leave the
    language directly after an end; ``continues[b]`` is set if byte b continues it after an end.
    """
    while node < end and count < len(found) and left < len(exits):
        level = depth[node] - base
        row = rows[stack[level]]
        if row < 0:
            break
        state = transitions[row, byte[node]]
        if accepting[stack[level]]:
            if state == DEAD:
                exits[left] = node
                left += 1
            else:
                continues[byte[node]] = True
        if state == DEAD:
            node = skip[node]
            continue
        stack[level + 1] = state
        if token[node] >= 0:
            found[count, 0] = token[node]
            found[count, 1] = state
            count += 1
        node += 1
    return node, count, left


@kernel()
def walk_exits(
    byte: UInt8s, depth: Int32s, skip: Int32s, token: Int32s,
    exits: Int32s, index: int, node: int, start: int, rows: Int32s, transitions: Int32s,
    stack: Int32s, found: Int32s, count: int,
) -> tuple[int, int, int]:  # fmt: skip
    """As ``walk`` from each node of ``exits`` down; ``start`` is the state before that node's byte.

    Returns (index, node, count) at its stop; ``node`` is -1 at an exit not begun yet.
    """
    while index < len(exits):
        top = exits[index]
        if node < 0:
            node = top
            stack[0] = start
        base, end = depth[top], skip[top]
        while node < end:
            row = rows[stack[depth[node] - base]]
            if row < 0 or count == len(found):
                return index, node, count
            state = transitions[row, byte[node]]
            if state == DEAD:
                node = skip[node]
                continue
            stack[depth[node] - base + 1] = state
            if token[node] >= 0:
                found[count, 0] = token[node]
                found[count, 1] = state
                count += 1
            node += 1
        index += 1
        node = -1
    return index, node, count


@kernel()
def clear_below(skip: Int32s, token: Int32s, nodes: Int32s, mask: UInt32s) -> None:
    """Clear the bits of the tokens at ``nodes`` and below."""
    for node in nodes:
        for below in range(node, skip[node]):
            if token[below] >= 0:
                mask[token[below] >> 5] &= ~(np.uint32(1) << np.uint32(token[below] & 31))


@kernel()
def walk_counted(
    byte: UInt8s, depth: Int32s, skip: Int32s, token: Int32s, node: int, end: int, base: int,
    rows: Int32s, transitions: Int32s, accepting: Bools, stack: Int32s,
    character: Int32s, whole: Bools, begin: int, low: int, high: int,
    progress: Int32s, units: Int32s, found: Int32s, count: int,
    exits: Int32s, left: int, continues: Bools,
) -> tuple[int, int, int]:  # fmt: skip
    """As ``walk_head``, of texts of ``low`` to ``high`` characters.

    ``character`` [S, 256] are the transitions of one character, ``whole[s]`` its accepting states;
    ``progress[d]`` is the state of the character before depth d, ``units[d]`` the number of
    complete ones. ``found`` [N, 4] gets token, state, progress and characters, with one that is
    begun; some of these tokens may not be allowed.
    """
    while node < end and count < len(found) and left < len(exits):
        level = depth[node] - base
        row = rows[stack[level]]
        if row < 0:
            break
        state = transitions[row, byte[node]]
        at = character[progress[level], byte[node]]
        between = progress[level] == begin
        if at == DEAD or (between and units[level] == high):
            state = DEAD
        if between and units[level] >= low and accepting[stack[level]]:
            if state == DEAD:
                exits[left] = node
                left += 1
            else:
                continues[byte[node]] = True
        if state == DEAD:
            node = skip[node]
            continue
        stack[level + 1] = state
        units[level + 1] = units[level] + (1 if whole[at] else 0)
        progress[level + 1] = begin if whole[at] else at
        if token[node] >= 0:
            found[count, 0] = token[node]
            found[count, 1] = state
            found[count, 2] = progress[level + 1]
            found[count, 3] = units[level + 1] + (0 if whole[at] else 1)
            count += 1
        node += 1
    return node, count, left


_ROOM = 512
"""Initial capacity for the strings that a walk finds; it grows sixteenfold."""

TOKENS_PER_STEP = 128
"""Tokens and exits that a walk finds in the time of one step of work."""


def walk_ends(
    automaton: Automaton, trie: Trie, text: bytes, columns: int,
    kernel: Callable[..., tuple[int, int, int]], stack: Int32s, *more: object,
) -> tuple[Int32s, Int32s, Bools]:  # fmt: skip
    """Run ``walk_head`` or ``walk_counted`` below ``text``, from the state ``stack[0]``.

    ``more``: arguments of the kernel between ``stack`` and ``found``. Returns ``found``, of
    ``columns`` columns, ``exits`` and ``continues``.
    """
    found, exits = np.empty((_ROOM, columns), np.int32), np.empty(_ROOM, np.int32)
    continues = np.zeros(256, np.bool_)
    node, end, base = trie.below(text)
    count, left = 0, 0
    while node < end:
        automaton.expand(int(stack[trie.depth[node] - base]))
        node, count, left = kernel(
            *trie.arrays, node, end, base, automaton.rows, automaton.transitions,
            automaton.accepting, stack, *more, found, count, exits, left, continues,
        )  # fmt: skip
        found = with_room(found, count, trie.strings + 1)
        exits = with_room(exits, left, trie.nodes + 1)
    return found[:count], exits[:left], continues


class Walks:
    """Walks over tries of strings of at most ``longest`` bytes. One thread at a time."""

    def __init__(self, automaton: Automaton, longest: int) -> None:
        self._automaton = automaton
        self._stack = np.zeros(longest + 2, np.int32)
        self._seen = np.zeros(64, np.bool_)

    def all(self, trie: Trie, state: State) -> Int32s:
        """Strings of ``trie`` allowed from ``state``: shape [N, 2], (index, next state)."""
        return self.below(trie, state, b"")

    def below(self, trie: Trie, state: State, text: bytes, enough: int | None = None) -> Int32s:
        """Strings that are ``text`` and then a text allowed from ``state``, in the form of ``all``;
        at most ``enough``, if given."""
        automaton, stack = self._automaton, self._stack
        found = np.empty((enough or _ROOM, 2), np.int32)
        node, end, base = trie.below(text)
        stack[0] = state
        count = 0
        while node < end and count != enough:
            automaton.expand(int(stack[trie.depth[node] - base]))
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk(
                *trie.arrays, node, end, base, rows, transitions, stack, found, count
            )
            found = with_room(found, count, trie.strings + 1)
        automaton.derivatives.spend(count // TOKENS_PER_STEP)
        return found[:count]

    def any(self, trie: Trie, state: State, tail: bytes) -> bool:
        """Whether some string of ``trie`` is ``tail`` and then a text allowed from ``state``."""
        return len(self.below(trie, state, tail, enough=1)) > 0

    def ends(self, found: Int32s) -> list[State]:
        """The different states that the strings in ``found`` lead to."""
        if not len(found):
            return []
        states = len(self._automaton)
        if len(self._seen) < states:
            self._seen = np.zeros(2 * states, np.bool_)
        out = np.empty(min(len(found), states), np.int32)
        listed: list[State] = out[: different(found, self._seen, out)].tolist()
        return listed


def with_room(array: Int32s, used: int, most: int) -> Int32s:
    """``array``, or if it is full a larger copy with at most ``most`` rows."""
    if used < len(array):
        return array
    larger = np.empty((min(16 * len(array), most), *array.shape[1:]), np.int32)
    larger[:used] = array
    return larger
