"""How many answers may be alive at once, and what a request over that bound is told."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

from app.core.errors import Draining, QueueFull

LONGEST_RETRY = 120
"""Seconds. The OpenAI SDK ignores a longer ``Retry-After``."""


class Ticket:
    """Room for the ``size`` answers of one request, until released."""

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self._size = size
        self._released = False

    def release(self) -> None:
        """Give the room back. Calling it again does nothing."""
        if not self._released:
            self._released = True
            self._admission._leave(self._size)


class Admission:
    """A bound on live answers (compiling, queued and running), and the door for shutting down.

    ``capacity`` counts answers, not requests: a request with n choices takes n places. Used on
    the event loop's thread alone.
    """

    def __init__(
        self, capacity: int, *, clock: Callable[[], float], window_seconds: float = 30.0
    ) -> None:
        self._capacity = capacity
        self._clock = clock
        self._window = window_seconds
        self._live = 0
        self._departures: deque[tuple[float, int]] = deque()
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def live(self) -> int:
        """Answers that hold a place."""
        return self._live

    @property
    def draining(self) -> bool:
        return self._draining

    def admit(self, size: int) -> Ticket:
        """Take ``size`` places, or raise ``QueueFull`` or ``Draining``."""
        if self._draining:
            raise Draining("the server is shutting down and takes no new requests", retry_after=5)
        missing = self._live + size - self._capacity
        if missing > 0:
            raise QueueFull(
                f"the queue is full: {self._live} answers are queued or running and the limit is "
                f"{self._capacity}; retry later",
                retry_after=self._retry_after(missing),
            )
        self._live += size
        self._idle.clear()
        return Ticket(self, size)

    def drain(self) -> None:
        """From now on admit nothing."""
        self._draining = True

    async def wait_idle(self) -> None:
        """Return once no answer holds a place."""
        await self._idle.wait()

    def _leave(self, size: int) -> None:
        self._live -= size
        self._departures.append((self._clock(), size))
        self._forget_old_departures()
        if self._live == 0:
            self._idle.set()

    def _retry_after(self, missing: int) -> int:
        """Seconds until ``missing`` places should be free at the recent drain rate."""
        self._forget_old_departures()
        departed = sum(size for _, size in self._departures)
        if departed == 0:
            return math.ceil(min(self._window, LONGEST_RETRY))
        span = max(self._clock() - self._departures[0][0], 1.0)
        return max(1, min(LONGEST_RETRY, math.ceil(missing * span / departed)))

    def _forget_old_departures(self) -> None:
        horizon = self._clock() - self._window
        while self._departures and self._departures[0][0] < horizon:
            self._departures.popleft()
