"""Choices: places of an answer where its constraint leaves a finite number of ways on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from app.core.constraint import ConstraintState
from app.core.json_scan import Place

TokenIds = NDArray[np.int32]

MOST_WAYS = 256
MOST_BYTES = 4096
"""Limits of one choice: number of ways, and bytes of their texts in all."""

WayKind = Literal[
    "value", "string", "number", "object", "array", "key", "any key", "item", "end", "text"
]
"""A whole value; one of several strings, numbers, objects or arrays; a key; one of several keys;
another item of an array; the end of the array or object; the rest of an answer that is not JSON."""


@dataclass(frozen=True, slots=True)
class Way:
    """One continuation, with the texts that distinguish it: none is a prefix of another."""

    kind: WayKind
    text: bytes
    """JSON of a whole value or key; for a text, the text itself; else b""."""
    texts: tuple[bytes, ...]
    """Texts in the constraint. A number whose digits could go on ends with what follows it."""
    scored: tuple[bytes, ...]
    """Texts to score for this way: such a number with anything that may follow numbers, since the
    model need not know what the constraint has there."""
    ends_answer: bool = False
    """Whether ``text`` followed by the end of the answer also belongs to this way."""
    borders: tuple[bytes, ...] = ()
    """For a text: what a model may write after it, unless a longer text among the ways continues
    so."""


@dataclass(frozen=True, slots=True)
class Choice:
    """All ways on from a state."""

    ways: tuple[Way, ...]
    is_exact: bool = False
    """Whether the constraint requires an exact choice."""
    is_open: bool = False
    """Whether other continuations exist: a number with more digits, an array's end before its item,
    or something other than a value."""
    of: tuple[int, ...] = ()
    """Indices of the remaining ways of its state, if earlier text excludes some."""


UNLISTED = Choice((), is_open=True)
"""A choice with too many ways, or too much work to list them."""


@runtime_checkable
class ChoosingState(ConstraintState, Protocol):
    """A state that knows the ways on from it."""

    @property
    def has_exact_choices(self) -> bool:
        """Whether the constraint requires any exact choice."""

    def choice(self, place: Place) -> Choice | None:
        """The ways on from here, where the text so far ends at ``place``; ``UNLISTED`` where there
        are too many, None where nothing is decided. Memoised.

        At most ``MOST_WAYS`` of ``MOST_BYTES`` in all. Costs as much as one mask may, once. Raises
        ``ConstraintTooComplex`` beyond that; what it learned is kept.
        """

    def only(self, way: Way, before: bytes = b"") -> ChoosingState:
        """This state, restricted to answers that continue with ``before`` and then this way."""

    def beginning(self, text: bytes) -> TokenIds:
        """Tokens that spell ``text``, one or more bytes, and then anything. Memoised."""

    def copy(self, *, work: int | None = None) -> ChoosingState: ...


@dataclass(frozen=True, slots=True)
class ScoredWay:
    """A way on and its probability."""

    way: Way
    logprob: float
    """Log-probability (natural) of the way's texts, among all texts."""


@dataclass(frozen=True, slots=True)
class ScoredChoice:
    """The probabilities of the ways at one place of an answer. Engine to serving."""

    start: int
    """Bytes of the answer before the place."""
    place: Place
    ways: tuple[ScoredWay, ...]
    """Empty if the choice was not scored."""
    is_open: bool
    by_tokens: bool = False
    """Whether an exact choice was requested but drawn token by token."""
