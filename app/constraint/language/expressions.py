"""Languages over bytes as hash-consed expressions.

An expression is an integer into its ``ExpressionPool``; building the same expression twice gives
the same integer, so a set of expressions is finite where the language is regular, and an
expression can stand for a state of the automaton (Brzozowski 1964; Owens, Reppy and Turon,
"Regular-expression derivatives re-examined", 2009).

The forms are those of ``Kind``. Rules make recursive schemas possible without a depth limit; they
may not stand inside an intersection or a complement, where emptiness would be undecidable.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

from app.constraint.language.cases import Cases
from app.constraint.language.inclusion import Inclusion
from app.constraint.language.nodes import (
    ALL_BYTES,
    INFINITE,
    LONGEST_LITERAL,
    ByteSet,
    Expression,
    Kind,
    Mark,
    Nodes,
    Notation,
    byte_range,
    byte_set,
    bytes_of,
    mark_after,
)
from app.constraint.language.remainders import Remainder

__all__ = [
    "ALL_BYTES",
    "INFINITE",
    "LONGEST_LITERAL",
    "ByteSet",
    "Expression",
    "ExpressionPool",
    "Kind",
    "Mark",
    "Notation",
    "byte_range",
    "byte_set",
    "mark_after",
]

_MANY_MEMBERS = 16
"""The literals of a larger union are grouped by first byte."""
_MOST_NESTED = 64
"""Maximum nesting of common beginnings of literals that are factored out."""
_MOST_FACTORED = 8
"""Maximum nesting of shared heads that are factored out; a character of UTF-8 needs three."""

_FIRST = len(Nodes())
"""Number of expressions that every pool begins with."""

_CONCATENATIONS = {Kind.CONCATENATION}

KEPT = (
    "landmarks", "exact_choices", "exact_lists", "pointers", "has_free_names",
    "notations", "items_are_needed", "items_vary", "longer_items", "needed_names",
)  # fmt: skip
"""Attributes of a pool that copies keep, beside its expressions."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A pattern with bounds on its number of rounds, such as characters."""

    pattern: Expression
    round: Expression
    letters: bytes
    """The bytes that are a round by themselves."""
    low: int
    high: int | None


class ExpressionPool(Nodes):
    """Builds and owns expressions; picklable, for worker processes."""

    def __init__(self, max_nodes: int = 2_000_000) -> None:
        super().__init__(max_nodes)
        self.base: ExpressionPool | None = None
        """The pool that this one extends: shared by the process, and never changed."""
        self._intersections: dict[tuple[Expression, ...], Expression] = {}
        self._counted: dict[Expression, Counted | None] = {}
        self._inclusion = Inclusion(self)
        self.nearest: dict[Cases, int] = {}
        """Lengths of shortest strings of ``Cases``."""
        self._factoring = 0
        """Current nesting of shared heads that are being factored out."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the expressions of ``base``, which the other process has as well.

        The index is pickled, as reading it takes less time than building it again.
        """
        first, rules = self.num_shared, len(self.base.bodies) if self.base else 0
        added = (
            bytes(self.kinds[first:]),
            self.operands[first:],
            self.nullable[first:],
            self.regular[first:],
            self.bodies[rules:],
            [{o: number for o, number in index.items() if number >= first} for index in self.index],
        )
        names = {name: vars(self)[name] for name in KEPT}
        return _restored, (self.base, self.max_nodes, added, names)

    @property
    def num_shared(self) -> int:
        """Number of expressions shared with ``base``, or with any pool if there is none."""
        return len(self.base) if self.base else _FIRST

    def extended(self, max_nodes: int) -> ExpressionPool:
        """A pool that begins with these expressions; this one must not change afterwards."""
        other = self.copy(max_nodes)
        other.base = self
        return other

    def copy(self, max_nodes: int) -> ExpressionPool:
        """Another pool with the same expressions, under the same numbers."""
        other = ExpressionPool(max_nodes)
        other.base = self.base
        other.kinds[:], other.operands[:] = self.kinds, self.operands
        other.nullable[:], other.regular[:] = self.nullable, self.regular
        other.bodies[:] = self.bodies
        for name in KEPT:
            setattr(other, name, copy(vars(self)[name]))
        other.index = [index.copy() for index in self.index]
        return other

    def _absorbs(self, tail: Expression, head: Expression) -> bool:
        """Whether ``tail`` begins with an unbounded repetition that includes ``head``."""
        star = self.operands[tail][0] if self.kinds[tail] == Kind.CONCATENATION else tail
        return bool(self._inclusion.letters(star)) and self._inclusion.is_within(head, star)

    @property
    def num_notes(self) -> int:
        """Number of cached results. Any thread may read it."""
        return (
            len(self._inclusion) + len(self._intersections) + len(self._counted) + len(self.nearest)
        )

    def union(self, members: Iterable[Expression], *, nesting: int = 0) -> Expression:
        """Any of ``members``. Single bytes among them become one byte set.

        ``nesting``: number of common beginnings that were factored out around it.
        """
        kinds, operands = self.kinds, self.operands
        flat: set[Expression] = set()
        single_bytes: ByteSet = 0
        for member in members:
            for part in operands[member] if kinds[member] == Kind.UNION else (member,):
                kind = kinds[part]
                if kind == Kind.BYTES:
                    single_bytes |= operands[part]
                elif kind == Kind.LITERAL and len(operands[part]) == 1:
                    single_bytes |= 1 << operands[part][0]
                elif part == self.everything:
                    return part
                elif kind != Kind.EMPTY:
                    flat.add(part)
        if single_bytes:
            flat.add(self.byte(single_bytes))
        if self.epsilon in flat and any(self.nullable[m] for m in flat if m != self.epsilon):
            flat.discard(self.epsilon)
        if len(flat) < 2:
            return flat.pop() if flat else self.empty
        occurring = {kinds[member] for member in flat}
        if Kind.REPETITION in occurring:
            # Members within an unbounded repetition among them add nothing.
            for star in [member for member in flat if self._inclusion.letters(member)]:
                flat = {m for m in flat if m == star or not self._inclusion.is_within(m, star)}
        elif occurring == _CONCATENATIONS and self._factoring < _MOST_FACTORED:
            head = self._shared_head(flat)
            if head is not None:
                self._factoring += 1
                rest = self.union([operands[m][1] for m in flat])
                self._factoring -= 1
                return self.concatenate(head, rest)
        if len(flat) > _MANY_MEMBERS and nesting < _MOST_NESTED:
            flat = self._by_first_byte(flat, nesting)
        return self._associative(Kind.UNION, flat, self.empty)

    def _shared_head(self, members: Iterable[Expression]) -> Expression | None:
        """The common head of all ``members``, if it is a fixed number of bytes of one set."""
        heads = {
            self.operands[m][0] if self.kinds[m] == Kind.CONCATENATION else self.empty
            for m in members
        }
        head = repeated = heads.pop()
        if self.kinds[head] == Kind.REPETITION and self.operands[head][1] == self.operands[head][2]:
            repeated = self.operands[head][0]
        return None if heads or self.kinds[repeated] != Kind.BYTES else head

    def _by_first_byte(self, members: set[Expression], nesting: int) -> set[Expression]:
        """The same union, with common beginnings of literals factored out.

        A derivative then costs the branches at one position instead of all members.
        """
        groups: dict[int, list[tuple[bytes, Expression]]] = {}
        result = set()
        for member in members:
            kind, operand = self.kinds[member], self.operands[member]
            head, tail = operand if kind == Kind.CONCATENATION else (member, self.epsilon)
            if self.kinds[head] == Kind.LITERAL:
                text = self.operands[head]
                groups.setdefault(text[0], []).append((text, tail))
            else:
                result.add(member)
        for group in groups.values():
            texts = [text for text, _ in group]
            shared = _common_length(min(texts), max(texts))
            rest = [self.after_text(text[shared:], tail) for text, tail in group if text[shared:]]
            after = self.union(rest, nesting=nesting + 1)
            # Not factored after the end of a literal, which could recur for ever.
            if used_up := [tail for text, tail in group if len(text) == shared]:
                after = self.union([after, *used_up], nesting=_MOST_NESTED)
            result.add(self.concatenate(self.literal(texts[0][:shared]), after))
        return result

    def one_of(self, texts: Iterable[bytes]) -> Expression:
        """Exactly one of ``texts``, as a tree of their common beginnings.

        A derivative costs the branches at one position, that of a union of literals all texts.
        """
        ordered = sorted(set(texts))
        open_nodes: list[tuple[int, list[Expression]]] = [(0, [])]
        """The path to the current text: bytes before a node, and the options after it."""
        for text, following in zip(ordered, [*ordered[1:], b""], strict=False):
            shared, end, rest = _common_length(text, following), len(text), self.epsilon
            while True:
                if open_nodes[-1][0] < shared:
                    open_nodes.append((shared, []))
                start, options = open_nodes[-1]
                options.append(self.after_text(text[start:end], rest) if start < end else rest)
                if start == shared:
                    break
                end, rest = start, self._branching(options)
                open_nodes.pop()
        return self._branching(open_nodes[0][1])

    def _branching(self, options: list[Expression]) -> Expression:
        """The union of ``options``, no two of which begin with the same byte."""
        kinds, operands = self.kinds, self.operands
        single_bytes: ByteSet = 0
        longer = []
        for option in options:
            if kinds[option] == Kind.LITERAL and len(operands[option]) == 1:
                single_bytes |= 1 << operands[option][0]
            else:
                longer.append(option)
        if single_bytes:
            longer.append(self.byte(single_bytes))
        if len(longer) < 2:
            return longer[0] if longer else self.empty
        nullable = self.epsilon in longer
        return self.node(Kind.UNION, tuple(sorted(longer)), nullable=nullable, regular=True)

    def optional(self, expression: Expression) -> Expression:
        if self.nullable[expression]:
            return expression
        if self.kinds[expression] == Kind.CONCATENATION:
            operand, regular = (self.epsilon, expression), self.regular[expression]
            return self.node(Kind.UNION, operand, nullable=True, regular=regular)
        return self.union((self.epsilon, expression))

    def intersect(self, members: Iterable[Expression]) -> Expression:
        """The intersection of ``members``, which may not contain rules."""
        flat: set[Expression] = set()
        common: ByteSet | None = None
        for member in members:
            parts = self.operands[member] if self.kinds[member] == Kind.INTERSECTION else (member,)
            for part in parts:
                kind = self.kinds[part]
                if kind == Kind.BYTES:
                    bits = self.operands[part]
                    common = bits if common is None else common & bits
                elif part == self.empty:
                    return self.empty
                elif part != self.everything:
                    assert self.regular[part], "rules may not stand inside an intersection"
                    flat.add(part)
        if common is not None:
            one_byte = self.byte(common)
            if one_byte == self.empty:
                return self.empty
            flat.add(one_byte)
        if self.epsilon in flat:
            return self.epsilon if all(self.nullable[m] for m in flat) else self.empty
        if len(flat) < 2:
            return self._associative(Kind.INTERSECTION, flat, self.everything)
        key = tuple(sorted(flat))
        known = self._intersections.get(key)
        if known is None:
            known = self._intersections[key] = self._intersect(flat)
        return known

    def _intersect(self, members: set[Expression]) -> Expression:
        """The intersection of two or more members."""
        excluded = {self.operands[m] for m in members if self.kinds[m] == Kind.COMPLEMENT}
        wanted = {m for m in members if self.kinds[m] != Kind.COMPLEMENT}
        if self._inclusion.contradict(wanted, excluded):
            return self.empty
        for star in [member for member in wanted if self._inclusion.letters(member)]:
            if any(m != star and self._inclusion.is_within(m, star) for m in wanted):
                wanted.discard(star)
                members = members - {star}
        if self._factoring < _MOST_FACTORED:
            self._factoring += 1
            factored = self._factored(wanted, excluded)
            self._factoring -= 1
            if factored is not None:
                return factored
        return self._associative(Kind.INTERSECTION, members, self.everything)

    def _factored(self, wanted: set[Expression], excluded: set[Expression]) -> Expression | None:
        """The intersection of members that all begin with a byte of a set; None for other forms.

        The byte is factored out, so the inside of a character in UTF-8 is one state, whatever is
        intersected around it.
        """
        head = self._shared_head((*wanted, *excluded)) if wanted else None
        if head is not None:
            rests = [self.operands[m][1] for m in wanted]
            rests += [self.complement(self.operands[m][1]) for m in excluded]
            return self.concatenate(head, self.intersect(rests))
        common, rests = ALL_BYTES, []
        for member in wanted:
            bits = self._first_bytes(member)
            if bits is None:
                return None
            common &= bits
            rests.append(self.operands[member][1])
        if not rests:
            return None
        for member in excluded:
            bits = self._first_bytes(member)
            if bits is None or (bits & common and common & ~bits):
                return None
            if bits & common:
                rests.append(self.complement(self.operands[member][1]))
        return self.concatenate(self.byte(common), self.intersect(rests))

    def _first_bytes(self, expression: Expression) -> ByteSet | None:
        """The set whose bytes begin a concatenation; None if it begins otherwise."""
        if self.kinds[expression] != Kind.CONCATENATION:
            return None
        head = self.operands[expression][0]
        bits: ByteSet = self.operands[head]
        return bits if self.kinds[head] == Kind.BYTES else None

    def counted(self, expression: Expression) -> Counted | None:
        """An intersection as a pattern with bounds on its rounds; None for other forms."""
        if self.kinds[expression] != Kind.INTERSECTION:
            return None
        if expression not in self._counted:
            self._counted[expression] = self._pattern_and_count(self.operands[expression])
        return self._counted[expression]

    def _pattern_and_count(self, members: tuple[Expression, ...]) -> Counted | None:
        """``counted`` of an intersection, by a member with bounds if there is one."""
        found = None
        for member in members:
            rounds = self._rounds(member)
            if rounds is None:
                continue
            repeated, low, high = rounds
            letters = self._inclusion.letters(self.repeat(repeated))
            if letters and (found is None or low or high is not None):
                pattern = self.intersect([other for other in members if other != member])
                single = bytes(bytes_of(letters))
                found = Counted(pattern, repeated, single, low, high)
                if low or high is not None:
                    break
        return found

    def _rounds(self, expression: Expression) -> tuple[Expression, int, int | None] | None:
        """A repetition's operand, also if anything may follow it; None for other forms."""
        if self.kinds[expression] == Kind.CONCATENATION:
            head, tail = self.operands[expression]
            if tail != self.everything or self.kinds[head] != Kind.REPETITION:
                return None
            repeated, low, high = self.operands[head]
            return (repeated, low, None) if low == high else None
        rounds: tuple[Expression, int, int | None] = self.operands[expression]
        return rounds if self.kinds[expression] == Kind.REPETITION else None

    def complement(self, expression: Expression) -> Expression:
        """Every byte string that ``expression`` does not contain. It may not contain a rule."""
        if self.kinds[expression] == Kind.COMPLEMENT:
            inner: Expression = self.operands[expression]
            return inner
        assert self.regular[expression], "rules may not stand inside a complement"
        nullable = not self.nullable[expression]
        return self.node(Kind.COMPLEMENT, expression, nullable=nullable, regular=True)

    def repeat(self, expression: Expression, low: int = 0, high: int | None = None) -> Expression:
        """``expression`` from ``low`` to ``high`` times over; ``high`` None is without bound."""
        if high is not None and low > high:
            return self.empty
        if high == 0 or expression == self.epsilon:
            return self.epsilon
        if expression == self.empty:
            return self.epsilon if low == 0 else self.empty
        if low == 1 and high == 1:
            return expression
        if self.nullable[expression]:
            low = 0
        regular = self.regular[expression]
        return self.node(
            Kind.REPETITION, (expression, low, high), nullable=low == 0, regular=regular
        )

    def repeat_after_one(self, expression: Expression, low: int, high: int | None) -> Expression:
        """The rest of ``repeat`` after the first time."""
        return self.repeat(expression, max(low - 1, 0), None if high is None else high - 1)

    def remainder(self, rest: Remainder) -> Expression:
        """The digits that end a multiple, or a non-multiple; expanded along an answer."""
        known = self.index[Kind.REMAINDER].get(rest)
        if known is not None:
            return known
        if not rest.is_alive:
            return self.empty
        return self.node(Kind.REMAINDER, rest, nullable=rest.may_end, regular=True)

    def distinct(
        self, items: tuple[Expression, ...], between: Expression, low: int, high: int
    ) -> Expression:
        """``low`` to ``high`` of ``items``, one or more, each at most once, in any order.

        ``between`` stands between two of them. The remaining items are computed along an answer
        (``expand``), so the number of subsets does not matter.
        """
        high = min(high, len(items))
        if high < max(low, 1):
            return self.empty
        operand = (items, between, max(low, 1), high)
        return self.node(Kind.DISTINCT, operand, nullable=False, regular=False)

    def cases(self, cases: Cases) -> Expression:
        """The concatenation of parts by choices."""
        found = cases.reduced(self.union, self.empty)
        if found is None:
            return self.empty
        tables = found.parts
        open_parts = [number for number, table in enumerate(tables) if len(table) > 1]
        if not open_parts:
            return self.concatenate(*[table[0] for table in tables])
        first, last = open_parts[0], open_parts[-1] + 1
        found = found.section(first, last)
        nullable = all(any(self.nullable[entry] for entry in table) for table in found.parts)
        if nullable:
            lengths = found.mapped(lambda e: INFINITE if e == self.empty else 1 - self.nullable[e])
            nullable = lengths.nearest(self.nearest) == 0
        chosen = self.node(Kind.CASES, found, nullable=nullable, regular=False)
        before = [table[0] for table in tables[:first]]
        return self.concatenate(*before, chosen, *[table[0] for table in tables[last:]])

    def expand(self, expression: Expression) -> Expression:
        """Expand a set of different items, or ``Cases``, by one step."""
        if self.kinds[expression] == Kind.CASES:
            return self.union(map(self.cases, self.operands[expression].split()))
        items, between, low, high = self.operands[expression]
        options = []
        for index, item in enumerate(items):
            left = self.distinct(items[:index] + items[index + 1 :], between, low - 1, high - 1)
            rest = self.concatenate(between, left)
            options.append(self.concatenate(item, rest if low > 1 else self.optional(rest)))
        return self.union(options)

    def behind_first(self, cases: Cases) -> Expression:
        """The rest after the first part if that is empty."""
        met = [bits for bits, entry in enumerate(cases.parts[0]) if self.nullable[entry]]
        most = [bits for bits in met if not any(bits | more == more != bits for more in met)]
        options = cases.split()
        rests = [Cases(((self.epsilon,), *options[b].parts[1:]), options[b].choices) for b in most]
        return self.union(map(self.cases, rests))

    def _associative(self, kind: int, members: set[Expression], neutral: Expression) -> Expression:
        if not members:
            return neutral
        if len(members) == 1:
            return next(iter(members))
        operand = tuple(sorted(members))
        found = self.index[kind].get(operand)
        if found is not None:
            return found
        combine = any if kind == Kind.UNION else all
        nullable = combine([self.nullable[m] for m in operand])
        regular = all(self.regular[m] for m in operand)
        return self._new(kind, operand, nullable, regular)


def _restored(
    base: ExpressionPool | None, max_nodes: int, added: tuple[Any, ...], names: dict[str, Any]
) -> ExpressionPool:
    """A pool as it was pickled."""
    pool = base.extended(max_nodes) if base else ExpressionPool(max_nodes)
    kinds, operands, nullable, regular, bodies, indexes = added
    pool.kinds += kinds
    pool.operands += operands
    pool.nullable += nullable
    pool.regular += regular
    pool.bodies += bodies
    for index, known in zip(indexes, pool.index, strict=True):
        index |= known
    pool.index = indexes
    vars(pool).update(names)
    return pool


def _common_length(left: bytes, right: bytes) -> int:
    """Length of the common prefix."""
    size = min(len(left), len(right))
    if left[:size] == right[:size]:
        return size
    index = 0
    while left[index] == right[index]:
        index += 1
    return index
