"""JSON text (RFC 8259) in the one form that answers have: the form ``json.dumps`` writes."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from copy import copy
from functools import cache, cached_property
from typing import Any, Self

from app.constraint.json.decimals import number, plain_number
from app.constraint.json.multiples import integer
from app.constraint.json.ranges import Interval
from app.constraint.json.whitespace import ON_ONE_LINE, Whitespace
from app.constraint.language.codepoints import (
    CHARACTERS,
    LAST,
    Ranges,
    any_character,
    clip,
    common,
    utf8,
)
from app.constraint.language.expressions import (
    Expression,
    ExpressionPool,
    Mark,
    Notation,
    byte_range,
    byte_set,
)
from app.constraint.limits import Limits

CHARACTER = "character of a JSON string"
SPELLED_ONCE = "character of a JSON string, in one spelling"
"""Names of landmarks in a pool."""

_HEX = byte_set(b"0123456789abcdefABCDEF")

_ESCAPED = {code: json.dumps(chr(code))[1:-1].encode() for code in [*range(0x20), 0x22, 0x5C]}
_PLAIN = byte_range(0, 0x7F) & ~byte_set(_ESCAPED)
"""Code points below 128 that stand for themselves in a JSON string."""


def character(pool: ExpressionPool) -> Expression:
    """One character of a JSON string, in every spelling; built once per pool.

    A prefix code: no spelling is a prefix of another one. A pair of surrogate escapes is one
    character, as it is one code point; lone surrogates are left out.
    """

    def build() -> Expression:
        plain = byte_range(0x20, 0x7F) & ~byte_set(b'"\\')
        escape = pool.concatenate(pool.literal(b"\\"), _after_backslash(pool))
        return pool.union((pool.byte(plain), utf8(pool, ((0x80, LAST),)), escape))

    return pool.once(CHARACTER, build)


def spelled_once(pool: ExpressionPool) -> Expression:
    """One character of a JSON string, in one spelling each; built once per pool."""
    return pool.once(SPELLED_ONCE, lambda: _spelled(pool, CHARACTERS))


SPELLINGS = {CHARACTER: character, SPELLED_ONCE: spelled_once}
"""The usual characters of strings, by their landmarks."""


class _JsonPool(ExpressionPool):
    """The shared base of every schema's pool; it is pickled as a reference."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _begun, ()


@cache
def _begun() -> _JsonPool:
    pool = _JsonPool()
    spelled_once(pool)
    any_character(pool)
    integer(pool, Interval(), Limits())
    JsonText(pool, Limits()).any_value()
    return pool


def json_pool(max_nodes: int) -> ExpressionPool:
    """A pool with characters, numbers without bounds and any value built already."""
    return _begun().extended(max_nodes)


def _spelled(pool: ExpressionPool, members: Ranges) -> Expression:
    bits = 0
    for first, last in clip(members, 0, 0x7F):
        bits |= byte_range(first, last)
    escaped = [pool.literal(text) for code, text in _ESCAPED.items() if bits >> code & 1]
    return pool.union((pool.byte(bits & _PLAIN), utf8(pool, clip(members, 0x80, LAST)), *escaped))


_PYTHON = Whitespace()
"""The form that ``json.dumps`` writes."""


def json_text(value: Any) -> bytes:
    """``value`` as ``json.dumps`` writes it, in UTF-8. Lone surrogates stay escaped."""
    return _PYTHON.written(value)


class JsonText:
    """Builds the values of JSON in one pool, with one form of white space.

    ``depth`` is the depth of a value: 0 for the answer, ``inside(depth)`` for the values in a
    container. It matters only for indented text.
    """

    def __init__(
        self,
        pool: ExpressionPool,
        limits: Limits,
        whitespace: Whitespace | None = None,
        *,
        levels: bool = False,
        pointers: bool = False,
        apart: bool = True,
    ) -> None:
        self.pool = pool
        self.limits = limits
        self.whitespace = whitespace or Whitespace()
        self.character = character(pool)
        self.levels = levels
        """Whether containers are marked as levels, so that items can be kept unique."""
        self.pointers = pointers
        """Whether values are marked with their places in a schema."""
        self.apart = apart
        """Whether items and names can be kept unique: not in ambiguous text."""

    @property
    def form(self) -> Hashable:
        """Key that distinguishes this form from others."""
        return self.whitespace

    @property
    def notation_of_names(self) -> Notation:
        """How the names in a text are written."""
        return Notation()

    def spell(self, members: Ranges) -> Expression:
        """One of ``members`` inside a string, as ``json.dumps(..., ensure_ascii=False)`` spells it.

        Each code point has one spelling, so a pattern leaves no choice between escapes.
        """
        return spelled_once(self.pool) if members == CHARACTERS else _spelled(self.pool, members)

    def spell_freely(self, members: Ranges) -> Expression:
        """``spell``, but with all spellings if ``members`` are all characters."""
        if common(members, CHARACTERS) == CHARACTERS:
            return character(self.pool)
        return self.spell(members)

    def spelled(self, value: str) -> bytes:
        """The content of the string ``value``, between its quotes."""
        return json_text(value)[1:-1]

    def read(self, content: bytes) -> str:
        """The string with the ``content``; the inverse of ``spelled``."""
        text: str = json.loads(b'"' + content + b'"')
        return text

    def written(self, value: Any, depth: int = 0) -> bytes:
        """``value`` as text."""
        return self.whitespace.written(value, depth)

    def with_levels(self) -> Self:
        """The same form, with containers marked as levels."""
        other = copy(self)
        other.levels = True
        return other

    def on_one_form(self) -> Self:
        """The same form if it leaves no choice of white space, else with the default white space,
        so that equal values are equal texts."""
        if not self.whitespace.flexible:
            return self
        other = copy(self)
        other.whitespace = Whitespace()
        return other

    @cached_property
    def any_content(self) -> Expression:
        """Contents of strings with one spelling of every character, as in names."""
        return self.pool.repeat(self.spell(CHARACTERS))

    def inside(self, depth: int) -> int:
        return self.whitespace.inside(depth)

    def between(self, depth: int) -> Expression:
        """The separator of two members or items of a container at ``depth``."""
        pool, form = self.pool, self.whitespace
        if form.flexible:
            return pool.concatenate(self._space, pool.literal(b","), self._space)
        if form.indent is None or form.inside(depth) == ON_ONE_LINE:
            return pool.literal(b", " if form.indent is not None else form.comma)
        return pool.concatenate(pool.literal(b","), self._line(depth, form.inside(depth)))

    def end(self, bracket: bytes, depth: int) -> Expression:
        """The closing bracket of a container that is not empty, with the white space before it."""
        closing = self.pool.literal(bracket[1:])
        if self.whitespace.on_one_line:
            return closing
        return self.pool.concatenate(self._line(depth, depth), closing)

    def _empty(self, bracket: bytes) -> Expression:
        """An empty container."""
        pool = self.pool
        if not self.whitespace.flexible:
            return pool.literal(bracket)
        return pool.concatenate(pool.literal(bracket[:1]), self._space, pool.literal(bracket[1:]))

    def _line(self, container: int, depth: int) -> Expression:
        """White space before an entry at ``depth`` in the container at the depth ``container``."""
        form = self.whitespace
        if form.flexible:
            return self._space
        if form.indent is None or form.inside(container) == ON_ONE_LINE:
            return self.pool.epsilon
        return self.pool.literal(b"\n" + b" " * (form.indent * depth))

    @property
    def _space(self) -> Expression:
        """Flexible white space."""
        texts = [b"", b" ", b"  ", b"\n", b"\n ", b"\n  ", b" \n", b" \n ", b"  \n"]
        return self.pool.union(map(self.pool.literal, texts))

    def constant(self, value: Any) -> Expression:
        """Exactly ``value``."""
        return self.pool.literal(self.written(value))

    def string(self, low: int = 0, high: int | None = None) -> Expression:
        """Any string of ``low`` to ``high`` characters."""
        return self.quoted(self.pool.repeat(self.spell_freely(CHARACTERS), low, high))

    def quoted(self, content: Expression) -> Expression:
        quote = self.pool.literal(b'"')
        return self.pool.concatenate(quote, content, quote)

    def member(self, name: str, value: Expression) -> Expression:
        """The member ``name`` of an object."""
        written = json_text(name)
        if not self.whitespace.flexible:
            return self.pool.after_text(written + self.whitespace.colon, value)
        return self.pool.concatenate(self.pool.literal(written), self._after_free_name, value)

    def free_name(self, content: Expression | None) -> Expression:
        """A name with the ``content``, given without quotes; None for any name.

        With declared names, a name must have a single spelling, so that none recurs in another
        spelling: see ``names_but``.
        """
        return self.string() if content is None else self.quoted(content)

    def free_member(self, content: Expression | None, value: Expression) -> Expression:
        """A member with a ``free_name``."""
        return self.pool.concatenate(self.free_name(content), self._after_free_name, value)

    @property
    def _after_free_name(self) -> Expression:
        """The separator of a free name and its value."""
        if self.whitespace.flexible:
            return self.pool.concatenate(self._space, self.pool.literal(b":"), self._space)
        return self.pool.literal(self.whitespace.colon)

    def names_but(self, taken: Iterable[str]) -> Expression:
        """The contents of all names except ``taken``, in one spelling each."""
        others = self.pool.complement(self.pool.one_of(map(self.spelled, taken)))
        return self.pool.intersect((self.any_content, others))

    def any_object(self, depth: int = 0, *, once: bool = False) -> Expression:
        """Any object; ``once``: with one spelling each, so with at most one member."""
        value = self.any_value(self.inside(depth), once=once)
        member = self.free_member(self.any_content if once else None, value)
        return self.container(b"{}", member, 0, 1 if once else None, depth, level=False)

    def container(
        self,
        bracket: bytes,
        item: Expression,
        low: int,
        high: int | None,
        depth: int,
        *,
        level: bool = True,
    ) -> Expression:
        """``low`` to ``high`` items between the two brackets of ``bracket``.

        ``level``: whether it is marked as a level, if ``self.levels``.
        """
        pool = self.pool
        if high is not None and low > high:
            return pool.empty
        if high == 0 or item == pool.empty:
            return self._empty(bracket) if low == 0 else pool.empty
        others = pool.repeat_after_one(pool.concatenate(self.between(depth), item), low, high)
        items = pool.concatenate(item, others, self.end(bracket, depth))
        return self.begun(bracket, items, may_be_empty=low == 0, depth=depth, level=level)

    def begun(
        self,
        bracket: bytes,
        items: Expression,
        *,
        may_be_empty: bool,
        depth: int,
        level: bool = True,
    ) -> Expression:
        """A container of ``items``, which end with the closing bracket, or an empty one."""
        pool, form = self.pool, self.whitespace
        begin = pool.literal(bracket[:1])
        if not form.on_one_line:
            begin = pool.concatenate(begin, self._line(depth, form.inside(depth)))
        if may_be_empty and begin == pool.literal(bracket[:1]):
            items = pool.union((items, pool.literal(bracket[1:])))
            may_be_empty = False
        if level and self.levels:
            items = pool.marked(items, Mark.LEVEL)
        if not may_be_empty:
            return pool.concatenate(begin, items)
        return pool.union((pool.concatenate(begin, items), self._empty(bracket)))

    def any_value(self, depth: int = 0, *, once: bool = False) -> Expression:
        """Any JSON value: a rule, as values hold values. ``once``: equal ones are one text."""
        pool, digits = self.pool, (self.limits.integer_digits, self.limits.fraction_digits)
        name = ("any value", self.form, digits, depth, once)
        known = pool.landmarks.get(name)
        if known is None:
            known = pool.landmarks[name] = pool.declare_rule()
            words = [self.constant(word) for word in (None, True, False)]
            numbers = number(pool, Interval(), self.limits, plain=once)
            numbers = plain_number(pool, numbers) if once else numbers
            string = self.quoted(self.any_content) if once else self.string()
            inside = self.any_value(self.inside(depth), once=once)
            array = self.container(b"[]", inside, 0, None, depth, level=False)
            parts = [string, numbers, *words, array, self.any_object(depth, once=once)]
            pool.define_rule(known, pool.union(parts))
        return known


def _after_backslash(pool: ExpressionPool) -> Expression:
    """The text after a backslash (RFC 8259 section 7)."""
    unit = pool.byte(_HEX)
    letter_d = pool.byte(byte_set(b"dD"))
    plain_plane = pool.union(
        (
            pool.concatenate(pool.byte(_HEX & ~byte_set(b"dD")), pool.repeat(unit, 3, 3)),
            pool.concatenate(letter_d, pool.byte(byte_range(0x30, 0x37)), unit, unit),
        )
    )
    high = pool.concatenate(letter_d, pool.byte(byte_set(b"89abAB")), unit, unit)
    low = pool.concatenate(letter_d, pool.byte(byte_set(b"cdefCDEF")), unit, unit)
    pair = pool.concatenate(high, pool.literal(b"\\u"), low)
    codes = pool.concatenate(pool.literal(b"u"), pool.union((plain_plane, pair)))
    return pool.union((pool.byte(byte_set(b'"\\/bfnrt')), codes))
