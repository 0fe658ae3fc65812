"""Masks for values that are pieces of documents: walks over trie and document together.

States inside pieces, also those that tokens reach from before a piece, are walked by the kernels of
``positions`` and never expanded into rows. Tokens that stay within a piece have the bytes that they
owe to its end; near the end of a budget these count as a token per byte, which is never too few.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.bits import finish, set_bits
from app.constraint.automaton.distances import Distances
from app.constraint.automaton.masks import Masks
from app.constraint.automaton.parts import Parts, Whole
from app.constraint.automaton.trie import DEAD, NODES_PER_STEP, Int32s, Trie, walk
from app.constraint.automaton.vocabulary_index import ONCE, VocabularyIndex
from app.constraint.automaton.walks import Walks, with_room
from app.constraint.language.expressions import Expression
from app.constraint.quotes.automaton import Alternatives, Inside, PieceAutomaton, PieceMet
from app.constraint.quotes.positions import walk as walk_piece
from app.core.constraint import Mask

_MOST_EXACT = 256
"""Maximum tokens into a piece whose distances are computed exactly near the end of a budget."""


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
        self._piece_walks.pieces(trie, node, end, Alternatives((inside,), DEAD), reached)
        for found in reached.found():
            set_bits(mask, found[:, 0])
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
        """Walk from the beginning of each hole, the slowest part of first masks.

        The document caches the results for all its constraints. Called by the thread that binds,
        before any state is visited; releases the GIL.
        """
        for hole, pieces in self._walks.bound.pieces.items():
            if pieces.any:
                self._walks.walk(self.index.trie, Inside(hole, DEAD), 0, self.index.trie.nodes)

    def _narrowed(self, state: State, budget: int) -> Mask:
        reached = self._walks.reach(state)
        is_inside = self._walks.inside(state) is not None
        mask = self.index.new_mask()
        for found in reached.ends:
            near = np.zeros(len(self.automaton), np.bool_)
            for end in np.unique(found[:, 1]).tolist():
                near[end] = self._distances.of(end, budget - 1) < budget
            set_bits(mask, found[near[found[:, 1]], 0])
        for found, tail in reached.within:
            near = found[:, 1] <= budget - 1 - self._distances.of(tail, budget)
            set_bits(mask, found[near, 0])
            far_tokens = found[~near, 0]
            if not is_inside and len(far_tokens) <= _MOST_EXACT:
                set_bits(mask, self._exactly_near(state, far_tokens, budget))
        plan = self._distances.plan(self.automaton.shortest(state))
        if 0 < plan.left <= budget:
            set_bits(mask, self._distances.first(plan))
        finish(mask, self.index.trie.duplicates, self.index.eos, self.automaton.is_accepting(state))
        return mask

    def _exactly_near(self, state: State, tokens: Int32s, budget: int) -> Int32s:
        near = []
        for token in tokens.tolist():
            end = self.automaton.step(state, self.index.token_bytes[token] or b"")
            if self._distances.of(end, budget - 1) < budget:
                near.append(token)
        return np.array(near, np.int32)

    def _computed(self, state: State) -> Mask:
        try:
            return super()._computed(state)
        except PieceMet:  # no part of it can be separated from the pieces after it
            reached = self._walks.reach(state)
            self._far_bytes[state] = reached.farthest(self.automaton)
            return self._once(self.packed(state, *reached.found()))

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


_MANY_NODES = 2_048
"""Minimum visited nodes of a walk in a piece that is cached with the document."""


@dataclass(slots=True)
class Reached:
    """The states after the tokens allowed in a state."""

    ends: list[Int32s] = field(default_factory=list)
    """Arrays [N, 2]: tokens, and states outside of pieces."""
    within: list[tuple[Int32s, State]] = field(default_factory=list)
    """Arrays [N, 2]: tokens that end inside a piece, and the bytes owed; the tail of the piece."""

    def found(self) -> list[Int32s]:
        """All arrays of tokens."""
        return [*self.ends, *(found for found, _ in self.within)]

    def states(self) -> list[State]:
        """The states of ``ends``, each once."""
        if not self.ends:
            return []
        states: list[State] = np.unique(np.concatenate([each[:, 1] for each in self.ends])).tolist()
        return states

    def farthest(self, automaton: Automaton) -> int:
        """Maximum bytes of a completion after any of the tokens."""
        far = [automaton.length(state) for state in self.states()]
        far += [int(each[:, 1].max()) + automaton.length(tail) for each, tail in self.within]
        return max(far, default=0)


class PieceWalks(Walks):
    """Walks that stop at pieces, and ``reach``, which continues inside them."""

    def __init__(self, automaton: PieceAutomaton, index: VocabularyIndex) -> None:
        super().__init__(automaton, index.longest)
        self.inside = automaton.inside
        self._index = index
        self.bound = automaton.bound
        self._ending = index.ending_of_tokens
        self._endings: dict[State, Int32s] = {}
        """By the tail of a piece: the state after each ending of a token, or ``DEAD``."""

    def reach(self, state: State) -> Reached:
        """The states after the tokens allowed in ``state``."""
        reached = Reached()
        self._range(self._index.trie, 0, self._index.trie.nodes, state, reached)
        return reached

    def any(self, trie: Trie, state: State, tail: bytes) -> bool:
        node = trie.find(tail)
        if node < 0 or node + 1 >= trie.skip[node]:
            return False
        end = int(trie.skip[node])
        alternatives = self.inside(state)
        if alternatives is not None and any(
            len(self.walk(trie, each, node + 1, end, enough=1)[0]) for each in alternatives.pieces
        ):
            return True
        reached = Reached()
        self._range(trie, node + 1, end, state, reached)
        return bool(reached.found())

    def _range(self, trie: Trie, node: int, end: int, state: State, reached: Reached) -> None:
        """Add the tokens allowed in ``state`` among the siblings from ``node`` to ``end``."""
        if node >= end:
            return
        automaton = self._automaton
        stack = np.zeros(self._index.longest + 2, np.int32)
        base = int(trie.depth[node])
        stack[0] = state
        found = np.empty((512, 2), np.int32)
        count = 0
        while node < end:
            level = int(trie.depth[node]) - base
            here = int(stack[level])
            alternatives = self.inside(here)
            if alternatives is not None:
                until = end if level == 0 else int(trie.skip[node - 1])
                self.pieces(trie, node, until, alternatives, reached)
                node = until
                continue
            automaton.expand(here)
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk(
                *trie.arrays, node, end, base, rows, transitions, stack, found, count
            )
            found = with_room(found, count, trie.strings + 1)
        if count:
            reached.ends.append(found[:count].copy())

    def pieces(
        self, trie: Trie, node: int, end: int, alternatives: Alternatives, reached: Reached
    ) -> None:
        """``_range`` for a state inside pieces, with its other alternatives."""
        for each in alternatives.pieces:
            found, quotes = self.walk(trie, each, node, end)
            if len(found):
                reached.within.append((found, each.tail))
            filled, leaf = self.bound.leaf(each.piece)
            # between two characters, as assumed by the endings of ``StringTokens``
            if node == 0 and filled.is_between(leaf):
                self._endings_of(trie, quotes, each.tail, reached)
                continue
            for quote in quotes.tolist():
                self._range(trie, quote, int(trie.skip[quote]), each.tail, reached)
        if alternatives.rest != DEAD:
            self._range(trie, node, end, alternatives.rest, reached)

    def walk(
        self, trie: Trie, inside: Inside, node: int, end: int, enough: int = 1 << 30
    ) -> tuple[Int32s, Int32s]:
        """Tokens within the piece with the bytes they owe, and nodes of quotes that end it."""
        pieces, leaf = self.bound.leaf(inside.piece)
        key = (node, end, leaf, pieces.bounds) if trie is self._index.trie else None
        if key is not None:
            kept = pieces.walks.get(key)
            if kept is not None:
                return kept
        found = np.empty((end - node, 2), np.int32)
        quotes = np.empty(end - node, np.int32)
        count, ends, visited = walk_piece(
            pieces.places, leaf, pieces.is_end(leaf), *trie.arrays, node, end,
            self._index.longest, found, quotes, enough,
        )  # fmt: skip
        found, quotes = found[:count].copy(), quotes[:ends].copy()
        if key is not None and visited >= _MANY_NODES and enough > len(found):
            pieces.walks.keep(key, found, quotes)
        self.bound.spend(1 + visited // NODES_PER_STEP)
        return found, quotes

    def _endings_of(self, trie: Trie, quotes: Int32s, tail: State, reached: Reached) -> None:
        """Add the tokens below ``quotes``, which end a piece, that are allowed in ``tail``."""
        states = self._endings.get(tail)
        if states is None:
            after = Reached()
            endings = self._index.strings[ONCE].endings
            self._range(endings, 0, endings.nodes, tail, after)
            if after.within:  # an ending that reaches another piece: walk them one by one
                for quote in quotes.tolist():
                    self._range(trie, quote, int(trie.skip[quote]), tail, reached)
                return
            states = np.zeros(endings.strings, np.int32)
            for ends in after.ends:
                states[ends[:, 0]] = ends[:, 1]
            self._endings[tail] = states
        parts = [trie.token[quote : trie.skip[quote]] for quote in quotes.tolist()]
        tokens = np.concatenate(parts) if parts else np.empty(0, np.int32)
        tokens = tokens[tokens >= 0]
        ends = states[self._ending[tokens]]
        alive = ends != DEAD
        if alive.any():
            reached.ends.append(np.stack([tokens[alive], ends[alive]], axis=1))
