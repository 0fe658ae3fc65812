"""Bytes of the request bodies that are being read, all together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from fractions import Fraction

from app.core.errors import QueueFull
from app.core.events import RequestObserver
from app.serving.admission.tenant_quota import SharedRoom

RETRY_SECONDS = 1
"""A body is read and checked in less, unless its client is slow."""


class BodyRoom:
    """A bound on these bytes, shared between tenants as places in the queue are.

    What is announced takes no room, only what has come: to hold the room of others a client has
    to send as much. Used on the event loop's thread alone.
    """

    def __init__(self, max_bytes: int, *, tenant_share: float, observer: RequestObserver) -> None:
        """``max_bytes``: what one tenant alone may take, see ``SharedRoom``."""
        self._room = SharedRoom(max_bytes, Fraction(tenant_share).limit_denominator(1000))
        self._observer = observer

    @property
    def used(self) -> int:
        """Bytes that are held."""
        return self._room.used

    @contextlib.contextmanager
    def reading(self, tenant: str) -> Iterator[Callable[[int], None]]:
        """Gives what is to be called with the size of each part of one body, before it is kept.

        It raises ``QueueFull`` where there is no room for the part. On the way out all of them
        are given back.
        """
        held = 0

        def keep(size: int) -> None:
            nonlocal held
            if self._room.missing(tenant, size) > 0:
                error = QueueFull(
                    f"the bodies of requests that are being read have {self.used} bytes together "
                    f"and the limit is {self._room.alone}; retry later",
                    retry_after=RETRY_SECONDS,
                    code="bodies_full",
                )
                self._observer.observe_rejection(error.code)
                raise error
            self._room.take(tenant, size)
            held += size

        try:
            yield keep
        finally:
            self._room.give(tenant, held)
