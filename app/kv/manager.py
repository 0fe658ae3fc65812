"""Blocks of sequences: match a prefix, allocate, grow, cut back, register, free.

What belongs to a sequence, and who may write where::

    position      0                  len(chain) * block_size     computed       len(blocks) * size
                  |- full, perhaps shared or registered -|---- own ----|- own, to be written -|

A block that is registered or held by two is never written. ``chain`` names the prefixes of the
full computed blocks; every block after them has one owner and is not registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.kv.pool import BlockPool
from app.kv.prefix import CachedBlock, Parent, PrefixIndex


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence, in order. Only the manager changes it."""

    blocks: list[int] = field(default_factory=list)
    chain: list[int] = field(default_factory=list)
    """Serials of the prefixes that end with the first ``len(chain)`` blocks."""
    scope: str = ""
    """What its prefixes are shared within."""


class BlockManager:
    """All blocks of one cache. Tokens are counted from a sequence's start."""

    def __init__(self, num_blocks: int, block_size: int, *, share_prefixes: bool = True) -> None:
        if block_size < 1:
            raise ValueError("a block holds at least one token")
        self.block_size = block_size
        self.share_prefixes = share_prefixes
        self._pool = BlockPool(num_blocks)
        self._prefixes = PrefixIndex()

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    @property
    def usage(self) -> float:
        """Share of the blocks held by sequences, 0 to 1."""
        return 1.0 - self._pool.num_free / self._pool.num_blocks

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def match(self, tokens: Sequence[int], scope: str = "") -> list[CachedBlock]:
        """The longest prefix of ``tokens`` cached in ``scope`` that leaves one token to compute.

        Changes nothing; valid until the next change to any table. Costs O(matched tokens).
        """
        found: list[CachedBlock] = []
        if not self.share_prefixes:
            return found
        size = self.block_size
        parent: Parent = scope
        for start in range(0, (len(tokens) - 1) // size * size, size):
            cached = self._prefixes.find(parent, tokens[start : start + size])
            if cached is None:
                break
            found.append(cached)
            parent = cached.serial
        return found

    def needed(self, num_tokens: int, prefix: Sequence[CachedBlock] = ()) -> int:
        """Free blocks that ``allocate`` would take: new ones, and those of ``prefix``.

        Costs O(matched blocks).
        """
        held = sum(self._pool.references(cached.block) > 0 for cached in prefix)
        return self.blocks_for(num_tokens) - held

    def allocate(
        self, num_tokens: int, prefix: Sequence[CachedBlock] = (), scope: str = ""
    ) -> BlockTable:
        """A table for ``num_tokens`` that shares ``prefix``, fresh from ``match`` in ``scope``."""
        assert self.needed(num_tokens, prefix) <= self.num_free
        table = BlockTable(scope=scope)
        for cached in prefix:
            self._pool.share(cached.block)
            table.blocks.append(cached.block)
            table.chain.append(cached.serial)
        self.grow(table, num_tokens)
        return table

    def can_grow(self, table: BlockTable, num_tokens: int) -> bool:
        return self.blocks_for(num_tokens) - len(table.blocks) <= self._pool.num_free

    def grow(self, table: BlockTable, num_tokens: int) -> None:
        """Add blocks until the table covers ``num_tokens``."""
        for _ in range(self.blocks_for(num_tokens) - len(table.blocks)):
            block = self._pool.take()
            self._prefixes.forget(block)
            table.blocks.append(block)

    def truncate(self, table: BlockTable, num_tokens: int) -> int:
        """Keep only what the first ``num_tokens`` tokens computed; the rest will be rewritten.

        Returns how many computed tokens are left: where the cut falls inside a block that another
        sequence shares, that block is let go and its tokens are computed again in a fresh one.
        """
        whole, inside = divmod(num_tokens, self.block_size)
        was_full = whole < len(table.chain)
        for _ in range(len(table.blocks) - self.blocks_for(num_tokens)):
            self._release(table.blocks.pop())
        del table.chain[whole:]
        if not inside or not was_full:
            return num_tokens
        if self._pool.references(table.blocks[whole]) > 1:
            self._release(table.blocks.pop())
            return whole * self.block_size
        self._prefixes.forget(table.blocks[whole])
        return num_tokens

    def register(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Make the full blocks among the first ``computed`` tokens known to later sequences."""
        if not self.share_prefixes:
            return
        size, chain = self.block_size, table.chain
        while (len(chain) + 1) * size <= computed:
            index = len(chain)
            parent = chain[-1] if chain else table.scope
            own = tokens[index * size : (index + 1) * size]
            chain.append(self._prefixes.register(parent, own, table.blocks[index]))

    def free(self, table: BlockTable) -> None:
        """Give all blocks back, the last one first, so that it is the first to be reused."""
        while table.blocks:
            self._release(table.blocks.pop())
        table.chain.clear()

    def _release(self, block: int) -> None:
        self._pool.release(block, keep=block in self._prefixes)

    def check_integrity(self, tables: Iterable[BlockTable]) -> None:
        """Assert every invariant, given all live tables. Costs O(blocks); for tests."""
        self._pool.check_integrity()
        self._prefixes.check_integrity()
        held = [0] * self.num_blocks
        for table in tables:
            assert len(table.chain) <= len(table.blocks)
            assert len(set(table.blocks)) == len(table.blocks), "a block twice in one table"
            for index, block in enumerate(table.blocks):
                held[block] += 1
                if index >= len(table.chain):
                    assert self._pool.references(block) == 1, "a shared block would be written"
                    assert block not in self._prefixes, "a registered block would be written"
        for block, references in enumerate(held):
            assert self._pool.references(block) == references, "a reference is lost or invented"
        for block in self._pool.cached:
            assert block in self._prefixes, "a block is kept for a prefix that nobody can find"
