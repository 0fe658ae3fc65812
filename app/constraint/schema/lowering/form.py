"""How values are written: freely, or so that equal values are equal texts."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Any

from app.constraint.schema.objects import ObjectShape
from app.core.errors import ConstraintTooComplex


class Form(IntEnum):
    """The spellings that a value may have."""

    ANY = 0
    """All that the text of an answer has."""
    ONCE = 1
    """One; members of objects in the order of the schema."""
    SORTED = 2
    """One; members of objects by their names: where two subschemas may have their own orders."""

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
