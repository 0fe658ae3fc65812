"""A pool whose resources are acquired by tenants in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.engine.fair_queue import FairQueue

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter(Generic[T]):
    tenant: str
    level: int
    acquired: asyncio.Future[T]


class FairPool(Generic[T]):
    """Resources, each used by one tenant at a time; the queue for them is fair in time of use.

    Used on the event loop's thread alone. Memory: O(free resources + waiters).
    """

    def __init__(self) -> None:
        self._free: deque[T] = deque()
        self._queue: FairQueue[_Waiter[T]] = FairQueue(
            lambda waiter: waiter.tenant, lambda waiter: waiter.level
        )

    async def acquire(self, tenant: str, level: int = 0) -> T:
        """Wait for a resource; higher levels go first, and within one the tenants take turns."""
        if self._free:
            return self._free.popleft()
        waiter: _Waiter[T] = _Waiter(tenant, level, asyncio.get_running_loop().create_future())
        self._queue.push(waiter)
        try:
            return await waiter.acquired
        except asyncio.CancelledError:
            if waiter in self._queue:
                self._queue.remove(waiter)
            elif not waiter.acquired.cancelled():
                self.release(waiter.acquired.result())
            raise

    def release(self, resource: T) -> None:
        """Add or give back a resource; the next waiter gets it."""
        while (waiter := self._queue.next()) is not None:
            self._queue.take(waiter)
            if not waiter.acquired.done():
                waiter.acquired.set_result(resource)
                return
        self._free.append(resource)

    def charge(self, tenant: str, seconds: float, level: int = 0) -> None:
        """Record ``seconds`` of use; tenants with less recent use go first."""
        self._queue.charge(tenant, round(1000 * seconds), level)
