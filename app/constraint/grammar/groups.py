"""The right side of a rule while it is read, without recursion: a stack of open groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.constraint.grammar.source import Source
from app.constraint.grammar.syntax import Node, Repeated, alternatives, series
from app.constraint.limits import Limits
from app.core.errors import ConstraintTooComplex

_COUNT_DIGITS = 9
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
        """What follows ``|``."""
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
        """``]`` makes its group optional."""
        group = self._open[-1]
        if _CLOSES.get(group.opener) != closer:
            raise self._source.invalid(f"{closer!r} closes no group", position)
        self._open.pop()
        group.end_option()
        node = alternatives(group.options)
        self.append(Repeated(node, 0, 1) if closer == "]" else node)

    def repeat(self, low: int, high: int | None, position: int) -> None:
        """Repeat the last part, once: what is repeated again stands in a group."""
        if not self._repeatable:
            raise self._source.invalid("there is nothing before this to repeat", position)
        if high is not None and high < low:
            raise self._source.invalid("the counts are out of order", position)
        parts = self._open[-1].parts
        parts[-1] = Repeated(parts[-1], low, high)
        self._repeatable = False

    def finish(self) -> Node:
        """The whole; raises where a group is still open."""
        group = self._open[-1]
        if group.opener:
            raise self._source.invalid("this group is not closed", group.position)
        group.end_option()
        return alternatives(group.options)


def count(digits: str) -> int:
    """A repetition's count."""
    digits = digits.lstrip("0") or "0"
    if len(digits) > _COUNT_DIGITS:
        raise ConstraintTooComplex(f"a count of more than {_COUNT_DIGITS} digits in a grammar")
    return int(digits)


QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
