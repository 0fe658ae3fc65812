"""Distinct items: one spelling for equal values, and a check that there are enough values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from typing import Any

from app.constraint.language.counting import ENDLESS, Counting
from app.constraint.language.derivatives import Derivatives, measured
from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool, Kind
from app.constraint.language.rewriting import spelled
from app.constraint.schema.document import Node
from app.constraint.schema.shapes import ObjectShape
from app.core.errors import ConstraintTooComplex, UnsupportedSchema


class Form(IntEnum):
    """The spellings that a value may have."""

    ANY = 0
    """All spellings that answers may have."""
    ONCE = 1
    """One spelling; members of objects in the order of the schema."""
    SORTED = 2
    """One spelling; members sorted by name, as subschemas may differ in their orders."""

    def value_of(self, value: Any) -> Any:
        """``value`` as it is to be written."""
        if self == Form.ANY:
            return value
        if isinstance(value, list):
            return [self.value_of(each) for each in value]
        if isinstance(value, dict):
            names = sorted(value) if self == Form.SORTED else value
            return {name: self.value_of(value[name]) for name in names}
        if isinstance(value, float):
            if value == int(value):
                return int(value)
            if "e" in repr(value):
                raise ConstraintTooComplex(f"uniqueItems over {value!r}, which has an exponent")
        return value

    def shape_of(self, shape: ObjectShape) -> ObjectShape:
        """``shape`` with its members in order."""
        if self != Form.SORTED:
            return shape
        return replace(shape, members=tuple(sorted(shape.members, key=lambda each: each.name)))


_NAMES_WORK = 50_000
"""Maximum steps of work to count the names of one object."""


class LevelsNeeded(Exception):
    """``uniqueItems`` needs marked containers: the schema is built again with marks."""

    def __init__(self, asks: Node) -> None:
        super().__init__()
        self.pointer = asks.pointer_to("uniqueItems")


class DistinctCounts:
    """Counts values; those that contain rules are counted when all rules are defined."""

    def __init__(self, pool: ExpressionPool, missing: ByteSet) -> None:
        """``missing``: bytes that no value can have, as the tokenizer cannot spell them."""
        self._pool = pool
        self._missing = missing
        self._later: list[tuple[Expression, int, Node]] = []

    @cached_property
    def _counting(self) -> Counting:
        return Counting(Derivatives(self._pool))

    def count(self, values: Expression, most: int, asks: Node) -> int:
        """Number of ``values``, at most ``most``. ``asks``: node that wants distinct items.

        For values that contain rules it returns ``most``, which ``check`` verifies later.
        """
        if self._has_rules(values):
            self._later.append((values, most, asks))
            return most
        return self._counting.count(spelled(self._pool, values, self._missing), most)

    def _has_rules(self, values: Expression) -> bool:
        pool = self._pool
        seen, waiting = {values}, [values]
        while waiting:
            here = waiting.pop()
            if pool.kinds[here] == Kind.RULE:
                return True
            for part in () if pool.regular[here] else pool.parts(here):
                if part not in seen:
                    seen.add(part)
                    waiting.append(part)
        return False

    def number_of(self, names: Iterable[Expression]) -> int | None:
        """Total number of ``names``, which are disjoint sets, at most ``ENDLESS``; None if
        counting takes too much work."""
        derivatives = Derivatives(self._pool)
        derivatives.allow(_NAMES_WORK)
        counting, total = Counting(derivatives), 0
        try:
            for each in names:
                total += counting.count(spelled(self._pool, each, self._missing))
                if total >= ENDLESS:
                    return ENDLESS
        except ConstraintTooComplex:
            return None
        return total if counting.is_exact else None

    def check(self) -> None:
        """Raises ``UnsupportedSchema`` if values that were not counted before are too few."""
        if not self._later:
            return
        later = [
            (spelled(self._pool, values, self._missing), most, asks)
            for values, most, asks in self._later
        ]
        counting = Counting(measured(self._pool))
        for values, most, asks in later:
            if counting.count(values, most) < most:
                raise few(asks)


def few(asks: Node) -> UnsupportedSchema:
    reason = "too few distinct items may exist, and no enum lists them all"
    return UnsupportedSchema("uniqueItems", asks.pointer_to("uniqueItems"), reason)
