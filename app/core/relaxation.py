"""What a schema was relaxed by: the keywords that the answer is not held to, by name and place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One place of a schema at which answers may be more than it says."""

    pointer: str
    """A JSON Pointer into the schema as it was sent: to the keyword, or to the whole subschema."""
    keyword: str
    """What does not hold there; "": nothing but ``type`` does."""
    reason: str
    place: str
    """Pointer to the subschema in the schema as relaxed so far, from which this goes on."""
    subject: str = ""
    """Which of several schemas it is about: see ``JsonSchema``."""
    inexact: bool = False
    """Answers are held to it, in one of the ways in which validators read it."""


@dataclass(frozen=True, slots=True)
class Written:
    """Texts that were written under a relaxed schema."""

    schema: Any
    """As it was sent."""
    relaxed: tuple[Relaxation, ...]
    """All of this schema, in the order in which they were made."""
    texts: tuple[str, ...]
