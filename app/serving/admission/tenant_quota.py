"""A bound that tenants share, and that no one of them can exhaust."""

from __future__ import annotations

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
        # What is given back adds to the free part; the share that this tenant holds of all that is
        # held is also taken off its own.
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
