"""What a grammar is made of, in either notation, and complaints that point into its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.constraint.language.codepoints import Ranges
from app.core.errors import InvalidSchema, UnsupportedSchema

_WIDTH = 72
"""Characters of a line that a complaint shows at most."""


@dataclass(frozen=True, slots=True)
class Source:
    """A grammar's text. Positions are offsets into it, in characters."""

    text: str

    def invalid(self, reason: str, position: int) -> InvalidSchema:
        """An error that quotes the line at ``position`` with a mark under it."""
        line, column = self._place(position)
        return InvalidSchema(
            f"{reason}:\n{self._excerpt(position)}\n", pointer=self.line_and_column(position)
        ).at(line=line, column=column)

    def unsupported(self, what: str, reason: str, position: int) -> UnsupportedSchema:
        line, column = self._place(position)
        return UnsupportedSchema(
            what, self.line_and_column(position), f"{reason}:\n{self._excerpt(position)}"
        ).at(line=line, column=column)

    def line_and_column(self, position: int) -> str:
        """``line 3, column 7``, both counted from 1."""
        line, column = self._place(position)
        return f"line {line}, column {column}"

    def _place(self, position: int) -> tuple[int, int]:
        line = self.text.count("\n", 0, position) + 1
        return line, position - self._line_start(position) + 1

    def _line_start(self, position: int) -> int:
        return self.text.rfind("\n", 0, position) + 1

    def _excerpt(self, position: int) -> str:
        start = self._line_start(position)
        end = self.text.find("\n", start)
        end = len(self.text) if end < 0 else end
        first = max(start, min(position - _WIDTH // 2, end - _WIDTH))
        line = self.text[first : min(end, first + _WIDTH)]
        shown = "".join(character if character.isprintable() else " " for character in line)
        return f"    {shown}\n    {' ' * (position - first)}^"


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Exactly these bytes, at ``position`` of the source."""

    value: bytes
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Characters:
    """One character of a set."""

    members: Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Json:
    """A JSON value valid against ``schema``, as the server writes JSON."""

    schema: Any


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A reference to a rule, at ``position`` of the source."""

    name: str
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A terminal in a rule: ignored text may stand before it."""

    body: Node


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The parts one after the other; no parts are the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """Any of the options, one or more."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """``body`` from ``low`` to ``high`` times; ``high`` None is without bound."""

    body: Node
    low: int
    high: int | None


Node = Text | Characters | Json | Name | Token | Series | Alternatives | Repeated

NOTHING = Series(())
"""The empty text."""


@dataclass(frozen=True, slots=True)
class Rule:
    body: Node
    position: int
    is_terminal: bool = False
    """Terminals refer to terminals alone, and never to themselves (Lark)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A grammar that has been read."""

    source: Source
    start: str
    rules: Mapping[str, Rule]
    ignored: Sequence[Node] = ()
    """What may stand between tokens (Lark's ``%ignore``)."""


def series(parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Series(tuple(parts))


def alternatives(options: Sequence[Node]) -> Node:
    return options[0] if len(options) == 1 else Alternatives(tuple(options))


def children(node: Node) -> Sequence[Node]:
    """The nodes directly inside ``node``."""
    match node:
        case Series(parts=inside) | Alternatives(options=inside):
            return inside
        case Repeated(body=body) | Token(body=body):
            return (body,)
    return ()
