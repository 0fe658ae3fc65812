"""The time that one request may take, from its arrival to its last token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.core.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a request has to be answered, of the running event loop's clock."""

    moment: float
    seconds: float
    """From the request's arrival."""
    asked: bool
    """Whether the client set it; else it is the server's own."""

    @property
    def left(self) -> float:
        """Seconds."""
        return self.moment - asyncio.get_running_loop().time()

    def exceeded(self, what: str) -> DeadlineExceeded:
        """The error of a request whose time has passed; ``what`` says how far it got."""
        whose = "its timeout" if self.asked else "the most that a request may take here"
        return DeadlineExceeded(f"{what} within {self.seconds:g} s, {whose}")

    @asynccontextmanager
    async def holds(self, what: str) -> AsyncIterator[None]:
        """Cancels what is done inside when the time has passed, and raises ``DeadlineExceeded``.

        If it has passed already nothing is begun.
        """
        if self.left <= 0:
            raise self.exceeded(what)
        limit = asyncio.timeout_at(self.moment)
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise self.exceeded(what) from None
            raise
