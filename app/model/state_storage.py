"""The memory that holds recurrent states: per layer a tensor of slots for each kind of state.

    slot   0             1 ............................ count     count
           | empty state | states of sequences, checkpoints |  spare slot  |

A slot holds one sequence's states after one position, in all recurrent layers. The engine hands out
slots 1 to ``count - 1``. The padding of a CUDA graph writes to the spare slot behind them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from app.core.cache import SLOTS_EACH, StateSlots
from app.core.errors import UnsupportedModel
from app.model.kv_storage import LayerShape, zeros

_LEAST_SLOTS = 2 + SLOTS_EACH
"""Minimum slots: the empty and the spare one, and those of one sequence."""
_WITHOUT_KEYS = 2048
"""Tokens between checkpoints of a long prompt where no layer has keys to compare their cost with:
some tens of checkpoints for the longest contexts of today's models."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """States of one sequence in one layer, as a forward pass uses them."""

    conv: tuple[int, int] | None
    """Kernel width - 1, and channels: the convolution's last inputs; None: only a scan."""
    conv_dtype: torch.dtype
    scan: tuple[int, ...] | None
    """Shape of the scan's state, always float32; None: only a convolution."""

    @property
    def nbytes(self) -> int:
        scan = 0 if self.scan is None else 4 * math.prod(self.scan)
        conv = 0 if self.conv is None else math.prod(self.conv) * self.conv_dtype.itemsize
        return conv + scan


@dataclass(frozen=True, slots=True)
class StateStorage:
    """States of all recurrent layers, by layer; further states of a layer have keys below 0."""

    slots: StateSlots
    conv: Mapping[int, Tensor]
    """[slots, K - 1, C], oldest input first; layers that have a convolution."""
    scan: Mapping[int, Tensor]
    """[slots, ...], float32; layers that have a scan."""

    @property
    def nbytes(self) -> int:
        """Memory of all states."""
        return sum([part.nbytes for part in (*self.conv.values(), *self.scan.values())])


def allocate_states(
    shapes: Mapping[int, StateShape], slots: StateSlots, device: torch.device
) -> StateStorage:
    """Zeroed storage. On the CPU the system commits pages only as they are first used."""
    count = slots.count + 1
    return StateStorage(
        slots=slots,
        conv={
            n: zeros((count, *s.conv), s.conv_dtype, device)
            for n, s in shapes.items()
            if s.conv is not None
        },
        scan={
            n: zeros((count, *s.scan), torch.float32, device)
            for n, s in shapes.items()
            if s.scan is not None
        },
    )


def slots_within(
    budget: int,
    states: Mapping[int, StateShape],
    keys: Mapping[int, LayerShape],
    block_size: int,
    running: int,
) -> StateSlots:
    """Number of state slots, of ``budget`` bytes for states and blocks of keys and values.

    First the slots of ``running`` sequences, or of as many as half of the budget holds; then a
    quarter of the rest for checkpoints, but no more than there are blocks. Blocks get the rest.

    Raises ``UnsupportedModel`` where half of the budget does not hold one sequence.
    """
    size = sum([shape.nbytes for shape in states.values()])  # of a slot
    token = sum([shape.token_bytes for shape in keys.values()])
    held = min(running * SLOTS_EACH, budget // (2 * size) - 2)
    if held < SLOTS_EACH:
        raise UnsupportedModel(
            f"kv_cache_bytes is {budget}, too little for recurrent states beside keys and values: "
            f"one sequence takes {_LEAST_SLOTS * size} bytes; set it to at least "
            f"{2 * _LEAST_SLOTS * size}"
        )
    left = budget - (held + 2) * size
    checkpoints = left // 4 // size
    if token:
        checkpoints = min(checkpoints, left // (token * block_size))
    interval = -(-size // token) if token else _WITHOUT_KEYS
    return StateSlots(
        count=1 + held + checkpoints, interval=-(-interval // block_size) * block_size
    )
