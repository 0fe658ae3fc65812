"""Cache blocks as integers: who holds them, and in what order the free ones are reused."""

from __future__ import annotations

from collections import OrderedDict


class BlockPool:
    """Reference counts of ``num_blocks`` blocks, and the free ones in order of reuse.

    A free block is either *empty* (its content is of no use) or *cached* (it still holds a prefix
    that a later sequence may share). Empty blocks are taken first, then cached ones, the least
    recently released first. Every operation costs O(1).
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError("a cache needs at least one block")
        self._references = [0] * num_blocks
        self._empty = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_blocks(self) -> int:
        return len(self._references)

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        return len(self._empty) + len(self._cached)

    def references(self, block: int) -> int:
        return self._references[block]

    def take(self) -> int:
        """A block for a new owner. Its content is lost: the caller forgets the prefix it held."""
        assert self.num_free, "take() without a free block"
        block = self._empty.pop() if self._empty else self._cached.popitem(last=False)[0]
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add an owner to a block that is held by others, or free and cached."""
        if self._references[block] == 0:
            del self._cached[block]
        self._references[block] += 1

    def release(self, block: int, *, keep: bool) -> None:
        """Drop one owner. After the last one the block is free; ``keep``: it stays cached."""
        assert self._references[block] > 0, "release() of a free block"
        self._references[block] -= 1
        if self._references[block] == 0:
            if keep:
                self._cached[block] = None
            else:
                self._empty.append(block)

    def discard(self, block: int) -> None:
        """Mark a free cached block as empty."""
        del self._cached[block]
        self._empty.append(block)
