"""Walks through the language of a specification: membership tests and random texts."""

from __future__ import annotations

import json
import random
from typing import Any

from app.constraint.automaton.automaton import Automaton
from app.constraint.automaton.trie import DEAD
from app.constraint.distinct.places import Place, Places, Repeated
from app.constraint.distinct.plans import Plans
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import (
    INFINITE,
    Expression,
    ExpressionPool,
    Kind,
    Notation,
)
from app.constraint.language.rows import at_once
from app.constraint.limits import Limits
from app.constraint.program import Program, build
from app.core.constraint import ConstraintSpec
from tests.constraint.orders import Here, OrderSearch


class Walker:
    """Walks through a language byte by byte."""

    def __init__(self, pool: ExpressionPool, root: Expression) -> None:
        self.pool = pool
        self.root = root
        self.derivatives = Derivatives(pool)
        self.derivatives.measure()
        self._steps: Expressions | Memories = Expressions(self.derivatives, root)
        if pool.has_free_names or Kind.MARKED in pool.kinds:
            self._steps = Memories(self.derivatives, root)

    @classmethod
    def of(cls, spec: ConstraintSpec, limits: Limits | None = None) -> Walker:
        return cls(*build(spec, limits))

    @property
    def is_empty(self) -> bool:
        return self.derivatives.length(self.root) >= INFINITE

    def accepts(self, text: str | bytes) -> bool:
        data = text.encode() if isinstance(text, str) else text
        return self._steps.is_whole(self._steps.after(self._steps.start, data))

    def accepts_value(self, value: Any) -> bool:
        """Whether the language has ``value`` as ``json.dumps`` writes it."""
        return self.accepts(json.dumps(value, ensure_ascii=False))

    def accepts_in_some_order(self, value: Any, patience: int = 2_000) -> bool:
        """Whether the language has ``value`` with the members of its objects in some order.

        Also False if the search would try more than ``patience`` members.
        """
        return OrderSearch(self._steps, patience).finds(self._steps.start, value)

    def sample(self, rng: random.Random, steps: int = 60) -> bytes:
        """A random text. After ``steps`` bytes it continues with the shortest completion."""
        language, text = self._steps, bytearray()
        here = language.start
        while True:
            row = self.derivatives.live_row(language.expression(here))
            if language.is_whole(here) and (not row or rng.random() < 0.2):
                return bytes(text)
            if len(text) >= steps:
                return bytes(text) + language.shortest(here)
            byte = _random_bit(rng.choice(row)[0], rng)
            after = language.after(here, bytes([byte]))
            if after != language.dead:
                here = after
                text.append(byte)


class Expressions:
    """A language whose states are expressions."""

    def __init__(self, derivatives: Derivatives, root: Expression) -> None:
        self._derivatives = derivatives
        self.start: Here = root
        self.dead: Here = derivatives.pool.empty

    def expression(self, here: Here) -> Expression:
        assert isinstance(here, int)
        return here

    def after(self, here: Here, text: bytes) -> Here:
        expression = self.expression(here)
        for byte in text:
            row = self._derivatives.live_row(expression)
            expression = next(
                (e for bits, e in row if bits >> byte & 1), self._derivatives.pool.empty
            )
        return expression

    def is_whole(self, here: Here) -> bool:
        return self._derivatives.pool.nullable[self.expression(here)]

    def shortest(self, here: Here) -> bytes:
        return self._derivatives.shortest(self.expression(here))


class Memories:
    """A language with memory of the names and items of an answer: its states are places."""

    def __init__(self, derivatives: Derivatives, root: Expression) -> None:
        self._automaton = Automaton(Program(root, derivatives))
        whole = derivatives.pool.has_free_names and not derivatives.pool.notations
        self._places = Places(self._automaton, Notation() if whole else None)
        self.dead: Here = Place(DEAD)
        self.start: Here = self._places.start()
        if derivatives.length(root) >= INFINITE:
            self.start = self.dead

    def expression(self, here: Here) -> Expression:
        assert isinstance(here, Place)
        return self._automaton.expression(here.state)

    def after(self, here: Here, text: bytes) -> Here:
        assert isinstance(here, Place)
        if here == self.dead:
            return here
        try:
            return self._places.advance(here, text) or self.dead
        except Repeated:
            return self.dead

    def is_whole(self, here: Here) -> bool:
        assert isinstance(here, Place)
        return self._automaton.is_accepting(here.state)

    def shortest(self, here: Here) -> bytes:
        assert isinstance(here, Place)
        found = at_once(Plans(self._places).completion(here))
        assert found is not None, "a live place without a completion"
        return found


def _random_bit(bits: int, rng: random.Random) -> int:
    places = [place for place in range(256) if bits >> place & 1]
    return rng.choice(places)
