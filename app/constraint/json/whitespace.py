"""Where white space stands in an answer: the forms that JSON text can be asked for in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from app.constraint.language.expressions import Expression, ExpressionPool
from app.core.errors import InvalidSchema

_DEEPEST = 16
"""Containers inside containers that ``indent:N`` gives lines of their own; deeper ones are written
on one line, so that free and recursive values need no rule for every depth."""
_MOST_INDENT = 16
_ON_ONE_LINE = -1

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Whitespace:
    """One form of JSON text. ``indent`` None is on one line.

    ``flexible`` admits at most two blanks and one newline wherever JSON admits white
    space but the ends of the text.
    """

    comma: bytes = b", "
    colon: bytes = b": "
    indent: int | None = None
    flexible: bool = False

    @classmethod
    def named(cls, name: str) -> Whitespace:
        """The form that the option ``whitespace`` names. Raises ``InvalidSchema``."""
        if name == "spaced":
            return cls()
        if name == "compact":
            return cls(b",", b":")
        if name == "flexible":
            return cls(flexible=True)
        kind, _, count = name.partition(":")
        if kind == "indent" and count.isdecimal() and len(count) < 3 and int(count) <= _MOST_INDENT:
            return cls(b",", b": ", int(count))
        raise InvalidSchema(
            "whitespace must be spaced, compact, flexible or indent:N with N up to "
            f"{_MOST_INDENT}, not {name!r}"
        )

    @property
    def on_one_line(self) -> bool:
        """Whether that is all that there is between brackets, commas and colons."""
        return self.indent is None and not self.flexible

    def inside(self, depth: int) -> int:
        """The depth of what a container at ``depth`` holds; it matters for ``indent`` alone."""
        if self.indent is None or depth == _ON_ONE_LINE:
            return depth
        return depth + 1 if depth < _DEEPEST else _ON_ONE_LINE

    def begin(self, pool: ExpressionPool, bracket: bytes, depth: int) -> Expression:
        """The opening bracket of a container with something in it, and what follows it."""
        opening = pool.literal(bracket[:1])
        if self.on_one_line:
            return opening
        return pool.concatenate(opening, self._line(pool, depth, self.inside(depth)))

    def end(self, pool: ExpressionPool, bracket: bytes, depth: int) -> Expression:
        """What comes before the closing bracket of a container with something in it, and it."""
        if self.on_one_line:
            return pool.literal(bracket[1:])
        return pool.concatenate(self._line(pool, depth, depth), pool.literal(bracket[1:]))

    def empty(self, pool: ExpressionPool, bracket: bytes) -> Expression:
        """A container with nothing in it."""
        if not self.flexible:
            return pool.literal(bracket)
        return pool.concatenate(
            pool.literal(bracket[:1]), self._space(pool), pool.literal(bracket[1:])
        )

    def between(self, pool: ExpressionPool, depth: int) -> Expression:
        """What stands between two members or items of a container at ``depth``."""
        if self.flexible:
            return pool.concatenate(self._space(pool), pool.literal(b","), self._space(pool))
        if self.indent is None or self.inside(depth) == _ON_ONE_LINE:
            return pool.literal(b", " if self.indent is not None else self.comma)
        return pool.concatenate(pool.literal(b","), self._line(pool, depth, self.inside(depth)))

    def after_name(self, pool: ExpressionPool) -> Expression:
        """What stands between a name and its value."""
        if self.flexible:
            return pool.concatenate(self._space(pool), pool.literal(b":"), self._space(pool))
        return pool.literal(self.colon)

    def written(self, value: Any, depth: int = 0) -> bytes:
        """``value`` in this form, in UTF-8. Lone surrogates stay escaped.

        Raises ``InvalidSchema`` for a number that is not finite.
        """
        if isinstance(value, str):
            return written_string(value)
        on_lines = self.indent is not None and depth != _ON_ONE_LINE
        comma = b", " if self.indent is not None and not on_lines else self.comma
        try:
            text = json.dumps(
                value,
                ensure_ascii=False,
                allow_nan=False,
                indent=self.indent if on_lines else None,
                separators=(comma.decode(), self.colon.decode()),
            )
        except ValueError as error:
            raise InvalidSchema("a number is not finite") from error
        if on_lines and self.indent:
            text = text.replace("\n", "\n" + " " * (self.indent * depth))
        return _in_utf8(text)

    def _line(self, pool: ExpressionPool, container: int, depth: int) -> Expression:
        """The way to the next thing at ``depth`` in the container at the depth ``container``."""
        if self.flexible:
            return self._space(pool)
        if self.indent is None or self.inside(container) == _ON_ONE_LINE:
            return pool.epsilon
        return pool.literal(b"\n" + b" " * (self.indent * depth))

    def _space(self, pool: ExpressionPool) -> Expression:
        """White space where there may be some."""
        if not self.flexible:
            return pool.epsilon
        texts = [b"", b" ", b"  ", b"\n", b"\n ", b"\n  ", b" \n", b" \n ", b"  \n"]
        return pool.union(map(pool.literal, texts))


def written_string(value: str) -> bytes:
    """``value`` with its quotes, in UTF-8."""
    return _in_utf8(encode_basestring(value))


def _in_utf8(text: str) -> bytes:
    """``text`` in UTF-8; lone surrogates are escaped as in JSON strings."""
    if text.isascii():
        return text.encode()
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()
