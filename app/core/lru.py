"""A least-recently-used cache, bounded by the bytes and the number of its values."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """The most recently used values, with limits on their bytes and number. No locks."""

    def __init__(
        self, max_bytes: int, size_of: Callable[[V], int], *, most: int | None = None
    ) -> None:
        """``size_of``: bytes of a value, which must not change. ``most`` None: any number."""
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._most = sys.maxsize if most is None else most
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
