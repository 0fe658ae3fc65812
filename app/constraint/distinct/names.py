"""The names of the objects that are open in a text of JSON, or of another notation of its values.

A scan of the text as it grows, beside the automaton, which knows nothing of names that came before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from app.constraint.distinct.seen_texts import Frame, SeenTexts
from app.constraint.json.text import json_text
from app.constraint.language.nodes import Notation

_OUTSIDE: Final = 0
"""Of strings and names: in front of a value, in one, or behind it."""
_NEXT: Final = 1
"""In front of a name, or the end of an object that has none."""
_STRING: Final = 2
_NAME: Final = 3

_BACKSLASH, _COMMA, _COLON = ord("\\"), ord(","), ord(":")
_OBJECT = ord("{")
_OPENING = b"{["
_CLOSING = b"}]"
_BLANKS = b" \n\r\t"


@dataclass(slots=True, unsafe_hash=True)  # not frozen: each token may make one; nothing changes it
class Names:
    """Where a text stands."""

    open: tuple[SeenTexts | None, ...] = ()
    """The names of each container that is open, from the outermost; None for an array."""
    mode: int = _OUTSIDE
    name: Frame | None = None
    """The name that is being written, its quote included."""
    matched: int = 0
    """Bytes of a quote that a string may end with; below 0: bytes to come that say nothing, of an
    escape or of the quote that a string begins with."""

    @property
    def near(self) -> Frame | None:
        """The name that is being written, or comes next, if it may yet be one that was said."""
        if self.mode == _NEXT:
            said = self.open[-1]
            return Frame.between(said) if said is not None and said.texts else None
        return self.name if self.name is not None and self.name.near else None

    @property
    def is_next(self) -> bool:
        """Whether a name is to begin."""
        return self.mode == _NEXT


NO_NAMES = Names()
"""Before a text."""


class NameScan:
    """Follows texts of one notation."""

    def __init__(self, notation: Notation) -> None:
        self.notation = notation
        self._quote = notation.quote
        self._ends = frozenset(notation.quote[:1] + (b"\\" if notation.escaped else b""))
        self.end = _COLON if notation.bare_names else notation.quote[-1]
        """The byte that ends a name."""
        self.any_end = b"~z" + (b":" if notation.bare_names else notation.quote)
        """The end of a name that nobody says."""
        self.any_name = (b"" if notation.bare_names else notation.quote) + self.any_end

    def after(self, names: Names, data: bytes) -> Names | int:
        """Where the text stands after ``data``; where a name comes again, the index of its end."""
        mode, matched, name = names.mode, names.matched, names.name
        if mode == _STRING and not matched and self._ends.isdisjoint(data):
            return names
        quote, escaped, bare = self._quote, self.notation.escaped, self.notation.bare_names
        containers = names.open
        begun = 0
        for index, byte in enumerate(data):
            if mode >= _STRING:
                if matched < 0:
                    matched += 1
                    continue
                if mode == _NAME and bare:
                    ends = byte == _COLON
                elif byte == _BACKSLASH and escaped:
                    matched = -1
                    continue
                else:
                    matched = matched + 1 if byte == quote[matched] else int(byte == quote[0])
                    ends = matched == len(quote)
                if not ends:
                    continue
                matched = 0
                if mode == _NAME:
                    assert name is not None
                    text = name.text + data[begun : index + (not bare)]
                    text = self._canonical(text)
                    if text in name.said:
                        return index
                    containers = (*containers[:-1], name.said.with_text(text))
                    name = None
                mode = _OUTSIDE
            elif byte == quote[0] or (bare and mode == _NEXT and byte not in b"}] \n\r\t"):
                if mode == _NEXT:
                    said = containers[-1]
                    assert said is not None
                    mode, name, begun = _NAME, Frame.between(said), index
                else:
                    mode = _STRING
                matched = 0 if mode == _NAME and bare else 1 - len(quote)
            elif byte == _COMMA:
                if containers and containers[-1] is not None:
                    mode = _NEXT
            elif byte in _OPENING:
                containers = (*containers, SeenTexts() if byte == _OBJECT else None)
                mode = _NEXT if byte == _OBJECT else _OUTSIDE
            elif byte in _CLOSING:
                containers, mode = containers[:-1], _OUTSIDE
        if name is not None:
            name = name.after(data[begun:])
        return Names(containers, mode, name, matched)

    def _canonical(self, text: bytes) -> bytes:
        """The text of a name as it is plainly spelled."""
        if b"\\" not in text or not self.notation.escaped:
            return text
        try:
            return json_text(json.loads(text))
        except ValueError:  # another notation's escapes
            return text
