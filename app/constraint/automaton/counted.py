"""Heads of a bounded number of characters that a pattern holds for, too: counted, not unrolled.

``^(\\S+\\s+){0,99}\\S+$`` with a ``maxLength`` would have a state for each length at each place of
the pattern. Here the pattern's own states are walked, and beside them the characters are counted. A
token lives on where the shortest way to the pattern's end, in bytes, is within the characters that
are left; only where bytes do not decide it is the bounded language itself asked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.automaton import START, Automaton, State
from app.constraint.automaton.heads import Head, new_head
from app.constraint.automaton.part_walks import walk_counted
from app.constraint.automaton.trie import DEAD, Int32s
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.automaton.walks import with_room
from app.constraint.language.expressions import Counted as CountedRounds
from app.constraint.language.expressions import Expression
from app.constraint.language.stretching import is_elastic

_UNBOUNDED = 1 << 30


class Counted:
    """Works out such heads, of one automaton over one vocabulary. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex) -> None:
        self._automaton = automaton
        self._index = index
        self._stacks = np.zeros((3, index.longest + 2), np.int32)

    def head(self, head: Expression, text: bytes) -> Head | None:
        """What ``head`` allows behind ``text``; None where it counts no characters."""
        pool = self._automaton.pool
        counted = pool.counted(head)
        if counted is None or counted.round not in self._automaton.characters:
            return None
        if not counted.low and counted.high is None:
            return None
        high = _UNBOUNDED if counted.high is None else counted.high
        return self._head(head, text, counted, high)

    def _head(self, head: Expression, text: bytes, counted: CountedRounds, high: int) -> Head:
        automaton, trie = self._automaton, self._index.trie
        pool, (stack, progress, units) = automaton.pool, self._stacks
        pattern = pool.intersect((counted.pattern, pool.repeat(counted.round)))
        character = self._index.characters[automaton.characters.index(counted.round)]
        found, exits = np.empty((512, 4), np.int32), np.empty(512, np.int32)
        goes_on = np.zeros(256, np.bool_)
        node, end, base = trie.below(text)
        count, left = 0, 0
        stack[0], progress[0], units[0] = automaton.state(pattern), START, 0
        while node < end:
            automaton.expand(int(stack[trie.depth[node] - base]))
            node, count, left = walk_counted(
                *trie.arrays, node, end, base, automaton.rows, automaton.transitions,
                automaton.accepting, *character, START, counted.low, high,
                stack, progress, units, found, count, exits, left, goes_on,
            )  # fmt: skip
            found = with_room(found, count, trie.strings + 1)
            exits = with_room(exits, left, trie.nodes + 1)
        lives, far = self._lives(automaton.state(head), found[:count], len(text), counted, high)
        return new_head(found[:count][lives, 0], far, exits[:left], goes_on, self._index.words)

    def _is_elastic(self, state: State, counted: CountedRounds) -> bool:
        automaton = self._automaton
        expression = automaton.expression(state)
        star = automaton.pool.repeat(counted.round)
        return is_elastic(automaton.derivatives, expression, counted.low, counted.letters, star)

    def _lives(
        self, head: State, found: Int32s, begun: int, counted: CountedRounds, high: int
    ) -> tuple[NDArray[np.bool_], int]:
        """Which of ``found`` live on, and how many bytes lead to the end at most from those."""
        automaton = self._automaton
        states = np.unique(found[:, 1])
        lengths = np.zeros(len(automaton), np.int64)
        lengths[states] = [automaton.length(state) for state in states.tolist()]
        needed = lengths[found[:, 1]]
        if counted.low:
            surely, grows = np.zeros((2, len(automaton)), np.bool_)
            for state in states.tolist():
                surely[state] = not automaton.shortest(state).translate(None, counted.letters)
                grows[state] = surely[state] and self._is_elastic(state, counted)
            wanted = counted.low - found[:, 3]
            enough = (wanted <= 0) | grows[found[:, 1]]
            enough |= surely[found[:, 1]] & (needed >= wanted)
            needed = np.maximum(needed, wanted)
            lives = enough & (found[:, 3] + needed <= high)
        else:
            lives = found[:, 3] + needed <= high
        far = int(needed[lives].max(initial=0))
        doubtful = np.flatnonzero(~lives)
        if len(doubtful):
            _, first, which = np.unique(
                found[doubtful, 1:], axis=0, return_index=True, return_inverse=True
            )
            ends = []
            for place in doubtful[first].tolist():
                data = self._index.token_bytes[int(found[place, 0])] or b""
                ends.append(automaton.step(head, data[begun:]))
            far = max([far, *(automaton.length(end) for end in ends if end != DEAD)])
            lives[doubtful] = (np.array(ends) != DEAD)[which.reshape(-1)]
        return lives, far
