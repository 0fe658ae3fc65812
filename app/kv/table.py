"""The blocks of one sequence: for each group of layers an array that is appended to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.kv.prefix import Prefix

_ROOM = 16
"""Blocks that a new array has room for beyond those it begins with."""

BlockIds = NDArray[np.int32]


@dataclass(slots=True)
class Column:
    """The blocks of one group of layers, in order of positions; those before ``first`` are gone.

    A full array is replaced, never resized: existing views stay valid.
    """

    ids: BlockIds
    first: int
    """Index of the first held block. Entries before it are 0 and never read."""
    length: int

    @staticmethod
    def of(first: int, length: int) -> Column:
        """Nothing held yet; room for ``length`` blocks and some more."""
        return Column(np.zeros(length + _ROOM, dtype=np.int32), first, first)

    def append(self, block: int) -> None:
        if self.length == len(self.ids):
            self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)])
        self.ids[self.length] = block
        self.length += 1

    def pop(self) -> int:
        self.length -= 1
        return int(self.ids[self.length])

    def drop_before(self, first: int) -> list[int]:
        """Blocks ``self.first`` to ``first - 1``, which are held no more."""
        blocks: list[int] = self.ids[self.first : first].tolist()
        self.ids[self.first : first] = 0
        self.first = first
        return blocks

    @property
    def held(self) -> list[int]:
        blocks: list[int] = self.ids[self.first : self.length].tolist()
        return blocks


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence. Only the manager changes it."""

    columns: list[Column] = field(default_factory=list)
    """By group; none while the sequence waits."""
    in_use: bool = False
    """Whether the sequence runs; without attention layers there are no columns to show it."""
    covered: int = 0
    """Number of blocks that every column covers, given back or not."""
    least: int = 0
    """Minimum tokens that must stay computed: blocks before them were given back."""
    chain: list[Prefix] = field(default_factory=list)
    """The prefixes that end with the first ``len(chain)`` blocks."""
    scope: str = ""
    """Scope that its prefixes are shared in."""

    def views(self) -> tuple[BlockIds, ...]:
        """For each group, the blocks in order, as views that later changes write to: copy them
        before the table is freed or cut."""
        return tuple([column.ids[: column.length] for column in self.columns])
