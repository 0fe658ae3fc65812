"""Languages without what a tokenizer cannot spell.

A byte counts as spelled where a token is that byte alone. So whatever is left of a language can be
spelled from every place in it, whichever tokens came before, and its masks, distances and forced
paths need know nothing of this. A byte that only longer tokens hold does not count: behind another
token its own text could not be gone on with.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.constraint.language.expressions import ByteSet, Expression, ExpressionPool, Kind
from app.constraint.language.nodes import byte_range, byte_set
from app.constraint.language.pruning import parts_of

_UTF8 = byte_range(0, 0xBF) | byte_range(0xC2, 0xF4)
"""The bytes of text (RFC 3629)."""


def missing_bytes(tokens: Iterable[bytes | None]) -> ByteSet:
    """The bytes of text that are none of ``tokens``."""
    return _UTF8 & ~byte_set(token[0] for token in tokens if token is not None and len(token) == 1)


def unspelled(text: bytes, missing: ByteSet) -> str:
    """The first character of ``text``, which is UTF-8, that has a missing byte: ``'{' (U+007B)``.

    "" where there is none.
    """
    for character in text.decode(errors="surrogatepass"):
        if any(missing >> byte & 1 for byte in character.encode(errors="surrogatepass")):
            return f"{character!r} (U+{ord(character):04X})"
    return ""


def spelled(pool: ExpressionPool, root: Expression, missing: ByteSet) -> Expression:
    """The strings of ``root`` in which none of the ``missing`` bytes is.

    Built from the same parts where these have no such byte: ``root`` itself if none has. Cost: one
    pass over what it is made of.
    """
    if not missing:
        return root
    kinds, operands = pool.kinds, pool.operands
    order = parts_of(pool, root, 0)
    bounded = {expression for expression in order if kinds[expression] == Kind.RULE}
    """What shows all of its bytes: there is no complement in it."""
    changed: set[Expression] = set()

    def looked_into(expression: Expression) -> Iterable[Expression]:
        """The parts without whose missing bytes the whole is without them, too."""
        if kinds[expression] == Kind.INTERSECTION:
            return [member for member in operands[expression] if member in bounded]
        return () if kinds[expression] == Kind.COMPLEMENT else pool.parts(expression)

    def changes(expression: Expression) -> bool:
        kind, operand = kinds[expression], operands[expression]
        if kind == Kind.LITERAL:
            return any(missing >> byte & 1 for byte in operand)
        if kind == Kind.BYTES:
            return bool(operand & missing)
        combine = all if kind in (Kind.INTERSECTION, Kind.COMPLEMENT) else any
        return combine(part in changed for part in looked_into(expression))

    for expression in order:
        if kinds[expression] != Kind.COMPLEMENT and all(
            part in bounded for part in pool.parts(expression)
        ):
            bounded.add(expression)
    size = -1
    while len(changed) > size:  # again for what refers to a rule further on
        size = len(changed)
        changed.update(e for e in order if e not in changed and changes(e))
    if root not in changed:
        return root
    needed, waiting = {root}, [root]
    while waiting:
        for part in looked_into(waiting.pop()):
            if part in changed and part not in needed:
                needed.add(part)
                waiting.append(part)
    text = pool.repeat(pool.byte(_UTF8 & ~missing))
    new = {
        rule: pool.declare_rule(nullable=pool.nullable[rule])
        for rule in needed
        if kinds[rule] == Kind.RULE
    }
    for expression in sorted(needed - new.keys()):
        new[expression] = _without(pool, expression, missing, new, text)
    for rule in [each for each in new if kinds[each] == Kind.RULE]:
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
    """An expression made of what its parts are now. ``text``: all strings without missing bytes."""
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
    assert kind in (Kind.INTERSECTION, Kind.COMPLEMENT)
    if kind == Kind.COMPLEMENT:
        return pool.intersect((expression, text))
    return pool.intersect(parts if parts != [*operand] else (expression, text))
