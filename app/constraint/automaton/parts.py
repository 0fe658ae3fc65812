"""Masks of states, put together from the parts of their expressions.

A token is allowed in a union if one of its members allows it. After a literal only tokens that
begin with it are examined. A head, such as the content of a string or the digits of a number, is
walked by itself, once for all its tails: fields with one pattern, items of one list and characters
far from a bound share the tokens that stay within it, and the rows of its states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.beginnings import Beginnings, Part
from app.constraint.automaton.bits import meets, set_bits
from app.constraint.automaton.bounds_relaxation import BoundsRelaxation
from app.constraint.automaton.counted import CountedHeads
from app.constraint.automaton.shared_languages import Head, Numbering, new_head
from app.constraint.automaton.trie import Int32s
from app.constraint.automaton.vocabulary_index import VocabularyIndex
from app.constraint.automaton.walks import (
    TOKENS_PER_STEP,
    Walks,
    clear_below,
    walk_ends,
    walk_exits,
    walk_head,
    with_room,
)
from app.constraint.language.expressions import Expression, Kind
from app.core.constraint import Mask

_MOST_PARTS = 256
"""Maximum parts of a mask; an expression with more is walked as a whole."""

_WORK_PER_PART = 10
"""Steps of work that a part costs, besides its walks."""

_MORE_CHARACTERS = 4
"""Bytes by which a text can be made different from all excluded words."""

_KEPT_BOUND = 16
"""Repetition bounds up to the longest token's bytes plus this number are kept."""

Whole = Callable[[State], tuple[Mask, int]]
"""The mask of a state, and the maximum bytes of a completion after any of its tokens."""


class Parts:
    """Builds masks of one automaton over one vocabulary. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex, walks: Walks) -> None:
        self._automaton = automaton
        self._index = index
        self._walks = walks
        self.bounds = BoundsRelaxation(automaton.derivatives, automaton.characters)
        self._numbering = Numbering(automaton.pool, index.heads)
        self._counted = CountedHeads(automaton, index)
        self._heads: dict[tuple[Expression, bytes], Head] = {}
        self._beginnings = Beginnings(automaton, index, self.bounds)
        self._spelled: dict[tuple[Expression, bytes], Int32s] = {}
        """Trie nodes at which a head's excluded words end, by the head and the text before it."""
        self._overlaps: dict[tuple[Expression, bytes], tuple[Mask, int]] = {}
        """Cache of ``_overlapping``."""
        self._stack = np.zeros(index.longest + 2, np.int32)

    @property
    def nbytes(self) -> int:
        """Memory in bytes. Any thread may read it."""
        entries = len(self.bounds) + len(self._numbering) + 2 * len(self._heads)
        entries += 3 * len(self._spelled)
        overlaps = len(self._overlaps) * (200 + 4 * self._index.words)
        return 120 * entries + self._beginnings.nbytes + overlaps

    def fill(self, state: State, mask: Mask, whole: Whole) -> int | None:
        """Set the tokens allowed in ``state``, except duplicates and ends, in an empty ``mask``.

        ``whole`` is not stored: it is a method of the owner of these parts, and constraints hold
        no reference cycles. Returns an upper bound, in bytes, of a completion after any of the
        tokens; None if there are too many parts: ``mask`` is then invalid.
        """
        pool, derivatives = self._automaton.pool, self._automaton.derivatives
        waiting: list[Part] = [(self._automaton.expression(state), pool.epsilon, b"")]
        seen = set(waiting)
        far = 0
        while waiting:
            here, tail, text = waiting.pop()
            derivatives.spend(_WORK_PER_PART)
            if len(seen) > _MOST_PARTS:
                return None
            if not derivatives.is_alive(here) or not derivatives.is_alive(tail):
                continue
            others: list[Part]
            if here == pool.epsilon:
                others = [] if tail == pool.epsilon else [(tail, pool.epsilon, text)]
            elif literal := self._automaton.leading_literal(here):
                least, others = self._beginnings.literal(here, literal, tail, text, mask)
                far = max(far, least)
            else:
                head = here
                if pool.kinds[here] == Kind.CONCATENATION:
                    head, behind = pool.operands[here]
                    tail = derivatives.join(behind, tail)
                words = self._beginnings.words(head, tail, text, mask)
                if words is not None:
                    far, others = max(far, words[0]), words[1]
                else:
                    members = self._members(head, tail)
                    if not members:
                        far = max(far, self._split(pool.concatenate(head, tail), text, mask, whole))
                    others = [(member, behind, text) for member, behind in members]
            for other in others:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return far

    def _members(self, head: Expression, tail: Expression) -> list[tuple[Expression, Expression]]:
        """The alternatives of ``head``, each with its tail; empty if ``head`` is one part."""
        pool = self._automaton.pool
        kind, operand = pool.kinds[head], pool.operands[head]
        if kind == Kind.RULE:
            return [(pool.body(head), tail)]
        if kind == Kind.MARKED:
            return [(operand[0], tail)]  # marks allow no other tokens
        if kind == Kind.DISTINCT or kind == Kind.CASES:
            return [(pool.expand(head), tail)]
        if tail != pool.epsilon and self.bounds.is_plain(head):
            return []
        if kind == Kind.UNION:
            return [(member, tail) for member in self._together(operand)]
        if kind == Kind.REPETITION and not self.bounds.is_plain(operand[0]):
            found = [(operand[0], pool.concatenate(pool.repeat_after_one(*operand), tail))]
            return [*found, (tail, pool.epsilon)] if pool.nullable[head] else found
        return []

    def _together(self, members: tuple[Expression, ...]) -> Iterable[Expression]:
        """The members of a union, with intersections that have the same tail united.

        Members of one ``oneOf`` have the same patterns: walked together, they share states.
        """
        pool = self._automaton.pool
        heads: dict[Expression, list[Expression]] = {}
        for member in members:
            if pool.kinds[member] == Kind.CONCATENATION:
                head, end = pool.operands[member]
                if pool.kinds[head] == Kind.INTERSECTION and self.bounds.is_plain(head):
                    heads.setdefault(end, []).append(member)
        for end, several in heads.items():
            if len(several) > 1:
                union = self._automaton.derivatives.unite([pool.operands[m][0] for m in several])
                members = (*(m for m in members if m not in several), pool.concatenate(union, end))
        return members

    def _split(self, here: Expression, text: bytes, mask: Mask, whole: Whole) -> int:
        """Set the tokens of a head with its tail; returns ``far`` as ``fill`` does."""
        automaton, pool, trie = self._automaton, self._automaton.pool, self._index.trie
        split = self.bounds.split(here)
        if split is None and not pool.regular[here]:  # it refers to rules: nothing to share
            return self._walked(here, text, mask)
        head, tail = split or (here, pool.epsilon)
        if not text and self._is_text(head) and automaton.leading_literal(tail)[:1] == b'"':
            allowed, far = whole(automaton.state(here))
            mask |= allowed
            return far
        if pool.kinds[head] == Kind.INTERSECTION:
            names = self._but_words(head)
            if names is not None and automaton.leading_literal(tail)[:1] == b'"':
                star, words = names
                allowed = self._index.new_mask()
                far = self._split(pool.concatenate(star, tail), text, allowed, whole)
                known = self._spelled.get((head, text))
                if known is None:
                    automaton.derivatives.spend(len(words) // 2)
                    short = [word for word in words if len(word) < self._index.longest]
                    nodes = [trie.find(text + word + b'"') for word in short]
                    known = np.array([node for node in nodes if node >= 0], np.int32)
                    self._spelled[head, text] = known
                clear_below(trie.skip, trie.token, known, allowed)
                mask |= allowed
                return far + _MORE_CHARACTERS
        return self._head_and_tail(here, head, tail, text, mask)

    def _is_text(self, head: Expression) -> bool:
        """Whether ``head`` is any text of some length."""
        return (
            self._automaton.pool.kinds[head] == Kind.REPETITION
            and self._automaton.pool.operands[head][0] in self._automaton.characters
        )

    def _but_words(self, head: Expression) -> tuple[Expression, frozenset[bytes]] | None:
        """The unbounded text and the words that an intersection excludes from it; None for other
        forms."""
        pool = self._automaton.pool
        star, words = None, frozenset[bytes]()
        for member in pool.operands[head]:
            if pool.kinds[member] == Kind.COMPLEMENT:
                listed = self.bounds.words(pool.operands[member])
                if listed is None:
                    return None
                words |= listed
            elif self._is_text(member) and pool.operands[member][1:] == (0, None) and star is None:
                star = member
            else:
                return None
        return None if star is None else (star, words)

    def _head_and_tail(
        self, here: Expression, head: Expression, tail: Expression, text: bytes, mask: Mask
    ) -> int:
        automaton, derivatives = self._automaton, self._automaton.derivatives
        known = self._head_of(head, text)
        behind = automaton.state(tail)
        if tail != automaton.pool.epsilon and len(known.exits):
            automaton.expand(behind)
            if meets(automaton.transitions[automaton.rows[behind]], known.continues):
                return self._overlapping(here, head, tail, text, mask)
        far = derivatives.length(tail) + known.far
        set_bits(mask, known.tokens)
        if known.mask is not None:
            mask |= known.mask
        if tail != automaton.pool.epsilon and len(known.exits):
            found = self._out(known.exits, behind)
            set_bits(mask, found[:, 0])
            far = max([far, *map(automaton.length, self._walks.ends(found))])
        return far

    def _overlapping(
        self, here: Expression, head: Expression, tail: Expression, text: bytes, mask: Mask
    ) -> int:
        """``_head_and_tail`` if a byte may belong to either: both are walked together.

        Distant bounds of the head are dropped as in ``_unbounded_head``, so a text without quotes
        has one walk and not one for each number of characters left.
        """
        unbounded, bound = self.bounds.unbounded(head, self._index.longest + _KEPT_BOUND)
        if bound is None or self._head_of(unbounded, text).far + self._index.longest > bound:
            return self._walked(here, text, mask)
        whole = self._automaton.pool.concatenate(unbounded, tail)
        known = self._overlaps.get((whole, text))
        if known is None:
            allowed = self._index.new_mask()
            known = self._overlaps[whole, text] = (allowed, self._walked(whole, text, allowed))
        mask |= known[0]
        return known[1]

    def _walked(self, here: Expression, text: bytes, mask: Mask) -> int:
        found = self._walks.below(self._index.trie, self._automaton.state(here), text)
        set_bits(mask, found[:, 0])
        return max(map(self._automaton.length, self._walks.ends(found)), default=0)

    def _head_of(self, head: Expression, text: bytes) -> Head:
        """The tokens that ``head`` allows, computed without its distant bounds."""
        known = self._heads.get((head, text))
        if known is None:
            number = self._numbering.of(head)
            known = self._index.heads.find(number, text)
            if known is None:
                known = self._unbounded_head(head, text) or self._counted.head(head, text)
                known = known or self._new_head(head, text)
                self._index.heads.keep(number, text, known)
                self._heads[head, text] = known  # before ``spend``, which may raise
                tokens = len(known.tokens) if known.mask is None else self._index.size
                self._automaton.derivatives.spend((tokens + len(known.exits)) // TOKENS_PER_STEP)
            self._heads[head, text] = known
        return known

    def _unbounded_head(self, head: Expression, text: bytes) -> Head | None:
        """The tokens that ``head`` allows, if its bounds are too distant to matter; else None.

        A token and the shortest completion after it have at most ``far + longest`` bytes, and no
        more rounds of a repetition, so they are within all bounds of at least as much.
        """
        unbounded, bound = self.bounds.unbounded(head, self._index.longest + _KEPT_BOUND)
        if bound is None:
            return None
        known = self._head_of(unbounded, text)
        return known if known.far + self._index.longest <= bound else None

    def _new_head(self, head: Expression, text: bytes) -> Head:
        automaton, stack = self._automaton, self._stack
        stack[0] = automaton.state(head)
        found, exits, continues = walk_ends(automaton, self._index.trie, text, 2, walk_head, stack)
        far = max(map(automaton.length, self._walks.ends(found)), default=0)
        return new_head(found[:, 0], far, exits, continues, self._index.words)

    def _out(self, exits: Int32s, behind: State) -> Int32s:
        """Tokens allowed from the state ``behind`` at the nodes ``exits``, as by ``Walks.all``."""
        automaton, trie, stack = self._automaton, self._index.trie, self._stack
        found = np.empty((512, 2), np.int32)
        index, node, count = 0, -1, 0
        while True:
            index, node, count = walk_exits(
                *trie.arrays, exits, index, node, behind, automaton.rows, automaton.transitions,
                stack, found, count,
            )  # fmt: skip
            if index == len(exits):
                automaton.derivatives.spend((count + len(exits)) // TOKENS_PER_STEP)
                return found[:count]
            found = with_room(found, count, trie.strings + 1)
            automaton.expand(int(stack[trie.depth[node] - trie.depth[exits[index]]]))
