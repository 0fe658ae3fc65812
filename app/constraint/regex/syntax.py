"""The tree of a regular expression. Nodes cache properties of their subtrees for later steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.constraint.language.codepoints import Ranges
from app.core.errors import ConstraintTooComplex

QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNT_DIGITS = 9
_UNBOUNDED_TIMES = 10
"""Factor of an unbounded repetition around counted ones, in ``counts``."""


def counts(low: str, comma: str | None, high: str | None, where: str) -> tuple[int, int | None]:
    """The bounds of ``{low}``, ``{low,}`` or ``{low,high}``; ``where``: "pattern" or "grammar", for
    errors."""
    fewest = _count(low, where)
    if high is not None:
        return fewest, _count(high, where)
    return fewest, None if comma else fewest


def _count(digits: str, where: str) -> int:
    digits = digits.lstrip("0") or "0"
    if len(digits) > _COUNT_DIGITS:
        raise ConstraintTooComplex(f"a count of more than {_COUNT_DIGITS} digits in a {where}")
    return int(digits)


class _Facts:
    """Properties of a subtree."""

    anchored: bool = False
    """Whether its matches depend on the text around it."""
    looks: bool = False
    """Whether they depend on the content of that text, and not only on its presence."""
    shortest: int = 0
    longest: int | None = 0
    """In characters, as ``shortest``; None without bound."""
    counts: int = 1
    """Largest product of the counts of nested repetitions."""

    def _combine(
        self, parts: tuple[Node, ...], least: Callable[..., int], most: Callable[..., int]
    ) -> None:
        longest = [part.longest for part in parts if part.longest is not None]
        vars(self).update(
            anchored=any(part.anchored for part in parts),
            looks=any(part.looks for part in parts),
            shortest=least(part.shortest for part in parts),
            longest=most(longest) if len(longest) == len(parts) else None,
            counts=max((part.counts for part in parts), default=1),
        )


@dataclass(frozen=True, eq=False)
class Characters(_Facts):
    """One character of a set, which may be empty.

    ``members`` match in every dialect, ``possible`` in some dialect.
    """

    members: Ranges
    possible: Ranges
    shortest = longest = 1


@dataclass(frozen=True, eq=False)
class Anchor(_Facts):
    """The start of the text (``^``) or its end (``$``); ``doubtful``: only in some dialects."""

    at_end: bool
    doubtful: bool = False
    anchored = True


@dataclass(frozen=True, eq=False)
class Look(_Facts):
    """A position with (or, if ``negative``, without) a match of ``body`` after it, or before it if
    ``behind``."""

    body: Node
    behind: bool
    negative: bool

    def __post_init__(self) -> None:
        vars(self).update(anchored=True, looks=True, counts=self.body.counts)


@dataclass(frozen=True, eq=False)
class Sequence(_Facts):
    """The parts one after the other; no parts match the empty string."""

    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        self._combine(self.parts, sum, sum)


@dataclass(frozen=True, eq=False)
class Alternatives(_Facts):
    """Any of the options; one or more."""

    options: tuple[Node, ...]

    def __post_init__(self) -> None:
        self._combine(self.options, min, max)


@dataclass(frozen=True, eq=False)
class Repeated(_Facts):
    """``body`` from ``low`` to ``high`` times; ``high`` None is without bound."""

    body: Node
    low: int
    high: int | None

    def __post_init__(self) -> None:
        body, high = self.body, self.high
        longest = None if body.longest is None or high is None else body.longest * high
        unbounded = _UNBOUNDED_TIMES if body.counts > 1 else 1
        vars(self).update(
            anchored=body.anchored,
            looks=body.looks,
            shortest=body.shortest * self.low,
            longest=0 if body.longest == 0 or high == 0 else longest,
            counts=body.counts * max(unbounded if high is None else high, self.low, 1),
        )


Node = Characters | Anchor | Look | Sequence | Alternatives | Repeated


_EXCERPT = 20


class _AtPosition(Exception):
    def __init__(self, reason: str, pattern: str, position: int) -> None:
        excerpt = pattern[position : position + _EXCERPT]
        more = "..." if position + _EXCERPT < len(pattern) else ""
        where = f"at character {position} of the pattern: {excerpt!r}{more}"
        super().__init__(f"{reason}, {where}")
        self.position = position


class PatternError(_AtPosition):
    """The text is not a regular expression."""


class PatternNotSupported(_AtPosition):
    """The pattern cannot be translated exactly."""
