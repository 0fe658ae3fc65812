"""Heads with both a pattern and a bounded number of characters: counted, not unrolled.

``^(\\S+\\s+){0,99}\\S+$`` with a ``maxLength`` would have a state for each length at each state of
the pattern. Here the pattern's own states are walked, and the characters are counted separately. A
token is allowed if the pattern's shortest completion fits into the characters that are left. Only
tokens for which this is uncertain are tried on the bounded language.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.automaton import START, Automaton, State
from app.constraint.automaton.shared_languages import Head, new_head
from app.constraint.automaton.trie import DEAD, Int32s
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.automaton.walks import TOKENS_PER_STEP, walk_counted, walk_ends
from app.constraint.language.expressions import Counted, Expression
from app.constraint.language.widths import is_elastic, rounds_in

_UNBOUNDED = 1 << 29

_REST_WORK = 10
"""Steps of work for a ``_Rest``, besides those for the length of its text."""


class _Rest(NamedTuple):
    """Bounds of the rest of a string, from a state of the pattern, perhaps inside a character."""

    least: int
    most: int
    """Characters, as ``least``."""
    length: int
    """Bytes of a shortest rest."""
    rounds: int
    """Characters of the same rest; -1 if unknown."""
    grows: int
    """Letters by which it can surely grow."""


class CountedHeads:
    """Computes such heads, of one automaton over one vocabulary. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex) -> None:
        self._automaton = automaton
        self._index = index
        self._stacks = np.zeros((3, index.longest + 2), np.int32)
        self._rests: dict[tuple[State, State, Expression, int], _Rest] = {}
        """Cache of ``_rest``."""

    def head(self, head: Expression, text: bytes) -> Head | None:
        """The tokens that ``head`` allows after ``text``; None if it counts no characters."""
        pool = self._automaton.pool
        counted = pool.counted(head)
        if counted is None or counted.round not in self._automaton.characters or is_free(counted):
            return None
        high = _UNBOUNDED if counted.high is None else counted.high
        automaton = self._automaton
        stack, progress, units = self._stacks
        pattern = pool.intersect((counted.pattern, pool.repeat(counted.round)))
        character = self._index.characters[automaton.characters.index(counted.round)]
        stack[0], progress[0], units[0] = automaton.state(pattern), START, 0
        found, exits, continues = walk_ends(
            automaton, self._index.trie, text, 4, walk_counted, stack,
            *character, START, counted.low, high, progress, units,
        )  # fmt: skip
        lives, far = self._lives(automaton.state(head), found, len(text), counted, high)
        return new_head(found[lives, 0], far, exits, continues, self._index.words)

    def _lives(
        self, head: State, found: Int32s, begun: int, counted: Counted, high: int
    ) -> tuple[NDArray[np.bool_], int]:
        """Which of ``found`` are allowed, and the maximum bytes from these to the end."""
        automaton = self._automaton
        if not len(found):
            return np.empty(0, np.bool_), 0
        steps = len(self._index.characters[automaton.characters.index(counted.round)][0])
        ends, which = _ranked(found[:, 1] * steps + found[:, 2])
        automaton.derivatives.spend(len(ends) // 4 + len(found) // TOKENS_PER_STEP)
        rests = [self._rest(end // steps, end % steps, counted) for end in ends.tolist()]
        least, most, length, rounds, grows = np.array(rests, np.int32)[which].T
        written = found[:, 3]
        added = np.maximum(counted.low - written - rounds, 0)
        lives = (rounds >= 0) & (written + rounds + added <= high) & (added <= grows)
        far = int((length + added)[lives].max(initial=0))
        dies = (written + least > high) | (written + most < counted.low)
        doubtful = np.flatnonzero(~(lives | dies))
        if len(doubtful):
            keys, which = _ranked(which[doubtful] * (self._index.longest + 1) + written[doubtful])
            examples = np.empty(len(keys), np.int32)
            examples[which] = doubtful
            after = []
            for index in examples.tolist():
                data = self._index.token_bytes[int(found[index, 0])] or b""
                after.append(automaton.step(head, data[begun:]))
            far = max([far, *(automaton.length(end) for end in after if end != DEAD)])
            lives[doubtful] = (np.array(after) != DEAD)[which]
        return lives, far

    def _rest(self, state: State, progress: State, counted: Counted) -> _Rest:
        """The rest from ``state`` of the pattern and ``progress`` inside a character. Memoised."""
        key = (state, progress, counted.round, counted.low)
        known = self._rests.get(key)
        if known is None:
            known = self._rests[key] = self._new_rest(state, progress, counted)
        return known

    def _new_rest(self, state: State, progress: State, counted: Counted) -> _Rest:
        automaton, derivatives = self._automaton, self._automaton.derivatives
        pool, here, first = automaton.pool, automaton.expression(state), 0
        derivatives.spend(_REST_WORK)
        if progress != START:
            text = derivatives.shortest(here)
            character, whole = self._index.characters[automaton.characters.index(counted.round)]
            while progress != START and first < len(text):
                here = derivatives.derivative_of(here, text[first])
                progress = int(character[progress, text[first]])
                if whole[progress]:
                    progress = START
                first += 1
            if progress != START:
                return _Rest(0, _UNBOUNDED, 0, -1, 0)
        bound = pool.counted(here)
        if bound is not None and bound.round == counted.round and is_free(bound):
            here = bound.pattern
        rounds, length, grows = -1, 0, 0
        if derivatives.is_alive(here):
            text = derivatives.shortest(here)
            derivatives.spend(len(text) // 16)
            known = rounds_in(derivatives, counted, text)
            if known is not None:
                rounds, length = known, first + len(text)
                if is_elastic(derivatives, here, counted.low, counted.letters):
                    grows = counted.low
        least, most = 0, _UNBOUNDED
        position = derivatives.widths.counting(counted.round)
        if not first and position is not None:
            least, most = derivatives.widths.bounds(here, position)
        return _Rest(min(least, _UNBOUNDED), min(most, _UNBOUNDED), length, rounds, grows)


def is_free(counted: Counted) -> bool:
    """Whether the number of rounds is not bounded."""
    return not counted.low and counted.high is None


def _ranked(keys: Int32s) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """As ``np.unique`` with the inverse; faster for small natural keys: nothing is sorted."""
    seen = np.zeros(int(keys.max()) + 1, np.bool_)
    seen[keys] = True
    different = np.flatnonzero(seen)
    ranks = np.empty(len(seen), np.intp)
    ranks[different] = np.arange(len(different))
    return different, ranks[keys]
