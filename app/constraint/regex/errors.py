"""What is wrong with a pattern, and where."""

from __future__ import annotations

_EXCERPT = 20


class PatternError(Exception):
    """The text is not a regular expression."""

    def __init__(self, message: str, pattern: str, position: int) -> None:
        super().__init__(f"{message}, {_location(pattern, position)}")


class PatternNotSupported(Exception):
    """The pattern cannot be followed exactly."""

    def __init__(self, reason: str, pattern: str, position: int) -> None:
        super().__init__(f"{reason}, {_location(pattern, position)}")


def _location(pattern: str, position: int) -> str:
    excerpt = pattern[position : position + _EXCERPT]
    more = "..." if position + _EXCERPT < len(pattern) else ""
    return f"at character {position} of the pattern: {excerpt!r}{more}"
