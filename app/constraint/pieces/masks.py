"""Masks where values are pieces of documents: walks over trie and document together.

A state inside a piece, and whatever tokens reach of a piece from before it, is walked by the
kernels of ``steps``; none of its states is ever expanded into a row. Tokens that stay within a
piece are told apart by what they still owe: near the end of a budget that is counted as a token a
byte, which is never too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.distances import Distances
from app.constraint.automaton.masks import Masks, _InString
from app.constraint.automaton.trie import DEAD, Int32s, Trie, cover
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.automaton.walks import Walks
from app.constraint.language.expressions import Expression, Kind
from app.constraint.pieces.binding import BoundDerivatives
from app.constraint.pieces.leaf import UNBOUNDED
from app.constraint.pieces.steps import RAW, SPELLED, Leaf, walk
from app.core.constraint import Mask
from app.core.kernels import kernel

_ONCE = 1
"""Pieces are spelled as ``VocabularyIndex.strings[1]`` has it."""
_NODES_PER_STEP = 128
"""Nodes of the trie that a kernel looks at in the time of one step of work."""
_MANY_TOKENS = 2_000
"""A walk from the beginning of a piece that finds so many is kept with the document."""
_MOST_EXACT = 256
"""Tokens into a piece from before it whose distance is worked out near the end of a budget."""


@dataclass(frozen=True, slots=True)
class _Inside:
    """A state inside a piece: the piece, and what follows it, which begins with a quote."""

    piece: Expression
    tail: State


@dataclass(slots=True)
class _Reached:
    """Where tokens lead from a state."""

    ends: list[Int32s] = field(default_factory=list)
    """Arrays [N, 2]: tokens, and states that are in no piece."""
    within: list[tuple[Int32s, State]] = field(default_factory=list)
    """Arrays [N, 2]: tokens that end inside a piece, and bytes owed to it; what follows it."""

    def tokens(self) -> Int32s:
        parts = [*self.ends, *(found for found, _ in self.within)]
        return np.concatenate([part[:, 0] for part in parts]) if parts else np.empty(0, np.int32)


@kernel()
def walk_between(
    byte: np.ndarray,
    depth: Int32s,
    skip: Int32s,
    token: Int32s,
    node: int,
    end: int,
    rows: Int32s,
    transitions: Int32s,
    stack: Int32s,
    found: Int32s,
    count: int,
) -> tuple[int, int]:
    """As ``trie.walk``, up to the node ``end``."""
    while node < end:
        level = depth[node]
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


class _PieceMet(Exception):
    """A walk that expands states came to a piece."""


class PieceWalks(Walks):
    """Walks that stop at pieces, and ``reach``, which goes on inside them."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex) -> None:
        super().__init__(automaton, index.longest)
        self._index = index
        self._derivatives = cast(BoundDerivatives, automaton.derivatives)
        self._inside: dict[State, tuple[list[_Inside], State] | None] = {}
        self._leaves = np.zeros((index.longest + 2, 5), np.int32)
        self._ending = index.ending_of_tokens(_ONCE)
        self._endings: dict[State, Int32s] = {}
        """By what follows a piece: the state after each ending of a token, or ``DEAD``."""

    def inside(self, state: State) -> tuple[list[_Inside], State] | None:
        """The pieces that ``state`` is inside of, and the state of all else that it may be.

        None where it is inside of none.
        """
        if state not in self._inside:
            self._inside[state] = self._look_inside(state)
        return self._inside[state]

    def _look_inside(self, state: State) -> tuple[list[_Inside], State] | None:
        pool, automaton = self._automaton.pool, self._automaton
        expression = automaton.expression(state)
        is_union = pool.kinds[expression] == Kind.UNION
        pieces: list[_Inside] = []
        rest: list[Expression] = []
        for member in pool.operands[expression] if is_union else (expression,):
            found = self._piece(member)
            if found is None:
                rest.append(member)
            else:
                pieces.append(found)
        if not pieces:
            return None
        return pieces, automaton.state(pool.union(rest)) if rest else DEAD

    def _piece(self, expression: Expression) -> _Inside | None:
        pool = self._automaton.pool
        if pool.kinds[expression] != Kind.CONCATENATION:
            return None
        head, tail = pool.operands[expression]
        if pool.kinds[head] not in (Kind.PIECE, Kind.HOLE):
            return None
        first = pool.operands[tail][0] if pool.kinds[tail] == Kind.CONCATENATION else tail
        if pool.kinds[first] != Kind.LITERAL or not pool.operands[first].startswith(b'"'):
            return None
        return _Inside(head, self._automaton.state(tail))

    def reach(self, state: State) -> _Reached:
        """Where the vocabulary's tokens lead from ``state``."""
        reached = _Reached()
        self._range(self._index.trie, 0, self._index.trie.nodes, state, reached)
        return reached

    def any(self, trie: Trie, state: State, tail: bytes) -> bool:
        node = trie.find(tail)
        if node < 0 or node + 1 >= trie.skip[node]:
            return False
        end = int(trie.skip[node])
        ways = self.inside(state)
        if ways is not None and any(
            len(self._walk(each, node + 1, end, enough=1)[0]) for each in ways[0]
        ):
            return True
        reached = _Reached()
        self._range(trie, node + 1, end, state, reached)
        return bool(len(reached.tokens()))

    def _expand(self, state: State) -> None:
        """For the walks of ``Walks``, which raise ``_PieceMet`` where a string leads into a piece:
        a piece has no rows, so that what a mask is never depends on what was walked before."""
        if self.inside(state) is not None:
            raise _PieceMet
        super()._expand(state)

    def _range(self, trie: Trie, node: int, end: int, state: State, reached: _Reached) -> None:
        """Siblings from ``node`` on, up to ``end``, that follow ``state``."""
        if node >= end:
            return
        automaton = self._automaton
        stack = np.zeros(self._index.longest + 2, np.int32)
        base = int(trie.depth[node])
        stack[base] = state
        found = np.empty((end - node, 2), np.int32)
        count = 0
        while node < end:
            level = int(trie.depth[node])
            here = int(stack[level])
            ways = self.inside(here)
            if ways is not None:
                until = end if level == base else int(trie.skip[node - 1])
                self._pieces(trie, node, until, ways, reached)
                node = until
                continue
            automaton.expand(here)
            rows, transitions = automaton.rows, automaton.transitions
            node, count = walk_between(
                *trie.arrays, node, end, rows, transitions, stack, found, count
            )
        if count:
            reached.ends.append(found[:count].copy())

    def _pieces(
        self,
        trie: Trie,
        node: int,
        end: int,
        ways: tuple[list[_Inside], State],
        reached: _Reached,
    ) -> None:
        for each in ways[0]:
            found, quotes = self._walk(each, node, end)
            if len(found):
                reached.within.append((found, each.tail))
            if node == 0 and self._is_between(each):
                self._endings_of(trie, quotes, each.tail, reached)
                continue
            for quote in quotes.tolist():
                self._range(trie, quote, int(trie.skip[quote]), each.tail, reached)
        if ways[1] != DEAD:
            self._range(trie, node, end, ways[1], reached)

    def _walk(
        self, inside: _Inside, node: int, end: int, enough: int = 1 << 30
    ) -> tuple[Int32s, Int32s]:
        """Tokens within the piece with what they owe, and nodes of quotes that end it."""
        filled = self._derivatives.filled(inside.piece)
        assert filled is not None
        pieces, leaf = filled
        key = (node, end, self._cut(leaf), pieces.document.words)
        kept = pieces.document.walks.get(key) if leaf[4] < 0 else None
        if kept is not None:
            return kept
        trie = self._index.trie
        found = np.empty((end - node, 2), np.int32)
        quotes = np.empty(end - node, np.int32)
        count, ends, visited = walk(
            pieces.places, pieces.match, SPELLED, RAW, leaf, *trie.arrays,
            node, end, self._leaves, found, quotes, enough,
        )  # fmt: skip
        found, quotes = found[:count].copy(), quotes[:ends].copy()
        if leaf[4] < 0 and count >= _MANY_TOKENS:
            pieces.document.keep_walk(key, found, quotes)
        self._derivatives.spend(1 + visited // _NODES_PER_STEP)
        return found, quotes

    def _is_between(self, inside: _Inside) -> bool:
        """Whether the piece is between two characters, as strings are for which tokens are sorted
        by their endings."""
        filled = self._derivatives.filled(inside.piece)
        assert filled is not None
        pieces, leaf = filled
        return pieces.is_between(leaf)

    def _cut(self, leaf: Leaf) -> Leaf:
        """The leaf as far as a token can tell: no bound that is farther away than one reaches."""
        place, escape, low, high, match = leaf
        return place, escape, low, UNBOUNDED if high > self._index.longest else high, match

    def _endings_of(self, trie: Trie, quotes: Int32s, tail: State, reached: _Reached) -> None:
        """Tokens below ``quotes``: a piece's end, and then something that ``tail`` admits."""
        states = self._endings.get(tail)
        if states is None:
            after = _Reached()
            endings = self._index.strings[_ONCE].endings
            self._range(endings, 0, endings.nodes, tail, after)
            if after.within:  # an ending that reaches into another piece: walked one by one
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


class PieceMasks(Masks):
    """Masks of a constraint whose holes are filled. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex, distances: Distances) -> None:
        super().__init__(automaton, index, distances)
        self._walks: PieceWalks = PieceWalks(automaton, index)

    def mask(self, state: State) -> Mask:
        mask = self._masks.get(state)
        if mask is None and self._walks.inside(state) is not None:
            mask = self._masks[state] = self._walked_mask(state)
        return super().mask(state) if mask is None else mask

    def budget_mask(self, state: State, budget: int) -> Mask:
        mask = self.mask(state)
        self._distances.go_on(state)
        far = self._far_bytes[state]
        if budget > far:
            return mask
        if far <= budget * self.index.longest and budget > self._farthest_tokens(state):
            return mask
        reached = self._walks.reach(state)
        is_inside = self._walks.inside(state) is not None
        tokens = [self._near_ends(found, budget) for found in reached.ends]
        for found, tail in reached.within:
            left = budget - 1 - self._distances.of(tail, budget)
            near = found[:, 1] <= left
            tokens.append(found[near, 0])
            far_tokens = found[~near, 0]
            if not is_inside and len(far_tokens) <= _MOST_EXACT:
                tokens.append(self._exactly_near(state, far_tokens, budget))
        tokens.append(self._first_of_shortest(state, budget))
        return self._pack(state, np.concatenate(tokens).astype(np.int32))

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
        text = self.automaton.shortest(state)
        self.automaton.derivatives.spend(len(text) // 8)
        tokens = np.empty(len(text) + 1, np.int32)
        lengths = np.zeros(len(text) + 1, np.int32)
        trie = self.index.trie
        cover(trie.byte, trie.skip, trie.token, np.frombuffer(text, np.uint8), tokens, lengths)
        if not text or tokens[0] > budget:
            return np.empty(0, np.int32)
        node = trie.find(text[: int(lengths[0])])
        return np.array([trie.token[node]], np.int32)

    def _walked_mask(self, state: State) -> Mask:
        reached = self._walks.reach(state)
        self._far_bytes[state] = self._farthest_of(reached)
        return self._once(self._pack(state, reached.tokens()))

    def _mask_beside(self, state: State, near: State) -> Mask:
        try:
            return super()._mask_beside(state, near)
        except _PieceMet:
            return self._walked_mask(state)

    def _string_mask(self, state: State, inside: _InString) -> Mask:
        try:
            return super()._string_mask(state, inside)
        except _PieceMet:
            return self._walked_mask(state)

    def _farthest_of(self, reached: _Reached) -> int:
        length = self.automaton.length
        ends = _states(reached.ends)
        far = [length(end) for end in ends]
        far += [int(found[:, 1].max()) + length(tail) for found, tail in reached.within]
        return max(far, default=0)

    def _farthest_tokens(self, state: State) -> int:
        known = self._far_tokens.get(state)
        if known is None:
            with suppress(_PieceMet):
                if self._in_string(state) is not None:
                    return super()._farthest_tokens(state)
            reached, of = self._walks.reach(state), self._distances.of
            far = [of(end) for end in _states(reached.ends)]
            far += [int(found[:, 1].max()) + of(tail) for found, tail in reached.within]
            known = self._far_tokens[state] = max(far, default=0)
        return known


def _states(ends: Sequence[Int32s]) -> list[State]:
    """The states that occur, each once."""
    if not ends:
        return []
    states: list[State] = np.unique(np.concatenate([found[:, 1] for found in ends])).tolist()
    return states
