"""The nodes of expressions, each created once (hash consing).

Bytes, literals, concatenations and rules, which need no algebra; ``expressions`` has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

from app.core.constraint import Relaxation
from app.core.errors import ConstraintTooComplex
from app.core.verbatim import Hole

Expression = int
"""An index into the pool that built it."""

ByteSet = int
"""A set of bytes as 256 bits: byte b is in the set where bit b is 1."""

ALL_BYTES: ByteSet = (1 << 256) - 1
INFINITE: int = 1 << 60
"""Length of the shortest string of a language that has none."""
LONGEST_LITERAL = 256
"""Bytes of one literal; longer texts are concatenations of them."""


class Kind:
    """Form of an expression; the comment describes ``pool.operands[e]``.

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
    HOLE: Final = 11  # (core.verbatim.Hole, the expression used until a document fills it)
    PIECE: Final = 12  # a state of the piece that fills a hole: see quotes.binding
    MARKED: Final = 13  # (expression, mark): the same language; see Mark
    DRAWN: Final = 14  # (expression, texts): its strings that begin with one of these
    REMAINDER: Final = 15  # remainders.Remainder
    CASES: Final = 16  # cases.Cases of expressions; a choice matters to the first part and the last


class Mark:
    """The role of a marked expression.

    A mark does not change the language: it identifies the item, value or text that is read there.
    The first three are for items that must differ from one another. A mark below 0 encloses a
    text in which names differ, in a notation of ``pool.notations``: -1 is the first.
    """

    LEVEL: Final = 0  # the inside of a container, its closing bracket included
    ITEM: Final = 1  # an item that differs from the others of its level, not begun
    BEGUN: Final = 2  # the rest of one
    POINTER: Final = 3  # from here on: a value at a place of pool.pointers, or its rest


@dataclass(frozen=True, slots=True)
class Notation:
    """How the names of objects are written."""

    quote: bytes = b'"'
    """Quote before and after a string."""
    escaped: bool = True
    """Whether a backslash escapes a quote; such a quote is one byte."""
    bare_names: bool = False
    """Whether names stand without quotes, up to a colon."""


def mark_after(mark: int) -> int:
    """The mark of the rest after a byte."""
    return Mark.BEGUN if mark == Mark.ITEM else mark


def byte_range(first: int, last: int) -> ByteSet:
    """The bytes from ``first`` to ``last``, both included."""
    return (1 << (last + 1)) - (1 << first)


_DIGITS = bytes.maketrans(b"01", b"\0\1")


def byte_set(members: Iterable[int]) -> ByteSet:
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


def bytes_of(bits: ByteSet) -> list[int]:
    """The members of a set of bytes, ascending."""
    # Bit by bit a large set takes five times as long.
    return [*compress(range(256), bin(bits)[:1:-1].encode().translate(_DIGITS))]


class Nodes:
    """Owns expressions, which are numbers into its lists.

    More than ``max_nodes``, derivatives included, raise ``ConstraintTooComplex``.
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
        """Expressions built with ``once``, by name: a string for later look-ups, else the arguments
        of ``build``."""
        self.grammars: list[Expression] = []
        """The texts of grammars, whose expressions may nest deeply and be ambiguous."""
        self.exact_choices: set[frozenset[bytes]] = set()
        """Sets of values, as they are written, with exact choices."""
        self.exact_lists: set[frozenset[bytes]] = set()
        """Such sets for items of lists that contain each of them at most once."""
        self.has_free_names = False
        """Whether some object may have several names that its schema leaves open."""
        self.notations: list[Notation] = []
        """Notations of the texts that are marked by ``text``."""
        self.named: dict[str, Expression] = {}
        """Parts of a composite, by their names in errors."""
        self.inexact: dict[Relaxation, None] = {}
        """Keywords that validators interpret differently, with our interpretation."""
        self.items_are_needed = False
        """Whether some container must have an item of those that differ."""
        self.items_vary = False
        """Whether the text after such an item depends on the item."""
        self.longer_items: dict[int, int] = {}
        """By powers of ``COUNTED``: the maximum bytes by which an item exceeds the shortest one if
        so many must not be repeated. Larger powers, and those with too much work, are left out."""
        self.needed_names: set[Expression] = set()
        """The names, with their quotes, of objects that need some names the schema leaves open."""
        self.pointers: dict[str, int] = {}
        """The marks of places in a schema, by JSON Pointer, in the order of their numbers."""
        self.index: list[dict[Any, Expression]] = [{} for _ in range(Kind.CASES + 1)]
        """For each kind, the expressions by their operands."""
        self.empty = self.node(Kind.EMPTY, None, nullable=False, regular=True)
        self.epsilon = self.node(Kind.EPSILON, None, nullable=True, regular=True)
        self.everything = self.node(Kind.COMPLEMENT, self.empty, nullable=True, regular=True)

    def __len__(self) -> int:
        return len(self.kinds)

    def once(self, name: Hashable, build: Callable[[], Expression]) -> Expression:
        """The landmark ``name``, made by ``build`` on first use."""
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
        known = self.index[Kind.LITERAL].get(text)
        if known is not None:
            return known
        if not text:
            return self.epsilon
        size = LONGEST_LITERAL
        if len(text) <= size:
            return self._new(Kind.LITERAL, text, False, True)
        result = self.literal(text[(len(text) - 1) // size * size :])
        for start in range((len(text) - 1) // size * size - size, -1, -size):
            result = self._pair(self.literal(text[start : start + size]), result)
        return result

    def concatenate(self, *parts: Expression) -> Expression:
        """The parts one after the other. Adjacent literals become one."""
        if len(parts) == 2:
            known = self.index[Kind.CONCATENATION].get(parts)
            if known is not None:  # two parts that are kept as they are
                return known
            head, tail = parts
            if self.kinds[head] == Kind.LITERAL:
                return self.after_text(self.operands[head], tail)
            if self.kinds[head] != Kind.CONCATENATION:
                return self._prepend(head, tail)
        kinds, operands = self.kinds, self.operands
        result, text = self.epsilon, b""
        for part in reversed(parts):
            if result == self.epsilon and not text:
                result = part
                continue
            if kinds[part] == Kind.LITERAL and len(operands[part]) + len(text) <= LONGEST_LITERAL:
                text = operands[part] + text
                continue
            for piece in reversed(self.pieces(part)):
                written = operands[piece] if kinds[piece] == Kind.LITERAL else b""
                if text and not 0 < len(written) <= LONGEST_LITERAL - len(text):
                    result, text = self.after_text(text, result), b""
                if written:
                    text = written + text
                else:
                    result = self._prepend(piece, result)
        return self.after_text(text, result) if text else result

    def after_text(self, text: bytes, tail: Expression) -> Expression:
        """``text``, which is not empty, and then ``tail``; one literal where that is not long."""
        if tail == self.empty:
            return tail
        if len(text) > LONGEST_LITERAL:
            return self.concatenate(self.literal(text), tail)
        first, rest = tail, self.epsilon
        if self.kinds[tail] == Kind.CONCATENATION:
            first, rest = self.operands[tail]
        if self.kinds[first] == Kind.LITERAL:
            both = text + self.operands[first]
            if len(both) <= LONGEST_LITERAL:
                text, tail = both, rest
        literal = self.literal(text)
        return literal if tail == self.epsilon else self._pair(literal, tail)

    def pieces(self, expression: Expression) -> list[Expression]:
        """The parts of a concatenation; an expression of another form alone."""
        pieces = []
        while self.kinds[expression] == Kind.CONCATENATION:
            piece, expression = self.operands[expression]
            pieces.append(piece)
        pieces.append(expression)
        return pieces

    def marked(self, expression: Expression, mark: int) -> Expression:
        """``expression`` with a mark. A closed level loses its mark, while a complete item keeps it
        until the byte after it."""
        if expression == self.empty or (expression == self.epsilon and mark != Mark.BEGUN):
            return expression
        nullable = self.nullable[expression]
        regular = mark >= Mark.POINTER and self.regular[expression]
        return self.node(Kind.MARKED, (expression, mark), nullable=nullable, regular=regular)

    def pointed(self, expression: Expression, pointer: str) -> Expression:
        """``expression``, marked as the value at ``pointer``."""
        mark = self.pointers.setdefault(pointer, Mark.POINTER + len(self.pointers))
        return self.marked(expression, mark)

    def text(self, expression: Expression, notation: Notation) -> Expression:
        """``expression``, marked as a text of ``notation`` in which names differ."""
        if notation not in self.notations:
            self.notations.append(notation)
        return self.marked(expression, -1 - self.notations.index(notation))

    def drawn(self, expression: Expression, texts: Iterable[bytes]) -> Expression:
        """The strings of ``expression`` that begin with one of ``texts``, each a prefix of some.
        Created within answers; keeps the marks of ``expression``."""
        kept = tuple(sorted(set(texts)))
        if not kept:
            return self.empty
        if not kept[0]:
            return expression
        return self.node(Kind.DRAWN, (expression, kept), nullable=False, regular=False)

    def leading_repetition(self, expression: Expression) -> tuple[Expression, Expression] | None:
        """The repetition that ``expression`` begins with, also inside marks, and its continuation,
        which keeps the marks; None if it begins with another form."""
        kind, operand = self.kinds[expression], self.operands[expression]
        if kind == Kind.REPETITION:
            return expression, self.epsilon
        if kind == Kind.CONCATENATION:
            found = self.leading_repetition(operand[0])
            return found and (found[0], self.concatenate(found[1], operand[1]))
        if kind == Kind.MARKED:
            found = self.leading_repetition(operand[0])
            return found and (found[0], self.marked(found[1], mark_after(operand[1])))
        return None

    def declare_rule(self, *, nullable: bool = False) -> Expression:
        """A reference to a rule that is defined later; ``nullable``: whether it contains b""."""
        self.bodies.append(None)
        return self.node(Kind.RULE, len(self.bodies) - 1, nullable=nullable, regular=False)

    def define_rule(self, rule: Expression, body: Expression) -> None:
        """Give a declared rule its body. A body may refer to any rule, itself included."""
        assert self.kinds[rule] == Kind.RULE
        assert self.nullable[body] == self.nullable[rule], "declared with other nullability"
        self.bodies[self.operands[rule]] = body

    def is_undefined(self, expression: Expression) -> bool:
        """Whether it is a rule without a body."""
        kind, operand = self.kinds[expression], self.operands[expression]
        return kind == Kind.RULE and self.bodies[operand] is None

    def body(self, rule: Expression) -> Expression:
        body: Expression | None = self.bodies[self.operands[rule]]
        assert body is not None, "a declared rule has no body"
        return body

    def parts(self, expression: Expression) -> tuple[Expression, ...]:
        """The parts of an expression; of a rule, its body."""
        kind, operand = self.kinds[expression], self.operands[expression]
        if kind in (Kind.CONCATENATION, Kind.UNION, Kind.INTERSECTION):
            parts: tuple[Expression, ...] = operand
            return parts
        if kind == Kind.REPETITION:
            return (operand[0],)
        if kind == Kind.COMPLEMENT:
            return (operand,)
        if kind == Kind.DISTINCT:
            return (*operand[0], operand[1])
        if kind == Kind.CASES:
            return tuple(dict.fromkeys([entry for table in operand.parts for entry in table]))
        if kind == Kind.MARKED or kind == Kind.DRAWN:
            return (operand[0],)
        if kind == Kind.HOLE:
            return (operand[1],)
        return (self.body(expression),) if kind == Kind.RULE else ()

    def hole(self, hole: Hole, free: Expression) -> Expression:
        """A hole that a request's document fills; until then it is ``free``."""
        nullable, regular = self.nullable[free], self.regular[free]
        return self.node(Kind.HOLE, (hole, free), nullable=nullable, regular=regular)

    def node(self, kind: int, operand: Any, *, nullable: bool, regular: bool) -> Expression:
        """The expression with this operand, in the form that ``Kind`` describes."""
        found = self.index[kind].get(operand)
        return self._new(kind, operand, nullable, regular) if found is None else found

    def _new(self, kind: int, operand: Any, nullable: bool, regular: bool) -> Expression:
        """``node`` for an expression that is known to be new."""
        number = len(self.kinds)
        if number >= self.max_nodes:
            raise ConstraintTooComplex(f"more than {self.max_nodes} expression nodes")
        self.kinds.append(kind)
        self.operands.append(operand)
        self.nullable.append(nullable)
        self.regular.append(regular)
        self.index[kind][operand] = number
        return number

    def _prepend(self, head: Expression, tail: Expression) -> Expression:
        """``head``, which is neither a concatenation nor a literal, and then ``tail``."""
        if tail == self.epsilon:
            return head
        if head == self.epsilon:
            return tail
        if head == self.empty or tail == self.empty:
            return self.empty
        return tail if self.nullable[head] and self._absorbs(tail, head) else self._pair(head, tail)

    def _absorbs(self, tail: Expression, head: Expression) -> bool:
        """Whether a nullable ``head`` plainly adds no strings before ``tail``."""
        return False

    def _pair(self, head: Expression, tail: Expression) -> Expression:
        pair = head, tail
        found = self.index[Kind.CONCATENATION].get(pair)
        if found is not None:
            return found
        nullable = self.nullable[head] and self.nullable[tail]
        regular = self.regular[head] and self.regular[tail]
        return self._new(Kind.CONCATENATION, pair, nullable, regular)
