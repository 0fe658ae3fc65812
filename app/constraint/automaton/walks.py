"""Walks of an automaton over a trie: the kernels of ``trie``, and the rows that they stop for."""

from __future__ import annotations

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.bits import different
from app.constraint.automaton.trie import DEAD, Int32s, Trie, along, walk, walk_any, walk_apart
from app.core.constraint import Mask

_ROOM = 512
"""Strings that a walk begins with room for; sixteen times that where it finds more."""


class Walks:
    """Walks over tries whose strings have at most ``longest`` bytes. One thread at a time."""

    def __init__(self, automaton: Automaton, longest: int) -> None:
        self._automaton = automaton
        self._stack = np.zeros(longest + 2, np.int32)
        self._others = np.zeros(longest + 2, np.int32)
        self._seen = np.zeros(64, np.bool_)

    def all(self, trie: Trie, state: State) -> Int32s:
        """Strings of ``trie`` that live on from ``state``: shape [N, 2], (index, next state)."""
        return self._below(trie, state, 0, trie.nodes, 0, np.empty((_ROOM, 2), np.int32), 0)

    def behind(self, trie: Trie, text: bytes, state: State) -> tuple[Int32s, int]:
        """Strings of ``trie`` that begin ``text`` or go on behind it, where ``state`` is.

        Returns them as ``all`` does, and how many begin ``text``: these come first, the shortest
        first, with their lengths in place of states.
        """
        found = np.empty((_ROOM, 2), np.int32)
        count, node = along(trie.byte, trie.skip, trie.token, np.frombuffer(text, np.uint8), found)
        if node < 0:
            return found[:count], count
        end = int(trie.skip[node])
        return self._below(trie, state, node + 1, end, len(text), found, count), count

    def _below(
        self, trie: Trie, state: State, node: int, end: int, base: int, found: Int32s, count: int
    ) -> Int32s:
        automaton, stack = self._automaton, self._stack
        stack[0] = state
        while node < end:
            automaton.expand(int(stack[trie.depth[node] - base]))
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk(
                *trie.arrays, node, end, base, rows, transitions, stack, found, count
            )
            found = _with_room(found, count, trie)
        return found[:count]

    def apart(self, trie: Trie, state: State, near: State, mask: Mask) -> Int32s:
        """Edit ``mask``, that of ``near``, to be that of ``state``, but for duplicates and ends.

        Returns the live tokens of ``state`` that lead elsewhere than from ``near``, as ``all``.
        """
        automaton, stack, others = self._automaton, self._stack, self._others
        found = np.empty((_ROOM, 2), np.int32)
        stack[0], others[0] = state, near
        node, count = 0, 0
        while node < trie.nodes:
            level = trie.depth[node]
            automaton.expand(int(stack[level]))
            other = int(others[level])
            if other != DEAD:
                automaton.expand(other)
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk_apart(
                *trie.arrays, node, rows, transitions, stack, others, mask, found, count
            )
            found = _with_room(found, count, trie)
        return found[:count]

    def any(self, trie: Trie, state: State, tail: bytes) -> bool:
        """Whether some string of ``trie`` is ``tail`` and then something that lives from there."""
        automaton, stack = self._automaton, self._stack
        node = trie.find(tail)
        if node < 0:
            return False
        end, base = int(trie.skip[node]), len(tail)
        stack[0] = state
        node += 1
        while 0 <= node < end:
            automaton.expand(int(stack[trie.depth[node] - base]))
            rows, transitions = automaton.rows, automaton.transitions
            node = walk_any(*trie.arrays, node, end, base, rows, transitions, stack)
        return node < 0

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


def _with_room(found: Int32s, count: int, trie: Trie) -> Int32s:
    """``found``, or a larger one with the same beginning where it is full."""
    if count < len(found):
        return found
    larger = np.empty((min(16 * len(found), trie.strings + 1), 2), np.int32)
    larger[:count] = found
    return larger
