"""The syntax tree of both notations, their reader, and errors that point into the text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from app.constraint.language.codepoints import Ranges
from app.constraint.limits import Limits
from app.core.errors import ConstraintTooComplex, InvalidSchema, UnsupportedSchema

_WIDTH = 72
"""Maximum characters of a line that an error shows."""


@dataclass(frozen=True, slots=True)
class Source:
    """A grammar's text. Positions are offsets into it, in characters."""

    text: str

    def invalid(self, reason: str, position: int) -> InvalidSchema:
        """An error that quotes the line at ``position`` with a mark under it."""
        line, column = self._place(position)
        reason = f"{reason}:\n{self._excerpt(position)}\n"
        error = InvalidSchema(reason, pointer=f"line {line}, column {column}")
        return error.at(line=line, column=column)

    def unsupported(self, what: str, reason: str, position: int) -> UnsupportedSchema:
        line, column = self._place(position)
        reason = f"{reason}:\n{self._excerpt(position)}"
        error = UnsupportedSchema(what, f"line {line}, column {column}", reason)
        return error.at(line=line, column=column)

    def _place(self, position: int) -> tuple[int, int]:
        """Line and column, both counted from 1."""
        return self.text.count("\n", 0, position) + 1, position - self._line_start(position) + 1

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
    """Texts that may stand between tokens (Lark's ``%ignore``)."""


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


_CLOSES = {"(": ")", "[": "]"}


@dataclass
class _Group:
    opener: str
    position: int
    options: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)

    def end_option(self) -> None:
        self.options.append(series(self.parts))
        self.parts = []


class Groups:
    """Collects parts, alternatives and groups; ``finish`` gives the node of it all."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._open = [_Group("", 0)]
        self._repeatable = False

    def append(self, node: Node) -> None:
        self._open[-1].parts.append(node)
        self._repeatable = True

    def next_option(self) -> None:
        """End the option before ``|``."""
        self._open[-1].end_option()
        self._repeatable = False

    def open(self, opener: str, position: int) -> None:
        if len(self._open) > self._limits.pattern_nesting:
            raise ConstraintTooComplex(
                f"groups nested deeper than {self._limits.pattern_nesting} in a grammar"
            )
        self._open.append(_Group(opener, position))
        self._repeatable = False

    def close(self, closer: str, position: int) -> None:
        """End the current group; ``]`` makes it optional."""
        group = self._open[-1]
        if _CLOSES.get(group.opener) != closer:
            raise self._source.invalid(f"{closer!r} closes no group", position)
        self._open.pop()
        group.end_option()
        node = alternatives(group.options)
        self.append(Repeated(node, 0, 1) if closer == "]" else node)

    def repeat(self, low: int, high: int | None, position: int) -> None:
        """Repeat the last part; a second repetition needs a group."""
        if not self._repeatable:
            raise self._source.invalid("nothing to repeat before this", position)
        if high is not None and high < low:
            raise self._source.invalid("the counts are out of order", position)
        parts = self._open[-1].parts
        parts[-1] = Repeated(parts[-1], low, high)
        self._repeatable = False

    def finish(self) -> Node:
        """The node of the whole; raises if a group is still open."""
        group = self._open[-1]
        if group.opener:
            raise self._source.invalid("this group is not closed", group.position)
        group.end_option()
        return alternatives(group.options)


class Reader:
    """Reads a text item by item; each notation defines its items."""

    _ITEM: ClassVar[re.Pattern[str]]
    _START: ClassVar[str]
    _UNCLOSED: ClassVar[dict[str, str]]
    """Errors for text that begins with one of these characters and matches no item."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._rules: dict[str, Rule] = {}
        self._ignored: list[Node] = []
        self._groups = Groups(source, limits)
        self._name: str | None = None
        """The rule that is being read; "" for the body of ``%ignore``."""
        self._position = 0

    def read(self) -> Rules:
        """Raises ``InvalidSchema``, ``UnsupportedSchema`` or ``ConstraintTooComplex``.

        Time is linear in the length of the text.
        """
        text, at = self._source.text, 0
        while at < len(text):
            found = self._ITEM.match(text, at)
            if found is None:
                raise self._unexpected(at)
            at = self._item(found)
        self._end_rule()
        if self._START not in self._rules:
            raise self._source.invalid(f"the grammar has no rule named {self._START}", 0)
        return Rules(self._source, self._START, self._rules, tuple(self._ignored))

    def _item(self, found: re.Match[str]) -> int:
        """Handle an item; returns where the next one starts."""
        raise NotImplementedError

    def _begin_rule(self, name: str, position: int, called: str) -> None:
        if name in self._rules:
            raise self._source.invalid(f"{called} is defined twice", position)
        self._name, self._position = name, position
        self._groups = Groups(self._source, self._limits)

    def _end_rule(self) -> None:
        if self._name is None:
            return
        body = self._groups.finish()
        if self._name:
            self._rules[self._name] = Rule(body, self._position, self._in_terminal)
        else:
            self._ignored.append(body)
        self._name = None

    @property
    def _in_terminal(self) -> bool:
        return False

    def _unexpected(self, at: int) -> Exception:
        character = self._source.text[at]
        reason = self._UNCLOSED.get(character, f"{character!r} is not expected here")
        return self._source.invalid(reason, at)
