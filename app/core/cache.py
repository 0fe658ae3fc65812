"""The layout of the KV cache: groups of layers, each with blocks of its own.

Layers with full attention are one group; layers with a sliding window are another, one for each
width. A sequence has a block table for each group, and a group with a window may take back the
blocks that no later token reads::

    position   0          computed - FALL_BACK - window + 1      computed
               |-- given back --|------------ read again ------------|-- to be written --|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

FALL_BACK = 16
"""Maximum computed tokens to roll back (a leap splits the answer's end again): windows keep all
blocks that are read from there."""

LEAST_SLOTS = 3
"""Minimum slots for one sequence: the empty one, the one that a step reads, and the one that it
saves to."""

SLOTS_EACH = 4
"""Maximum slots of a sequence between steps. If slots are scarce it keeps fewer, down to one, and
recomputes more after a rollback."""


class CacheGroup(Protocol):
    """Layers whose blocks are handed out together."""

    @property
    def num_blocks(self) -> int:
        """Cache blocks there are. Block ids are 0 to ``num_blocks - 1``, all usable."""

    @property
    def window(self) -> int | None:
        """A token reads keys at most ``window - 1`` positions back; None: all."""


@dataclass(frozen=True, slots=True)
class StateSlots:
    """Room for the states of layers that read a state, not keys: linear attention, Mamba, short
    convolutions. A slot holds those of all such layers after one position of one sequence."""

    count: int
    """Number of slots. Slot 0 is the empty state and never written. A quarter is left to
    checkpoints before sequences keep optional states."""
    interval: int
    """Tokens whose keys and values take as much memory as a slot; a multiple of the block size.
    Checkpoints closer together cost more than they save."""


def window_blocks(window: int, block_size: int) -> int:
    """Blocks a sequence holds at the most in a group with a window, but those of its next step.

    The window begins and ends inside a block, and blocks are given back when the next is full.
    """
    return -(-(window + FALL_BACK) // block_size) + 2
