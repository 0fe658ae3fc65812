"""JSON text (RFC 8259) in the one form that answers have: the form ``json.dumps`` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from app.constraint.codepoints import CHARACTERS, LAST, Ranges, clip, common, utf8
from app.constraint.expressions import Expression, ExpressionPool, byte_range, byte_set
from app.constraint.limits import Limits
from app.constraint.numbers import number
from app.core.errors import InvalidSchema

_HEX = byte_set(b"0123456789abcdefABCDEF")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def character(pool: ExpressionPool) -> Expression:
    """One character of a JSON string, in every spelling; built once per pool.

    It is a prefix code: no spelling is the beginning of another one. A pair of surrogate escapes
    is one character, as it is one code point; lone surrogates are left out.
    """
    if pool.character is None:
        plain = byte_range(0x20, 0x7F) & ~byte_set(b'"\\')
        escape = pool.concatenate(pool.literal(b"\\"), _after_backslash(pool))
        pool.character = pool.union((pool.byte(plain), utf8(pool, ((0x80, LAST),)), escape))
    return pool.character


def json_spelling(pool: ExpressionPool, members: Ranges) -> Expression:
    """``members`` as ``json.dumps(..., ensure_ascii=False)`` spells them inside a string.

    Each code point has one spelling, so a pattern leaves no choice between escapes.
    """
    plain = 0
    options = [utf8(pool, clip(members, 0x80, LAST))]
    for first, last in clip(members, 0, 0x7F):
        for code in range(first, last + 1):
            spelled = json.dumps(chr(code))[1:-1].encode()
            if len(spelled) == 1 or code == 0x7F:
                plain |= 1 << code
            else:
                options.append(pool.literal(spelled))
    return pool.union([pool.byte(plain), *options])


def json_spelling_or_any(pool: ExpressionPool, members: Ranges) -> Expression:
    """The same, but the set of all characters is the JSON character, with every spelling."""
    if common(members, CHARACTERS) == CHARACTERS:
        return character(pool)
    return json_spelling(pool, members)


def json_text(value: Any, *, compact: bool = False) -> bytes:
    """``value`` as ``json.dumps`` writes it, in UTF-8. Lone surrogates stay escaped."""
    separators = (",", ":") if compact else (", ", ": ")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)
    except ValueError as error:
        raise InvalidSchema("a number is not finite") from error
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


class JsonText:
    """Builds the values of JSON in one pool, with one kind of separators."""

    def __init__(self, pool: ExpressionPool, limits: Limits, *, compact: bool = False) -> None:
        self.pool = pool
        self.limits = limits
        self.compact = compact
        self.comma = pool.literal(b"," if compact else b", ")
        self.colon = b":" if compact else b": "
        self.character = character(pool)
        self._any_value: Expression | None = None

    def written(self, value: Any) -> bytes:
        """``value`` in the form answers have."""
        return json_text(value, compact=self.compact)

    def constant(self, value: Any) -> Expression:
        """Exactly ``value``."""
        return self.pool.literal(self.written(value))

    def string(self, low: int = 0, high: int | None = None) -> Expression:
        """Any string of ``low`` to ``high`` characters."""
        return self.quoted(self.pool.repeat(self.character, low, high))

    def quoted(self, content: Expression) -> Expression:
        quote = self.pool.literal(b'"')
        return self.pool.concatenate(quote, content, quote)

    def member(self, name: str, value: Expression) -> Expression:
        """The member ``name`` of an object."""
        return self.pool.concatenate(self.pool.literal(json_text(name) + self.colon), value)

    def free_member(self, value: Expression, taken: Iterable[str] = ()) -> Expression:
        """A member of any name but those ``taken``.

        Beside taken names a key has one spelling only, so none can come back in disguise.
        """
        taken = list(taken)
        name = self.string()
        if taken:
            pool = self.pool
            others = pool.complement(pool.one_of(json_text(name)[1:-1] for name in taken))
            spelled_once = pool.repeat(json_spelling(pool, CHARACTERS))
            name = self.quoted(pool.intersect((spelled_once, others)))
        return self.pool.concatenate(name, self.pool.literal(self.colon), value)

    def separated(self, item: Expression, low: int, high: int | None) -> Expression:
        """``low`` to ``high`` items with commas between them."""
        pool = self.pool
        if high == 0:
            return pool.epsilon if low == 0 else pool.empty
        others = pool.repeat(
            pool.concatenate(self.comma, item), max(low - 1, 0), None if high is None else high - 1
        )
        items = pool.concatenate(item, others)
        return items if low > 0 else pool.optional(items)

    def array(self, item: Expression, low: int = 0, high: int | None = None) -> Expression:
        pool = self.pool
        items = self.separated(item, low, high)
        return pool.concatenate(pool.literal(b"["), items, pool.literal(b"]"))

    def any_object(self) -> Expression:
        pool = self.pool
        members = self.separated(self.free_member(self.any_value()), 0, None)
        return pool.concatenate(pool.literal(b"{"), members, pool.literal(b"}"))

    def any_value(self) -> Expression:
        """Any JSON value: a rule, as values hold values."""
        if self._any_value is None:
            pool = self.pool
            self._any_value = pool.declare_rule()
            words = [self.constant(word) for word in (None, True, False)]
            plain = [self.string(), number(pool, None, None, self.limits), *words]
            pool.define_rule(
                self._any_value,
                pool.union([*plain, self.array(self._any_value), self.any_object()]),
            )
        return self._any_value


def _after_backslash(pool: ExpressionPool) -> Expression:
    """What follows a backslash (RFC 8259 section 7)."""
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
