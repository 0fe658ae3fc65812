"""Is a value in a language with its members in some order?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from app.constraint.expressions import Expression
from tests.constraint.walks import Walker

_Left = TypeVar("_Left")


class OrderSearch:
    """Tries the orders of one value's members, an expression and a set of names at most once."""

    def __init__(self, walker: Walker, patience: int = 20_000) -> None:
        self._walker = walker
        self._empty = walker.pool.empty
        self._patience = patience

    def finds(self, value: Any) -> bool:
        """Whether some order of the members is in the language; gives up after ``patience``."""
        nullable = self._walker.pool.nullable
        return any(nullable[end] for end in self._ends(self._walker.root, value))

    def _ends(self, here: Expression, value: Any) -> Iterator[Expression]:
        """Where the texts of ``value`` lead from ``here``; each end once."""
        if here == self._empty:
            return
        if isinstance(value, dict) and value:
            after_brace = self._step(here, "{")
            yield from self._after_members(after_brace, value, frozenset(value), set())
        elif isinstance(value, list) and value:
            yield from self._after_items(self._step(here, "["), value, 0, set())
        else:
            yield self._step(here, json.dumps(value, ensure_ascii=False))

    def _after_members(
        self,
        here: Expression,
        members: dict[str, Any],
        left: frozenset[str],
        seen: set[tuple[Expression, frozenset[str]]],
    ) -> Iterator[Expression]:
        if self._is_known(here, left, seen):
            return
        if not left:
            yield self._step(here, "}")
        comma = "" if len(left) == len(members) else ", "
        for name in members:  # in their order: the one they come in fits mostly
            if name in left:
                key = self._step(here, f"{comma}{json.dumps(name, ensure_ascii=False)}: ")
                for end in self._ends(key, members[name]):
                    yield from self._after_members(end, members, left - {name}, seen)

    def _after_items(
        self, here: Expression, items: list[Any], place: int, seen: set[tuple[Expression, int]]
    ) -> Iterator[Expression]:
        if self._is_known(here, place, seen):
            return
        if place == len(items):
            yield self._step(here, "]")
            return
        start = self._step(here, ", ") if place else here
        for end in self._ends(start, items[place]):
            yield from self._after_items(end, items, place + 1, seen)

    def _is_known(self, here: Expression, left: _Left, seen: set[tuple[Expression, _Left]]) -> bool:
        """Whether there is nothing new to find; notes the place."""
        self._patience -= 1
        if here == self._empty or (here, left) in seen or self._patience < 0:
            return True
        seen.add((here, left))
        return False

    def _step(self, here: Expression, text: str) -> Expression:
        for byte in text.encode():
            if here == self._empty:
                break
            here = self._walker.derivatives.derivative(here, byte)
        return here
