"""Distances: upper bounds of the tokens from a state to the end of an answer.

A shortest completion is spelled in the fewest tokens, and the states along them are noted with
their distances. So a budget that suffices at one state suffices until the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from app.constraint.automaton.automaton import Automaton, State
from app.constraint.automaton.trie import NODES_PER_STEP, Int32s, cover
from app.constraint.automaton.vocabulary_index import VocabularyIndex

_SPELLED_BYTES = 1 << 16
"""Maximum bytes of a completion that is spelled for an error or a ``limit``; longer ones count a
token per byte."""

_UNREACHABLE = 1 << 30

_TOKENS_AHEAD = 16
"""Maximum states of a completion noted in one call."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A completion from ``position`` on, and the split of each of its suffixes by ``cover``."""

    text: bytes
    tokens: Int32s
    """Fewest tokens of each suffix."""
    lengths: Int32s
    """Bytes of the first of these tokens."""
    position: int = 0

    @property
    def left(self) -> int:
        """Tokens from ``position`` to the end."""
        return int(self.tokens[self.position])

    def behind(self, data: bytes) -> Plan | None:
        """The plan after ``data``; None if the answer leaves it."""
        if not self.text.startswith(data, self.position):
            return None
        return replace(self, position=self.position + len(data))


class Distances:
    """Distances of one automaton over one vocabulary, memoised. One thread at a time."""

    def __init__(self, automaton: Automaton, index: VocabularyIndex) -> None:
        self._automaton = automaton
        self._index = index
        self._known: dict[State, int] = {}
        self._spelled: dict[State, int] = {}
        """Distances of states whose completions were too long to follow."""
        self._plans: dict[State, Plan] = {}
        """By a noted state: the plan whose later states are not noted yet."""

    def __len__(self) -> int:
        """Number of cached distances. Any thread may read it."""
        return len(self._known) + len(self._spelled)

    def of(self, state: State, limit: int | None = None) -> int:
        """Tokens that surely suffice from ``state`` to a complete answer; 0 if it is complete.

        The fewest tokens that spell a shortest completion. The first of them leads from distance n
        to a state of distance n - 1 at most.

        If the distance is above ``limit``, the result is also above ``limit``, but may be smaller
        than the distance: long completions are not followed, nor spelled if their length decides.
        """
        known = self._known.get(state)
        if known is not None:
            return known
        if limit is not None:
            if _SPELLED_BYTES < self._automaton.length(state) <= limit:
                return self._automaton.length(state)
            least = self.least(state)
            if least > limit:
                return least
            if self._spelled.get(state, 0) > limit:
                return self._spelled[state]
        plan = self._spell(state)
        if limit is not None and plan.left > limit:
            self._spelled[state] = plan.left
            return self._spelled[state]
        self._follow(state, plan)
        return self._known[state]

    def fits(self, state: State, budget: int) -> bool:
        """Whether ``budget`` tokens surely suffice; a token per byte always does."""
        return self._automaton.length(state) <= budget or self.of(state, budget) <= budget

    def spelled(self, state: State) -> int:
        """Fewest tokens that spell a shortest completion; the states along them are not noted."""
        return self._spell(state).left

    def needed(self, state: State) -> int:
        """``spelled``, for the error if a budget is too small; an upper bound above 64 KiB."""
        length = self._automaton.length(state)
        return length if length > _SPELLED_BYTES else self.spelled(state)

    def resume(self, state: State) -> None:
        """Note the distances of the next states of the plan that was cut short at ``state``."""
        plan = self._plans.get(state)
        if plan is not None:
            self._follow(state, plan)
            if self._plans[state] is plan:
                del self._plans[state]

    def least(self, state: State) -> int:
        """Minimum tokens of a shortest completion, by its length alone."""
        return -(-self._automaton.length(state) // self._index.longest)

    def _spell(self, state: State) -> Plan:
        """A shortest completion, split into the fewest tokens."""
        return self.plan(self._automaton.shortest(state))

    def plan(self, text: bytes) -> Plan:
        """The completion ``text``, split into the fewest tokens."""
        spend = self._automaton.derivatives.spend
        spend(len(text) // 8)
        tokens = np.empty(len(text) + 1, np.int32)
        lengths = np.zeros(len(text) + 1, np.int32)
        trie = self._index.trie
        raw = np.frombuffer(text, np.uint8)
        spend(cover(trie.byte, trie.skip, trie.token, raw, tokens, lengths) // NODES_PER_STEP)
        return Plan(text, tokens, lengths)

    def first(self, plan: Plan) -> Int32s:
        """The next token of a plan; the end-of-sequence tokens at its end."""
        length = int(plan.lengths[plan.position])
        if not length:
            return self._index.eos
        node = self._index.trie.find(plan.text[plan.position : plan.position + length])
        return self._index.trie.token[node : node + 1]

    def _follow(self, state: State, plan: Plan) -> None:
        """Note the distances of ``state`` and of the next states along ``plan``.

        Stops at a state whose known distance is no larger, and after ``_TOKENS_AHEAD`` tokens;
        ``resume`` goes on from there.
        """
        notes: list[tuple[State, int]] = []
        position, cut = plan.position, False
        if self._known.get(state, _UNREACHABLE) < plan.tokens[position]:
            return
        while True:
            notes.append((state, int(plan.tokens[position])))
            length = int(plan.lengths[position])
            cut = len(notes) > _TOKENS_AHEAD
            if length == 0 or cut:
                break
            state = self._automaton.step(state, plan.text[position : position + length])
            position += length
            if self._known.get(state, _UNREACHABLE) <= plan.tokens[position]:
                break
        self._known.update(notes)  # all, or none if ``step`` raised
        if cut:
            self._plans[state] = replace(plan, position=position)
