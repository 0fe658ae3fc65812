"""Tasks that go on when nobody waits for them any more, turns, and work off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from app.serving.workers.fair_pool import FairPool

T = TypeVar("T")

LARGE = 1 << 15
"""Bytes of JSON from which it is processed off the event loop: it may take 10 ms."""
_large_work = ThreadPoolExecutor(1, thread_name_prefix="leapjson-large")
"""A single thread, since such work keeps taking the interpreter from the engine's thread."""
_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
"""One lock for each tenant: one call of each waits for the thread, so tenants take turns."""


async def in_thread_if_large(size: int, tenant: str, work: Callable[[], T]) -> T:
    """``work()``; on a thread if it processes ``size`` >= ``LARGE`` bytes of the tenant's JSON."""
    if size < LARGE:
        return work()
    async with _turns.setdefault(tenant, asyncio.Lock()):
        return await asyncio.get_running_loop().run_in_executor(_large_work, work)


class Tasks:
    """Background tasks, which ``close`` cancels together. Event loop's thread only."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(
        self, work: Coroutine[Any, Any, T], ended: Callable[[], object] = lambda: None
    ) -> asyncio.Task[T]:
        """Start ``work`` as a task; await it shielded. ``ended`` is called at its end."""

        def on_end(task: asyncio.Task[T]) -> None:
            self._running.discard(task)
            ended()
            if not task.cancelled():
                task.exception()  # retrieved, also when every waiting client has left

        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(on_end)
        return task

    async def close(self) -> None:
        """Cancel what still runs."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Turns:
    """Work of which ``most`` runs at a time; tenants take turns, fair in time of use.

    A turn lasts as long as its work, also if nobody waits for that any more: otherwise a client
    that disconnects and tries again would have more than its turn. Event loop's thread only.
    """

    def __init__(self, most: int = 1) -> None:
        self._free = FairPool[None]()
        for _ in range(most):
            self._free.release(None)
        self.tasks = Tasks()

    async def run(self, tenant: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._free.acquire(tenant)
        clock = asyncio.get_running_loop().time
        started = clock()

        def end() -> None:
            self._free.charge(tenant, clock() - started)
            self._free.release(None)

        return await asyncio.shield(self.tasks.start(work(), end))
