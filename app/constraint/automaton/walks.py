"""Walks of an automaton over a trie: the kernels of ``trie``, and the rows that they stop for."""

from __future__ import annotations

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import DEAD, Int32s, Trie, walk, walk_any, walk_apart
from app.core.constraint import Mask


class Walks:
    """Walks over tries whose strings have at most ``longest`` bytes. One thread at a time."""

    def __init__(self, automaton: Automaton, longest: int) -> None:
        self._automaton = automaton
        self._stack = np.zeros(longest + 2, np.int32)
        self._others = np.zeros(longest + 2, np.int32)

    def _expand(self, state: State) -> None:
        self._automaton.expand(state)

    def all(self, trie: Trie, state: State) -> Int32s:
        """Strings of ``trie`` that live on from ``state``: shape [N, 2], (index, next state)."""
        automaton, stack = self._automaton, self._stack
        found = np.empty((trie.strings, 2), np.int32)
        stack[0] = state
        node, count = 0, 0
        while node < trie.nodes:
            self._expand(int(stack[trie.depth[node]]))
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk(*trie.arrays, node, rows, transitions, stack, found, count)
        return found[:count]

    def apart(self, trie: Trie, state: State, near: State, mask: Mask) -> Int32s:
        """Edit ``mask``, that of ``near``, to be that of ``state``, but for duplicates and ends.

        Returns the live tokens of ``state`` that lead elsewhere than from ``near``, as ``all``.
        """
        automaton, stack, others = self._automaton, self._stack, self._others
        found = np.empty((trie.strings, 2), np.int32)
        stack[0], others[0] = state, near
        node, count = 0, 0
        while node < trie.nodes:
            level = trie.depth[node]
            self._expand(int(stack[level]))
            other = int(others[level])
            if other != DEAD:
                self._expand(other)
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk_apart(
                *trie.arrays, node, rows, transitions, stack, others, mask, found, count
            )
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
            self._expand(int(stack[trie.depth[node] - base]))
            rows, transitions = automaton.rows, automaton.transitions
            node = walk_any(*trie.arrays, node, end, base, rows, transitions, stack)
        return node < 0
