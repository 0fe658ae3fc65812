"""When those who were refused were told to come back."""

from __future__ import annotations

from collections.abc import Callable

HORIZON = 30
"""Seconds. Not all come back, so nobody is sent further away for the sake of the others."""


class Appointments:
    """Places that refused requests were told to come back for, and whose time has not come.

    A burst that is refused would come back at one moment if each were told when the next place
    gets free. Memory: a count for each second up to ``HORIZON``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[int, int] = {}

    def __len__(self) -> int:
        now = self._clock()
        self._due = {second: places for second, places in self._due.items() if second > now}
        return sum(self._due.values())

    def make(self, seconds: float, places: int) -> None:
        """So many places will be asked for again then."""
        if seconds <= HORIZON:
            second = int(self._clock() + seconds) + 1
            self._due[second] = self._due.get(second, 0) + places
