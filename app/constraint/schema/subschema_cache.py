"""What subschemas say, whatever their place: so that what says the same is built once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from app.constraint.schema.document import SUBSCHEMA, SUBSCHEMA_LISTS, SUBSCHEMA_MAPS

_SAYS_NOTHING = frozenset(
    ["title", "description", "default", "examples", "$comment", "$schema", "$defs", "definitions"]
)
"""Keywords that restrict nothing, where they stand."""


class SubschemaCache:
    """Numbers of subschemas of one document: those that say the same have the same."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, int] = {}
        """By the identity of what the document holds."""

    def of(self, schema: Any) -> int:
        """The number of a subschema. Costs its size once."""
        known = self._known.get(id(schema))
        if known is None:
            said = self._said(schema) if isinstance(schema, dict) else repr(schema)
            known = self._known[id(schema)] = self._numbers.setdefault(said, len(self._numbers))
        return known

    def _said(self, schema: dict[str, Any]) -> Hashable:
        """What is the same for subschemas that say the same, in the same order."""
        said: list[Hashable] = []
        for keyword, value in schema.items():
            if keyword in _SAYS_NOTHING:
                continue
            said.append(keyword)
            if keyword in SUBSCHEMA_MAPS and isinstance(value, dict):
                said.append((*value, *[self.of(each) for each in value.values()]))
            elif keyword in SUBSCHEMA_LISTS and isinstance(value, list):
                said.append(tuple([self.of(each) for each in value]))
            elif keyword in SUBSCHEMA and isinstance(value, dict):
                said.append(self.of(value))
            else:
                said.append(repr(value))
        return tuple(said)
