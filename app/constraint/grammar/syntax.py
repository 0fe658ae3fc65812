"""What a grammar is made of, in either notation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.constraint.grammar.source import Source
from app.constraint.language.codepoints import Ranges


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
