"""Numbers with bounds and ``multipleOf``."""

from __future__ import annotations

import math

from app.constraint.expressions import Expression, ExpressionPool
from app.constraint.limits import Limits
from app.constraint.numbers import Bound, can_follow_multiples, integer, number
from app.constraint.schema.document import Goal, Node
from app.core.errors import UnsupportedSchema

_EXACT_FLOAT = 10**15
"""Below this every integer and its quotients by integers are told apart by floats."""


def build_numbers(
    pool: ExpressionPool, nodes: Goal, limits: Limits, *, integers_only: bool
) -> Expression:
    """The numbers that all ``nodes`` admit. Multiples of an integer are written as integers."""
    lower, upper = lower_bound(nodes), upper_bound(nodes)
    factor = 1
    for node in nodes:
        if "multipleOf" in node.schema:
            factor = math.lcm(factor, _whole(node))
            integers_only = True
            if isinstance(node.schema["multipleOf"], float):
                lower = _tighter(lower, Bound(-_EXACT_FLOAT, True), upper=False)
                upper = _tighter(upper, Bound(_EXACT_FLOAT, True), upper=True)
    if integers_only:
        if not can_follow_multiples(lower, upper, limits, factor):
            node = next(node for node in nodes if "multipleOf" in node.schema)
            reason = "it is too large to be followed digit by digit over this range"
            raise UnsupportedSchema("multipleOf", node.place("multipleOf"), reason)
        return integer(pool, lower, upper, limits, factor)
    built = number(pool, lower, upper, limits)
    if built == pool.empty and lower and upper and lower.value < upper.value:
        reason = f"numbers have at most {limits.fraction_digits} digits after the point"
        for node in nodes:
            for keyword in ("minimum", "exclusiveMinimum"):
                if keyword in node.schema:
                    raise UnsupportedSchema(keyword, node.place(keyword), reason)
    return built


def admit_number(nodes: Goal, value: int | float) -> bool:
    lower, upper = lower_bound(nodes), upper_bound(nodes)
    if lower is not None and not lower.admits(value, upper=False):
        return False
    if upper is not None and not upper.admits(value, upper=True):
        return False
    factors = [_whole(node) for node in nodes if "multipleOf" in node.schema]
    return all(value % factor == 0 for factor in factors)


def lower_bound(nodes: Goal) -> Bound | None:
    return _bound(nodes, "minimum", "exclusiveMinimum", upper=False)


def upper_bound(nodes: Goal) -> Bound | None:
    return _bound(nodes, "maximum", "exclusiveMaximum", upper=True)


def _bound(nodes: Goal, inclusive: str, exclusive: str, *, upper: bool) -> Bound | None:
    tightest: Bound | None = None
    for node in nodes:
        for keyword in (inclusive, exclusive):
            if keyword in node.schema:
                bound = Bound(node.schema[keyword], keyword == exclusive)
                tightest = _tighter(tightest, bound, upper=upper)
    return tightest


def _tighter(left: Bound | None, right: Bound, *, upper: bool) -> Bound:
    if left is None or (left.value == right.value and right.exclusive):
        return right
    if left.value == right.value:
        return left
    return left if (left.value < right.value) == upper else right


def _whole(node: Node) -> int:
    factor = node.schema["multipleOf"]
    if factor != int(factor):
        reason = "only multiples of integers can be followed"
        raise UnsupportedSchema("multipleOf", node.place("multipleOf"), reason)
    return int(factor)
