"""Deep recursion on one piece of Python's stack.

CPython keeps the frames of Python functions in pieces of 16 KB. A loop that calls something right
at the end of a piece has the system map the next one, and unmap it again, in every round: that
was up to a quarter of the time in which a large schema was compiled. A frame that does not fit into
a piece gets a larger one, and what it calls has the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

R = TypeVar("R")

_WORDS = 33_000
"""A little more than half of a piece of 512 KB. What is not used of it is never touched."""


def with_room(function: Callable[[], R]) -> R:
    """Call ``function`` where 250 KB of frames lie in one piece. Costs some 50 us."""
    result: R = _call(function)
    return result


def _call_it(function: Callable[[], Any]) -> Any:
    return function()


_call = FunctionType(_call_it.__code__.replace(co_stacksize=_WORDS), globals())
