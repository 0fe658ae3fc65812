"""The tree of a regular expression. Nodes know what later steps ask of whole subtrees.

``anchored``: whether what a subtree matches depends on the text beside it; ``looks``: whether that
goes beyond there being any; ``shortest`` and ``longest``: in characters; ``counts``: the largest
product of times of repetitions inside one another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from app.constraint.language.codepoints import Ranges

_UNBOUNDED_TIMES = 10
"""What a repetition without bound around counted ones counts for in ``counts``."""


@dataclass(frozen=True, slots=True, eq=False)
class Characters:
    """One character of a set, which may be empty.

    ``members`` match in every dialect, ``possible`` in some dialect.
    """

    members: Ranges
    possible: Ranges
    anchored: bool = field(default=False, init=False)
    looks: bool = field(default=False, init=False)
    shortest: int = field(default=1, init=False)
    longest: int | None = field(default=1, init=False)
    counts: int = field(default=1, init=False)


@dataclass(frozen=True, slots=True, eq=False)
class Anchor:
    """The start of the text (``^``) or its end (``$``)."""

    at_end: bool
    anchored: bool = field(default=True, init=False)
    looks: bool = field(default=False, init=False)
    shortest: int = field(default=0, init=False)
    longest: int | None = field(default=0, init=False)
    counts: int = field(default=1, init=False)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The place before which (``behind``) or after which ``body`` matches, or does not."""

    body: Node
    behind: bool
    negative: bool
    anchored: bool = field(default=True, init=False)
    looks: bool = field(default=True, init=False)
    shortest: int = field(default=0, init=False)
    longest: int | None = field(default=0, init=False)
    counts: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", self.body.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """The parts one after the other; no parts match the empty string."""

    parts: tuple[Node, ...]
    anchored: bool = field(init=False)
    looks: bool = field(init=False)
    shortest: int = field(init=False)
    longest: int | None = field(init=False)
    counts: int = field(init=False)

    def __post_init__(self) -> None:
        longest: int | None = 0
        for part in self.parts:
            longest = None if longest is None or part.longest is None else longest + part.longest
        object.__setattr__(self, "anchored", any(part.anchored for part in self.parts))
        object.__setattr__(self, "looks", any(part.looks for part in self.parts))
        object.__setattr__(self, "shortest", sum(part.shortest for part in self.parts))
        object.__setattr__(self, "longest", longest)
        object.__setattr__(self, "counts", max((part.counts for part in self.parts), default=1))


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """Any of the options; one or more."""

    options: tuple[Node, ...]
    anchored: bool = field(init=False)
    looks: bool = field(init=False)
    shortest: int = field(init=False)
    longest: int | None = field(init=False)
    counts: int = field(init=False)

    def __post_init__(self) -> None:
        longest: int | None = 0
        for option in self.options:
            known = longest is not None and option.longest is not None
            longest = max(longest or 0, option.longest or 0) if known else None
        object.__setattr__(self, "anchored", any(option.anchored for option in self.options))
        object.__setattr__(self, "looks", any(option.looks for option in self.options))
        object.__setattr__(self, "shortest", min(option.shortest for option in self.options))
        object.__setattr__(self, "longest", longest)
        object.__setattr__(self, "counts", max(option.counts for option in self.options))


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """``body`` from ``low`` to ``high`` times; ``high`` None is without bound."""

    body: Node
    low: int
    high: int | None
    anchored: bool = field(init=False)
    looks: bool = field(init=False)
    shortest: int = field(init=False)
    longest: int | None = field(init=False)
    counts: int = field(init=False)

    def __post_init__(self) -> None:
        longest = None
        if self.body.longest == 0 or self.high == 0:
            longest = 0
        elif self.body.longest is not None and self.high is not None:
            longest = self.body.longest * self.high
        object.__setattr__(self, "anchored", self.body.anchored)
        object.__setattr__(self, "looks", self.body.looks)
        object.__setattr__(self, "shortest", self.body.shortest * self.low)
        object.__setattr__(self, "longest", longest)
        unbounded = _UNBOUNDED_TIMES if self.body.counts > 1 else 1
        times = max(unbounded if self.high is None else self.high, self.low, 1)
        object.__setattr__(self, "counts", self.body.counts * times)


Node = Characters | Anchor | Look | Sequence | Alternatives | Repeated
