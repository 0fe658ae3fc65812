"""Whose turn it is: a line for each tenant, and the next turn for who has been served least.

What a tenant has been served is counted in tokens while anybody waits, and its next one is taken
when nobody who waits has been served less (Sheng et al. 2024, "Fairness in Serving Large Language
Models", arXiv 2401.00588, section 3: virtual token counters). A tenant that comes back does not
get back what it did not ask for: it is lifted to the least that those who wait have been served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_IDLE = 1024
"""Tenants of which nothing waits and that are remembered all the same."""


@dataclass(slots=True)
class _Line(Generic[T]):
    """One tenant."""

    served: int
    """Tokens, from the last moment at which nobody waited."""
    turn: int = -1
    """When it had its last turn; of those served the same, the one that waits longest is next."""
    waiting: dict[T, None] = field(default_factory=dict)
    """In order of arrival."""


class FairQueue(Generic[T]):
    """A queue that is first come, first served within a tenant and fair between tenants.

    What was taken and comes back (``put_back``) goes before everything else. What is set aside
    (``set_aside``) keeps its place and lets the others pass. All decisions follow from the calls
    alone. Memory: what waits, and up to ``MOST_IDLE`` tenants beside.
    """

    def __init__(self, tenant_of: Callable[[T], str]) -> None:
        self._tenant_of = tenant_of
        self._serials: dict[T, int] = {}
        """What waits in a line, in order of arrival."""
        self._back: deque[T] = deque()
        self._aside: dict[T, bool] = {}
        """What is set aside, and whether it had come back."""
        self._returned_aside = 0
        """Those that had: any thread may ask for the length."""
        self._lines: dict[str, _Line[T]] = {}
        """Those in which something waits."""
        self._idle: dict[str, _Line[T]] = {}
        self._arrivals = 0
        self._turns = 0

    def __len__(self) -> int:
        return len(self._serials) + len(self._back) + self._returned_aside

    def __iter__(self) -> Iterator[T]:
        """What came back, then what waits in order of arrival; what is set aside among them."""
        yield from self._back
        yield from [item for item, returned in self._aside.items() if returned]
        yield from self._serials

    def __contains__(self, item: T) -> bool:
        return item in self._serials or item in self._aside or item in self._back

    @property
    def has_returned(self) -> bool:
        """Whether ``next`` is something that came back."""
        return bool(self._back)

    def push(self, item: T) -> None:
        """Join the line of its tenant. Costs O(tenants) where that was empty."""
        if not self._lines:
            self._idle.clear()  # nobody waits for anybody: all start anew
        self._serials[item] = self._arrivals
        self._line_of(item).waiting[item] = None
        self._arrivals += 1

    def put_back(self, item: T) -> None:
        """Wait in front of everything: ``item`` was taken, and has to be taken again."""
        self._back.appendleft(item)

    def next(self, passed: Collection[T] = ()) -> T | None:
        """Whose turn it is; None if nothing is left. Changes nothing. Costs O(tenants).

        ``passed`` are items in their lines that are passed over for now. Before two of one tenant
        are, every other tenant has had its turn.
        """
        if self._back:
            return self._back[0]
        best: tuple[tuple[int, int, int, int], T] | None = None
        for line in self._lines.values():
            over = sum([item in line.waiting for item in passed])
            if over == len(line.waiting):
                continue
            first = next(item for item in line.waiting if item not in passed)
            rank = (over, line.served, line.turn, self._serials[first])
            if best is None or rank < best[0]:
                best = rank, first
        return None if best is None else best[1]

    def take(self, item: T) -> None:
        """``item`` has its turn: it leaves the queue."""
        if self._back and self._back[0] is item:
            self._back.popleft()
            return
        line = self._lines[self._tenant_of(item)]
        line.turn = self._turns
        self._turns += 1
        self._leave(item)

    def remove(self, item: T) -> None:
        """``item`` gives up. It has to be in the queue."""
        if item in self._aside:
            if self._aside.pop(item):
                self._returned_aside -= 1
            else:
                del self._serials[item]
        elif item in self._serials:
            self._leave(item)
        else:
            self._back.remove(item)

    def set_aside(self, item: T) -> None:
        """Pass ``item``, which waits, over until it is called back."""
        returned = item in self._back
        if returned:
            self._back.remove(item)
        else:
            self._leave_line(item)
        self._aside[item] = returned
        self._returned_aside += returned

    def call_back(self, item: T) -> None:
        """``item``, which is set aside, waits in its place again. Costs O(its tenant's items)."""
        if self._aside.pop(item):
            self._returned_aside -= 1
            self._back.append(item)
            return
        line = self._line_of(item)
        line.waiting[item] = None
        line.waiting = dict.fromkeys(sorted(line.waiting, key=self._serials.__getitem__))

    def charge(self, tenant: str, tokens: int) -> None:
        """Count ``tokens`` as served to ``tenant``. Of no effect while no line has anything."""
        if not self._lines:
            return
        line = self._lines.get(tenant) or self._idle.get(tenant)
        if line is None:
            line = self._idle[tenant] = _Line(self._least())
            self._forget_idle()
        line.served += tokens

    def _line_of(self, item: T) -> _Line[T]:
        """The line of its tenant, which may have been empty."""
        tenant = self._tenant_of(item)
        if tenant not in self._lines:
            line = self._idle.pop(tenant, None) or _Line[T](0)
            line.served = max(line.served, self._least())
            self._lines[tenant] = line
        return self._lines[tenant]

    def _leave(self, item: T) -> None:
        del self._serials[item]
        self._leave_line(item)

    def _leave_line(self, item: T) -> None:
        tenant = self._tenant_of(item)
        line = self._lines[tenant]
        del line.waiting[item]
        if not line.waiting:
            del self._lines[tenant]
            self._idle[tenant] = line
            self._forget_idle()

    def _least(self) -> int:
        """What was served to the one who has been served least, of those who wait."""
        return min((line.served for line in self._lines.values()), default=0)

    def _forget_idle(self) -> None:
        """Keep the half that has been served most, where there are too many.

        Who is forgotten starts with the least that those who wait have been served, which for most
        of these is what they would start with anyway.
        """
        if len(self._idle) <= MOST_IDLE:
            return
        most = sorted(self._idle, key=lambda tenant: self._idle[tenant].served)
        for tenant in most[: len(most) // 2]:
            del self._idle[tenant]

    def check_integrity(self) -> None:
        """Assert every invariant. Costs O(queue); for tests."""
        assert not self._lines.keys() & self._idle.keys()
        assert len(self._idle) <= MOST_IDLE
        assert self._returned_aside == sum(self._aside.values())
        aside = len(self._aside) - self._returned_aside
        assert sum(len(line.waiting) for line in self._lines.values()) + aside == len(self._serials)
        assert not any(item in self._back for item in self._aside)
        for tenant, line in self._lines.items():
            assert line.waiting, "an empty line is kept"
            serials = [self._serials[item] for item in line.waiting]
            assert serials == sorted(serials), "not first come, first served"
            assert all(self._tenant_of(item) == tenant for item in line.waiting)
