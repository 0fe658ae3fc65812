"""The lazily compiled automaton: states on first visit, tables only where a mask walks.

A state is an expression with a small number. Its table row, all 256 next states, costs 1 KB and is
computed only where a mask walk passes. Tokens and forced paths are followed through the expressions
themselves and cost no rows (the compression of the finite-state machine).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.constraint.automaton.trie import DEAD
from app.constraint.language.expressions import ByteSet, Expression, Kind, mark_after
from app.constraint.program import Program
from app.core.errors import ConstraintTooComplex

State = int
"""Number of a state. From ``DEAD`` (0) no answer can be completed."""

START: State = 1

_FORCED_BYTES = 1024
"""Bytes after which a forced path is cut; its end has a forced path of its own."""
_REMEMBERED_BYTES = 128
_MOST_STEPS = 16_384
"""Maximum cached steps; texts longer than ``_REMEMBERED_BYTES`` are not cached."""


@dataclass(frozen=True, slots=True)
class ForcedPath:
    """The longest path with only one possible byte at each state, cut after a KiB."""

    text: bytes
    end: State


class Automaton:
    """States and transitions of one program, memoised. Belongs to one thread at a time.

    It has at most ``max_states`` states, of all requests together: a request that needs another one
    gets ``ConstraintTooComplex``; other requests are not affected.
    """

    def __init__(self, program: Program, max_states: int = 500_000) -> None:
        self.derivatives = program.derivatives
        self.pool = program.derivatives.pool
        self.characters = program.characters
        self.max_states = max_states
        self.rows: NDArray[np.int32] = np.full(64, -1, np.int32)
        """Row of each state in ``transitions``, -1 where not computed yet."""
        self.transitions: NDArray[np.int32] = np.zeros((16, 256), np.int32)
        """Shape [R, 256]: the next state for each byte, ``DEAD`` where there is none."""
        self.accepting: NDArray[np.bool_] = np.zeros(64, np.bool_)
        """Whether an answer may end in each state."""
        self._row_count = 0
        self._members: dict[ByteSet, NDArray[np.intp]] = {}
        self._expressions: list[Expression] = [self.pool.empty]
        self._states: dict[Expression, State] = {self.pool.empty: DEAD}
        self.paths: dict[State, ForcedPath] = {}
        """Cache of ``forced``."""
        self.steps: dict[tuple[State, bytes], State] = {}
        """Cache of ``step``."""
        start = self.state(program.root)
        assert start == START

    def __len__(self) -> int:
        return len(self._expressions)

    @property
    def has_room(self) -> bool:
        """Whether at most half of the allowed states and expressions are used."""
        used = len(self._expressions) / self.max_states, len(self.pool) / self.pool.max_nodes
        return max(used) <= 0.5

    @property
    def learned(self) -> int:
        """Counter that grows with every state, row, step, expression and cached result."""
        known = len(self) + self._row_count + len(self.steps) + len(self.paths)
        return known + len(self.pool) + self.pool.num_notes + self.derivatives.learned

    @property
    def nbytes(self) -> int:
        """Memory for tables and (estimated) expressions, in bytes. Any thread may read it."""
        tables = 1024 * max(16, self._row_count) + 5 * len(self.rows)
        states = 110 * len(self._expressions) + 220 * len(self.pool)
        states += 130 * self.pool.num_notes + 80 * len(self.steps)
        return tables + states + self.derivatives.nbytes

    def state(self, expression: Expression) -> State:
        """The state of an expression, created on first visit."""
        number = self._states.get(expression)
        if number is None:
            number = len(self._expressions)
            if number >= self.max_states:
                raise ConstraintTooComplex(f"more than {self.max_states} states")
            self._states[expression] = number
            self._expressions.append(expression)
            if number >= len(self.rows):
                self.rows = np.concatenate([self.rows, np.full(len(self.rows), -1, np.int32)])
                self.accepting = np.concatenate([self.accepting, np.zeros_like(self.accepting)])
            self.accepting[number] = self.pool.nullable[expression]
        return number

    def expression(self, state: State) -> Expression:
        return self._expressions[state]

    def is_accepting(self, state: State) -> bool:
        return self.pool.nullable[self._expressions[state]]

    def is_final(self, state: State) -> bool:
        """Whether ``state`` is accepting and nothing can follow."""
        expression = self._expressions[state]
        return self.pool.nullable[expression] and not self.derivatives.live_row(expression)

    def without_marks(self, state: State) -> State:
        """``state`` without the marks around its first part; the language is the same."""
        here = self._expressions[state]
        plain = self.derivatives.without_marks(here)
        return state if plain == here else self.state(plain)

    def length(self, state: State) -> int:
        """Bytes in the shortest completion of ``state``."""
        return self.derivatives.length(self._expressions[state])

    def shortest(self, state: State) -> bytes:
        """A shortest completion of ``state``."""
        return self.derivatives.shortest(self._expressions[state])

    def expand(self, state: State) -> None:
        """Compute the table row of ``state``."""
        if self.rows[state] >= 0:
            return
        if self._row_count == len(self.transitions):
            # In place and by a quarter: twice the size in a copy takes 20 ms and more at 16 MB.
            size = self._row_count + max(16, self._row_count // 4)
            self.transitions.resize((size, 256), refcheck=False)
        here = self._expressions[state]
        literal = self.leading_literal(here)
        row = self.transitions[self._row_count]
        row[:] = DEAD  # an interrupted call may have left entries
        if literal:  # the only next byte; its target is alive because the state is
            self.derivatives.spend(2)
            after = self.skip_literal(here, 1)
            row[literal[0]] = self._states.get(after) or self.state(after)
        else:
            for members, target in self.derivatives.live_row(here):
                indices = self._members.get(members)
                if indices is None:
                    indices = self._members[members] = _members(members)
                row[indices] = self._states.get(target) or self.state(target)
        self.rows[state] = self._row_count
        self._row_count += 1

    def step(self, state: State, text: bytes) -> State:
        """The state after ``text``, ``DEAD`` if it leaves the language.

        Cached for short texts, such as those of tokens and most leaps.
        """
        key = (state, text)
        after = self.steps.get(key)
        if after is None:
            after = self._stepped(state, text)
            if len(text) <= _REMEMBERED_BYTES:
                if len(self.steps) >= _MOST_STEPS:
                    self.steps.clear()
                self.steps[key] = after
        return after

    def has_prefix(self, expression: Expression, text: bytes) -> bool:
        """Whether some string of ``expression`` begins with ``text``."""
        for byte in text:
            expression = self.derivatives.derivative_of(expression, byte)
        return self.derivatives.is_alive(expression)

    def _stepped(self, state: State, text: bytes) -> State:
        here = self._expressions[state]
        position, size = 0, len(text)
        while position < size and here != self.pool.empty:
            shared = self._literal_prefix(here, text, position)
            if shared:
                here = self.skip_literal(here, shared)
            else:
                self.derivatives.spend(2)
                here = self.derivatives.derivative_of(here, text[position])
            position += max(shared, 1)
        return self.state(here) if self.derivatives.is_alive(here) else DEAD

    def forced(self, state: State) -> ForcedPath:
        """The forced path from ``state``; empty at a branch or if the answer may end here."""
        path = self.paths.get(state)
        if path is None:
            path = self._follow(state)
            self.paths[state] = path
        return path

    def _follow(self, state: State) -> ForcedPath:
        pool = self.pool
        here = self._expressions[state]
        parts: list[bytes] = []
        size = 0
        while not pool.nullable[here] and size < _FORCED_BYTES:
            literal = self.leading_literal(here)
            if literal:
                parts.append(literal)
                here = self.skip_literal(here, len(literal))
                size += len(literal)
                continue
            if self._branches(here):
                break
            row = self.derivatives.live_row(here)
            if len(row) != 1 or row[0][0] & (row[0][0] - 1):
                break
            members, here = row[0]
            parts.append(bytes([members.bit_length() - 1]))
            size += 1
        return ForcedPath(b"".join(parts), self.state(here)) if parts else ForcedPath(b"", state)

    def quoted(self, state: State, most: int) -> bytes:
        """See ``ConstraintState.quoted``: here there are no documents."""
        return b""

    def _branches(self, expression: Expression) -> bool:
        """Whether several bytes may come next; False if that takes a row to tell."""
        return False

    def leading_literal(self, expression: Expression) -> bytes:
        """The literal at the start of ``expression``, also inside marks; b"" if there is none."""
        kinds, operands = self.pool.kinds, self.pool.operands
        kind, operand = kinds[expression], operands[expression]
        while kind == Kind.CONCATENATION or kind == Kind.MARKED:
            kind, operand = kinds[operand[0]], operands[operand[0]]
        return operand if kind == Kind.LITERAL else b""

    def _literal_prefix(self, expression: Expression, text: bytes, position: int) -> int:
        """How many bytes ``text[position:]`` shares with a leading literal; 0 if not all fit."""
        literal = self.leading_literal(expression)
        shared = min(len(literal), len(text) - position)
        return shared if literal[:shared] == text[position : position + shared] else 0

    def skip_literal(self, expression: Expression, count: int) -> Expression:
        """``expression`` without the first ``count`` (at least 1) bytes of its leading literal."""
        pool = self.pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.LITERAL:
            return pool.literal(operand[count:])
        if kind == Kind.MARKED:
            return pool.marked(self.skip_literal(operand[0], count), mark_after(operand[1]))
        return pool.concatenate(self.skip_literal(operand[0], count), operand[1])


def _members(members: ByteSet) -> NDArray[np.intp]:
    """The bytes of a set, as indices."""
    raw = np.frombuffer(members.to_bytes(32, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little"))
