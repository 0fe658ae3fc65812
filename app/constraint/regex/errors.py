"""What is wrong with a pattern, and where."""

from __future__ import annotations

_EXCERPT = 20


class _AtPosition(Exception):
    def __init__(self, reason: str, pattern: str, position: int) -> None:
        excerpt = pattern[position : position + _EXCERPT]
        more = "..." if position + _EXCERPT < len(pattern) else ""
        where = f"at character {position} of the pattern: {excerpt!r}{more}"
        super().__init__(f"{reason}, {where}")
        self.position = position


class PatternError(_AtPosition):
    """The text is not a regular expression."""


class PatternNotSupported(_AtPosition):
    """The pattern cannot be followed exactly."""
