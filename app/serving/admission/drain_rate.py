"""How fast answers leave while others wait for their places."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_SHORTEST = 1.0
"""Seconds of overload below which a rate says little."""


class DrainRate:
    """Answers, and their tokens, that left in the last ``window`` seconds of overload.

    Time without overload does not pass here: what leaves an idle server says how much is asked of
    it, not how much it can do. Memory: a count for each second of the window.
    """

    def __init__(self, clock: Callable[[], float], window: float) -> None:
        self._clock = clock
        self._window = window
        self._overloaded = False
        self._noted = 0.0
        self._time = 0.0
        """Seconds of overload so far."""
        self._counts: deque[list[int]] = deque()
        """Second of overload, answers, tokens."""

    def note(self, *, overloaded: bool) -> None:
        """Whether answers wait for places from now on."""
        self._pass()
        self._overloaded = overloaded

    def count(self, answers: int, tokens: int) -> None:
        """Some left that had run, with so many tokens in all."""
        self._pass()
        if not self._overloaded:
            return
        second = int(self._time)
        if not self._counts or self._counts[-1][0] != second:
            self._counts.append([second, 0, 0])
        self._counts[-1][1] += answers
        self._counts[-1][2] += tokens

    def seconds_for_answers(self, answers: int) -> float | None:
        """Until so many more have left; None where none have of late."""
        return self._seconds(answers, 1)

    def seconds_for_tokens(self, tokens: int) -> float | None:
        """Until answers with so many tokens have left; None where none have of late."""
        return self._seconds(tokens, 2)

    def seconds_for(self, answers: int, tokens: float) -> float | None:
        """Until so many answers with so many tokens in all have left; None if that is not known.

        The less of what the two rates say: either may mislead where requests have changed.
        """
        self._pass()
        if self._time < _SHORTEST:
            return None
        known = [self._seconds(answers, 1), self._seconds(tokens, 2)]
        return min((each for each in known if each is not None), default=None)

    def _seconds(self, amount: float, column: int) -> float | None:
        self._pass()
        left = sum(count[column] for count in self._counts)
        span = max(min(self._time, self._window), _SHORTEST)
        return amount * span / left if left else None

    def _pass(self) -> None:
        now = self._clock()
        if self._overloaded:
            self._time += now - self._noted
        self._noted = now
        while self._counts and self._counts[0][0] < self._time - self._window:
            self._counts.popleft()
