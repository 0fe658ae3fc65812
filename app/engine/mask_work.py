"""Work on constraints that takes more than a step has time for: done in turns, one a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from app.core.errors import WorkPending

T = TypeVar("T")

WORK_AT_ONCE = 1_000
"""Steps of work (see ``ConstraintState.mask``) that one answer may cost a step of the engine."""

_WORK_IN_TURN = 2_000
"""The same for the one whose turn it is, of those that this was not enough for."""

_IN_VAIN = 3
_MOST_WORK = 80_000
"""What a turn may cost where nobody else waits. Elsewhere, as some work cannot be left and taken
up, so many turns in which nothing was learned let the next ones cost twice as much, up to this."""

_MOST_IN_VAIN = 16
_MOST_TURNS = 800
"""Turns after which the next is the last: those in which nothing was learned, and all of them."""


def work_in_turn(in_vain: int) -> int:
    """What a turn may cost after so many in which nothing was learned."""
    return min(_WORK_IN_TURN << in_vain // _IN_VAIN, _MOST_WORK)


class MaskWork(Generic[T]):
    """Those that wait for their turn. One goes on at a time, so a step costs the others little,
    however many hard constraints there are."""

    def __init__(self) -> None:
        self._waiting: dict[T, tuple[int, int]] = {}
        """In the order of their turns: how many they had, and how many were in vain."""
        self._next: T | None = None
        self._alone = False

    def __iter__(self) -> Iterator[T]:
        return iter(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def begin_step(self, takes_part: Callable[[T], bool], *, alone: bool) -> None:
        """Of those that take part in a step the first one has its turn.

        ``alone``: there is one answer in all, which makes nobody wait.
        """
        self._next = next(filter(takes_part, self._waiting), None)
        self._alone = alone

    def work_for(self, one: T) -> int:
        """What ``one`` may cost in this step."""
        if self._alone:
            return _MOST_WORK
        turns = self._waiting.get(one)
        if turns is None:
            return WORK_AT_ONCE
        return work_in_turn(turns[1]) if one == self._next else 0

    def is_last(self, one: T) -> bool:
        """Whether ``one`` has its turn, and no other after it: it gets nowhere, or takes long."""
        turns, in_vain = self._waiting.get(one, (0, 0))
        return one == self._next and (turns >= _MOST_TURNS or in_vain >= _MOST_IN_VAIN)

    def postpone(self, one: T, pending: WorkPending) -> None:
        """``one`` was not done: behind the others, if it had its turn."""
        turns, in_vain = self._waiting.setdefault(one, (0, 0))
        if one == self._next:
            del self._waiting[one]
            self._waiting[one] = turns + 1, in_vain + (not pending.learned)

    def done(self, one: T) -> None:
        """``one`` needs no turn any more, if it did."""
        self._waiting.pop(one, None)
