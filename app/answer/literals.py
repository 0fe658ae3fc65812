"""Arguments as literals of another notation -> their JSON, as it comes.

See ``app.core.literals`` for how such texts are written.
"""

from __future__ import annotations

import re

from app.answer.argument_parts import BufferedReader, json_string
from app.core.literals import Literals

_NUMBER = re.compile(r"[-+.0-9eE]+")
_WORD = re.compile(r"[A-Za-z]+")


class LiteralReader(BufferedReader):
    """Reads one call's arguments, or one array or object, in chunks of any size."""

    def __init__(self, notation: Literals, *, value: bool = False) -> None:
        """``value``: reads one array or object."""
        super().__init__(self._read_value if value else self._read_first)
        self._is_value = value
        self._notation = notation
        self._words = dict(zip(notation.words, ("null", "false", "true"), strict=True))
        self._before = ""
        """Stands before the next argument's name."""
        self._open: list[str] = []
        """Brackets that are not closed."""

    def _read_first(self) -> bool:
        if not self._buffer:
            return False
        if self._buffer[0] == self._notation.end:
            return self._end("{}")
        self._step = self._read_name
        return True

    def _read_name(self) -> bool:
        """The name of an argument."""
        equals, start = self._notation.equals, len(self._before)
        at = self._buffer.find(equals, start)
        if at < 0:
            return False
        name = json_string(self._buffer[start:at])
        self._put(f"{', ' if self._before else '{'}{name}: ", at + len(equals))
        self._before = self._notation.comma
        self._step = self._read_value
        return True

    def _read_value(self) -> bool:
        """What comes next of a value, or after it."""
        buffer, notation = self._buffer, self._notation
        if not buffer:
            return False
        if notation.quote.startswith(buffer[: len(notation.quote)]):
            return self._begin_string()
        if buffer[0] == "," and not self._open:
            self._step = self._read_name
            return True
        if buffer[0] == notation.end and not self._open:
            return self._end("}")
        if buffer[0] == ",":
            return self._put_mark(notation.comma, ", ") and self._begin_item()
        if buffer[0] == ":":
            return self._put_mark(notation.colon, ": ")
        if buffer[0] in "[{":
            self._open.append(buffer[0])
            self._put(buffer[0], 1)
            return self._begin_item()
        if buffer[0] in "]}":
            self._open.pop()
            self._put(buffer[0], 1)
            if self._is_value and not self._open:
                self.rest = self._buffer
            return self.rest is None
        return self._read_scalar()

    def _begin_string(self) -> bool:
        if len(self._buffer) < len(self._notation.quote):
            return False
        self._put('"', len(self._notation.quote))
        self._step = self._read_escaped if self._notation.escaped else self._read_bare
        return True

    def _put_mark(self, mark: str, text: str) -> bool:
        """``text`` for ``mark``, which comes; whether it was there."""
        if len(self._buffer) < len(mark):
            return False
        self._put(text, len(mark))
        return True

    def _begin_item(self) -> bool:
        if self._notation.bare_names and self._open[-1] == "{":
            self._step = self._read_member_name
        return True

    def _read_member_name(self) -> bool:
        """The name of an object's member, where names have no quotes."""
        if not self._buffer:
            return False
        colon, begins = self._notation.colon, self._buffer[0]
        at = self._buffer.find(colon)
        # an empty object; or a name with quotes, as those have that are to differ
        if begins != "}" and begins != self._notation.quote[0]:
            if at < 0:
                return False
            self._put(f"{json_string(self._buffer[:at])}: ", at + len(colon))
        self._step = self._read_value
        return True

    def _read_scalar(self) -> bool:
        """A number or a word."""
        found = _NUMBER.match(self._buffer) or _WORD.match(self._buffer)
        if found is None:
            raise AssertionError("the text is of the notation")
        if found.end() == len(self._buffer):
            return False
        self._put(self._words.get(found[0], found[0]), found.end())
        return True

    def _read_bare(self) -> bool:
        return self._put_bare(self._notation.quote) and self._end_string()

    def _read_escaped(self) -> bool:
        """A string with escapes: JSON's, and one of the quote if that is another."""
        buffer, quote, at = self._buffer, self._notation.quote, 0
        said: list[str] = []
        while at < len(buffer) and buffer[at] != quote:
            if buffer[at] == "\\":
                pair = buffer[at : at + 2]
                if len(pair) < 2:
                    break
                said.append("'" if pair == "\\'" else pair)
                at += 2
            else:
                said.append('\\"' if buffer[at] == '"' else buffer[at])
                at += 1
        if at:
            self._put("".join(said), at)
        return self._buffer.startswith(quote) and self._end_string()

    def _end_string(self) -> bool:
        self._put('"', len(self._notation.quote))
        self._step = self._read_value
        return True

    def _end(self, text: str) -> bool:
        self._put(text, 0)
        self.rest = self._buffer
        return False
