"""Languages over bytes as hash-consed expressions.

An expression is an integer into its ``ExpressionPool``; building the same expression twice gives
the same integer, so a set of expressions is finite where the language is regular, and an
expression can stand for a state of the automaton (Brzozowski 1964; Owens, Reppy and Turon,
"Regular-expression derivatives re-examined", 2009). ``app.constraint.derivatives`` takes them
apart again.

The forms are: the empty language, the empty string, one byte of a set, a literal, concatenation,
union, intersection, complement, bounded repetition, different items of a finite set, and reference
to a named rule. Rules make recursive schemas possible without a depth limit; they may not stand
inside an intersection or a complement, where emptiness would be undecidable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

from app.core.errors import ConstraintTooComplex

Expression = int
"""An index into the pool that built it."""

ByteSet = int
"""A set of bytes as 256 bits: byte b is in the set where bit b is 1."""

ALL_BYTES: ByteSet = (1 << 256) - 1
INFINITE: int = 1 << 60
"""Length of the shortest string of a language that has none."""


LONGEST_LITERAL = 256
"""Bytes of one literal; longer texts are concatenations of them."""


_MANY_MEMBERS = 16
"""A union of more has its literals sorted by first byte."""
_MOST_NESTED = 64
"""So many common beginnings are taken out inside one another."""


class Kind:
    """Form of an expression; ``pool.operands[e]`` holds what the comment says.

    Plain numbers: a member of an ``Enum`` takes eight times as long to look up in Python 3.11.
    """

    EMPTY: Final = 0  # None: no string at all
    EPSILON: Final = 1  # None: the empty string
    BYTES: Final = 2  # ByteSet of two or more bytes
    LITERAL: Final = 3  # bytes, 1 to LONGEST_LITERAL
    CONCATENATION: Final = 4  # (head, tail); head is never itself a concatenation
    UNION: Final = 5  # sorted tuple of two or more expressions
    INTERSECTION: Final = 6  # sorted tuple of two or more expressions
    COMPLEMENT: Final = 7  # expression
    REPETITION: Final = 8  # (expression, low, high); high is None where unbounded
    RULE: Final = 9  # index into pool.bodies
    DISTINCT: Final = 10  # (items, between, low, high); see pool.distinct


def byte_range(first: int, last: int) -> ByteSet:
    """The bytes from ``first`` to ``last``, both included."""
    return (1 << (last + 1)) - (1 << first)


def byte_set(members: Iterable[int]) -> ByteSet:
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


_MOST_FACTORED = 8
"""Shared beginnings that are taken out at once; a character of UTF-8 needs three."""

_CONCATENATIONS = {Kind.CONCATENATION}


class ExpressionPool:
    """Builds and owns expressions; picklable, so that a worker process can send one back.

    The index is pickled, too: reading it takes less time than building it again.

    ``max_nodes`` bounds what building *and* taking derivatives may create; passing it raises
    ``ConstraintTooComplex``.
    """

    def __init__(self, max_nodes: int = 2_000_000) -> None:
        self.max_nodes = max_nodes
        self.kinds: list[int] = []
        self.operands: list[Any] = []
        self.nullable: list[bool] = []
        self.regular: list[bool] = []
        """Whether no rule is referred to anywhere inside."""
        self.bodies: list[Expression | None] = []
        self.landmarks: dict[Hashable, Expression] = {}
        """What was built with ``once``, by name."""
        self._index: list[dict[Any, Expression]] = [{} for _ in range(Kind.DISTINCT + 1)]
        """For each kind, the expressions by their operands."""
        self._within: dict[tuple[Expression, Expression], bool] = {}
        self._intersections: dict[tuple[Expression, ...], Expression] = {}
        self._factoring = 0
        """Shared beginnings that are being taken out, one behind the other."""
        self.empty = self.node(Kind.EMPTY, None, nullable=False, regular=True)
        self.epsilon = self.node(Kind.EPSILON, None, nullable=True, regular=True)
        self.everything = self.complement(self.empty)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_within": {}, "_intersections": {}}

    def copy(self, max_nodes: int) -> ExpressionPool:
        """Another pool with the same expressions, under the same numbers."""
        other = ExpressionPool(max_nodes)
        other.kinds, other.operands = self.kinds.copy(), self.operands.copy()
        other.nullable, other.regular = self.nullable.copy(), self.regular.copy()
        other.bodies, other.landmarks = self.bodies.copy(), self.landmarks.copy()
        other._index = [index.copy() for index in self._index]
        return other

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def num_notes(self) -> int:
        """How many intersections and parts of repetitions are remembered; any thread may ask."""
        return len(self._within) + len(self._intersections)

    def once(self, name: Hashable, build: Callable[[], Expression]) -> Expression:
        """What ``build`` makes, called the first time that ``name`` is asked for."""
        known = self.landmarks.get(name)
        if known is None:
            known = self.landmarks[name] = build()
        return known

    def byte(self, members: ByteSet) -> Expression:
        """Any one byte of ``members``."""
        if members == 0:
            return self.empty
        if members & (members - 1) == 0:
            return self.literal(bytes([members.bit_length() - 1]))
        return self.node(Kind.BYTES, members, nullable=False, regular=True)

    def literal(self, text: bytes) -> Expression:
        """Exactly ``text``; a long one in pieces, so that a derivative does not copy all of it."""
        known = self._index[Kind.LITERAL].get(text)
        if known is not None:
            return known
        if not text:
            return self.epsilon
        size, result = LONGEST_LITERAL, self.epsilon
        for start in range((len(text) - 1) // size * size, -1, -size):
            piece = text[start : start + size]
            one = self.node(Kind.LITERAL, piece, nullable=False, regular=True)
            result = one if result == self.epsilon else self._pair(one, result)
        return result

    def concatenate(self, *parts: Expression) -> Expression:
        """The parts one after the other. Adjacent literals become one."""
        result, text = self.epsilon, b""
        for part in reversed(parts):
            if result == self.epsilon and not text:
                result = part
                continue
            for piece in reversed(self._pieces(part)):
                written = self.operands[piece] if self.kinds[piece] == Kind.LITERAL else b""
                if text and not 0 < len(written) <= LONGEST_LITERAL - len(text):
                    result, text = self._prepend_text(text, result), b""
                if written:
                    text = written + text
                else:
                    result = self._prepend(piece, result)
        return self._prepend_text(text, result) if text else result

    def _pieces(self, expression: Expression) -> list[Expression]:
        """What a concatenation is of; an expression of another form by itself."""
        pieces = []
        while self.kinds[expression] == Kind.CONCATENATION:
            piece, expression = self.operands[expression]
            pieces.append(piece)
        pieces.append(expression)
        return pieces

    def union(self, members: Iterable[Expression]) -> Expression:
        """Any of ``members``. Single bytes among them become one byte set."""
        return self._union(members, 0)

    def _union(self, members: Iterable[Expression], nesting: int) -> Expression:
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
            flat = self._without_absorbed(flat)
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

    def _without_absorbed(self, members: set[Expression]) -> set[Expression]:
        """The members of a union without those that lie within a free repetition among them."""
        for star in [member for member in members if self._letters(member)]:
            members = {m for m in members if m == star or not self._is_within(m, star)}
        return members

    def _letters(self, star: Expression) -> ByteSet:
        """The bytes that a repetition without bounds repeats; 0 where it is none."""
        if self.kinds[star] != Kind.REPETITION or self.operands[star][1:] != (0, None):
            return 0
        inner = self.operands[star][0]
        if self.kinds[inner] == Kind.BYTES:
            return int(self.operands[inner])
        if self.kinds[inner] != Kind.UNION:
            return 0
        parts = (part for part in self.operands[inner] if self.kinds[part] == Kind.BYTES)
        return int(self.operands[next(parts, self.epsilon)] or 0)

    def _is_within(self, expression: Expression, star: Expression) -> bool:
        """Whether surely every string of the language is one of a free repetition.

        Sees through what is made of its letters and of what it repeats; not through the rest.
        """
        known = self._within.get((expression, star))
        if known is None:
            known = self._is_within_new(expression, star)
            self._within[expression, star] = known
        return known

    def _is_within_new(self, expression: Expression, star: Expression) -> bool:
        letters, inner = self._letters(star), self.operands[star][0]
        while self.kinds[expression] == Kind.CONCATENATION:
            head, expression = self.operands[expression]
            if not self._is_within(head, star):
                return False
        kind, operand = self.kinds[expression], self.operands[expression]
        if expression in (star, inner, self.epsilon):
            return True
        if kind == Kind.LITERAL:
            return all(letters >> byte & 1 for byte in operand)
        if kind == Kind.BYTES:
            return not operand & ~letters
        if kind == Kind.UNION:
            return all(self._is_within(member, star) for member in operand)
        if kind == Kind.INTERSECTION:
            return any(self._is_within(member, star) for member in operand)
        if kind == Kind.REPETITION:
            return self._is_within(operand[0], star)
        return False

    def _shared_head(self, members: Iterable[Expression]) -> Expression | None:
        """What all ``members`` begin with, where that is so many bytes of one set."""
        heads = {
            self.operands[m][0] if self.kinds[m] == Kind.CONCATENATION else self.empty
            for m in members
        }
        head = heads.pop()
        if heads or not self._is_run(head):
            return None
        return head

    def _is_run(self, expression: Expression) -> bool:
        """Whether all strings are of one length, each byte of one set."""
        if self.kinds[expression] == Kind.REPETITION:
            repeated, low, high = self.operands[expression]
            return bool(low == high) and self.kinds[repeated] == Kind.BYTES
        return self.kinds[expression] == Kind.BYTES

    def _by_first_byte(self, members: set[Expression], nesting: int) -> set[Expression]:
        """The same union with what literals begin alike taken out before them.

        A derivative then costs the branches at one place, and not every member.
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
            rest = [self.concatenate(self.literal(text[shared:]), tail) for text, tail in group]
            # What follows a literal that is used up is not looked into: that could go on for ever.
            used_up = any(len(text) == shared for text in texts)
            after = self._union(rest, _MOST_NESTED if used_up else nesting + 1)
            result.add(self.concatenate(self.literal(texts[0][:shared]), after))
        return result

    def one_of(self, texts: Iterable[bytes]) -> Expression:
        """Exactly one of ``texts``, as a tree of their common beginnings.

        A derivative costs the branches at one place; that of a union of literals costs all texts.
        """
        ordered = sorted(set(texts))
        open_nodes: list[tuple[int, list[Expression]]] = [(0, [])]
        """The way to the current text: bytes before a node, and what may follow there."""
        for text, following in zip(ordered, [*ordered[1:], b""], strict=False):
            shared, end, rest = _common_length(text, following), len(text), self.epsilon
            while True:
                if open_nodes[-1][0] < shared:
                    open_nodes.append((shared, []))
                start, options = open_nodes[-1]
                options.append(self.concatenate(self.literal(text[start:end]), rest))
                if start == shared:
                    break
                end, rest = start, self.union(options)
                open_nodes.pop()
        return self.union(open_nodes[0][1])

    def optional(self, expression: Expression) -> Expression:
        return self.union((self.epsilon, expression))

    def intersect(self, members: Iterable[Expression]) -> Expression:
        """What all ``members`` have in common. None of them may contain a rule."""
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
        """What two or more members have in common."""
        excluded = {self.operands[m] for m in members if self.kinds[m] == Kind.COMPLEMENT}
        wanted = {m for m in members if self.kinds[m] != Kind.COMPLEMENT}
        if self._contradict(wanted, excluded):
            return self.empty
        for star in [member for member in wanted if self._letters(member)]:
            if any(m != star and self._is_within(m, star) for m in wanted):
                wanted.discard(star)
                members = members - {star}
        if self._factoring < _MOST_FACTORED:
            self._factoring += 1
            factored = self._factored(wanted, excluded)
            self._factoring -= 1
            if factored is not None:
                return factored
        return self._associative(Kind.INTERSECTION, members, self.everything)

    def _contradict(self, wanted: set[Expression], excluded: set[Expression]) -> bool:
        """Whether something wanted plainly lies within something excluded."""
        if not wanted.isdisjoint(excluded):
            return True
        stars = [member for member in excluded if self._letters(member)]
        return any(self._is_within(member, star) for star in stars for member in wanted)

    def _factored(self, wanted: set[Expression], excluded: set[Expression]) -> Expression | None:
        """An intersection of which all members begin with one byte of a set: that, and the rest.

        So the inside of a character in UTF-8 is one state, whatever is intersected around it.
        None where the members are of other forms.
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
        """The set that a concatenation begins with one byte of, if it does."""
        if self.kinds[expression] != Kind.CONCATENATION:
            return None
        head = self.operands[expression][0]
        bits: ByteSet = self.operands[head]
        return bits if self.kinds[head] == Kind.BYTES else None

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

    def distinct(
        self, items: tuple[Expression, ...], between: Expression, low: int, high: int
    ) -> Expression:
        """``low`` to ``high`` of ``items``, one or more, each at most once, in any order.

        ``between`` stands between two of them. What is left of the items is worked out as far as
        an answer goes (``expand_distinct``), so the number of their subsets does not matter.
        """
        high = min(high, len(items))
        if high < max(low, 1):
            return self.empty
        operand = (items, between, max(low, 1), high)
        return self.node(Kind.DISTINCT, operand, nullable=False, regular=False)

    def expand_distinct(self, expression: Expression) -> Expression:
        """The same language: one of the items, and what is left of the others."""
        items, between, low, high = self.operands[expression]
        options = []
        for index, item in enumerate(items):
            left = self.distinct(items[:index] + items[index + 1 :], between, low - 1, high - 1)
            rest = self.concatenate(between, left)
            options.append(self.concatenate(item, rest if low > 1 else self.optional(rest)))
        return self.union(options)

    def declare_rule(self, *, nullable: bool = False) -> Expression:
        """A reference to a rule whose body comes later; ``nullable`` says if it has b""."""
        self.bodies.append(None)
        rule = self.node(Kind.RULE, len(self.bodies) - 1, nullable=nullable, regular=False)
        return rule

    def define_rule(self, rule: Expression, body: Expression) -> None:
        """Give a declared rule its body. A body may refer to any rule, itself included."""
        assert self.kinds[rule] == Kind.RULE
        assert self.nullable[body] == self.nullable[rule], "declared with other nullability"
        self.bodies[self.operands[rule]] = body

    def _prepend(self, head: Expression, tail: Expression) -> Expression:
        """``head``, which is neither a concatenation nor a literal, and then ``tail``."""
        if tail == self.epsilon:
            return head
        if head == self.epsilon:
            return tail
        if head == self.empty or tail == self.empty:
            return self.empty
        return self._pair(head, tail)

    def _prepend_text(self, text: bytes, tail: Expression) -> Expression:
        """``text``, which is not empty, and then ``tail``; one literal where that is not long."""
        if tail == self.empty:
            return tail
        first, rest = tail, self.epsilon
        if self.kinds[tail] == Kind.CONCATENATION:
            first, rest = self.operands[tail]
        if self.kinds[first] == Kind.LITERAL:
            both = text + self.operands[first]
            if len(both) <= LONGEST_LITERAL:
                text, tail = both, rest
        literal = self.literal(text)
        return literal if tail == self.epsilon else self._pair(literal, tail)

    def _pair(self, head: Expression, tail: Expression) -> Expression:
        found = self._index[Kind.CONCATENATION].get((head, tail))
        if found is not None:
            return found
        nullable = self.nullable[head] and self.nullable[tail]
        regular = self.regular[head] and self.regular[tail]
        return self.node(Kind.CONCATENATION, (head, tail), nullable=nullable, regular=regular)

    def _associative(self, kind: int, members: set[Expression], neutral: Expression) -> Expression:
        if not members:
            return neutral
        if len(members) == 1:
            return next(iter(members))
        operand = tuple(sorted(members))
        found = self._index[kind].get(operand)
        if found is not None:
            return found
        combine = any if kind == Kind.UNION else all
        nullable = combine([self.nullable[m] for m in operand])
        regular = all(self.regular[m] for m in operand)
        return self.node(kind, operand, nullable=nullable, regular=regular)

    def node(self, kind: int, operand: Any, *, nullable: bool, regular: bool) -> Expression:
        """The expression of this form, which the other methods would make of its parts, too."""
        index = self._index[kind]
        found = index.get(operand)
        if found is not None:
            return found
        number = len(self.kinds)
        if number >= self.max_nodes:
            raise ConstraintTooComplex(f"more than {self.max_nodes} expression nodes")
        self.kinds.append(kind)
        self.operands.append(operand)
        self.nullable.append(nullable)
        self.regular.append(regular)
        index[operand] = number
        return number


def _common_length(left: bytes, right: bytes) -> int:
    """How many bytes ``left`` and ``right`` begin with alike."""
    size = min(len(left), len(right))
    if left[:size] == right[:size]:
        return size
    return next(index for index in range(size) if left[index] != right[index])
