"""Things lent to one at a time, to tenants in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.engine.fair_queue import FairQueue

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Borrower(Generic[T]):
    tenant: str
    lent: asyncio.Future[T]


class Lending(Generic[T]):
    """A few things and a queue for them that is fair between tenants, in time of use.

    Used on the event loop's thread alone. Memory: that of who waits.
    """

    def __init__(self) -> None:
        self._free: deque[T] = deque()
        self._queue: FairQueue[_Borrower[T]] = FairQueue(lambda borrower: borrower.tenant)

    async def borrow(self, tenant: str) -> T:
        """One of the things, as soon as there is one and it is this tenant's turn."""
        if self._free:
            return self._free.popleft()
        lent: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        borrower = _Borrower(tenant, lent)
        self._queue.push(borrower)
        try:
            return await lent
        except asyncio.CancelledError:
            if borrower in self._queue:
                self._queue.remove(borrower)
            elif not lent.cancelled():
                self.give(lent.result())
            raise

    def charge(self, tenant: str, seconds: float) -> None:
        """Count so much use; whoever has used less of late goes first."""
        self._queue.charge(tenant, round(1000 * seconds))

    def give(self, thing: T) -> None:
        """Put it there, or back: whose turn it is gets it."""
        while (borrower := self._queue.next()) is not None:
            self._queue.take(borrower)
            if not borrower.lent.done():
                borrower.lent.set_result(thing)
                return
        self._free.append(thing)
