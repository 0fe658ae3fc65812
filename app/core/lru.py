"""Least-recently-used caches, bounded by the bytes and the number of their values."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MEASURED = 16
"""Values of each kind that an addition measures: the last used ones, and others in turn. A compiled
constraint takes up to 0.1 ms."""


class Lru(Generic[K, V]):
    """The most recently used values, with limits on their bytes and number. No locks."""

    def __init__(
        self, max_bytes: int, size_of: Callable[[V], int], *, most: int = sys.maxsize
    ) -> None:
        """``size_of``: bytes of a value, which must not change; ``most``: number of values."""
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value under ``key``, which counts as its use. Costs a lookup."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def keep(self, key: K, value: V) -> None:
        """Add ``value`` as the most recently used one; if it exceeds the limit alone, it is not
        kept and evicts nothing."""
        size = self._size_of(value)
        if (known := self._values.pop(key, None)) is not None:
            self.nbytes -= self._size_of(known)
        if size > self._max_bytes:
            return
        self._values[key] = value
        self.nbytes += size
        while self.nbytes > self._max_bytes or len(self._values) > self._most:
            _, oldest = self._values.popitem(last=False)
            self.nbytes -= self._size_of(oldest)


class GrowingLru(Generic[K, V]):
    """As ``Lru``, for values that grow while they are used.

    A value is measured when it is added and whenever it is asked for; each addition measures some
    of the others, too. One that has outgrown the whole cache is dropped when it is asked for.
    """

    def __init__(
        self, max_bytes: int, size_of: Callable[[V], int], *, most: int = sys.maxsize
    ) -> None:
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        """As last measured."""
        self._turns: deque[K] = deque()
        """Keys of values to measure next; some may have been evicted."""
        self.nbytes = 0
        """As last measured."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> Iterable[V]:
        return self._values.values()

    def get(self, key: K) -> V | None:
        """The value under ``key``, which counts as its use."""
        if key not in self._values:
            return None
        self._measure(key)
        if self._sizes[key] > self._max_bytes:
            self._drop(key)
            return None
        self._values.move_to_end(key)
        self._evict(keep=key)
        return self._values[key]

    def add(self, key: K, value: V) -> None:
        """Add ``value`` as the most recently used one; it stays even if it exceeds the limit."""
        self._values[key] = value
        for each in [*islice(reversed(self._values), 1 + _MEASURED)]:
            self._measure(each)
        for _ in range(min(_MEASURED, len(self._values))):
            if not self._turns:
                self._turns.extend(self._values)
            if (each := self._turns.popleft()) in self._values:
                self._measure(each)
        self._evict(keep=key)

    def _measure(self, key: K) -> None:
        size = self._size_of(self._values[key])
        self.nbytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def _evict(self, *, keep: K) -> None:
        """Drop values until the limits hold; ``keep`` stays in any case.

        Values that exceed the limit alone go first, as all others would not make room for them;
        then the least recently used.
        """
        if self.nbytes <= self._max_bytes and len(self._values) <= self._most:
            return
        outgrown = [key for key, size in self._sizes.items() if size > self._max_bytes]
        for key in [*outgrown, *self._values]:
            if self.nbytes <= self._max_bytes and len(self._values) <= self._most:
                break
            if key != keep and key in self._values:
                self._drop(key)

    def _drop(self, key: K) -> None:
        del self._values[key]
        self.nbytes -= self._sizes.pop(key)
        self.evictions += 1
