"""Walks through the language of a specification: is a text in it, and random texts of it."""

from __future__ import annotations

import json
import random
from typing import Any

from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE, Expression, ExpressionPool
from app.constraint.limits import Limits
from app.constraint.program import build
from app.core.constraint import ConstraintSpec
from tests.constraint.orders import OrderSearch


class Walker:
    """A language, to be walked byte by byte."""

    def __init__(self, pool: ExpressionPool, root: Expression) -> None:
        self.pool = pool
        self.root = root
        self.derivatives = Derivatives(pool)
        self.derivatives.measure()

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

    def accepts_in_some_order(self, value: Any, patience: int = 2_000) -> bool:
        """The same, with the members of objects in whatever order the language asks for.

        False as well where more than ``patience`` members would have to be tried.
        """
        return OrderSearch(self.pool, self.derivatives, patience).finds(self.root, value)

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
