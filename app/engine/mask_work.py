"""Work on constraints that does not fit in one step: the sequences take turns, one per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

WORK_AT_ONCE = 1_000
"""Steps of work (see ``ConstraintState.mask``) that one answer may cost a step of the engine."""

WORK_IN_TURN = 2_000
"""Limit of the sequence whose turn it is, of those that need more; ``WORK_AT_ONCE`` if the engine
has more answers than ``_FEW``."""

_FEW = 12
"""Number of answers, queued ones included, up to which a turn has ``WORK_IN_TURN``."""

_WORK_ALONE = 80_000
"""Limit of an answer that is the only one."""


class MaskWork(Generic[T]):
    """A queue of unfinished work. One entry continues in each step, so hard constraints delay the
    others little, however many there are."""

    def __init__(self) -> None:
        self._waiting: dict[T, None] = {}
        """In the order of their turns."""
        self._next: T | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self._waiting)

    def __contains__(self, one: T) -> bool:
        return one in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def begin_step(self, takes_part: Callable[[T], bool]) -> None:
        """Give the turn to the first one that takes part in the step."""
        self._next = next(filter(takes_part, self._waiting), None)

    def work_for(self, one: T, answers: int) -> int:
        """Steps of work that ``one`` may cost in this step, with ``answers`` in the engine."""
        if answers == 1:
            return _WORK_ALONE
        if one not in self._waiting:
            return WORK_AT_ONCE
        if one != self._next:
            return 0
        return WORK_IN_TURN if answers <= _FEW else WORK_AT_ONCE

    def postpone(self, one: T) -> None:
        """Queue ``one``, whose work is unfinished; at the end if it had its turn."""
        if one == self._next:
            self._waiting.pop(one, None)
        self._waiting[one] = None

    def done(self, one: T) -> None:
        """Stop waiting: the work of ``one`` is done."""
        self._waiting.pop(one, None)
