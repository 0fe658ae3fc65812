"""Verbatim values: the texts of a prompt, and the requirements of a schema on their pieces.

A schema is compiled once for all prompts. Its ``x-verbatim`` strings are holes, which the texts of
a request fill when it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from app.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of the prompt: the content of one message, or the whole prompt."""

    name: str
    """What its API calls it: ``messages[1]``, ``input``, ``prompt``."""
    text: str
    by_user: bool = True
    """Whether it is the user's; a source without a name means these passages."""


class Found(NamedTuple):
    """First occurrence of a piece."""

    text: int
    """Index of the text in the document."""
    start: int
    end: int
    """In characters (Unicode code points) of that text, the end not included."""


class Document(Protocol):
    """Texts, indexed to find their pieces."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes. Any thread may ask."""

    def find(self, value: str) -> Found | None:
        """Where ``value`` stands first, if it does. Costs O(value), on any thread."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text that a value has to be a piece of."""

    part: str | None = None
    """Name of a passage; None: any of the user's. ``messages[-1]`` counts from the end."""
    words: bool = False
    """Whether the piece must consist of complete words and marks."""

    @classmethod
    def asked(cls, value: Any) -> Source | None:
        """The source that a valid value of ``x-verbatim`` names; None for False.

        True: a piece of the user's texts; ``"words"``: one that begins and ends with words; another
        text: a piece of the part of the prompt that is called so; an object has ``part`` and
        ``words``.
        """
        if value is False:
            return None
        if isinstance(value, dict):
            return cls(value.get("part"), value.get("words", False))
        if isinstance(value, str) and value != "words":
            return cls(part=value)
        return cls(words=value == "words")

    def __str__(self) -> str:
        text = "the user's text" if self.part is None else self.part
        return f"{text}, by words" if self.words else text


@dataclass(frozen=True, slots=True)
class Hole:
    """An ``x-verbatim`` string of a schema."""

    source: Source
    low: int = 0
    """Minimum characters of the piece."""
    high: int | None = None
    """Maximum characters of the piece; None: no limit."""
    pattern: bytes = b""
    """Next states [P, 256] as int16, -1 for none, of an automaton over the piece's raw UTF-8 that
    starts in state 0: all other conditions on the piece, lengths included. Empty: none."""
    finals: bytes = b""
    """[P] bytes: 1 for each state in which the pattern matches."""
    pointer: str = ""
    """JSON Pointer to the subschema."""


def passages_of(source: Source, passages: Sequence[Passage]) -> list[Passage]:
    """The passages of ``source``.

    Raises ``InvalidRequest`` if the prompt has no part of that name.
    """
    if source.part is None:
        return [passage for passage in passages if passage.by_user]
    named = {passage.name: passage for passage in passages}
    if source.part in named:
        return [named[source.part]]
    name, _, index = source.part.partition("[-")
    if index.endswith("]") and index[:-1].isdecimal():  # messages[-1], the last one of that list
        listed = [passage for passage in passages if passage.name.startswith(name + "[")]
        count = int(index[:-1][:9])
        if 0 < count <= len(listed):
            return [listed[-count]]
    there = ", ".join(list(named)[:8]) or "none"
    raise InvalidRequest(
        f"x-verbatim names {source.part!r}, but this prompt has these parts: {there}",
        role="constraint",
    )
