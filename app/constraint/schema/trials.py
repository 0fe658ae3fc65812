"""Tries subschemas of a schema that is refused, within bounds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal

from app.constraint.json.text import JsonText, json_pool
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import INFINITE
from app.constraint.limits import Limits
from app.constraint.schema.lowering.builder import SchemaBuilder
from app.core.errors import ConstraintError

_MOST = 300
_SECONDS = 1.0
"""Processor time for all trials of one question; the one that passes it is finished."""
_LIMITS = {"nodes": 100_000, "branch_steps": 30_000, "branches": 200}
_WORK = 300_000


class Trials:
    """Tries within a part of ``limits``; ``close`` as for ``SchemaBuilder``."""

    def __init__(self, limits: Limits, *, close: bool) -> None:
        smaller = {name: min(most, getattr(limits, name)) for name, most in _LIMITS.items()}
        self.limits = replace(limits, **smaller)
        self._close = close
        self._left = _MOST
        self._until = time.process_time() + _SECONDS

    def of(self, schema: Any, pointer: str = "") -> Literal["empty", "some", "refused"] | None:
        """What becomes of the subschema at ``pointer``; None when there is no time to try."""
        if self._left <= 0 or time.process_time() > self._until:
            return None
        self._left -= 1
        text = JsonText(json_pool(self.limits.nodes), self.limits)
        try:
            root = SchemaBuilder(schema, text, close=self._close, start=pointer).build()
            derivatives = Derivatives(text.pool)
            derivatives.allow(_WORK)
            derivatives.measure()
            return "empty" if derivatives.length(root) >= INFINITE else "some"
        except (ConstraintError, RecursionError):
            return "refused"
