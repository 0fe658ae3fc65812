"""Token masks: which tokens of a vocabulary keep an automaton alive, and which can still end.

Inside a JSON string of at least ``low`` and at most ``high`` more characters, the tokens that stay
within the string are looked up by length, and only the endings of those that cross its closing
quote are walked. So no state of a bounded repetition is ever expanded for its mask. Every other
state is walked through the vocabulary's trie once. Masks and distances are memoised per state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton import Automaton, State
from app.constraint.expressions import Kind
from app.constraint.trie import Int32s, Trie, copy_bits, cover, set_bits, walk, walk_any
from app.constraint.vocabulary_index import VocabularyIndex
from app.core.constraint import Mask

_OWED_IN_CHARACTER = 12
"""Bytes, and so tokens, that a string character may still need once begun: \\ud83d\\ude00."""

_SPELLED_BYTES = 1 << 16
"""Completions up to here are spelled only to tell a caller how many tokens they need."""

_UNREACHABLE = 1 << 30


@dataclass(frozen=True, slots=True)
class _InString:
    """A state inside a JSON string: ``low`` to ``high`` more characters, then ``tail``."""

    low: int
    high: int
    tail: State


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
        self._stack = np.zeros(index.longest + 2, np.int32)
        self._distinct_masks = 0

    def __len__(self) -> int:
        """States whose mask is memoised. Any thread may ask."""
        return len(self._masks)

    @property
    def nbytes(self) -> int:
        """Memory for memoised masks, in bytes. Any thread may read it."""
        entries = len(self._masks) + len(self._distances) + len(self._far_bytes)
        return self._distinct_masks * self.index.words * 4 + 150 * entries

    def mask(self, state: State) -> Mask:
        """Tokens allowed in ``state``, end of sequence included where it is accepting."""
        mask = self._masks.get(state)
        if mask is None:
            inside = self._in_string(state)
            mask = self._walked_mask(state) if inside is None else self._string_mask(state, inside)
            mask.flags.writeable = False
            self._masks[state] = mask
        return mask

    def budget_mask(self, state: State, budget: int) -> Mask:
        """Tokens of ``mask`` after which ``budget - 1`` more tokens can finish the answer.

        Cost: a look-up where no allowed token endangers the budget, a walk near its end.
        """
        mask = self.mask(state)
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
        text, tokens, lengths = self._spell(state)
        if limit is not None and tokens[0] > limit:
            return int(tokens[0])
        self._follow(state, text, tokens, lengths)
        return self._distances[state]

    def spelled_tokens(self, state: State) -> int:
        """Fewest tokens that spell a shortest completion, without following where they lead.

        For the message to a caller whose budget is too small. Beyond 64 KiB a lower bound.
        """
        if self.automaton.length(state) > _SPELLED_BYTES:
            return self._least_tokens(state)
        return int(self._spell(state)[1][0])

    def _least_tokens(self, state: State) -> int:
        """Tokens that a shortest completion takes at least, by its length alone."""
        return -(-self.automaton.length(state) // self.index.longest)

    def can_extend(self, state: State, tail: bytes) -> bool:
        """Whether some token is ``tail`` and then something that may follow ``state``."""
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
        if pool.character is None or pool.kinds[expression] is not Kind.CONCATENATION:
            return None
        head, tail = pool.operands[expression]
        if pool.kinds[head] is not Kind.REPETITION or pool.operands[head][0] != pool.character:
            return None
        derivatives = self.automaton.derivatives
        row = derivatives.row(pool.character)
        if any(a & b for a, _ in derivatives.row(tail) for b, _ in row) or pool.nullable[tail]:
            return None
        _, low, high = pool.operands[head]
        longest = self.index.longest + 1
        high = longest if high is None else min(high, longest)
        return _InString(min(low, longest), high, self.automaton.state(tail))

    def _string_mask(self, state: State, inside: _InString) -> Mask:
        strings = self.index.strings
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
        self._shared[inside] = mask
        self._distinct_masks += 1
        return mask

    def _walked_mask(self, state: State) -> Mask:
        found = self._walk(self.index.trie, state)
        lengths = [self.automaton.length(end) for end in _distinct(found[:, 1])]
        self._far_bytes[state] = max(lengths, default=0)
        self._distinct_masks += 1
        return self._pack(state, found[:, 0])

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
                found = self._walk(self.index.strings.endings, inside.tail)
                known = int(self._spell(state)[1][0]) + self.index.longest + _OWED_IN_CHARACTER
            known = max([known, *(self.distance(end) for end in _distinct(found[:, 1]))])
            self._far_tokens[state] = known
        return known

    def _spell(self, state: State) -> tuple[bytes, Int32s, Int32s]:
        """A shortest completion, and how ``cover`` splits each of its ends."""
        text = self.automaton.shortest(state)
        tokens = np.empty(len(text) + 1, np.int32)
        lengths = np.zeros(len(text) + 1, np.int32)
        trie = self.index.trie
        cover(trie.byte, trie.skip, trie.token, np.frombuffer(text, np.uint8), tokens, lengths)
        return text, tokens, lengths

    def _follow(self, state: State, text: bytes, tokens: Int32s, lengths: Int32s) -> None:
        """Note the distances of ``state`` and of the states that its fewest tokens pass.

        Stops at a state that is known to be as near: the way on from there is noted already.
        """
        position = 0
        while True:
            known = self._distances.get(state, _UNREACHABLE)
            if known <= tokens[position]:
                return
            self._distances[state] = int(tokens[position])
            length = int(lengths[position])
            if length == 0:
                return
            state = self.automaton.step(state, text[position : position + length])
            position += length

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

    def _pack(self, state: State, tokens: Int32s) -> Mask:
        """The mask of ``tokens``, their duplicates, and end of sequence where it is allowed."""
        mask = self.index.new_mask()
        set_bits(mask, tokens)
        copy_bits(mask, self.index.trie.duplicates)
        if self.automaton.is_accepting(state):
            set_bits(mask, self.index.eos)
        return mask


def _distinct(states: NDArray[np.int32]) -> list[State]:
    """The states that occur in ``states``, ascending."""
    return np.flatnonzero(np.bincount(states)).tolist() if len(states) else []
