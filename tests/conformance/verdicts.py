"""Judges our language on one instance, given that answers have one spelling of each value.

JSON has many spellings of a value, and answers use few of them: integers without a fraction of
zeros, numbers with a bounded number of digits, object members in the order of ``properties``. A
valid instance may be rejected for its spelling alone. Each such reason is a ``Verdict`` here; a
second try without the reason proves that it is the only one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from itertools import islice, product
from typing import Any

from app.constraint.limits import Limits
from app.core.errors import ConstraintError, ConstraintTooComplex, UnsupportedSchema
from app.core.specs import JsonSchema
from tests.constraint.walks import Walker

_DIGITS = 400
"""More digits than any finite float has before the decimal point."""


class Verdict(StrEnum):
    """The result for one instance."""

    RIGHT = "right"
    REFUSED = "refused"
    SPELLING = "other spelling"
    DIGITS = "too many digits"
    SURROGATE = "lone surrogate"
    FORMAT = "format asserted"
    FREE_NAMES = "free names in items that differ"
    DIALECT = "own meta-schema"
    WRONG = "wrong"


def judge(schema: Any, instance: Any, *, valid: bool, walker: Walker | None) -> Verdict:
    """The verdict on an instance; ``walker`` walks the language of ``schema``, None if empty."""
    accepted = walker is not None and accepts(walker, instance)
    plain = plainly_spelled(instance)
    if not valid:
        if "draft-04" not in json.dumps(schema):  # there 1 is an integer, but not 1.0
            accepted = accepted or (walker is not None and accepts(walker, plain))
        return Verdict.WRONG if accepted else Verdict.RIGHT
    if accepted:
        return Verdict.RIGHT
    if walker is None:
        return Verdict.WRONG
    if _has_lone_surrogate(instance):
        return Verdict.SURROGATE
    if any(accepts(walker, spelled) for spelled in _respelled(plain)):
        return Verdict.SPELLING
    if _is_extreme(instance):
        return Verdict.DIGITS
    if _language_accepts(schema, plain, Limits(integer_digits=_DIGITS, fraction_digits=_DIGITS)):
        return Verdict.DIGITS
    if _language_accepts(without_formats(schema), plain, Limits()):
        return Verdict.FORMAT
    if _has_members(instance) and _language_accepts(without_uniqueness(schema), plain, Limits()):
        return Verdict.FREE_NAMES
    return Verdict.DIALECT if _has_own_dialect(schema) else Verdict.WRONG


def refusal(error: ConstraintError) -> str | None:
    """The keyword for which a schema was refused; None if it was not a refusal."""
    if isinstance(error, UnsupportedSchema):
        return error.keyword
    return "(limits)" if isinstance(error, ConstraintTooComplex) else None


def accepts(walker: Walker, instance: Any) -> bool:
    """Whether the language has the instance, with its members in some order.

    Also false if there are too many orders to try.
    """
    try:
        return walker.accepts_value(instance) or walker.accepts_in_some_order(instance)
    except UnicodeEncodeError:
        return False


def plainly_spelled(instance: Any) -> Any:
    """The value with its numbers as answers write them: 1 for 1.0 and for 1e0, 0 for -0.0."""
    if isinstance(instance, dict):
        return {name: plainly_spelled(value) for name, value in instance.items()}
    if isinstance(instance, list):
        return [plainly_spelled(value) for value in instance]
    if isinstance(instance, float):
        return int(instance) if instance.is_integer() else _Plain(instance)
    return instance


def _respelled(instance: Any) -> Iterator[Any]:
    """Variants of the value with 1.0 for 1 in some places, as in a ``const``; a bounded number."""
    if isinstance(instance, (dict, list)):
        keys = list(instance) if isinstance(instance, dict) else range(len(instance))
        parts = (islice(_respelled(instance[key]), 64) for key in keys)
        for chosen in islice(product(*parts), 64):
            is_object = isinstance(instance, dict)
            yield dict(zip(keys, chosen, strict=True)) if is_object else list(chosen)
        return
    yield instance
    if type(instance) is int and abs(instance) < 1 << 53:
        yield float(instance)


class _Plain(float):
    """A float that ``json.dumps`` writes without an exponent."""

    def __repr__(self) -> str:
        return format(Decimal(float.__repr__(self)), "f")


def without_formats(schema: Any) -> Any:
    """A schema without its ``format`` keywords."""
    if isinstance(schema, dict):
        return {
            key: without_formats(value)
            for key, value in schema.items()
            if key != "format" or not isinstance(value, str)
        }
    return [without_formats(part) for part in schema] if isinstance(schema, list) else schema


def without_uniqueness(schema: Any) -> Any:
    """A schema without ``uniqueItems: true``."""
    if isinstance(schema, dict):
        parts = schema.items()
        return {k: without_uniqueness(v) for k, v in parts if k != "uniqueItems" or v is not True}
    return [without_uniqueness(part) for part in schema] if isinstance(schema, list) else schema


def _has_members(instance: Any) -> bool:
    """Whether some object in the instance has two members or more, in either order."""
    if isinstance(instance, dict):
        return len(instance) > 1 or any(map(_has_members, instance.values()))
    return isinstance(instance, list) and any(map(_has_members, instance))


def _language_accepts(schema: Any, instance: Any, limits: Limits) -> bool:
    try:
        return accepts(Walker.of(JsonSchema(schema), limits), instance)
    except ConstraintError:
        return False


def _is_extreme(instance: Any) -> bool:
    """Whether a number is near the limits of floats, beyond the exponents of answers."""
    if isinstance(instance, (dict, list)):
        parts = instance.values() if isinstance(instance, dict) else instance
        return any(_is_extreme(part) for part in parts)
    return isinstance(instance, float) and instance != 0 and not 1e-300 < abs(instance) < 1e300


def _has_own_dialect(schema: Any) -> bool:
    """Whether ``$schema`` is there and names none of the published drafts."""
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    return bool(dialect) and not str(dialect).split("//")[-1].startswith("json-schema.org/")


def _has_lone_surrogate(instance: Any) -> bool:
    try:
        json.dumps(instance, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
