"""Oracles for expressions: their strings up to a length by set algebra, and random expressions."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from app.constraint.language.expressions import Expression, ExpressionPool, Kind

ALPHABET = b"abc"
LONGEST = 4
UNIVERSE = frozenset(
    bytes(letters) for size in range(LONGEST + 1) for letters in product(ALPHABET, repeat=size)
)
"""All strings of up to four letters; the oracle knows a language by its subset of these."""

Recipe = tuple[object, ...]
"""How to build an expression: (form, operands...)."""


def recipes() -> st.SearchStrategy[Recipe]:
    """Random expressions without rules."""
    leaves = st.one_of(
        st.sampled_from(["empty", "epsilon", "everything"]).map(lambda name: (name,)),
        st.sets(st.sampled_from(list(ALPHABET)), min_size=1).map(lambda s: ("byte", frozenset(s))),
        st.sampled_from([b"a", b"ab", b"ca", b"abc"]).map(lambda text: ("literal", text)),
    )
    repetition = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3)))

    def grow(inner: st.SearchStrategy[Recipe]) -> st.SearchStrategy[Recipe]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            several.map(lambda parts: ("concatenate", *parts)),
            several.map(lambda parts: ("union", *parts)),
            several.map(lambda parts: ("intersect", *parts)),
            inner.map(lambda part: ("complement", part)),
            st.tuples(inner, repetition).map(lambda pair: ("repeat", pair[0], *pair[1])),
        )

    return st.recursive(leaves, grow, max_leaves=8)


def build(pool: ExpressionPool, recipe: Recipe) -> Expression:
    """The expression of a recipe, built by the pool's constructors."""
    form, *operands = recipe
    if form == "byte":
        return pool.byte(sum(1 << byte for byte in operands[0]))  # type: ignore[attr-defined]
    if form == "literal":
        return pool.literal(operands[0])  # type: ignore[arg-type]
    if form in ("empty", "epsilon", "everything"):
        return int(getattr(pool, form))
    if form == "repeat":
        return pool.repeat(build(pool, operands[0]), *operands[1:])  # type: ignore[arg-type]
    parts = [build(pool, operand) for operand in operands]  # type: ignore[arg-type]
    if form == "complement":
        return pool.complement(parts[0])
    if form == "concatenate":
        return pool.concatenate(*parts)
    return pool.union(parts) if form == "union" else pool.intersect(parts)


def strings(recipe: Recipe) -> frozenset[bytes]:
    """The strings of a recipe's language that are in ``UNIVERSE``, by set algebra alone."""
    form, *operands = recipe
    if form == "empty":
        return frozenset()
    if form == "epsilon":
        return frozenset([b""])
    if form == "everything":
        return UNIVERSE
    if form == "byte":
        return frozenset(bytes([byte]) for byte in operands[0])  # type: ignore[attr-defined]
    if form == "literal":
        return frozenset(operands)  # type: ignore[arg-type]
    if form == "repeat":
        return _repeat(strings(operands[0]), *operands[1:])  # type: ignore[arg-type]
    parts = [strings(operand) for operand in operands]  # type: ignore[arg-type]
    if form == "complement":
        return UNIVERSE - parts[0]
    if form == "union":
        return frozenset().union(*parts)
    if form == "intersect":
        return parts[0].intersection(*parts[1:])
    joined = parts[0]
    for part in parts[1:]:
        joined = _join(joined, part)
    return joined


def accepts(pool: ExpressionPool, expression: Expression, text: bytes) -> bool:
    """Whether a string is in a language without rules; tries every way to split it."""
    kind, operand = pool.kinds[expression], pool.operands[expression]
    if kind == Kind.EMPTY:
        return False
    if kind == Kind.EPSILON:
        return text == b""
    if kind == Kind.BYTES:
        return len(text) == 1 and bool(operand >> text[0] & 1)
    if kind == Kind.LITERAL:
        return bool(text == operand)
    if kind == Kind.COMPLEMENT:
        return not accepts(pool, operand, text)
    if kind == Kind.UNION:
        return any(accepts(pool, member, text) for member in operand)
    if kind == Kind.INTERSECTION:
        return all(accepts(pool, member, text) for member in operand)
    splits = [(text[:place], text[place:]) for place in range(len(text) + 1)]
    if kind == Kind.CONCATENATION:
        head, tail = operand
        return any(accepts(pool, head, a) and accepts(pool, tail, b) for a, b in splits)
    inner, low, high = operand
    if text == b"":
        return low == 0 or accepts(pool, inner, b"")
    if high == 0:
        return False
    rest = pool.repeat(inner, max(low - 1, 0), None if high is None else high - 1)
    return any(accepts(pool, inner, a) and accepts(pool, rest, b) for a, b in splits if a)


def _join(left: frozenset[bytes], right: frozenset[bytes]) -> frozenset[bytes]:
    return frozenset(a + b for a in left for b in right if len(a) + len(b) <= LONGEST)


def _repeat(inner: frozenset[bytes], low: int, high: int | None) -> frozenset[bytes]:
    if high is not None and low > high:
        return frozenset()
    power, found = frozenset([b""]), frozenset[bytes]()
    for times in range(LONGEST + low + 1 if high is None else high + 1):
        if times >= low:
            found |= power
        power = _join(power, inner)
    return found
