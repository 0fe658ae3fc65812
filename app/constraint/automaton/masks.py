"""Token masks: the tokens after which an answer can still be finished.

Inside a JSON string of ``low`` to ``high`` more characters, the tokens that stay within the string
are looked up by length, and only the endings of tokens that cross its closing quote are walked. So
no state of a bounded repetition is expanded for its mask. Masks of other states are put together by
``parts``. Masks are memoised per state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.bits import fingerprint, finish, set_bits, set_crossing
from app.constraint.automaton.distances import Distances
from app.constraint.automaton.parts import Parts
from app.constraint.automaton.trie import Int32s
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.automaton.walks import Walks
from app.core.constraint import Mask
from app.core.errors import ConstraintTooComplex

_OWED_IN_CHARACTER = 12
"""Maximum bytes, and so tokens, to complete a string character: \\ud83d\\ude00."""

_LOOK_UPS_PER_STEP = 4
"""Cached facts of states that are looked up in the time of one step of work."""

_MOST_TAILS = 1 << 14
"""Maximum cached results of ``can_extend``."""


@dataclass(frozen=True, slots=True)
class InString:
    """A state inside a JSON string: ``low`` to ``high`` more characters, then ``tail``.

    ``spelling`` is the index of its characters' spelling in ``VocabularyIndex.strings``.
    """

    spelling: int
    low: int
    high: int
    tail: State


class Masks:
    """Masks of one automaton over one vocabulary. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex, distances: Distances) -> None:
        self.automaton = automaton
        self.index = index
        self._distances = distances
        self._walks = Walks(automaton, index.longest)
        self._parts = Parts(automaton, index, self._walks)
        self._masks: dict[State, Mask] = {}
        self._shared: dict[InString, Mask] = {}
        self._far_bytes: dict[State, int] = {}
        """By state: the maximum bytes of a shortest completion after any allowed token."""
        self._far_tokens: dict[State, int] = {}
        """The same in tokens; an upper bound inside strings."""
        self._spellings = {each: number for number, each in enumerate(automaton.characters)}
        self._distinct: dict[int, Mask] = {}
        """Different masks, by their fingerprints."""
        self._extends: dict[tuple[State, bytes], bool] = {}

    def __len__(self) -> int:
        """Number of cached masks. Any thread may read it."""
        return len(self._masks)

    @property
    def nbytes(self) -> int:
        """Memory in bytes. Any thread may read it."""
        entries = len(self._masks) + len(self._distances) + len(self._far_bytes)
        return (
            len(self._distinct) * (self.index.words * 4 + 250)
            + 150 * entries
            + 250 * len(self._extends)
            + self._parts.nbytes
        )

    def mask(self, state: State) -> Mask:
        """Tokens allowed in ``state``, with end of sequence if it is accepting."""
        mask = self._masks.get(state)
        if mask is None:
            plain = self.automaton.without_marks(state)
            if plain != state:
                mask = self.mask(plain)
                self._far_bytes[state] = self._far_bytes[plain]
            else:
                mask = self._computed(state)
            self._masks[state] = mask
        return mask

    def budget_mask(self, state: State, budget: int) -> Mask:
        """Tokens of ``mask`` after which ``budget - 1`` more tokens can finish the answer.

        Cost: a look-up if the budget suffices after every allowed token, else a walk.
        """
        mask = self.mask(state)
        self._distances.resume(state)
        far = self._far_bytes[state]
        if budget > far:
            return mask
        if far <= budget * self.index.longest and budget > self._farthest_tokens(state):
            return mask
        return self._narrowed(state, budget)

    def _narrowed(self, state: State, budget: int) -> Mask:
        """``budget_mask`` if the budget may be too small after some of the tokens."""
        found = self._walks.all(self.index.trie, state)
        near = np.zeros(len(self.automaton), np.bool_)
        ends = sorted(self._walks.ends(found))
        self.automaton.derivatives.spend(len(ends) // _LOOK_UPS_PER_STEP)
        for end in ends:
            near[end] = self._distances.fits(end, budget - 1)
        mask = self.packed(state, found[near[found[:, 1]]])
        if not mask.any():
            raise _no_way()
        return mask

    def can_extend(self, state: State, tail: bytes) -> bool:
        """Whether some token is ``tail`` and then something that may follow ``state``. Memoised."""
        key = (state, tail)
        known = self._extends.get(key)
        if known is None:
            known = self._walks.any(self.index.trie, state, tail)
            if len(self._extends) >= _MOST_TAILS:
                self._extends.clear()
            self._extends[key] = known
        return known

    def is_quoted(self, state: State) -> bool:
        """Whether ``state`` is visibly inside a string that ends with the next quote."""
        here = self.automaton.expression(state)
        split = self._parts.bounds.split(self.automaton.derivatives.without_marks(here))
        return split is not None and self.automaton.leading_literal(split[1])[:1] == b'"'

    def in_string(self, state: State) -> InString | None:
        """The rest of the JSON string that ``state`` is in; None if it is not between two of its
        characters."""
        found = self.automaton.pool.leading_repetition(self.automaton.expression(state))
        if found is None:
            return None
        head, tail = found
        character, low, high = self.automaton.pool.operands[head]
        spelling = self._spellings.get(character)
        if spelling is None or self.automaton.pool.nullable[tail]:
            return None
        derivatives = self.automaton.derivatives
        row = derivatives.row(character)
        if any(a & b for a, _ in derivatives.row(tail) for b, _ in row):
            return None
        longest = self.index.longest + 1
        high = longest if high is None else min(high, longest)
        return InString(spelling, min(low, longest), high, self.automaton.state(tail))

    def _computed(self, state: State) -> Mask:
        inside = self.in_string(state)
        return self._string_mask(state, inside) if inside else self._new_mask(state)

    def _string_mask(self, state: State, inside: InString) -> Mask:
        strings = self.index.strings[inside.spelling]
        after = self._walks.all(strings.endings, inside.tail)
        owed = self.automaton.length(state) + _OWED_IN_CHARACTER
        self._far_bytes[state] = self._farthest_bytes(after, owed)
        known = self._shared.get(inside)
        if known is not None:
            return known
        within = strings.within_mask(inside.high)
        mask = self.index.new_mask() if within is None else within.copy()
        set_crossing(
            mask,
            after,
            np.zeros(strings.endings.strings, np.bool_),
            strings.ending,
            strings.characters,
            strings.token,
            inside.low,
            inside.high,
        )
        mask = self._shared[inside] = self._once(mask)
        return mask

    def _new_mask(self, state: State) -> Mask:
        mask = self.index.new_mask()
        try:
            far = self._parts.fill(state, mask, self._whole)
        except RecursionError:  # the bounds of a number nest as deeply as they have digits
            far = None
        if far is None:
            found = self._walks.all(self.index.trie, state)
            self._far_bytes[state] = self._farthest_bytes(found, 0)
            return self._once(self.packed(state, found))
        self._far_bytes[state] = far
        finish(mask, self.index.trie.duplicates, self.index.eos, self.automaton.is_accepting(state))
        return self._once(mask)

    def _whole(self, state: State) -> tuple[Mask, int]:
        return self.mask(state), self._far_bytes[state]

    def _once(self, mask: Mask) -> Mask:
        """``mask``, or an equal one that is kept already. Read only.

        Raises ``ConstraintTooComplex`` if it allows nothing.
        """
        number = int(fingerprint(mask[: len(mask) // 2 * 2].view(np.uint64), mask[-1]))
        if number == 0:
            raise _no_way()
        mask.flags.writeable = False
        known = self._distinct.setdefault(number, mask)
        return known if known is mask or np.array_equal(known, mask) else mask

    def _farthest_bytes(self, found: Int32s, least: int) -> int:
        """Maximum length of a shortest completion after tokens of a walk; at least ``least``."""
        ends = self._walks.ends(found)
        self.automaton.derivatives.spend(len(ends) // _LOOK_UPS_PER_STEP)
        return max([least, *map(self.automaton.length, ends)])

    def _farthest_tokens(self, state: State) -> int:
        """Maximum distance after a token allowed in ``state``.

        Inside a string an upper bound: after a token that stays within it, a completion is the rest
        of a character and then a suffix of the completion of ``state``, which may begin inside one
        of its tokens.
        """
        known = self._far_tokens.get(state)
        if known is None:
            inside = self.in_string(state)
            if inside is None:
                found = self._walks.all(self.index.trie, state)
                known = 0
            else:
                found = self._walks.all(self.index.strings[inside.spelling].endings, inside.tail)
                known = self._distances.spelled(state) + self.index.longest + _OWED_IN_CHARACTER
            ends = sorted(self._walks.ends(found))
            self.automaton.derivatives.spend(len(ends) // _LOOK_UPS_PER_STEP)
            known = max([known, *map(self._distances.of, ends)])
            self._far_tokens[state] = known
        return known

    def packed(self, state: State, *walks: Int32s) -> Mask:
        """The mask of the tokens that ``walks`` found, with duplicates and end of sequence."""
        mask = self.index.new_mask()
        for found in walks:
            set_bits(mask, found[:, 0])
        finish(mask, self.index.trie.duplicates, self.index.eos, self.automaton.is_accepting(state))
        return mask


def _no_way() -> ConstraintTooComplex:
    """The error for a state from which no search found a next token."""
    return ConstraintTooComplex("search limit reached before a possible next token was found")
