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

    An array that has no more room is replaced and never resized: who was given a view of it keeps
    what it saw.
    """

    ids: BlockIds
    first: int
    """The first block that is held. Entries before it are 0: any block, since nobody reads it."""
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
    """Whether the sequence runs; a model without attention has no columns to tell it."""
    covered: int = 0
    """Blocks that every column has, given back or not."""
    least: int = 0
    """Tokens that have to stay computed: what earlier ones would read was given back."""
    chain: list[Prefix] = field(default_factory=list)
    """The prefixes that end with the first ``len(chain)`` blocks."""
    scope: str = ""
    """What its prefixes are shared within."""

    def views(self) -> tuple[BlockIds, ...]:
        """By group, the blocks in order. They lie where later changes are written: copy them before
        the table is given back or cut."""
        return tuple([column.ids[: column.length] for column in self.columns])
