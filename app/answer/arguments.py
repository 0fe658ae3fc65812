"""Streaming conversion of arguments in other notations to JSON.

See ``app.core.arguments`` and ``app.core.literals`` for how such texts are written.
"""

from __future__ import annotations

import json
import re
from typing import Any

from app.answer.incoming import ArgumentsReader, json_string
from app.core.arguments import Kind, Parameters, Readings, kind_of
from app.core.json_scan import JsonScan
from app.core.literals import Literals

_NUMBER = re.compile(r"[-+.0-9eE]+")
_WORD = re.compile(r"[A-Za-z]+")


class LiteralReader(ArgumentsReader):
    """Reads one call's arguments, or one array or object, in chunks of any size."""

    def __init__(self, notation: Literals, *, value: bool = False) -> None:
        """``value``: reads one array or object."""
        super().__init__(LiteralReader._read_value if value else LiteralReader._read_first)
        self._is_value = value
        self._notation = notation
        self._words = dict(zip(notation.words, ("null", "false", "true"), strict=True))
        self._before = ""
        """Text that precedes the next argument's name."""
        self._open: list[str] = []
        """Brackets that are not closed."""

    def _read_first(self) -> bool:
        if not self._incoming.text:
            return False
        if self._incoming.text[0] == self._notation.end:
            return self._end("{}")
        self._step = LiteralReader._read_name
        return True

    def _read_name(self) -> bool:
        """The name of an argument."""
        equals, start = self._notation.equals, len(self._before)
        at = self._incoming.text.find(equals, start)
        if at < 0:
            return False
        name = json_string(self._incoming.text[start:at])
        self._put(f"{', ' if self._before else '{'}{name}: ", at + len(equals))
        self._before = self._notation.comma
        self._step = LiteralReader._read_value
        return True

    def _read_value(self) -> bool:
        """What comes next of a value, or after it."""
        buffer, notation = self._incoming.text, self._notation
        if not buffer:
            return False
        if notation.quote.startswith(buffer[: len(notation.quote)]):
            return self._begin_string()
        if buffer[0] == "," and not self._open:
            self._step = LiteralReader._read_name
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
        if buffer[0] in "]}" and self._open:
            self._open.pop()
            self._put(buffer[0], 1)
            if self._is_value and not self._open:
                self.rest = self._incoming.text
            return self.rest is None
        return self._read_scalar()

    def _begin_string(self) -> bool:
        if len(self._incoming.text) < len(self._notation.quote):
            return False
        self._put('"', len(self._notation.quote))
        self._step = (
            LiteralReader._read_escaped if self._notation.escaped else LiteralReader._read_bare
        )
        return True

    def _put_mark(self, mark: str, text: str) -> bool:
        """Replace ``mark``, which comes next, by ``text``; False if it has not come completely."""
        if len(self._incoming.text) < len(mark):
            return False
        self._put(text, len(mark))
        return True

    def _begin_item(self) -> bool:
        if self._notation.bare_names and self._open[-1] == "{":
            self._step = LiteralReader._read_member_name
        return True

    def _read_member_name(self) -> bool:
        """The name of an object's member, where names have no quotes."""
        if not self._incoming.text:
            return False
        colon, begins = self._notation.colon, self._incoming.text[0]
        at = self._incoming.text.find(colon)
        # an empty object; or a name with quotes, as those have that are to differ
        if begins != "}" and begins != self._notation.quote[0]:
            if at < 0:
                return False
            self._put(f"{json_string(self._incoming.text[:at])}: ", at + len(colon))
        self._step = LiteralReader._read_value
        return True

    def _read_scalar(self) -> bool:
        """A number or a word. Reading stops at other text, which only a prefill may have."""
        found = _NUMBER.match(self._incoming.text) or _WORD.match(self._incoming.text)
        if found is None or found.end() == len(self._incoming.text):
            return False
        self._put(self._words.get(found[0], found[0]), found.end())
        return True

    def _read_bare(self) -> bool:
        return self._put_bare(self._notation.quote) and self._end_string()

    def _read_escaped(self) -> bool:
        """A string with escapes: JSON's, and one of the quote if that is another."""
        buffer, quote, at = self._incoming.text, self._notation.quote, 0
        found: list[str] = []
        while at < len(buffer) and buffer[at] != quote:
            if buffer[at] == "\\":
                pair = buffer[at : at + 2]
                if len(pair) < 2:
                    break
                found.append("'" if pair == "\\'" else pair)
                at += 2
            else:
                found.append('\\"' if buffer[at] == '"' else buffer[at])
                at += 1
        if at:
            self._put("".join(found), at)
        return self._incoming.text.startswith(quote) and self._end_string()

    def _end_string(self) -> bool:
        self._put('"', len(self._notation.quote))
        self._step = LiteralReader._read_value
        return True

    def _end(self, text: str) -> bool:
        self._put(text, 0)
        self.rest = self._incoming.text
        return False


class JsonReader(ArgumentsReader):
    """Reads arguments that are JSON already."""

    def __init__(self) -> None:
        super().__init__(JsonReader._read)
        self._value = JsonScan()

    def _read(self) -> bool:
        end = self._value.end_in(self._incoming.text)
        size = len(self._incoming.text) if end is None else end
        if size:
            self._put(self._incoming.text[:size], size)
        if end is not None:
            self.rest = self._incoming.text
        return False


class ParameterReader(ArgumentsReader):
    """Reads arguments that are written as one text each, in chunks of any size."""

    def __init__(self, notation: Parameters, readings: Readings) -> None:
        super().__init__(ParameterReader._read_before)
        self._notation = notation
        self._readings = readings
        self._nested: ArgumentsReader
        self._count = 0
        """Parameters so far."""
        self._kinds: frozenset[Kind] = frozenset()
        """Possible types of the value being read."""
        self._looked = 0
        """Number of characters of the buffer that were checked for being a number."""

    def _read_before(self) -> bool:
        begins = self._incoming.begins(self._notation.before)
        if begins:
            self._step = ParameterReader._read_name
            return True
        if begins is None:
            return False
        empty = "" if self._count else self._notation.empty
        if self._incoming.begins(empty) is None:
            return False
        self._put("}" if self._count else "{}", len(empty))
        self.rest = self._incoming.text
        return False

    def _read_name(self) -> bool:
        start, notation = len(self._notation.before), self._notation
        found = [(self._incoming.text.find(each, start), each) for each in notation.betweens()]
        there = [pair for pair in found if pair[0] >= 0]
        if not there:
            return False
        at, between = min(there)
        here = self._incoming.text[at:]  # a longer one may still come
        if any(mark.startswith(here) and mark != here for mark in notation.betweens()):
            return False
        name = self._incoming.text[start:at]
        comma = ", " if self._count else "{"
        self._put(f"{comma}{json_string(name)}: ", at + len(between))
        self._count += 1
        self._kinds = notation.kinds_behind(between, self._readings.kinds(name))
        self._looked = 0
        self._step = ParameterReader._read_value
        if self._kinds == {"string"}:
            self._begin_string()
        return True

    def _read_value(self) -> bool:
        """Find out what the value is."""
        kinds, buffer = self._kinds, self._incoming.text
        if not buffer:
            return False
        if kind_of(buffer[0], kinds, {}) in ("array", "object"):
            literals = self._notation.nested
            self._nested = JsonReader() if literals is None else LiteralReader(literals, value=True)
            self._step = ParameterReader._read_nested
            return True
        at = buffer.find(self._notation.after)
        if at >= 0:
            text = buffer[:at]
            if kind_of(text, kinds, self._notation.words) == "string" and "string" in kinds:
                self._begin_string()
                return True
            words: dict[str, Any] = self._notation.words
            self._put(json.dumps(words[text]) if text in words else text, at)
            return self._end_value()
        if "string" in kinds and not self._may_be_scalar():
            self._begin_string()
            return True
        return False

    def _may_be_scalar(self) -> bool:
        """Whether the buffer may become a word or number, and then what follows values."""
        text = self._incoming.text[: self._incoming.before(self._notation.after)[0]]
        if any(word.startswith(text) for word in self._notation.words):
            return True
        if "number" not in self._kinds:
            return False
        looked = self._looked
        self._looked = len(text)
        return looked >= len(text) or _NUMBER.fullmatch(text, looked) is not None

    def _begin_string(self) -> None:
        self._put('"', 0)
        self._step = ParameterReader._read_string

    def _read_string(self) -> bool:
        if not self._put_bare(self._notation.after):
            return False
        self._put('"', 0)
        return self._end_value()

    def _read_nested(self) -> bool:
        """An array or object."""
        self._parts += self._nested.push(*self._incoming.take_all())
        rest = self._nested.rest
        self._incoming.put_back(rest or "")
        self._written = self._incoming.position
        if rest is not None:
            self._step = ParameterReader._read_after
        return rest is not None

    def _read_after(self) -> bool:
        return self._incoming.begins(self._notation.after) is not None and self._end_value()

    def _end_value(self) -> bool:
        self._incoming.take(len(self._notation.after))
        self._step = ParameterReader._read_before
        return True
