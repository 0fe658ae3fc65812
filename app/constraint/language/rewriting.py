"""Prunes pools, and removes strings that a tokenizer cannot spell from languages.

A pruned pool has about half of the expressions that a front end builds.

A byte is missing if no token is that byte alone, as a byte of longer tokens only may be impossible
to spell after some tokens. So every string of the resulting language can be spelled from any
position, and masks, distances and forced paths need not consider missing bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.constraint.language.expressions import KEPT, ByteSet, Expression, ExpressionPool, Kind
from app.constraint.language.nodes import byte_range, byte_set, bytes_of


def pruned(pool: ExpressionPool, root: Expression) -> tuple[ExpressionPool, Expression]:
    """A pool of only ``root`` and its parts, and ``root`` in it.

    The base of the pool stays complete. Expressions keep their order. Landmarks are kept if their
    names are strings and they are part of ``root`` or of the base.
    """
    result = pool.base.extended(pool.max_nodes) if pool.base else ExpressionPool(pool.max_nodes)
    first = len(result)
    kept = parts_of(pool, [root, *pool.needed_names], first)
    moved = [*range(first), *[-1] * (len(pool) - first)]
    for number, expression in enumerate(kept, first):
        moved[expression] = number
    kinds, operands = pool.kinds, pool.operands
    result.kinds += [kinds[expression] for expression in kept]
    result.nullable += [pool.nullable[expression] for expression in kept]
    result.regular += [pool.regular[expression] for expression in kept]
    index, add = result.index, result.operands.append
    for number, expression in enumerate(kept, first):
        kind, operand = kinds[expression], operands[expression]
        if kind == Kind.CONCATENATION:
            operand = moved[operand[0]], moved[operand[1]]
        elif kind == Kind.RULE:
            operand = len(result.bodies)
            result.bodies.append(moved[pool.body(expression)])
        elif kind > Kind.CONCATENATION:
            operand = _moved(kind, operand, moved)
        add(operand)
        index[kind][operand] = number
    for name in KEPT:
        setattr(result, name, vars(pool)[name])
    result.landmarks = {
        name: moved[expression]
        for name, expression in pool.landmarks.items()
        if moved[expression] >= 0 and isinstance(name, str)
    }
    result.needed_names = {moved[expression] for expression in pool.needed_names}
    result.inexact = pool.inexact
    return result, moved[root]


def parts_of(
    pool: ExpressionPool, roots: Iterable[Expression], first: Expression
) -> list[Expression]:
    """``roots`` and all of their parts, in order, without those before ``first``."""
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
    """The operand of an expression other than a rule, with the new numbers of its parts."""
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
    return (operand[0], moved[operand[1]]) if kind == Kind.HOLE else operand


_UTF8 = byte_range(0, 0xBF) | byte_range(0xC2, 0xF4)
"""The bytes of text (RFC 3629)."""
_DIGITS = byte_set(b"0123456789.")
"""Bytes that a remainder may contain."""


def missing_bytes(tokens: Iterable[bytes | None]) -> ByteSet:
    """The bytes of text for which no token is that byte alone."""
    return _UTF8 & ~byte_set(token[0] for token in tokens if token is not None and len(token) == 1)


def unspelled(text: bytes, missing: ByteSet) -> str:
    """An error for the first character of ``text`` (UTF-8) with a missing byte; "" if none has."""
    for character in text.decode(errors="surrogatepass") if missing else "":
        if any(missing >> byte & 1 for byte in character.encode(errors="surrogatepass")):
            return f"the tokenizer cannot spell {character!r} (U+{ord(character):04X})"
    return ""


def spelled(pool: ExpressionPool, root: Expression, missing: ByteSet) -> Expression:
    """The strings of ``root`` without ``missing`` bytes.

    Parts without such bytes are reused: ``root`` itself if it has none. Cost: a pass or two over
    its parts.
    """
    if not missing:
        return root
    kinds, operands = pool.kinds, pool.operands
    gone = frozenset(bytes_of(missing))
    order = parts_of(pool, [root], 0)
    parts = {expression: pool.parts(expression) for expression in order}
    bounded = {expression for expression in order if kinds[expression] == Kind.RULE}
    """Expressions without a complement inside: their bytes are those of their parts."""
    for expression in order:
        if kinds[expression] != Kind.COMPLEMENT and bounded.issuperset(parts[expression]):
            bounded.add(expression)
        if kinds[expression] == Kind.INTERSECTION:  # one unchanged member is enough
            parts[expression] = tuple([part for part in parts[expression] if part in bounded])
        elif kinds[expression] == Kind.COMPLEMENT:
            parts[expression] = ()
    changed: set[Expression] = set()
    size = -1
    while len(changed) > size:  # repeated for references to later rules
        size = len(changed)
        for expression in order:
            kind = kinds[expression]
            if kind == Kind.LITERAL:
                changes = not gone.isdisjoint(operands[expression])
            elif kind == Kind.BYTES:
                changes = bool(operands[expression] & missing)
            elif kind == Kind.REMAINDER:
                changes = bool(_DIGITS & missing)
            elif kind == Kind.INTERSECTION or kind == Kind.COMPLEMENT:
                changes = changed.issuperset(parts[expression])
            else:
                changes = not changed.isdisjoint(parts[expression])
            if changes:
                changed.add(expression)
    if root not in changed:
        return root
    needed, waiting = {root}, [root]
    while waiting:
        for part in changed.intersection(parts[waiting.pop()]) - needed:
            needed.add(part)
            waiting.append(part)
    text = pool.repeat(pool.byte(_UTF8 & ~missing))
    rules = sorted(expression for expression in needed if kinds[expression] == Kind.RULE)
    new = {rule: pool.declare_rule(nullable=pool.nullable[rule]) for rule in rules}
    for expression in sorted(needed.difference(rules)):
        new[expression] = _without(pool, expression, missing, new, text)
    for rule in rules:
        body = pool.body(rule)
        pool.define_rule(new[rule], new.get(body, body))
    return new[root]


def _without(
    pool: ExpressionPool,
    expression: Expression,
    missing: ByteSet,
    new: dict[Expression, Expression],
    text: Expression,
) -> Expression:
    """An expression rebuilt from its new parts. ``text``: all strings without missing bytes."""
    kind, operand = pool.kinds[expression], pool.operands[expression]
    parts = [new.get(part, part) for part in pool.parts(expression)]
    if kind == Kind.LITERAL:
        return pool.empty
    if kind == Kind.BYTES:
        return pool.byte(operand & ~missing)
    if kind == Kind.CONCATENATION:
        return pool.concatenate(*parts)
    if kind == Kind.UNION:
        return pool.union(parts)
    if kind == Kind.REPETITION:
        return pool.repeat(parts[0], *operand[1:])
    if kind == Kind.MARKED:
        return pool.marked(parts[0], operand[1])
    if kind == Kind.HOLE:
        return pool.hole(operand[0], parts[0])
    if kind == Kind.DISTINCT:
        items = tuple([item for item in parts[:-1] if item != pool.empty])
        return pool.distinct(items, parts[-1], *operand[2:])
    if kind == Kind.CASES:
        return pool.cases(operand.mapped(lambda part: new.get(part, part)))
    assert kind in (Kind.INTERSECTION, Kind.COMPLEMENT, Kind.REMAINDER)
    if kind != Kind.INTERSECTION:
        return pool.intersect((expression, text))
    return pool.intersect(parts if parts != [*operand] else (expression, text))
