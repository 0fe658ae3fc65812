"""Splits expressions into heads and tails, and drops bounds that do not affect a mask.

The masks stay the same; more states share what is computed for them.
"""

from __future__ import annotations

from collections.abc import Collection

from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import Expression, Kind
from app.constraint.language.nodes import bytes_of

_STRUCTURE = frozenset(b'"[]{},<')
"""Bytes of the structure of JSON around scalars: where a head ends."""

_MOST_PIECES = 64
"""Maximum parts of a head."""
_MOST_WORDS = 2_000
"""Maximum words of a finite language that is listed."""
_MOST_BYTES = 1 << 16
"""Maximum bytes of all words of such a language."""


class BoundsRelaxation:
    """Splits and relaxes the expressions of one pool, memoised."""

    def __init__(self, derivatives: Derivatives, characters: Collection[Expression | None]) -> None:
        self._pool = derivatives.pool
        self._length, self._spend = derivatives.length, derivatives.spend
        self._plain: dict[Expression, bool] = {
            each: True for each in characters if each is not None
        }
        self._unbounded: dict[Expression, tuple[Expression, int | None]] = {}
        self._words: dict[Expression, frozenset[bytes] | None] = {}

    def __len__(self) -> int:
        """Number of cached results. Any thread may read it."""
        return len(self._plain) + len(self._unbounded) + len(self._words)

    def split(self, expression: Expression) -> tuple[Expression, Expression] | None:
        """The plain head of ``expression`` and its tail; None if it has no plain head."""
        pool = self._pool
        parts: list[Expression] = []
        while pool.kinds[expression] == Kind.CONCATENATION:
            head, tail = pool.operands[expression]
            if not self.is_plain(head) or len(parts) == _MOST_PIECES:
                break
            parts.append(head)
            expression = tail
        else:
            if self.is_plain(expression):
                parts.append(expression)
                expression = pool.epsilon
        return (pool.concatenate(*parts), expression) if parts else None

    def is_plain(self, expression: Expression) -> bool:
        """Whether ``expression`` has no rules and, by its form, no structure of JSON inside."""
        known = self._plain.get(expression)
        if known is None:
            pool = self._pool
            kind, operand = pool.kinds[expression], pool.operands[expression]
            if kind == Kind.LITERAL:  # a backslash begins an escape
                known = operand[0] == 0x5C or _STRUCTURE.isdisjoint(operand)
            elif kind == Kind.HOLE or kind == Kind.PIECE:
                known = False
            elif kind == Kind.COMPLEMENT:  # structure inside is excluded
                known = pool.regular[expression]
            else:
                parts = pool.pieces if kind == Kind.CONCATENATION else pool.parts
                try:
                    known = pool.regular[expression] and all(map(self.is_plain, parts(expression)))
                except RecursionError:  # nested too deeply to share anything
                    known = False
            self._plain[expression] = known
        return known

    def unbounded(self, expression: Expression, above: int) -> tuple[Expression, int | None]:
        """``expression`` without repetition bounds of more than ``above`` bytes, and the fewest
        bytes that one of these bounds admits; None if there was none.

        Bounds inside complements stay: without them the complement would be smaller.
        """
        known = self._unbounded.get(expression)
        if known is None:
            known = self._unbounded[expression] = self._new_unbounded(expression, above)
        return known

    def _new_unbounded(self, expression: Expression, above: int) -> tuple[Expression, int | None]:
        pool = self._pool
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind not in (Kind.CONCATENATION, Kind.UNION, Kind.INTERSECTION, Kind.REPETITION):
            return expression, None
        pieces = pool.parts(expression)
        if kind == Kind.CONCATENATION:
            pieces = tuple(pool.pieces(expression))
        parts = [self.unbounded(piece, above) for piece in pieces]
        bounds = [bound for _, bound in parts if bound is not None]
        unbounded = [part for part, _ in parts]
        if kind == Kind.REPETITION:
            _, low, high = operand
            least = self._length(operand[0])
            if high is not None and high > low and high * least > above:
                bounds.append(high * least)
                high = None
            result = pool.repeat(unbounded[0], low, high) if bounds else expression
        elif not bounds:
            result = expression
        elif kind == Kind.CONCATENATION:
            result = pool.concatenate(*unbounded)
        else:
            result = pool.union(unbounded) if kind == Kind.UNION else pool.intersect(unbounded)
        return result, min(bounds, default=None)

    def words(self, expression: Expression) -> frozenset[bytes] | None:
        """All strings of a language that is plainly finite and small, else None. Memoised."""
        if expression not in self._words:
            self._words[expression] = self.listed(expression)
        return self._words[expression]

    def listed(self, expression: Expression) -> frozenset[bytes] | None:
        """``words`` without memoising."""
        pool, words, size = self._pool, set[bytes](), 0
        waiting = [(expression, b"")]
        """The rest of words, and the text before it."""
        while waiting:
            here, prefix = waiting.pop()
            self._spend(1)
            size += len(prefix)
            if size > _MOST_BYTES or len(words) + len(waiting) > _MOST_WORDS:
                return None
            first, rest = here, pool.epsilon
            if pool.kinds[here] == Kind.CONCATENATION:
                first, rest = pool.operands[here]
            kind, operand = pool.kinds[first], pool.operands[first]
            if kind == Kind.EPSILON:
                words.add(prefix)
            elif kind == Kind.LITERAL:
                waiting.append((rest, prefix + operand))
            elif kind == Kind.BYTES:
                waiting += [(rest, prefix + bytes([byte])) for byte in bytes_of(operand)]
            elif kind == Kind.UNION and rest == pool.epsilon:
                waiting += [(member, prefix) for member in operand]
            elif kind != Kind.EMPTY:
                return None
        return frozenset(words)
