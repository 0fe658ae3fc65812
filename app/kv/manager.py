"""Blocks of sequences: match a prefix, allocate, grow, cut back, register, give back, free.

What belongs to a sequence in one group of layers, and who may write where::

    position   0              first * size     len(chain) * size   computed      length * size
               |-- given back ------|- full, perhaps -|----- own -----|- own, to be written -|
                  (windows only)       shared or registered

A block that is registered or held by two is never written. ``chain`` names the prefixes of the
full computed blocks; every block after them has one owner and is not registered.

A model with recurrent layers can only start from a prefix with a checkpoint; one without attention
has no groups, and its prefixes have no blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.cache import FALL_BACK, CacheGroup, StateSlots, window_blocks
from app.kv.pool import BlockPool
from app.kv.prefix import NO_BLOCK, Parent, Prefix, PrefixIndex
from app.kv.states import StatePool
from app.kv.table import BlockTable, Column


@dataclass(frozen=True, slots=True)
class _Group:
    pool: BlockPool
    window: int | None
    most: int | None
    """Maximum blocks that one sequence holds; None: as many as its tokens fill."""

    def first_read(self, computed: int) -> int:
        """The first position that is read by the token that comes after ``computed``."""
        return 0 if self.window is None else max(0, computed - self.window + 1)


class BlockManager:
    """All blocks of one cache. Tokens are counted from a sequence's start."""

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        block_size: int,
        *,
        step_tokens: int = 512,
        share_prefixes: bool = True,
        states: StateSlots | None = None,
    ) -> None:
        """``step_tokens``: the most that are computed of one sequence between two ``advance``."""
        if block_size < 1:
            raise ValueError("a block must hold at least one token")
        if not groups and states is None:
            raise ValueError("a cache needs blocks, state slots, or both")
        if states is not None and (states.interval < 1 or states.interval % block_size):
            raise ValueError("the checkpoint interval must be a multiple of the block size")
        self.block_size = block_size
        self.share_prefixes = share_prefixes
        self._prefixes = PrefixIndex(len(groups))
        self.states = None if states is None else StatePool(states, self._prefixes)
        self._groups: list[_Group] = []
        for group in groups:
            most = None
            if group.window is not None:
                most = window_blocks(group.window, block_size) + self.blocks_for(step_tokens)
            self._groups.append(_Group(BlockPool(group.num_blocks), group.window, most))
        self._windowed = [(i, each) for i, each in enumerate(self._groups) if each.window]

    @property
    def usage(self) -> float:
        """Share of the blocks held by sequences in the group that is fullest, 0 to 1.

        Without attention layers, the share of state slots.
        """
        if not self._groups:
            return 0.0 if self.states is None else self.states.usage
        return max([1.0 - g.pool.num_free / g.pool.num_blocks for g in self._groups])

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def longest(self, limit: int) -> int:
        """Tokens that one sequence may have if it has the cache for itself; ``limit`` at most."""
        for group in self._groups:
            if group.most is None or group.most > group.pool.num_blocks:
                limit = min(limit, group.pool.num_blocks * self.block_size)
        return limit

    def match(self, tokens: Sequence[int], scope: str = "") -> list[Prefix]:
        """The longest prefix of ``tokens`` cached in ``scope`` that leaves one token to compute.

        A prefix is cached if every group has the blocks of it that the next token reads, and there
        is a checkpoint if the model has states. Returns the prefixes that end with each of its
        blocks. Changes nothing; valid until the next change to any table. Costs O(known tokens).
        """
        return self._match(tokens, scope, checkpoint=self.states is not None)

    def cached(self, tokens: Sequence[int], scope: str = "") -> int:
        """Tokens that ``match`` would find if there were a checkpoint of every prefix."""
        return len(self._match(tokens, scope, checkpoint=False)) * self.block_size

    def _match(self, tokens: Sequence[int], scope: str, *, checkpoint: bool) -> list[Prefix]:
        found: list[Prefix] = []
        if not self.share_prefixes:
            return found
        size = self.block_size
        # For each group, the start of the contiguous cached blocks that end with the last one.
        runs = [0] * len(self._groups)
        unbroken, usable = True, 0
        parent: Parent = scope
        for start in range(0, (len(tokens) - 1) // size * size, size):
            prefix = self._prefixes.find(parent, tokens[start : start + size])
            if prefix is None:
                break
            found.append(prefix)
            parent = prefix
            if NO_BLOCK in prefix.blocks:
                unbroken = False
                for i, block in enumerate(prefix.blocks):
                    runs[i] = len(found) if block == NO_BLOCK else runs[i]
            if checkpoint and not prefix.checkpoint:
                continue
            pairs = zip(runs, self._groups, strict=True)  # the next token must only read these
            if unbroken or all(run * size <= each.first_read(start + size) for run, each in pairs):
                usable = len(found)
        return found[:usable]

    def needed(self, num_tokens: int, prefix: Sequence[Prefix] = ()) -> list[int]:
        """Free blocks that ``allocate`` would take, by group; those of ``prefix`` are included.

        Costs O(matched blocks).
        """
        needed: list[int] = []
        for i, group in enumerate(self._groups):
            first = group.first_read(len(prefix) * self.block_size) // self.block_size
            references = group.pool.references
            held = sum([references(each.blocks[i]) > 0 for each in prefix[first:]])
            needed.append(self._length(group, first, num_tokens) - first - held)
        return needed

    def has_free(self, blocks: Sequence[int], beside: int = 0) -> bool:
        """Whether so many blocks are free by group, and ``beside`` more in each."""
        pairs = zip(blocks, self._groups, strict=True)
        return all(count + beside <= group.pool.num_free for count, group in pairs)

    def allocate(
        self, num_tokens: int, prefix: Sequence[Prefix] = (), scope: str = ""
    ) -> BlockTable:
        """A table for ``num_tokens`` that shares ``prefix``, fresh from ``match`` in ``scope``.

        In a group with a window it covers what a sequence ever holds at a time; ``grow`` adds the
        rest as blocks are given back.
        """
        assert self.has_free(self.needed(num_tokens, prefix))
        table = BlockTable(in_use=True, chain=list(prefix), scope=scope)
        if prefix:
            self._prefixes.hold(prefix[-1])
        for i, group in enumerate(self._groups):
            first = group.first_read(len(prefix) * self.block_size) // self.block_size
            length = self._length(group, first, num_tokens)
            column = Column.of(first, length)
            for each in prefix[first:]:
                group.pool.share(each.blocks[i])
                column.append(each.blocks[i])
            table.columns.append(column)
            self._mark_given_back(table, group, first)
            self._extend(i, column, length)
        lengths = [column.length for column in table.columns]
        table.covered = min(lengths, default=self.blocks_for(num_tokens))
        return table

    def can_grow(self, table: BlockTable, num_tokens: int) -> bool:
        needed = self.blocks_for(num_tokens)
        pairs = zip(table.columns, self._groups, strict=True)
        return all(needed - column.length <= group.pool.num_free for column, group in pairs)

    def grow(self, table: BlockTable, num_tokens: int) -> None:
        """Add blocks until the table covers ``num_tokens``."""
        length = self.blocks_for(num_tokens)
        for i, column in enumerate(table.columns):
            self._extend(i, column, length)
        table.covered = max(table.covered, length)

    def truncate(self, table: BlockTable, num_tokens: int) -> int:
        """Cut the table back to ``num_tokens`` computed tokens; the rest will be rewritten.

        Returns how many computed tokens are left: if the cut falls inside a shared block, that
        block is released and its tokens are computed again in a new one. If fewer than
        ``table.least`` are left, the table is unusable and has to be freed.
        """
        whole, inside = divmod(num_tokens, self.block_size)
        was_full = whole < len(table.chain)
        self._cut(table, self.blocks_for(num_tokens))
        self._cut_chain(table, whole)
        if not inside or not was_full:
            return num_tokens
        cut = [
            (i, group.pool.references(int(column.ids[whole])), int(column.ids[whole]))
            for i, (column, group) in enumerate(zip(table.columns, self._groups, strict=True))
            if column.first <= whole < column.length
        ]
        if any(references > 1 for _, references, _ in cut):
            self._cut(table, whole)
            return whole * self.block_size
        for i, _, block in cut:
            self._forget(i, block)
        return num_tokens

    def advance(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Make the full blocks among the first ``computed`` tokens known to later sequences, and
        give back those that are out of every later token's window."""
        if self.share_prefixes:
            self._register(table, tokens, computed)
        for i, group in self._windowed:
            column = table.columns[i]
            first = group.first_read(computed - FALL_BACK) // self.block_size
            if first > column.first:
                for block in column.drop_before(first):
                    self._release(i, block)
                self._mark_given_back(table, group, first)

    def free(self, table: BlockTable) -> None:
        """Give all blocks back, the last one first, so that it is the first to be reused."""
        self._cut(table, 0)
        self._cut_chain(table, 0)
        table.columns.clear()
        table.in_use = False
        table.least = 0

    def _length(self, group: _Group, first: int, num_tokens: int) -> int:
        """Length of a new table, which holds the blocks from ``first`` on."""
        length = self.blocks_for(num_tokens)
        return length if group.most is None else min(length, first + group.most)

    def _extend(self, index: int, column: Column, length: int) -> None:
        """Add empty blocks until there are ``length``."""
        pool = self._groups[index].pool
        while column.length < length:
            block = pool.take()
            self._forget(index, block)
            column.append(block)

    def _cut(self, table: BlockTable, length: int) -> None:
        """Keep ``length`` blocks at most."""
        for i, column in enumerate(table.columns):
            while column.length > max(length, column.first):
                self._release(i, column.pop())
        table.covered = min(table.covered, length)

    def _cut_chain(self, table: BlockTable, length: int) -> None:
        chain = table.chain
        if length < len(chain):
            if length:
                self._prefixes.hold(chain[length - 1])
            self._prefixes.release(chain[-1])
            del chain[length:]

    def _register(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        size, chain, prefixes = self.block_size, table.chain, self._prefixes
        known = len(chain)
        for index in range(known, computed // size):
            parent: Parent = chain[-1] if chain else table.scope
            prefix = prefixes.extend(parent, tokens[index * size : (index + 1) * size])
            for i, column in enumerate(table.columns):
                prefixes.register(prefix, i, int(column.ids[index]))
            chain.append(prefix)
        if len(chain) > known:
            prefixes.hold(chain[-1])
            if known:
                prefixes.release(chain[known - 1])

    def _forget(self, group: int, block: int) -> None:
        """Forget the prefix of a block that is about to be overwritten."""
        prefix = self._prefixes.forget(group, block)
        if prefix is not None and prefix.checkpoint and self.states is not None:
            self.states.forget(prefix)  # nobody can go on from there

    def _mark_given_back(self, table: BlockTable, group: _Group, first: int) -> None:
        """Note that ``group`` holds nothing before block ``first``."""
        if first and group.window is not None:
            table.least = max(table.least, first * self.block_size + group.window - 1)

    def _release(self, group: int, block: int) -> None:
        self._groups[group].pool.release(block, keep=self._prefixes.is_registered(group, block))
