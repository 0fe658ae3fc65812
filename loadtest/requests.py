"""What is asked of a server, apart from how the server wants to be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from loadtest.checks import Content


@dataclass(frozen=True, slots=True)
class Schema:
    """The answer is JSON, valid against ``schema``."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The whole answer matches a regular expression."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Tools:
    """The answer is one call or more of ``functions`` (OpenAI's function objects)."""

    functions: Sequence[Mapping[str, Any]]
    parallel: bool = True
    """Whether it may be more than one."""


Constraint = Schema | Pattern | Tools


class Expected(Protocol):
    """The right answer, where there is one."""

    def right(self, content: Content) -> tuple[int, int]:
        """How many parts of ``content`` are right, and of how many."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question; without a constraint any answer will do."""

    task: str
    messages: Sequence[Mapping[str, Any]]
    constraint: Constraint | None
    max_tokens: int
    exact_length: bool = False
    """Generate all of ``max_tokens``, past an end of sequence; for servers that can."""
    expected: Expected | None = None
