"""Token masks: which tokens of a vocabulary keep an automaton alive, and which can still end.

Inside a JSON string of at least ``low`` and at most ``high`` more characters, the tokens that stay
within the string are looked up by length, and only the endings of those that cross its closing
quote are walked. So no state of a bounded repetition is ever expanded for its mask. Every other
state is walked through the vocabulary's trie once. Masks and distances are memoised per state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import (
    DEAD,
    Int32s,
    Trie,
    clear_bits,
    copy_bits,
    cover,
    set_bits,
    walk,
    walk_any,
    walk_apart,
)
from app.constraint.automaton.vocabulary_index import StringTokens, VocabularyIndex
from app.constraint.language.expressions import ByteSet, Expression, Kind
from app.core.constraint import Mask

_OWED_IN_CHARACTER = 12
"""Bytes, and so tokens, that a string character may still need once begun: \\ud83d\\ude00."""

_SPELLED_BYTES = 1 << 16
"""Completions up to here are spelled only to tell a caller how many tokens they need."""

_UNREACHABLE = 1 << 30

_NODES_PER_STEP = 128
"""Nodes of the trie that a kernel looks at in the time of one step of work."""

_TOKENS_AHEAD = 64
"""States of a completion that are noted at once."""

_MOST_TAILS = 1 << 14
"""Answers of ``can_extend`` that are kept."""

_MOST_BYTES = 65
"""A class of so many bytes leads on into text; the plain characters of a string are over 90, and
64 go on within a character of UTF-8."""

_STEPS_TO_TEXT = 3
"""How many characters from a state its surroundings may have become plain text."""


@dataclass(frozen=True, slots=True)
class _InString:
    """A state inside a JSON string: ``low`` to ``high`` more characters, then ``tail``.

    ``spelling`` says how characters are spelled: an index into ``VocabularyIndex.strings``.
    """

    spelling: int
    low: int
    high: int
    tail: State


@dataclass(frozen=True, slots=True)
class _Plan:
    """A completion from ``position`` on, and how ``cover`` splits each of its ends."""

    text: bytes
    tokens: Int32s
    lengths: Int32s
    position: int


class Masks:
    """Masks and token distances of one automaton over one vocabulary. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex) -> None:
        self.automaton = automaton
        self.index = index
        self._masks: dict[State, Mask] = {}
        self._shared: dict[_InString, Mask] = {}
        self._far_bytes: dict[State, int] = {}
        """Bytes of the longest shortest completion that a token allowed in a state may lead to."""
        self._far_tokens: dict[State, int] = {}
        """The same in tokens; an upper bound inside strings."""
        self._distances: dict[State, int] = {}
        self._plans: dict[State, _Plan] = {}
        """How it goes on from states that are noted, but not yet those after them."""
        self._stack = np.zeros(index.longest + 2, np.int32)
        self._others = np.zeros(index.longest + 2, np.int32)
        self._spellings = {each: number for number, each in enumerate(automaton.characters)}
        self._distinct: dict[bytes, Mask] = {}
        """Every mask once, by its digest."""
        self._extends: dict[tuple[State, bytes], bool] = {}

    def __len__(self) -> int:
        """States whose mask is memoised. Any thread may ask."""
        return len(self._masks)

    @property
    def nbytes(self) -> int:
        """Memory for memoised masks, in bytes. Any thread may read it."""
        entries = len(self._masks) + len(self._distances) + len(self._far_bytes)
        one = self.index.words * 4 + 250
        return len(self._distinct) * one + 150 * entries + 250 * len(self._extends)

    def mask(self, state: State) -> Mask:
        """Tokens allowed in ``state``, end of sequence included where it is accepting."""
        mask = self._masks.get(state)
        if mask is None:
            inside = self._in_string(state)
            if inside is not None:
                mask = self._string_mask(state, inside)
            else:
                near = self._text_near(state)
                mask = self._walked_mask(state) if near == DEAD else self._mask_beside(state, near)
            self._masks[state] = mask
        return mask

    def budget_mask(self, state: State, budget: int) -> Mask:
        """Tokens of ``mask`` after which ``budget - 1`` more tokens can finish the answer.

        Cost: a look-up where no allowed token endangers the budget, a walk near its end.
        """
        mask = self.mask(state)
        self._go_on(state)
        far = self._far_bytes[state]
        if budget > far:
            return mask
        if far <= budget * self.index.longest and budget > self._farthest_tokens(state):
            return mask
        found = self._walk(self.index.trie, state)
        near = np.zeros(len(self.automaton), np.bool_)
        for end in _distinct(found[:, 1]):
            near[end] = self.distance(end, budget - 1) < budget
        return self._pack(state, found[near[found[:, 1]], 0])

    def distance(self, state: State, limit: int | None = None) -> int:
        """Tokens that surely suffice from ``state`` to a whole answer; 0 where it is one.

        The fewest tokens that spell a shortest completion. From a state of distance n some token
        leads to a state of distance n - 1 at most: the first of those tokens.

        A distance above ``limit`` may come out too small, but above ``limit``: completions that
        are too long are neither followed nor, where their length says enough, spelled.
        """
        known = self._distances.get(state)
        if known is not None:
            return known
        if limit is not None:
            least = self._least_tokens(state)
            if least > limit:
                return least
        plan = self._spell(state)
        if limit is not None and plan.tokens[0] > limit:
            return int(plan.tokens[0])
        self._follow(state, plan)
        return self._distances[state]

    def spelled_tokens(self, state: State) -> int:
        """Fewest tokens that spell a shortest completion, without following where they lead.

        For the message to a caller whose budget is too small. Beyond 64 KiB a lower bound.
        """
        if self.automaton.length(state) > _SPELLED_BYTES:
            return self._least_tokens(state)
        return int(self._spell(state).tokens[0])

    def _least_tokens(self, state: State) -> int:
        """Tokens that a shortest completion takes at least, by its length alone."""
        return -(-self.automaton.length(state) // self.index.longest)

    def can_extend(self, state: State, tail: bytes) -> bool:
        """Whether some token is ``tail`` and then something that may follow ``state``. Memoised."""
        key = (state, tail)
        known = self._extends.get(key)
        if known is None:
            known = self._can_extend(state, tail)
            if len(self._extends) >= _MOST_TAILS:
                self._extends.clear()
            self._extends[key] = known
        return known

    def _can_extend(self, state: State, tail: bytes) -> bool:
        trie, automaton = self.index.trie, self.automaton
        node = trie.find(tail)
        if node < 0:
            return False
        end, base = int(trie.skip[node]), len(tail)
        self._stack[0] = state
        node += 1
        while node < end:
            automaton.expand(int(self._stack[trie.depth[node] - base]))
            node = walk_any(
                trie.byte,
                trie.depth,
                trie.skip,
                trie.token,
                node,
                end,
                base,
                automaton.rows,
                automaton.transitions,
                self._stack,
            )
            if node < 0:
                return True
        return False

    def _in_string(self, state: State) -> _InString | None:
        """How far ``state`` is inside a JSON string, None if it is not between two characters."""
        pool = self.automaton.pool
        expression = self.automaton.expression(state)
        if pool.kinds[expression] != Kind.CONCATENATION:
            return None
        head, tail = pool.operands[expression]
        if pool.kinds[head] != Kind.REPETITION:
            return None
        character, low, high = pool.operands[head]
        spelling = self._spellings.get(character)
        if spelling is None or pool.nullable[tail]:
            return None
        derivatives = self.automaton.derivatives
        row = derivatives.row(character)
        if any(a & b for a, _ in derivatives.row(tail) for b, _ in row):
            return None
        longest = self.index.longest + 1
        high = longest if high is None else min(high, longest)
        return _InString(spelling, min(low, longest), high, self.automaton.state(tail))

    def _text_near(self, state: State) -> State:
        """Text without end, or the inside of such a string, where most bytes lead there and stay.

        Else ``DEAD``.
        """
        automaton = self.automaton
        here = automaton.expression(state)
        for _ in range(_STEPS_TO_TEXT):
            row = automaton.derivatives.live_row(here)
            members, target = max(row, key=_size, default=(0, here))
            if members.bit_count() < _MOST_BYTES:
                return DEAD
            if target == here:
                break
            here = target
        else:
            return DEAD
        near = automaton.state(here)
        return near if near != state else DEAD

    def _string_mask(self, state: State, inside: _InString) -> Mask:
        strings = self._strings(inside)
        after = self._walk(strings.endings, inside.tail)
        ends = _distinct(after[:, 1])
        lengths = [self.automaton.length(end) for end in ends]
        self._far_bytes[state] = max([*lengths, self.automaton.length(state) + _OWED_IN_CHARACTER])
        known = self._shared.get(inside)
        if known is not None:
            return known
        within = strings.within_mask(inside.high)
        mask = self.index.new_mask() if within is None else within.copy()
        alive = np.zeros(strings.endings.strings, np.bool_)
        alive[after[:, 0]] = True
        crosses = alive[strings.ending] & (strings.characters >= inside.low)
        set_bits(mask, strings.token[crosses & (strings.characters <= inside.high)])
        mask = self._shared[inside] = self._once(mask)
        return mask

    def _walked_mask(self, state: State) -> Mask:
        found = self._walk(self.index.trie, state)
        lengths = [self.automaton.length(end) for end in _distinct(found[:, 1])]
        self._far_bytes[state] = max(lengths, default=0)
        return self._once(self._pack(state, found[:, 0]))

    def _mask_beside(self, state: State, near: State) -> Mask:
        """The mask of ``state``: that of ``near``, edited where the two are apart."""
        mask = self.mask(near).copy()
        found = self._walk_apart(state, near, mask)
        lengths = [self.automaton.length(end) for end in _distinct(found[:, 1])]
        self._far_bytes[state] = max([*lengths, self._far_bytes[near]])
        copy_bits(mask, self.index.trie.duplicates)
        change = set_bits if self.automaton.is_accepting(state) else clear_bits
        change(mask, self.index.eos)
        return self._once(mask)

    def _once(self, mask: Mask) -> Mask:
        """``mask``, or the one with the same bits that is kept already. Read only."""
        mask.flags.writeable = False
        digest = blake2b(mask.data, digest_size=16).digest()
        return self._distinct.setdefault(digest, mask)

    def _strings(self, inside: _InString) -> StringTokens:
        return self.index.strings[inside.spelling]

    def _farthest_tokens(self, state: State) -> int:
        """``distance`` of the farthest state that a token allowed in ``state`` may lead to.

        Inside a string an upper bound: what is left after a token is the end of what ``state``
        is spelled with, behind the rest of a character. That end begins inside one of the tokens.
        """
        known = self._far_tokens.get(state)
        if known is None:
            inside = self._in_string(state)
            if inside is None:
                found = self._walk(self.index.trie, state)
                known = 0
            else:
                found = self._walk(self._strings(inside).endings, inside.tail)
                known = int(self._spell(state).tokens[0]) + self.index.longest + _OWED_IN_CHARACTER
            known = max([known, *(self.distance(end) for end in _distinct(found[:, 1]))])
            self._far_tokens[state] = known
        return known

    def _spell(self, state: State) -> _Plan:
        """A shortest completion, split into the fewest tokens."""
        text = self.automaton.shortest(state)
        spend = self.automaton.derivatives.spend
        spend(len(text) // 8)
        tokens = np.empty(len(text) + 1, np.int32)
        lengths = np.zeros(len(text) + 1, np.int32)
        trie = self.index.trie
        raw = np.frombuffer(text, np.uint8)
        spend(cover(trie.byte, trie.skip, trie.token, raw, tokens, lengths) // _NODES_PER_STEP)
        return _Plan(text, tokens, lengths, 0)

    def _follow(self, state: State, plan: _Plan) -> None:
        """Note the distances of ``state`` and of the next states that its fewest tokens pass.

        Stops at a state that is known to be as near: the way on from there is noted already. Goes
        some way only, and leaves the rest to ``_go_on``.
        """
        notes: list[tuple[State, int]] = []
        position, cut = plan.position, False
        if self._distances.get(state, _UNREACHABLE) < plan.tokens[position]:
            return
        while True:
            notes.append((state, int(plan.tokens[position])))
            length = int(plan.lengths[position])
            cut = len(notes) > _TOKENS_AHEAD
            if length == 0 or cut:
                break
            state = self.automaton.step(state, plan.text[position : position + length])
            position += length
            if self._distances.get(state, _UNREACHABLE) <= plan.tokens[position]:
                break
        self._distances.update(notes)  # all or, where the work was too much, none
        if cut:
            self._plans[state] = replace(plan, position=position)

    def _go_on(self, state: State) -> None:
        """Note the states after ``state`` where its distance came from a plan cut short there."""
        plan = self._plans.get(state)
        if plan is not None:
            self._follow(state, plan)
            if self._plans[state] is plan:
                del self._plans[state]

    def _walk(self, trie: Trie, state: State) -> Int32s:
        """Strings of ``trie`` that live on from ``state``: shape [N, 2], (index, next state)."""
        automaton, stack = self.automaton, self._stack
        found = np.empty((trie.strings, 2), np.int32)
        stack[0] = state
        node, count = 0, 0
        while node < trie.nodes:
            automaton.expand(int(stack[trie.depth[node]]))
            node, count = walk(
                trie.byte,
                trie.depth,
                trie.skip,
                trie.token,
                node,
                automaton.rows,
                automaton.transitions,
                stack,
                found,
                count,
            )
        return found[:count]

    def _walk_apart(self, state: State, near: State, mask: Mask) -> Int32s:
        """Edit ``mask``, that of ``near``, to be that of ``state``, but for duplicates and ends.

        Returns the live tokens of ``state`` that lead elsewhere than from ``near``, as ``_walk``.
        """
        automaton, trie = self.automaton, self.index.trie
        found = np.empty((trie.strings, 2), np.int32)
        self._stack[0], self._others[0] = state, near
        node, count = 0, 0
        while node < trie.nodes:
            level = trie.depth[node]
            automaton.expand(int(self._stack[level]))
            other = int(self._others[level])
            if other != DEAD:
                automaton.expand(other)
            node, count = walk_apart(
                trie.byte,
                trie.depth,
                trie.skip,
                trie.token,
                node,
                automaton.rows,
                automaton.transitions,
                self._stack,
                self._others,
                mask,
                found,
                count,
            )
        return found[:count]

    def _pack(self, state: State, tokens: Int32s) -> Mask:
        """The mask of ``tokens``, their duplicates, and end of sequence where it is allowed."""
        mask = self.index.new_mask()
        set_bits(mask, tokens)
        copy_bits(mask, self.index.trie.duplicates)
        if self.automaton.is_accepting(state):
            set_bits(mask, self.index.eos)
        return mask


def _size(members_and_target: tuple[ByteSet, Expression]) -> int:
    return members_and_target[0].bit_count()


def _distinct(states: NDArray[np.int32]) -> list[State]:
    """The states that occur in ``states``, ascending."""
    return np.flatnonzero(np.bincount(states)).tolist() if len(states) else []
