"""Which full block holds which prefix: a chain from parent prefix and token ids to block.

A prefix is named by a serial number that is never given twice, so a block is found by
``(serial of the prefix before it, its token ids)``. The dictionary compares the token ids
themselves, and a serial stands for exactly one sequence of tokens: no collision of hashes can hand
one request's keys and values to another. When a block is evicted, its serial dies with it and the
blocks that continue it can no longer be reached; sequences release their last blocks first, so that
children are evicted before their parents.

The first block of a prefix continues a scope instead: prefixes of different scopes never meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Parent = int | str
"""Serial of the prefix that a block continues, or the scope that it begins in."""


@dataclass(frozen=True, slots=True)
class CachedBlock:
    """A full block whose keys and values are those of a known prefix."""

    block: int
    serial: int
    """Names the prefix that ends with this block."""


class PrefixIndex:
    """The registered blocks. Every operation costs O(block size)."""

    def __init__(self) -> None:
        self._found: dict[tuple[Parent, tuple[int, ...]], CachedBlock] = {}
        self._keys: dict[int, tuple[Parent, tuple[int, ...]]] = {}
        self._last_serial = 0

    def __contains__(self, block: int) -> bool:
        return block in self._keys

    def find(self, parent: Parent, tokens: Sequence[int]) -> CachedBlock | None:
        """The block that continues ``parent`` with exactly ``tokens``."""
        return self._found.get((parent, tuple(tokens)))

    def register(self, parent: Parent, tokens: Sequence[int], block: int) -> int:
        """Make a computed block known; the serial of the prefix that ends with it.

        Where another block already holds that prefix it stays the known one, and ``block`` stays
        private to its owner.
        """
        assert block not in self._keys, "a block holds one prefix"
        key = (parent, tuple(tokens))
        found = self._found.get(key)
        if found is None:
            self._last_serial += 1
            found = CachedBlock(block, self._last_serial)
            self._found[key] = found
            self._keys[block] = key
        return found.serial

    def forget(self, block: int) -> None:
        """The block is about to be overwritten. Nothing happens if it was not registered."""
        key = self._keys.pop(block, None)
        if key is not None:
            del self._found[key]

    def check_integrity(self) -> None:
        """Assert that the two tables are inverse to each other. For tests."""
        assert len(self._found) == len(self._keys)
        for block, key in self._keys.items():
            assert self._found[key].block == block
        serials = [cached.serial for cached in self._found.values()]
        assert len(set(serials)) == len(serials)
