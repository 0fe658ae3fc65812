"""A text against a program: whether it is an answer, and if not, where it stops being one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.constraint.automaton.automaton import Automaton
from app.constraint.distinct.places import BYTES, Place, Places
from app.constraint.distinct.plans import Plans
from app.constraint.json.whitespace import Whitespace
from app.constraint.language.nodes import bytes_of
from app.constraint.language.rows import at_once
from app.constraint.program import Program
from app.constraint.quotes.automaton import PieceAutomaton
from app.constraint.quotes.binding import BoundDerivatives
from app.core.errors import InvalidSchema
from app.explain.spelling import first_bytes, spell_class

_SHORTEST_SHOWN = 2_000
"""Maximum bytes of a completion that is spelled out."""
_FORMS = 24
"""Orders of keys that are tried for a value at most."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of ``check``: valid, wrong at ``offset``, or incomplete at the end."""

    valid: bool
    offset: int
    """Length of the longest prefix of the text that begins an answer, in bytes."""
    line: int
    column: int
    """Line and column of the byte at ``offset``, from 1; columns are characters."""
    before: bytes
    """The last bytes before ``offset``."""
    found: bytes
    """The character at ``offset``; b"" at the end of the text."""
    allowed: str
    """Readable classes of the bytes that are allowed at ``offset``."""
    may_end: bool
    """Whether the answer may end there."""
    forced: bytes
    """The forced bytes at ``offset``, if any."""
    completion: bytes | None
    """A shortest rest of a text that begins an answer (None: too long to spell)."""

    @property
    def incomplete(self) -> bool:
        """Whether the text is the beginning of an answer, but not a whole one."""
        return not self.valid and self.found == b""


class Checker:
    """Checks texts against one program; ``schema`` tells the order of keys."""

    def __init__(self, program: Program, schema: Any = None) -> None:
        bound = isinstance(program.derivatives, BoundDerivatives)
        self._automaton = PieceAutomaton(program) if bound else Automaton(program)
        self._places = Places(self._automaton, program.notation)
        self._orders = list(_key_orders(schema))

    def check(self, text: bytes) -> Verdict:
        """Cost: a derivative for each byte that no leap covers."""
        place, offset = self._run(text)
        automaton, state = self._automaton, place.state
        valid = offset == len(text) and automaton.is_accepting(state)
        line = text.count(b"\n", 0, offset) + 1
        start = text.rfind(b"\n", 0, offset) + 1
        allowed = first_bytes(automaton.derivatives.live_row(automaton.expression(state)))
        if place.may_repeat:  # what would repeat an item
            allowed = sum(
                1 << byte
                for byte in bytes_of(allowed)
                if self._places.advanced(place, BYTES[byte]) is not None
            )
        rest: bytes | None = b""
        if offset == len(text) and not valid:
            short = automaton.length(state) <= _SHORTEST_SHOWN
            rest = at_once(Plans(self._places).completion(place)) if short else None
        # The character that the byte at ``offset`` begins, or that byte alone.
        found = text[offset : offset + 4].decode("utf-8", "surrogateescape")[:1]
        return Verdict(
            valid=valid,
            offset=offset,
            line=line,
            column=len(text[start:offset].decode("utf-8", "replace")) + 1,
            before=text[max(0, offset - 40) : offset],
            found=found.encode("utf-8", "surrogateescape"),
            allowed=spell_class(allowed),
            may_end=automaton.is_accepting(state),
            forced=automaton.forced(state).text,
            completion=rest,
        )

    def rewritten(self, text: bytes, whitespace: str) -> bytes | None:
        """The JSON value of ``text``, rewritten to be an answer; None if that did not succeed.

        Changes white space, escapes and the order of keys (to that of ``properties``).
        """
        form = Whitespace.named(whitespace)
        try:
            value = json.loads(text, object_pairs_hook=_unique)
            # With all orders; then without the first ones, in case subschemas disagree.
            tried = range(min(len(self._orders), _FORMS))
            for ordered in (value, *(_ordered(value, self._orders[skip:]) for skip in tried)):
                written = form.written(ordered)
                place = self._places.advanced(self._places.start(), written)
                whole = place is not None and self._automaton.is_accepting(place.state)
                if written != text and whole:
                    return written
        except (ValueError, RecursionError, InvalidSchema):  # no JSON, or a number is not finite
            pass
        return None

    def _run(self, text: bytes) -> tuple[Place, int]:
        """The place after the longest prefix that begins an answer, and its length."""
        place, offset, stride = self._places.start(), 0, 1
        while offset < len(text):
            after = self._places.advanced(place, text[offset : offset + stride])
            if after is not None:
                place, offset = after, min(len(text), offset + stride)
                stride = min(2 * stride, 4096)
            elif stride == 1:
                break
            else:
                stride = 1
        return place, offset


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is repeated")
    return value


def _ordered(value: Any, orders: list[list[str]]) -> Any:
    """``value`` with the keys of each object in the order that contains most of them."""
    if isinstance(value, list):
        return [_ordered(item, orders) for item in value]
    if not isinstance(value, dict):
        return value
    best = max(orders, key=lambda order: len(value.keys() & set(order)), default=[])
    rank = {name: index for index, name in enumerate(best)}
    names = sorted(value, key=lambda name: rank.get(name, len(rank)))
    return {name: _ordered(value[name], orders) for name in names}


def _key_orders(schema: Any) -> Iterator[list[str]]:
    """For each subschema, the keys of its ``properties``, then other required keys."""
    stack = [schema]
    while stack:
        here = stack.pop()
        if isinstance(here, list):
            stack.extend(reversed(here))
        elif isinstance(here, dict):
            properties, required = here.get("properties"), here.get("required")
            names = list(properties) if isinstance(properties, dict) else []
            if isinstance(required, list):
                names += [name for name in required if isinstance(name, str) and name not in names]
            if names:
                yield names
            stack.extend(reversed(here.values()))
