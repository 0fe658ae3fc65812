"""Bytes, byte classes and expressions as text that people can read."""

from __future__ import annotations

from functools import reduce
from operator import or_

from app.constraint.json.text import CHARACTER
from app.constraint.language.codepoints import ranges
from app.constraint.language.derivatives import Derivatives
from app.constraint.language.expressions import ByteSet, Expression, Kind, byte_range, byte_set
from app.constraint.language.nodes import bytes_of
from app.constraint.language.rows import Row

_PRINTABLE = byte_range(0x20, 0x7E)
_NON_ASCII = byte_range(0x80, 0xFF)
_BACKSLASH = byte_set(b"\\")
_CONTROL = byte_range(0x00, 0x1F) | byte_set([0x7F])
_NAMED = {0x20: "space", 0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
_SPECIAL = set(b"\\[]^-")
_NEARLY_ALL = 80
"""Number of printable characters from which a class is spelled as a negation."""


def first_bytes(row: Row) -> ByteSet:
    """The bytes that occur in a row of derivatives."""
    return reduce(or_, (bits for bits, _ in row), 0)


def cut(text: str, longest: int = 200) -> str:
    """``text``, cut to ``longest`` characters and ending in ``...`` if it is longer."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def spell_bytes(text: bytes) -> str:
    """Text as it is; control characters and what is no UTF-8 as escapes."""
    decoded = text.decode("utf-8", "backslashreplace")
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in decoded
    )


def spell_class(bits: ByteSet) -> str:
    """A byte class as ``a`` or ``[a-z0-9]``; bytes of other characters are ``non-ASCII``."""
    printable = bytes_of(bits & _PRINTABLE)
    parts = []
    if len(printable) >= _NEARLY_ALL:
        bits &= ~byte_set([0x7F])  # not worth a word
        missing = bytes_of(_PRINTABLE & ~bits)
        parts.append(f"[^{_ranges(missing)}]" if missing else "any printable")
    elif len(printable) == 1:
        parts.append(_NAMED.get(printable[0], chr(printable[0])))
    elif printable:
        parts.append(f"[{_ranges(printable)}]")
    control = bytes_of(bits & _CONTROL)
    if len(control) > 4:
        parts.append("control")
    else:
        parts.extend(_NAMED.get(byte, f"\\x{byte:02x}") for byte in control)
    if bits & _NON_ASCII:
        parts.append("non-ASCII")
    return " or ".join(parts)


def _ranges(codes: list[int]) -> str:
    """The inside of a character class; three in a row become a range."""
    text = ""
    for first, last in ranges((code, code) for code in codes):
        if last - first >= 2:
            text += f"{_member(first)}-{_member(last)}"
        else:
            text += "".join(map(_member, range(first, last + 1)))
    return text


def _member(code: int) -> str:
    return ("\\" if code in _SPECIAL else "") + chr(code)


class _TooLong(Exception):
    pass


class Spelling:
    """Spells the expressions of one pool as regular expressions, up to a length."""

    def __init__(self, derivatives: Derivatives) -> None:
        self._derivatives = derivatives
        self._pool = derivatives.pool

    def pattern(self, expression: Expression, longest: int = 40) -> str | None:
        """A regular expression in Python's manner, None if it would be longer than ``longest``.

        ``.`` stands for any character of a JSON string, ``\\\\u..`` for its escapes, ``é`` in a
        class for characters beyond ASCII, ``&`` and ``~`` for intersection and complement.
        """
        try:
            text = self._spell(expression, longest)
        except (_TooLong, RecursionError):
            return None
        return text if len(text) <= longest else None

    def _spell(self, expression: Expression, room: int) -> str:
        if room < 0:
            raise _TooLong
        kind, operand = self._pool.kinds[expression], self._pool.operands[expression]
        if expression == self._pool.landmarks.get(CHARACTER):
            return "."
        if kind == Kind.LITERAL:
            return spell_bytes(operand)
        if kind == Kind.BYTES:
            return spell_class(operand)
        if kind == Kind.CONCATENATION:
            head = self._group(operand[0], room)
            return head + self._group(operand[1], room - len(head))
        if kind == Kind.UNION:
            return self._spell_union(operand, room)
        if kind == Kind.REPETITION:
            return self._group(operand[0], room, repeated=True) + _count(operand[1], operand[2])
        if kind == Kind.INTERSECTION:
            return " & ".join(self._group(member, room) for member in operand)
        if kind == Kind.COMPLEMENT:
            return "~" + self._group(operand, room)
        if kind in (Kind.RULE, Kind.DISTINCT, Kind.CASES, Kind.REMAINDER):
            raise _TooLong
        if kind == Kind.MARKED:
            return self._spell(operand[0], room)
        if kind == Kind.HOLE:
            return f"piece of {operand[0].source}: {self._group(operand[1], room)}"
        return ""

    def _group(self, expression: Expression, room: int, *, repeated: bool = False) -> str:
        """The spelling as a part of a longer pattern, in parentheses if needed."""
        text = self._spell(expression, room)
        kind = self._pool.kinds[expression]
        if (text.startswith("[") and text.find("]") == len(text) - 1) or len(text) <= 1:
            return text
        if kind == Kind.UNION:
            return text if text.endswith(")?") and not repeated else f"({text})"
        return f"({text})" if kind == Kind.INTERSECTION or repeated else text

    def _spell_union(self, operand: tuple[Expression, ...], room: int) -> str:
        """One class of all single characters, then the other members."""
        ascii_bits, beyond, others = 0, False, []
        for member in operand:
            kind, first = self._pool.kinds[member], first_bytes(self._derivatives.row(member))
            if kind == Kind.BYTES and not first & _NON_ASCII:
                ascii_bits |= first
            elif kind == Kind.EPSILON or (kind == Kind.LITERAL and first == _BACKSLASH):
                continue  # the latter is a character that JSON spells with an escape
            elif not first & ~_NON_ASCII:
                beyond = True
            else:
                others.append(member)
        parts = []
        if ascii_bits:
            spelled = spell_class(ascii_bits & _PRINTABLE) or "control"
            if beyond:
                inner = spelled[1:-1] if spelled.startswith("[") else spelled
                spelled = spelled if spelled.startswith("[^") else f"[{inner}é]"
            parts.append(spelled)
        elif beyond:
            parts.append("é")
        left = room
        for member in others:
            parts.append(self._group(member, left))
            left -= len(parts[-1])
        text = "|".join(parts)
        if self._pool.epsilon in operand:
            return f"({text})?" if len(parts) > 1 or len(text) > 1 else f"{text}?"
        return text


def _count(low: int, high: int | None) -> str:
    if low == high:
        return f"{{{low}}}"
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    return short or f"{{{low},{'' if high is None else high}}}"
