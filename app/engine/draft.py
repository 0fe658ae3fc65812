"""Tokens that are likely to come next in an answer, verified in the step that computes them.

Guessed tokens are each decided by a draw; between them are tokens that a leap will append if the
guess before them is right::

    tokens ... last | g | L  L  L | h | g |        g guessed, L leapt, h held back by a leap
    draws       ^              ^    ^   ^          before each that is decided, and at the end
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto


class Source(Enum):
    """Where a drafted token comes from."""

    HELD_BACK = auto()
    """Forced text that the next character could still merge with."""
    COUNTED = auto()
    """Most frequent next token of earlier answers of this constraint."""
    COPIED = auto()
    """The continuation in the prompt."""
    PREDICTED = auto()
    """The continuation in the client's prediction."""
    LEAPT = auto()
    """Forced by the token before it, so it needs no draw."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafted tokens, and for each of them its source."""

    tokens: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()

    def cut(self, most: int) -> Draft:
        """The first ``most`` tokens, without leapt ones at the end that no draw would follow."""
        length = min(len(self.tokens), max(0, most))
        if length == len(self.tokens):
            return self
        while length and self.sources[length] is Source.LEAPT:
            length -= 1
        return Draft(self.tokens[:length], self.sources[:length])

    def draws(self) -> Iterator[int]:
        """For each draw in order, the number of drafted tokens before it: 0 for the first."""
        for index, source in enumerate(self.sources):
            if source is not Source.LEAPT:
                yield index
        yield len(self.tokens)


NO_DRAFT = Draft()
