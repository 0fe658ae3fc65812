"""Work on constraints that takes more than a step has time for: done in turns, one a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

WORK_AT_ONCE = 1_000
"""Steps of work (see ``ConstraintState.mask``) that one answer may cost a step of the engine."""

WORK_IN_TURN = 2_000
"""The same for the one whose turn it is, of those that this was not enough for; ``WORK_AT_ONCE``
where the engine has more answers than ``_FEW``."""

_FEW = 12
"""Answers, those that are queued included."""

_WORK_ALONE = 80_000
"""The same where there is no other answer."""


class MaskWork(Generic[T]):
    """Those that wait for their turn. One goes on at a time, so a step costs the others little,
    however many hard constraints there are."""

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
        """Of those that take part in a step the first one has its turn."""
        self._next = next(filter(takes_part, self._waiting), None)

    def work_for(self, one: T, answers: int) -> int:
        """What ``one`` of so many answers may cost in this step."""
        if answers == 1:
            return _WORK_ALONE
        if one not in self._waiting:
            return WORK_AT_ONCE
        if one != self._next:
            return 0
        return WORK_IN_TURN if answers <= _FEW else WORK_AT_ONCE

    def postpone(self, one: T) -> None:
        """``one`` was not done: behind the others, if it had its turn."""
        if one == self._next:
            self._waiting.pop(one, None)
        self._waiting[one] = None

    def done(self, one: T) -> None:
        """``one`` needs no turn any more, if it did."""
        self._waiting.pop(one, None)
