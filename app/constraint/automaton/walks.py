"""Walks of an automaton over a trie: the kernels of ``trie``, and the rows that they stop for."""

from __future__ import annotations

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.bits import different
from app.constraint.automaton.trie import Int32s, Trie, walk, walk_any

_ROOM = 512
"""Strings that a walk begins with room for; sixteen times that where it finds more."""

TOKENS_PER_STEP = 128
"""Tokens and exits that a walk finds in the time of one step of work."""


class Walks:
    """Walks over tries whose strings have at most ``longest`` bytes. One thread at a time."""

    def __init__(self, automaton: Automaton, longest: int) -> None:
        self._automaton = automaton
        self._stack = np.zeros(longest + 2, np.int32)
        self._seen = np.zeros(64, np.bool_)

    def all(self, trie: Trie, state: State) -> Int32s:
        """Strings of ``trie`` that live on from ``state``: shape [N, 2], (index, next state)."""
        return self.below(trie, state, b"")

    def below(self, trie: Trie, state: State, text: bytes) -> Int32s:
        """Strings that are ``text`` and then something that lives on from ``state``, as ``all``."""
        automaton, stack = self._automaton, self._stack
        found = np.empty((_ROOM, 2), np.int32)
        node, end, base = trie.below(text)
        stack[0] = state
        count = 0
        while node < end:
            automaton.expand(int(stack[trie.depth[node] - base]))
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk(
                *trie.arrays, node, end, base, rows, transitions, stack, found, count
            )
            found = with_room(found, count, trie.strings + 1)
        automaton.derivatives.spend(count // TOKENS_PER_STEP)
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


def with_room(array: Int32s, used: int, most: int) -> Int32s:
    """``array``, or where it is full a larger one with the same beginning, of ``most`` at most."""
    if used < len(array):
        return array
    larger = np.empty((min(16 * len(array), most), *array.shape[1:]), np.int32)
    larger[:used] = array
    return larger
