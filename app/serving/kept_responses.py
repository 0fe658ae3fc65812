"""Responses that are kept, so that later requests can go on from them."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from app.core.errors import StoreUnavailable
from app.store.rows import RESPONSE
from app.store.store import Store

logger = logging.getLogger(__name__)

_OVERHEAD = 1024
"""Bytes that an entry takes besides its two texts."""


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response that has ended, with what it answered."""

    id: str
    previous: str | None
    """Id of the response that this one continues."""
    response: bytes
    """The response object as JSON."""
    items: bytes
    """The items of its own input as JSON, each with an id."""

    @property
    def nbytes(self) -> int:
        return len(self.response) + len(self.items) + _OVERHEAD


class StoredResponses:
    """Responses in the store, for all servers that share it. An ``owner`` (an API key, or ""
    without any) sees its own alone."""

    def __init__(self, store: Store, *, max_bytes: int, max_seconds: float) -> None:
        """``max_bytes``: limit of each owner, whose least recently used responses are evicted."""
        self._store = store
        self._max_bytes = max_bytes
        self._seconds = int(max_seconds)

    async def keep(self, owner: str, kept: KeptResponse) -> None:
        """Keep a response, unless it is too large. Errors of the store are only logged."""
        if kept.nbytes > self._max_bytes:
            return
        body = json.dumps([kept.previous, kept.response.decode(), kept.items.decode()]).encode()
        size, keep = kept.nbytes, self._store.state.keep
        try:
            await self._store.run(keep, RESPONSE, owner, kept.id, body, size, self._max_bytes)
        except StoreUnavailable as error:
            logger.warning("a response was not stored: %s", error)

    async def find(self, owner: str, response_id: str) -> KeptResponse | None:
        """None where there is none, or no longer. Counts as a use. Raises ``StoreUnavailable``."""
        find, seconds = self._store.state.find_kept, self._seconds
        body = await self._store.run(find, RESPONSE, response_id, owner=owner, seconds=seconds)
        if body is None:
            return None
        previous, response, items = json.loads(body)
        return KeptResponse(response_id, previous, response.encode(), items.encode())

    async def delete(self, owner: str, response_id: str) -> bool:
        """Whether there was one. Raises ``StoreUnavailable``."""
        return await self._store.run(self._store.state.delete_kept, RESPONSE, owner, response_id)


class MemoryResponses:
    """Responses in memory, bounded by bytes and by the time since each was last used.

    Without room, the owner that holds the most loses its least recently used response.
    Cost: O(owners) for each call. Event loop's thread only.
    """

    def __init__(self, *, max_bytes: int, max_seconds: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._clock = clock
        self._owners: dict[str, OrderedDict[str, tuple[KeptResponse, float]]] = {}
        """Responses of each owner and the times of their last use, in that order."""
        self._held: dict[str, int] = {}
        """Bytes, by owner."""

    @property
    def nbytes(self) -> int:
        return sum(self._held.values())

    async def keep(self, owner: str, kept: KeptResponse) -> None:
        if kept.nbytes > self._max_bytes:
            return
        self._forget_old()
        self._owners.setdefault(owner, OrderedDict())[kept.id] = kept, self._clock()
        self._held[owner] = self._held.get(owner, 0) + kept.nbytes
        while self.nbytes > self._max_bytes:
            largest = max(self._held, key=self._held.__getitem__)
            self._drop(largest, next(iter(self._owners[largest])))

    async def find(self, owner: str, response_id: str) -> KeptResponse | None:
        self._forget_old()
        owned = self._owners.get(owner)
        if owned is None or response_id not in owned:
            return None
        kept, _ = owned.pop(response_id)
        owned[response_id] = kept, self._clock()
        return kept

    async def delete(self, owner: str, response_id: str) -> bool:
        self._forget_old()
        known = response_id in self._owners.get(owner, {})
        if known:
            self._drop(owner, response_id)
        return known

    def _forget_old(self) -> None:
        oldest = self._clock() - self._max_seconds
        for owner in list(self._owners):
            while owner in self._owners:
                response_id, (_, used) = next(iter(self._owners[owner].items()))
                if used >= oldest:
                    break
                self._drop(owner, response_id)

    def _drop(self, owner: str, response_id: str) -> None:
        kept, _ = self._owners[owner].pop(response_id)
        self._held[owner] -= kept.nbytes
        if not self._owners[owner]:
            del self._owners[owner], self._held[owner]


ResponseStore = StoredResponses | MemoryResponses
