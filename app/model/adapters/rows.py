"""Whose the rows of a step are, as the CPU's products want to know it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from app.model.inputs import Ints

AdapterRows = Sequence[tuple[int, slice | Tensor]]
"""Slots in a step, each with the rows of its tokens."""


def adapter_rows(slots: Ints | None) -> AdapterRows:
    """``slots`` [T] is that of each token, 0 for the base model; None: all are."""
    if slots is None:
        return ()
    found: list[tuple[int, slice | Tensor]] = []
    for slot in np.unique(slots[slots > 0]).tolist():
        rows = np.flatnonzero(slots == slot)
        first, end = int(rows[0]), int(rows[-1]) + 1
        together = end - first == len(rows)
        found.append((slot, slice(first, end) if together else torch.from_numpy(rows)))
    return found
