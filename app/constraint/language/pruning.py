"""A pool without what was only needed on the way: about half of what a front end builds."""

from __future__ import annotations

from typing import Any

from app.constraint.language.expressions import Expression, ExpressionPool, Kind


def pruned(pool: ExpressionPool, root: Expression) -> tuple[ExpressionPool, Expression]:
    """A pool of what ``root`` is made of alone, and ``root`` in it.

    Expressions keep their order, and landmarks their names where they are part of ``root``.
    """
    result = ExpressionPool(pool.max_nodes)
    moved: dict[Expression, Expression] = {}
    rules: list[Expression] = []
    for expression in sorted(_parts(pool, root)):
        kind, operand = pool.kinds[expression], pool.operands[expression]
        if kind == Kind.RULE:
            moved[expression] = result.declare_rule(nullable=pool.nullable[expression])
            rules.append(expression)
        else:
            moved[expression] = result.node(
                kind,
                _moved(kind, operand, moved),
                nullable=pool.nullable[expression],
                regular=pool.regular[expression],
            )
    for rule in rules:
        result.define_rule(moved[rule], moved[pool.body(rule)])
    result.landmarks = {n: moved[e] for n, e in pool.landmarks.items() if e in moved}
    result.exact_choices = pool.exact_choices
    return result, moved[root]


def _parts(pool: ExpressionPool, root: Expression) -> set[Expression]:
    """``root`` and all it is made of."""
    found = {root}
    waiting = [root]
    while waiting:
        for part in pool.parts(waiting.pop()):
            if part not in found:
                found.add(part)
                waiting.append(part)
    return found


def _moved(kind: int, operand: Any, moved: dict[Expression, Expression]) -> Any:
    """The operand of an expression that is no rule, with the new numbers of its parts."""
    if kind == Kind.CONCATENATION:
        return moved[operand[0]], moved[operand[1]]
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
    if kind == Kind.HOLE:
        return operand[0], moved[operand[1]]
    return operand
