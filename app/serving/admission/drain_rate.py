"""How fast answers leave while others wait for their places."""

from __future__ import annotations

from collections.abc import Callable

_SHORTEST = 1.0
"""Seconds of overload below which a rate says little."""


class DrainRate:
    """Answers, and their tokens, that left in the last ``window`` seconds of overload.

    Time without overload does not count: what leaves an idle server says how much is asked of it,
    not how much it can do. Memory: two counts for each second of the window.
    """

    def __init__(self, clock: Callable[[], float], window: float) -> None:
        self._clock = clock
        self._window = window
        self._overloaded = False
        self._noted = 0.0
        self._time = 0.0
        """Seconds of overload so far."""
        self._left: dict[int, tuple[int, int]] = {}
        """Answers and tokens that left, by the second of overload."""

    def note(self, *, overloaded: bool) -> None:
        """Say whether answers wait for places from now on."""
        self._advance()
        self._overloaded = overloaded

    def count(self, answers: int, tokens: int) -> None:
        """Note that ``answers`` have run and left, with ``tokens`` in all."""
        self._advance()
        if self._overloaded:
            second = int(self._time)
            before = self._left.get(second, (0, 0))
            self._left[second] = (before[0] + answers, before[1] + tokens)

    def seconds_for_answers(self, answers: int) -> float | None:
        """Seconds until that many more have left; None if none has left lately."""
        self._advance()
        return self._seconds(answers, sum(left[0] for left in self._left.values()))

    def seconds_for_tokens(self, tokens: float) -> float | None:
        """Seconds until answers with that many tokens have left; None if none has left lately."""
        self._advance()
        return self._seconds(tokens, sum(left[1] for left in self._left.values()))

    def seconds_for(self, answers: int, tokens: float) -> float | None:
        """Seconds until that many answers, with that many tokens in all, have left, or None.

        The lower of what the two rates say: each may mislead where requests have changed.
        """
        known = (self.seconds_for_answers(answers), self.seconds_for_tokens(tokens))
        if self._time < _SHORTEST:
            return None
        return min((each for each in known if each is not None), default=None)

    def _seconds(self, amount: float, left: int) -> float | None:
        span = max(min(self._time, self._window), _SHORTEST)
        return amount * span / left if left else None

    def _advance(self) -> None:
        now = self._clock()
        if self._overloaded:
            self._time += now - self._noted
        self._noted = now
        oldest = self._time - self._window
        while self._left and (second := next(iter(self._left))) < oldest:
            del self._left[second]
