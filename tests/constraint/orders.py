"""Searches an order of a value's object members in which the value is in a language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from app.constraint.distinct.places import Place
from app.constraint.language.expressions import Expression

_Left = TypeVar("_Left")

Here = Expression | Place
"""The state after a text: an expression, or a place if it matters which texts were seen."""


class Steps(Protocol):
    """A language that is followed byte by byte."""

    @property
    def dead(self) -> Here:
        """The state after which nothing can follow."""

    def after(self, here: Here, text: bytes) -> Here: ...

    def is_whole(self, here: Here) -> bool: ...


class OrderSearch:
    """Tries orders of one value's members; each pair of a state and a set of names at most once.

    A member is passed over if it could have come before and no longer can. The first search only
    takes members that pass over no other: the order of ``properties``, found without backtracking.
    The second search takes all members, those first that pass over few.
    """

    def __init__(self, steps: Steps, patience: int) -> None:
        self._language = steps
        self._dead = steps.dead
        self._patience = patience
        self._steps = 0
        self._may_pass_over = False
        self._keys: dict[tuple[Here, str], Here] = {}

    def finds(self, root: Here, value: Any) -> bool:
        """Whether some order of the members is in the language of ``root``.

        Also false if neither search finds one within ``patience`` members.
        """
        for self._may_pass_over in (False, True):
            self._steps = 0
            if any(self._language.is_whole(end) for end in self._ends(root, value)):
                return True
        return False

    def _ends(self, here: Here, value: Any) -> Iterator[Here]:
        """The states after ``value``, from ``here``."""
        if here == self._dead:
            return
        if isinstance(value, dict) and value:
            after_brace = self._step(here, "{")
            yield from self._after_members(after_brace, value, frozenset(value), set())
        elif isinstance(value, list) and value:
            yield from self._after_items(self._step(here, "["), value, 0, set())
        else:
            plain = isinstance(value, float)  # a subclass may write it without an exponent
            yield self._step(here, repr(value) if plain else json.dumps(value, ensure_ascii=False))

    def _after_members(
        self,
        here: Here,
        members: dict[str, Any],
        left: frozenset[str],
        seen: set[tuple[Here, frozenset[str]]],
    ) -> Iterator[Here]:
        """The states after the members that are ``left`` and the closing brace, from ``here``."""
        if self._is_known(here, left, seen):
            return
        if not left:
            yield self._step(here, "}")
        comma = "" if len(left) == len(members) else ", "
        keys = {name: self._key(here, comma, name) for name in members if name in left}
        possible = [name for name, key in keys.items() if key != self._dead]
        worse: list[tuple[int, str, Iterator[Here]]] = []
        for name in possible:
            ends = self._ends(keys[name], members[name])
            first = next((end for end in ends if end != self._dead), None)
            if first is None:
                continue
            ends = chain([first], ends)
            others = [other for other in possible if other != name]
            passed = sum(self._key(first, ", ", other) == self._dead for other in others)
            if passed == 0:
                for end in ends:
                    yield from self._after_members(end, members, left - {name}, seen)
            elif self._may_pass_over:
                worse.append((passed, name, ends))
        for _, name, ends in sorted(worse, key=itemgetter(0)):
            for end in ends:
                yield from self._after_members(end, members, left - {name}, seen)

    def _after_items(
        self, here: Here, items: list[Any], place: int, seen: set[tuple[Here, int]]
    ) -> Iterator[Here]:
        """The states after the items from ``place`` on and the closing bracket, from ``here``."""
        if self._is_known(here, place, seen):
            return
        if place == len(items):
            yield self._step(here, "]")
            return
        start = self._step(here, ", ") if place else here
        for end in self._ends(start, items[place]):
            yield from self._after_items(end, items, place + 1, seen)

    def _is_known(self, here: Here, left: _Left, seen: set[tuple[Here, _Left]]) -> bool:
        """Whether the search can stop here; records the state if not."""
        self._steps += 1
        if here == self._dead or (here, left) in seen or self._steps > self._patience:
            return True
        seen.add((here, left))
        return False

    def _key(self, here: Here, comma: str, name: str) -> Here:
        text = f"{comma}{json.dumps(name, ensure_ascii=False)}: "
        known = self._keys.get((here, text))
        if known is None:
            known = self._keys[here, text] = self._step(here, text)
        return known

    def _step(self, here: Here, text: str) -> Here:
        return self._language.after(here, text.encode())
