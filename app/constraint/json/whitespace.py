"""White space in answers: the forms of JSON text that a request can select."""

from __future__ import annotations

import json
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from app.core.errors import InvalidSchema

_DEEPEST = 16
"""Maximum nesting of containers on several lines with ``indent:N``; deeper ones are on one line, so
that free and recursive values need no rule for every depth."""
_MOST_INDENT = 16
ON_ONE_LINE = -1


@dataclass(frozen=True, slots=True)
class Whitespace:
    """One form of JSON text. ``indent`` None is on one line.

    ``flexible`` allows at most two blanks and one newline wherever JSON allows white space, except
    at the ends of the text.
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
        """Whether there is no white space beyond that in ``comma`` and ``colon``."""
        return self.indent is None and not self.flexible

    def inside(self, depth: int) -> int:
        """The depth of the values in a container at ``depth``; it matters only for ``indent``."""
        if self.indent is None or depth == ON_ONE_LINE:
            return depth
        return depth + 1 if depth < _DEEPEST else ON_ONE_LINE

    def written(self, value: Any, depth: int = 0) -> bytes:
        """``value`` in this form, in UTF-8. Lone surrogates stay escaped.

        Raises ``InvalidSchema`` for a number that is not finite.
        """
        if isinstance(value, str):
            return encode_basestring(value).encode(errors="backslashreplace")
        on_lines = self.indent is not None and depth != ON_ONE_LINE
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
        return text.encode(errors="backslashreplace")
