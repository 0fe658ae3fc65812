"""A bound that tenants share, and how fast answers leave while others wait for their places."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction


class TenantQuota:
    """A quantity of which each tenant may hold a multiple of what is still free.

    These are dynamic thresholds (Choudhury and Hahne 1998, "Dynamic queue length thresholds for
    shared-memory packet switches"): one tenant alone gets up to ``alone``, which is ``share`` of
    the whole; where several ask, each gets less, and something is always left for a newcomer.
    With a share of 1 the whole is ``alone``: first come, first served.
    Cost: O(1) for each call. Memory: an entry for each tenant that holds something.
    """

    def __init__(self, alone: int, share: float) -> None:
        self.alone = alone
        self.used = 0
        # A tenant's threshold is times / per of what is free, in integers to be exact.
        exact = Fraction(share).limit_denominator(1000)
        self._times, self._per = exact.numerator, exact.denominator - exact.numerator
        kept = -(-alone * self._per // self._times) + 1 if self._per else 0
        self._total = alone + kept
        self._held: dict[str, int] = {}

    def missing(self, tenant: str, size: int) -> int:
        """How much has to be given back before ``size`` more fits; 0: it fits now."""
        held = self._held.get(tenant, 0)
        free = self._total - self.used - size
        over = self._per * (held + size) - self._times * free
        if over <= 0:
            return max(0, held + size - self.alone)
        # A release adds to the free part; in proportion to this tenant's share of what is held, it
        # also lowers the tenant's own use.
        own = Fraction(held, self.used) if self.used else 0
        return max(-(-over // (self._times + self._per * own)), held + size - self.alone)

    def take(self, tenant: str, size: int) -> None:
        """Hold ``size`` more, whether it fits or not."""
        self._held[tenant] = self._held.get(tenant, 0) + size
        self.used += size

    def give(self, tenant: str, size: int) -> None:
        left = self._held.pop(tenant, 0) - size
        assert left >= 0, "more is given back than was taken"
        if left:
            self._held[tenant] = left
        self.used -= size


_SHORTEST = 1.0
"""Seconds of overload below which a rate is not meaningful."""


class DrainRate:
    """Answers, and their tokens, that left in the last ``window`` seconds of overload.

    Time without overload does not count: what leaves an idle server shows its load, not its
    throughput. Memory: two counts for each second of the window.
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
        """Note whether answers wait for places from now on."""
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
        return self._seconds(answers, 0)

    def seconds_for_tokens(self, tokens: float) -> float | None:
        """Seconds until answers with that many tokens have left; None if none has left lately."""
        return self._seconds(tokens, 1)

    def seconds_for(self, answers: int, tokens: float) -> float | None:
        """Seconds until that many answers, with that many tokens in all, have left, or None.

        The lower of the two estimates: each may mislead where requests have changed.
        """
        known = (self.seconds_for_answers(answers), self.seconds_for_tokens(tokens))
        if self._time < _SHORTEST:
            return None
        return min((each for each in known if each is not None), default=None)

    def _seconds(self, amount: float, column: int) -> float | None:
        self._advance()
        left = sum([row[column] for row in self._left.values()])
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
