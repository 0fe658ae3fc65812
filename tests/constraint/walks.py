"""Walks through the language of a specification: is a text in it, and random texts of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from app.constraint.derivatives import Derivatives
from app.constraint.expressions import INFINITE, Expression, ExpressionPool
from app.constraint.front_end import build
from app.constraint.limits import Limits
from app.core.constraint import ConstraintSpec


class Walker:
    """A language, to be walked byte by byte."""

    def __init__(self, pool: ExpressionPool, root: Expression) -> None:
        self.pool = pool
        self.root = root
        self.derivatives = Derivatives(pool)
        self.derivatives.measure()
        self._patience = 0

    @classmethod
    def of(cls, spec: ConstraintSpec, limits: Limits | None = None) -> Walker:
        return cls(*build(spec, limits))

    @property
    def is_empty(self) -> bool:
        return self.derivatives.length(self.root) >= INFINITE

    def accepts(self, text: str | bytes) -> bool:
        return self.pool.nullable[self._step(self.root, text)]

    def accepts_value(self, value: Any) -> bool:
        """Whether the language has ``value`` as ``json.dumps`` writes it."""
        return self.accepts(json.dumps(value, ensure_ascii=False))

    def accepts_in_some_order(self, value: Any) -> bool:
        """The same, with the members of objects in whatever order the language asks for.

        False as well where too many orders would have to be tried.
        """
        self._patience = 5_000
        return any(self.pool.nullable[end] for end in self._ends(self.root, value))

    def _ends(self, here: Expression, value: Any) -> Iterator[Expression]:
        """Where the texts of ``value`` lead from ``here``."""
        if isinstance(value, dict) and value:
            yield from self._after_members(self._step(here, "{"), value, "")
        elif isinstance(value, list) and value:
            starts = [self._step(here, "[")]
            for index, item in enumerate(value):
                if index:
                    starts = [self._step(start, ", ") for start in starts]
                starts = [end for start in set(starts) for end in self._ends(start, item)]
            yield from (self._step(start, "]") for start in set(starts))
        else:
            yield self._step(here, json.dumps(value, ensure_ascii=False))

    def _after_members(
        self, here: Expression, members: dict[str, Any], comma: str
    ) -> Iterator[Expression]:
        if not members:
            yield self._step(here, "}")
        self._patience -= 1
        if self._patience < 0:
            return
        for name, ends in self._next_members(here, members, comma):
            others = {key: other for key, other in members.items() if key != name}
            for end in ends:
                yield from self._after_members(end, others, ", ")

    def _next_members(
        self, here: Expression, members: dict[str, Any], comma: str
    ) -> Iterator[tuple[str, list[Expression]]]:
        """Members that may come next, those first after which the others still may."""
        possible = [
            name for name in members if self._after_key(here, comma, name) != self.pool.empty
        ]
        found: list[tuple[int, str, list[Expression]]] = []
        for name in possible:
            ends = list(self._ends(self._after_key(here, comma, name), members[name]))
            ends = [end for end in ends if end != self.pool.empty]
            if not ends:
                continue
            followed = [
                self._after_key(ends[0], ", ", other) for other in possible if other != name
            ]
            found.append((-sum(after != self.pool.empty for after in followed), name, ends))
            if -found[-1][0] >= len(possible) - 1:
                break  # the others may follow
        for _, name, ends in sorted(found, key=lambda each: each[0]):
            yield name, ends
        for name in possible[len(found) :] if found else []:
            if all(name != other for _, other, _ in found):
                yield name, list(self._ends(self._after_key(here, comma, name), members[name]))

    def _after_key(self, here: Expression, comma: str, name: str) -> Expression:
        return self._step(here, comma + json.dumps(name, ensure_ascii=False) + ": ")

    def _step(self, here: Expression, text: str | bytes) -> Expression:
        for byte in text.encode() if isinstance(text, str) else text:
            row = self.derivatives.live_row(here)
            here = next((e for bits, e in row if bits >> byte & 1), self.pool.empty)
        return here

    def sample(self, rng: random.Random, steps: int = 60) -> bytes:
        """A random text; after ``steps`` bytes it goes on by the shortest way."""
        here, text = self.root, bytearray()
        while True:
            row = self.derivatives.live_row(here)
            if self.pool.nullable[here] and (not row or rng.random() < 0.2):
                return bytes(text)
            if len(text) >= steps:
                return bytes(text) + self.derivatives.shortest(here)
            bits, here = rng.choice(row)
            text.append(_random_bit(bits, rng))


def _random_bit(bits: int, rng: random.Random) -> int:
    places = [place for place in range(256) if bits >> place & 1]
    return rng.choice(places)
