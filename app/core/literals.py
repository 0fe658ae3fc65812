"""Writes arguments of functions as literals of another notation than JSON.

Python's, as ``f(city="Ulm", flags=[True, None])`` has it, and Gemma's own, in which strings stand
between marks and names stand bare: ``city:<|"|>Ulm<|"|>,sizes:[1,2],where:{x:1}``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

NOT_IN_NAMES = "\"'&<>\\=(),:{}[]"
"""Characters that unquoted names cannot contain, besides blanks and control characters."""
_NAME = re.compile(f"[^{re.escape(NOT_IN_NAMES)}\x00-\x20\ud800-\udfff]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Literals:
    """``NAME equals VALUE comma NAME equals VALUE``, up to ``end``."""

    equals: str = "="
    comma: str = ", "
    """Between arguments, items and members."""
    end: str = ")"
    """Follows the arguments: one character."""
    quote: str = '"'
    """Stands on both sides of a string."""
    escaped: bool = True
    """Whether strings have the escapes of JSON; else they stand as they are, up to the quote."""
    words: tuple[str, str, str] = ("None", "False", "True")
    """For null, false and true."""
    colon: str = ": "
    """Between the name and the value of an object's member."""
    bare_names: bool = False
    """Whether names of members have no quotes."""
    sorted_names: bool = False
    """Whether names come in the order of the alphabet, without regard to case."""

    @property
    def has_json_strings(self) -> bool:
        return self.escaped and self.quote == '"'

    def can_name(self, name: str) -> bool:
        """Whether ``name`` may stand without quotes."""
        return _NAME.fullmatch(name) is not None

    def can_write(self, value: Any) -> bool:
        """Whether the text that ``written`` returns reads back as ``value``."""
        match value:
            case str():
                return self.escaped or not (self.quote in value or _SURROGATE.search(value))
            case list():
                return all(map(self.can_write, value))
            case dict():
                sayable = self.can_name if self.bare_names else self.can_write
                return all(map(sayable, value)) and all(map(self.can_write, value.values()))
        return True

    def arguments(self, members: dict[str, Any]) -> str:
        """The text of one call's arguments."""
        texts = (name + self.equals + self.written(each) for name, each in self.ordered(members))
        return self.comma.join(texts)

    def written(self, value: Any) -> str:
        """``value`` as a literal."""
        match value:
            case None:
                return self.words[0]
            case bool():
                return self.words[1 + value]
            case str():
                return self.quote + self.content(value) + self.quote
            case list():
                return "[" + self.comma.join(map(self.written, value)) + "]"
            case dict():
                write = str if self.bare_names else self.written
                members = (
                    write(name) + self.colon + self.written(each)
                    for name, each in self.ordered(value)
                )
                return "{" + self.comma.join(members) + "}"
        return json.dumps(value)

    def content(self, text: str) -> str:
        """The text between the quotes of the string ``text``."""
        if not self.escaped:
            return text
        content = _SURROGATE.sub(
            lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False)[1:-1]
        )
        return content if self.quote == '"' else content.replace('\\"', '"').replace("'", "\\'")

    def ordered(self, members: dict[str, Any]) -> list[tuple[str, Any]]:
        """The members of an object as they are written."""
        items = list(members.items())
        return sorted(items, key=lambda item: item[0].lower()) if self.sorted_names else items
