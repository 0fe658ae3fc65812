"""Composite grammars: answers of several parts, some of them under constraints of their own.

Tool calls, structural tags and the answers of reasoning models consist of marks, free text and
JSON. A ``Composite`` is a ``ConstraintSpec`` like any other, compiled into one automaton, so forced
marks are leapt over and the whole answer is finished within the budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

from app.core.arguments import Arguments
from app.core.specs import Choice, Grammar, JsonObject, JsonSchema, Regex


@dataclass(frozen=True, slots=True)
class FixedText:
    """Exactly ``text``."""

    text: str


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any text, of any length, in which none of ``without`` occurs.

    ``not_ending``: the text ends with none of these. See ``text_before``.
    """

    without: tuple[str, ...] = ()
    not_ending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """The parts one after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of the parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """``part`` several times, ``separator`` between each two."""

    part: Part
    separator: str = ""
    at_least: int = 0
    at_most: int | None = None


@dataclass(frozen=True, slots=True)
class NotStarting:
    """The texts of ``part`` that start with none of ``prefixes``."""

    part: Part
    prefixes: tuple[str, ...]


Part = (
    FixedText
    | FreeText
    | Series
    | Either
    | Repeated
    | NotStarting
    | JsonSchema
    | JsonObject
    | Regex
    | Choice
    | Grammar
    | Arguments
)


@dataclass(frozen=True, slots=True)
class Composite:
    """Answers that ``root`` describes."""

    kind: ClassVar = "structure"
    root: Part

    def cache_key(self) -> str:
        return "composite:" + json.dumps(_plain(self.root), separators=(",", ":"))


def with_schemas(spec: Any, change: Callable[[Any], Any], kinds: Any = JsonSchema) -> Any:
    """A specification with its schemas, or its parts of ``kinds``, changed."""
    if isinstance(spec, kinds):
        return change(spec)
    if isinstance(spec, tuple):
        return tuple([with_schemas(each, change, kinds) for each in spec])
    if is_dataclass(spec) and not isinstance(spec, type):
        names = [each.name for each in fields(spec) if each.init]
        return replace(spec, **{n: with_schemas(getattr(spec, n), change, kinds) for n in names})
    return spec


def text_before(mark: str, marks: Iterable[str], without: Iterable[str] = ()) -> FreeText:
    """Text before ``mark`` in which a reader that searches for ``marks`` finds no earlier one.

    In the text followed by ``mark``, none of the other ``marks`` ends earlier, and none that ends
    at the same byte is longer. The text contains none of ``without``. ``mark`` "" is the end of
    the answer. Other marks may be inside ``mark`` only at its end.
    """
    others = [other for other in marks if other]
    not_ending = {other[:cut] for other in others for cut in _overlaps(other, mark)}
    return FreeText(tuple(sorted({*others, *without})), tuple(sorted(not_ending)))


def _overlaps(other: str, mark: str) -> Iterator[int]:
    """Lengths at which ``other``, begun before ``mark``, may overlap it and end in or with it."""
    cut = other.find(mark[:1], max(1, len(other) - len(mark))) if mark else -1
    while cut > 0:
        if mark.startswith(other[cut:]):
            yield cut
        cut = other.find(mark[0], cut + 1)


def _plain(part: Any) -> Any:
    """The tree as JSON: one list for each part, its kind first."""
    if isinstance(part, JsonSchema | JsonObject | Regex | Choice | Grammar | Arguments):
        return ["spec", part.cache_key()]
    if is_dataclass(part):
        inside = (getattr(part, field.name) for field in fields(part))
        return [type(part).__name__, *map(_plain, inside)]
    return list(map(_plain, part)) if isinstance(part, tuple) else part
