"""Masks where values are pieces of documents: walks over trie and document together.

A state inside a piece, and whatever tokens reach of a piece from before it, is walked by the
kernels of ``positions``; none of its states is ever expanded into a row. Tokens that stay within a
piece are told apart by what they still owe: near the end of a budget that is counted as a token a
byte, which is never too few.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from app.constraint.automaton.automaton import State
from app.constraint.automaton.bits import finish, set_bits, set_found
from app.constraint.automaton.distances import Distances
from app.constraint.automaton.masks import InString, Masks
from app.constraint.automaton.parts import Parts, Whole
from app.constraint.automaton.trie import DEAD, Int32s
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.language.expressions import Expression
from app.constraint.quotes.automaton import PieceAutomaton, PieceMet, Ways
from app.constraint.quotes.walks import PieceWalks, Reached
from app.core.constraint import Mask

_MOST_EXACT = 256
"""Tokens into a piece from before it whose distance is worked out near the end of a budget."""


class _PieceParts(Parts):
    """Parts of masks, pieces among them."""

    def __init__(
        self, automaton: PieceAutomaton, index: VocabularyIndex, walks: PieceWalks
    ) -> None:
        super().__init__(automaton, index, walks)
        self._pieces = automaton
        self._piece_walks = walks

    def _split(self, here: Expression, text: bytes, mask: Mask, whole: Whole) -> int:
        inside = self._pieces.begins_with_piece(here)
        if inside is None:
            return super()._split(here, text, mask, whole)
        trie, reached = self._index.trie, Reached()
        node, end, _ = trie.below(text)
        self._piece_walks.pieces(trie, node, end, Ways((inside,), DEAD), reached)
        for found in reached.found():
            set_found(mask, found)
        return reached.farthest(self._automaton)


class PieceMasks(Masks):
    """Masks of a constraint whose holes are filled. One thread at a time."""

    def __init__(
        self, automaton: PieceAutomaton, index: VocabularyIndex, distances: Distances
    ) -> None:
        super().__init__(automaton, index, distances)
        self._walks: PieceWalks = PieceWalks(automaton, index)
        self._parts = _PieceParts(automaton, index, self._walks)

    def walk_beginnings(self) -> None:
        """Walk from where each hole begins, which is what first masks take longest for.

        A document keeps that for all its constraints. On the thread that binds, before any state
        is visited; the interpreter is free meanwhile.
        """
        self._walks.from_beginnings()

    def _narrowed(self, state: State, budget: int) -> Mask:
        reached = self._walks.reach(state)
        is_inside = self._walks.inside(state) is not None
        mask = self.index.new_mask()
        for found in reached.ends:
            set_bits(mask, self._near_ends(found, budget))
        for found, tail in reached.within:
            left = budget - 1 - self._distances.of(tail, budget)
            near = found[:, 1] <= left
            set_found(mask, found[near])
            far_tokens = found[~near, 0]
            if not is_inside and len(far_tokens) <= _MOST_EXACT:
                set_bits(mask, self._exactly_near(state, far_tokens, budget))
        set_bits(mask, self._first_of_shortest(state, budget))
        finish(mask, self.index.trie.duplicates, self.index.eos, self.automaton.is_accepting(state))
        return mask

    def _near_ends(self, found: Int32s, budget: int) -> Int32s:
        """Of tokens with their states: those from which the budget can be kept."""
        near = np.zeros(len(self.automaton), np.bool_)
        for end in np.unique(found[:, 1]).tolist():
            near[end] = self._distances.of(end, budget - 1) < budget
        tokens: Int32s = found[near[found[:, 1]], 0]
        return tokens

    def _exactly_near(self, state: State, tokens: Int32s, budget: int) -> Int32s:
        near = []
        for token in tokens.tolist():
            end = self.automaton.step(state, self.index.token_bytes[token] or b"")
            if self._distances.of(end, budget - 1) < budget:
                near.append(token)
        return np.array(near, np.int32)

    def _first_of_shortest(self, state: State, budget: int) -> Int32s:
        """The token that the distance of ``state`` counts on, where the budget is that large."""
        plan = self._distances.plan(self.automaton.shortest(state))
        if not 0 < plan.left <= budget:
            return np.empty(0, np.int32)
        return self._distances.first(plan)

    def _new_mask(self, state: State) -> Mask:
        try:
            return super()._new_mask(state)
        except PieceMet:
            return self._walked_mask(state)

    def _walked_mask(self, state: State) -> Mask:
        """A mask of which no part can be told apart from the pieces behind it."""
        reached, mask = self._walks.reach(state), self.index.new_mask()
        self._far_bytes[state] = reached.farthest(self.automaton)
        for found in reached.found():
            set_found(mask, found)
        finish(mask, self.index.trie.duplicates, self.index.eos, self.automaton.is_accepting(state))
        return self._once(mask)

    def _string_mask(self, state: State, inside: InString) -> Mask:
        try:
            return super()._string_mask(state, inside)
        except PieceMet:
            return self._walked_mask(state)

    def _farthest_tokens(self, state: State) -> int:
        known = self._far_tokens.get(state)
        if known is None:
            with suppress(PieceMet):
                if self.in_string(state) is not None:
                    return super()._farthest_tokens(state)
            reached, of = self._walks.reach(state), self._distances.of
            far = [of(end) for end in reached.states()]
            far += [int(found[:, 1].max()) + of(tail) for found, tail in reached.within]
            known = self._far_tokens[state] = max(far, default=0)
        return known
