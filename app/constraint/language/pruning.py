"""A pool without what was only needed on the way: about half of what a front end builds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.constraint.language.expressions import Expression, ExpressionPool, Kind


def pruned(pool: ExpressionPool, root: Expression) -> tuple[ExpressionPool, Expression]:
    """A pool of what ``root`` is made of alone, and ``root`` in it.

    The base of the pool stays whole. Expressions keep their order, and landmarks their names where
    these are texts and they are part of ``root``, or of the base.
    """
    base = pool.base
    result = base.extended(pool.max_nodes) if base else ExpressionPool(pool.max_nodes)
    first = len(result)
    kept = parts_of(pool, [root, *pool.needed_names], first)
    moved = [*range(first), *[-1] * (len(pool) - first)]
    for number, expression in enumerate(kept, first):
        moved[expression] = number
    kinds, operands, rules = pool.kinds, pool.operands, pool.bodies
    result.kinds += [kinds[expression] for expression in kept]
    result.nullable += [pool.nullable[expression] for expression in kept]
    result.regular += [pool.regular[expression] for expression in kept]
    index, add = result.index, result.operands.append
    for number, expression in enumerate(kept, first):
        kind, operand = kinds[expression], operands[expression]
        if kind == Kind.CONCATENATION:
            operand = moved[operand[0]], moved[operand[1]]
        elif kind == Kind.RULE:
            body = rules[operand]
            assert body is not None, "a declared rule has no body"
            operand = len(result.bodies)
            result.bodies.append(moved[body])
        elif kind > Kind.CONCATENATION:
            operand = _moved(kind, operand, moved)
        add(operand)
        index[kind][operand] = number
    landmarks = pool.landmarks.items()
    result.landmarks = {
        name: moved[expression]
        for name, expression in landmarks
        if moved[expression] >= 0 and isinstance(name, str)
    }
    result.exact_choices = pool.exact_choices
    result.exact_lists = pool.exact_lists
    result.has_free_names = pool.has_free_names
    result.notations = pool.notations
    result.items_are_needed = pool.items_are_needed
    result.items_vary = pool.items_vary
    result.needed_names = {moved[expression] for expression in pool.needed_names}
    result.inexact = pool.inexact
    result.pointers = pool.pointers
    return result, moved[root]


def parts_of(
    pool: ExpressionPool, roots: Iterable[Expression], first: Expression
) -> list[Expression]:
    """``roots`` and all that they are made of, in order, without those before ``first``."""
    kinds, operands = pool.kinds, pool.operands
    found = bytearray(len(pool))
    found[:first] = b"\1" * first
    waiting = [root for root in roots if not found[root]]
    for root in waiting:
        found[root] = 1
    while waiting:
        expression = waiting.pop()
        kind = kinds[expression]
        whole = kind == Kind.CONCATENATION or kind == Kind.UNION
        for part in operands[expression] if whole else pool.parts(expression):
            if not found[part]:
                found[part] = 1
                if kinds[part] > Kind.LITERAL:
                    waiting.append(part)
    return [expression for expression in range(first, len(pool)) if found[expression]]


def _moved(kind: int, operand: Any, moved: list[Expression]) -> Any:
    """The operand of an expression that is no rule, with the new numbers of its parts."""
    if kind == Kind.UNION or kind == Kind.INTERSECTION:
        return tuple([moved[part] for part in operand])
    if kind == Kind.REPETITION:
        return moved[operand[0]], operand[1], operand[2]
    if kind == Kind.COMPLEMENT:
        return moved[operand]
    if kind == Kind.MARKED:
        return moved[operand[0]], operand[1]
    if kind == Kind.DISTINCT:
        items, between, low, high = operand
        return tuple([moved[item] for item in items]), moved[between], low, high
    if kind == Kind.CASES:
        return operand.mapped(moved.__getitem__)
    if kind == Kind.HOLE:
        return operand[0], moved[operand[1]]
    return operand
