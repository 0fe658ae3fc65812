"""Numbers: bounds, ``multipleOf``, and the negations of these, of ``integer`` and of ``enum``.

Multiples are those of exact decimal arithmetic on the numbers as they are written, so 0.07 is a
multiple of 0.01. (A validator that divides floats may see it otherwise.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from app.constraint.json.decimals import number, plain_number
from app.constraint.json.multiples import (
    EXACT_DIGITS,
    decimal_places,
    integer,
    multiples,
    non_multiples,
    off_grid,
    spellings,
)
from app.constraint.json.ranges import Bound, Interval, written
from app.constraint.language.expressions import Expression, ExpressionPool
from app.constraint.limits import Limits
from app.constraint.schema.document import Goal, Node
from app.constraint.schema.keywords import NOT_ENUM, NOT_INTEGER, NOT_MULTIPLE_OF, is_number
from app.core.errors import ConstraintTooComplex, UnsupportedSchema

_EXACT_FLOAT = 10**15
"""Bound below which floats distinguish all integers, and their quotients by integers."""
_LARGEST_DIGITS = 400
"""Digits of an integer in a schema; the largest float has 309."""
_BEYOND_DIGITS: int = 10 ** (_LARGEST_DIGITS + 2)
"""Bound that no number in an answer reaches."""
_NEGATIONS = frozenset([NOT_INTEGER, NOT_MULTIPLE_OF, NOT_ENUM])
_NEGATED_FACTORS = 8
"""Maximum negated ``multipleOf`` on one number; their states multiply."""
_EXCLUDED_DECIMALS = 100
"""Maximum values that are excluded one by one, unless all numbers are integers."""


def build_numbers(
    pool: ExpressionPool, nodes: Goal, limits: Limits, *, integers_only: bool, once: bool = False
) -> Expression:
    """The numbers that all ``nodes`` admit. Multiples of an integer are written as integers.

    With a negation numbers are written without exponent; ``once``: in one spelling each.

    Raises ``UnsupportedSchema`` for multiples that need too many states and for bounds that the
    digits do not reach.
    """
    if not nodes and not once:
        anything = Interval()
        return integer(pool, anything, limits) if integers_only else number(pool, anything, limits)
    built = _Numbers(pool, nodes, limits, integers_only=integers_only, plain=once).build()
    return plain_number(pool, built) if once else built


def admit_number(nodes: Goal, value: int | float) -> bool:
    """Whether ``value`` satisfies the keywords of all ``nodes`` for numbers.

    ``NOT_ENUM`` is left to ``Evaluation``, which looks values up rather than through a list.
    """
    if not interval(nodes).admits(value):
        return False
    if any(written(value) % factor for factor in _factors(nodes, "multipleOf")):
        return False
    if not all(written(value) % factor for factor in _factors(nodes, NOT_MULTIPLE_OF)):
        return False
    return not (any(NOT_INTEGER in node.schema for node in nodes) and value == int(value))


def interval(nodes: Goal) -> Interval:
    """The tightest bounds of ``nodes``."""
    lower = _bound(nodes, "minimum", "exclusiveMinimum", upper=False)
    return Interval(lower, _bound(nodes, "maximum", "exclusiveMaximum", upper=True))


class _Numbers:
    """Combined restrictions of ``nodes`` on numbers."""

    def __init__(
        self, pool: ExpressionPool, nodes: Goal, limits: Limits, *, integers_only: bool, plain: bool
    ) -> None:
        self._pool = pool
        self._nodes = nodes
        self._limits = limits
        self._plain = plain
        self._between = interval(nodes)
        self._factor = factor = _common_multiple(nodes)
        self._integers_only = integers_only or (factor is not None and factor.denominator == 1)
        self._step = _whole_multiple(factor) if self._integers_only else factor
        self._not_integer = any(NOT_INTEGER in node.schema for node in nodes)
        self._excluded = [
            value
            for node in nodes
            for value in node.schema.get(NOT_ENUM, ())
            if is_number(value) and abs(value) < _BEYOND_DIGITS and self._between.admits(value)
        ]
        self._negative = any(not _NEGATIONS.isdisjoint(node.schema) for node in nodes)

    def build(self) -> Expression:
        if self._integers_only and self._not_integer:
            return self._pool.empty
        if self._integers_only:
            self._keep_floats_exact()
        positive = self._positive()
        if positive == self._pool.empty and self._has_solution():
            reason = f"numbers have at most {self._limits.fraction_digits} digits after the point"
            if self._factor is not None:
                reason = "the multiples between the bounds have too many digits"
            keywords = ("multipleOf", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
            keyword, node = next((k, n) for k in keywords for n in self._nodes if k in n.schema)
            raise UnsupportedSchema(keyword, node.pointer_to(keyword), reason)
        if not self._negative:
            return positive
        return self._pool.intersect([positive, *self._negations()])

    def _positive(self) -> Expression:
        pool, limits, between, step = self._pool, self._limits, self._between, self._step
        if isinstance(step, int):
            return integer(pool, between, limits, step)
        if step is not None:
            return multiples(pool, between, limits, step)
        return number(pool, between, limits, plain=self._negative or self._plain)

    def _negations(self) -> list[Expression]:
        pool, limits, between = self._pool, self._limits, self._between
        found = [off_grid(pool, 0, limits)] if self._not_integer else []
        negated = [node for node in self._nodes if NOT_MULTIPLE_OF in node.schema]
        if len(negated) > _NEGATED_FACTORS:
            raise ConstraintTooComplex(f"more than {_NEGATED_FACTORS} negations of multipleOf")
        for node in negated:
            _check_size(node, NOT_MULTIPLE_OF)
            factor: int | Fraction = written(node.schema[NOT_MULTIPLE_OF])
            if self._factor is not None and self._factor % factor == 0:
                return [pool.empty]
            if self._integers_only:
                factor = _whole_multiple(factor)
            if isinstance(factor, Fraction) and decimal_places(factor) > EXACT_DIGITS:
                reason = f"it has more than {EXACT_DIGITS} decimal places and is negated"
                raise UnsupportedSchema("multipleOf", node.pointer_to("multipleOf"), reason)
            found.append(non_multiples(pool, between, limits, factor))
        if self._excluded:
            most = limits.choices if self._integers_only else _EXCLUDED_DECIMALS
            if len(self._excluded) > most:
                raise ConstraintTooComplex(f"more than {most} numbers excluded by 'not'")
            texts = spellings(pool, self._excluded, limits, integers_only=self._integers_only)
            found.append(pool.complement(texts))
        return found

    def _keep_floats_exact(self) -> None:
        """If a factor is a float, keep to integers that validators dividing floats get right."""
        for node in self._nodes:
            for keyword in ("multipleOf", NOT_MULTIPLE_OF):
                factor = node.schema.get(keyword)
                if isinstance(factor, float) and _whole_multiple(written(factor)) > 1:
                    if factor >= _EXACT_FLOAT:
                        reason = f"a float of {_EXACT_FLOAT:.0e} or more is not exact"
                        raise UnsupportedSchema("multipleOf", node.pointer_to("multipleOf"), reason)
                    lower, upper = self._between.lower, self._between.upper
                    self._between = Interval(
                        _tightest([Bound(-_EXACT_FLOAT, True), lower], upper=False),
                        _tightest([Bound(_EXACT_FLOAT, True), upper], upper=True),
                    )

    def _has_solution(self) -> bool:
        """Whether there are numbers, and multiples, between the bounds, of however many digits."""
        between = interval(self._nodes)
        lower, upper = between.lower, between.upper
        if lower is None or upper is None:
            return True
        low, high, step = written(lower.value), written(upper.value), self._step
        if step is None:
            return low < high or (low == high and not lower.exclusive and not upper.exclusive)
        first, last = math.ceil(low / step), math.floor(high / step)
        first += lower.exclusive and first * step == low
        last -= upper.exclusive and last * step == high
        return first <= last


def _bound(nodes: Goal, inclusive: str, exclusive: str, *, upper: bool) -> Bound | None:
    """The tightest of the bounds; a boolean ``exclusive`` (draft 4) is about the other one."""
    bounds = []
    for node in nodes:
        for keyword in (inclusive, exclusive):
            value = node.schema.get(keyword)
            if is_number(value):
                _check_size(node, keyword)
                excludes = keyword == exclusive or node.schema.get(exclusive) is True
                bounds.append(Bound(value, excludes))
    return _tightest(bounds, upper=upper)


def _tightest(bounds: Iterable[Bound | None], *, upper: bool) -> Bound | None:
    sign = -1 if upper else 1
    there = (bound for bound in bounds if bound is not None)
    return max(there, key=lambda bound: (sign * bound.value, bound.exclusive), default=None)


def _factors(nodes: Goal, keyword: Any) -> Iterable[Fraction]:
    return (written(node.schema[keyword]) for node in nodes if keyword in node.schema)


def _common_multiple(nodes: Goal) -> Fraction | None:
    """The least common multiple of all ``multipleOf``."""
    common: Fraction | None = None
    for node in nodes:
        if "multipleOf" in node.schema:
            _check_size(node, "multipleOf")
            factor = written(node.schema["multipleOf"])
            common = factor if common is None else _least_common(common, factor)
            if common >= 10**_LARGEST_DIGITS:
                reason = f"the common multiple has more than {_LARGEST_DIGITS} digits"
                raise UnsupportedSchema("multipleOf", node.pointer_to("multipleOf"), reason)
    return common


def _least_common(left: Fraction, right: Fraction) -> Fraction:
    return Fraction(
        math.lcm(left.numerator, right.numerator), math.gcd(left.denominator, right.denominator)
    )


def _whole_multiple(factor: Fraction | int | None) -> int:
    """The least integer that is a multiple."""
    return 1 if factor is None else _least_common(Fraction(factor), Fraction(1)).numerator


def _check_size(node: Node, keyword: str | tuple[str, str]) -> None:
    if abs(node.schema[keyword]) >= 10**_LARGEST_DIGITS:
        name = keyword if isinstance(keyword, str) else keyword[1]
        reason = f"it has more than {_LARGEST_DIGITS} digits"
        raise UnsupportedSchema(name, node.pointer_to(name), reason)
