"""Index of the prefixes in full blocks: a chain from parent prefix and token ids to blocks.

A prefix is found by ``(the prefix before it, its last token ids)``. The dictionary compares the
token ids themselves, and a prefix stands for exactly one sequence of tokens: no collision of hashes
can hand one request's keys and values to another. Each group of layers may have a block for it.

A prefix is known for as long as a group has a block for it, another prefix continues it, a sequence
has computed it, or there is a checkpoint of it (the states of recurrent layers after its tokens).
In a group with full attention sequences release their last blocks first, so that children are
evicted before their parents; a group with a window only needs the last blocks.

The parent of a first block is its scope, so prefixes of different scopes are never shared.
"""

from __future__ import annotations

from collections.abc import Sequence

NO_BLOCK = -1


class Prefix:
    """Known tokens from a sequence's start, as many as fill a number of blocks."""

    __slots__ = ("blocks", "checkpoint", "holders", "key")

    def __init__(self, key: tuple[Parent, tuple[int, ...]], num_groups: int) -> None:
        self.key = key
        """Its parent, and the tokens of its last block."""
        self.blocks = [NO_BLOCK] * num_groups
        """By group, the block that holds its last tokens."""
        self.checkpoint = 0
        """The slot with the states after its last token; 0: there is none."""
        self.holders = 0
        """Number of blocks, longer prefixes, sequences and checkpoints that refer to it."""


Parent = Prefix | str
"""Parent of a block: the prefix before it, or the scope if it is the first."""


class PrefixIndex:
    """The known prefixes, and the registered blocks of each group.

    Every operation costs O(block size), but what makes a long prefix unknown.
    """

    def __init__(self, num_groups: int = 1) -> None:
        self._found: dict[tuple[Parent, tuple[int, ...]], Prefix] = {}
        self._registered: tuple[dict[int, Prefix], ...] = tuple([{} for _ in range(num_groups)])
        """By group and block, the prefix that ends with it."""

    def is_registered(self, group: int, block: int) -> bool:
        return block in self._registered[group]

    def find(self, parent: Parent, tokens: Sequence[int]) -> Prefix | None:
        """The prefix that continues ``parent`` with exactly ``tokens``."""
        return self._found.get((parent, tuple(tokens)))

    def extend(self, parent: Parent, tokens: Sequence[int]) -> Prefix:
        """Find or add that prefix; the caller then holds or registers it."""
        key = (parent, tuple(tokens))
        prefix = self._found.get(key)
        if prefix is None:
            prefix = self._found[key] = Prefix(key, len(self._registered))
            if isinstance(parent, Prefix):
                parent.holders += 1
        return prefix

    def register(self, prefix: Prefix, group: int, block: int) -> None:
        """Make a computed block known.

        Where another block already holds that prefix it stays the known one, and ``block`` stays
        private to its owner.
        """
        registered = self._registered[group]
        assert block not in registered, "a block holds one prefix"
        if prefix.blocks[group] == NO_BLOCK:
            prefix.blocks[group] = block
            prefix.holders += 1
            registered[block] = prefix

    def forget(self, group: int, block: int) -> Prefix | None:
        """Forget the prefix of a block that is about to be overwritten; returns it, or None."""
        prefix = self._registered[group].pop(block, None)
        if prefix is not None:
            prefix.blocks[group] = NO_BLOCK
            self.release(prefix)
        return prefix

    def hold(self, prefix: Prefix) -> None:
        """Keep a prefix known until it is released."""
        prefix.holders += 1

    def release(self, prefix: Prefix) -> None:
        parent: Parent = prefix
        while isinstance(parent, Prefix):
            parent.holders -= 1
            if parent.holders:
                break
            del self._found[parent.key]
            parent = parent.key[0]
