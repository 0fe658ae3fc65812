"""Token masks kept on the device, so that a step sends row numbers instead of masks.

A constraint caches its masks and stores equal ones once, so an array that was sent before is
recognised by its identity. New masks are sent in one buffer::

    slots of the masks | masks the device has not seen
      N (as int64)                N * words                  int32
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from app.core.constraint import Mask

MASK_TABLE_BYTES = 64 << 20
"""Maximum size of the table on the device: 4,185 masks of Llama 3.2's 128,256 tokens.

The table keeps up to as much host memory alive, for masks without another owner.
"""

_MOST_SLOTS = 1 << 14
"""Maximum number of slots, which matters for small masks: each slot takes a few hundred bytes."""


class MaskTable:
    """An LRU cache of packed masks on one device. Not thread-safe.

    All work goes to the current stream, which must always be the same, so a slot is overwritten
    only after all queued steps that read it. The slots that ``place`` returns are valid for work
    queued before its next call. Nothing waits for the device: masks are sent from pinned memory,
    which torch keeps and reuses.
    """

    def __init__(self, words: int, device: torch.device, max_bytes: int = MASK_TABLE_BYTES) -> None:
        """Allocate a table of at most ``max_bytes`` for masks of ``words`` words."""
        self._words = words
        self._device = device
        self.slots = min(max_bytes // (4 * words), _MOST_SLOTS)
        """Number of masks that fit."""
        self._table = torch.empty(self.slots, words, dtype=torch.int32, device=device)
        self._kept: OrderedDict[int, tuple[Mask, int]] = OrderedDict()
        """Masks in the table and their slots by ``id`` of the mask, least recently used first.
        The reference to the mask prevents another array from getting the same id."""
        self._free = list(range(self.slots))
        """Unused slots; the last one is taken first."""
        self.nbytes = self._table.nbytes
        """Device memory of the table."""
        self.masks_sent = 0
        """Masks copied to the device since the start."""

    def place(self, masks: Sequence[Mask]) -> tuple[Tensor, list[int]]:
        """A table on the device, int32 [*, words], and for each of ``masks`` its row there.

        Valid for work queued before the next call. Only read-only arrays that own their memory are
        kept, since nothing can change them later. Others (masks narrowed by a budget) are sent
        every time, to slots that become free again. If a step has more distinct masks than there
        are slots, all masks are sent in a separate table.

        Raises ``ValueError`` if a mask has another number of words; the table stays valid.
        Cost: a look-up for each row, and one transfer of the masks that are not in the table.
        """
        wanted = {id(mask): mask for mask in masks}
        if len(wanted) > self.slots:
            table = self._upload((), masks).view(len(masks), self._words)
            return table, list(range(len(masks)))
        new: dict[int, Mask] = {}
        for key, mask in wanted.items():
            if key in self._kept:
                self._kept.move_to_end(key)
            else:
                new[key] = mask
        # The masks of this step are now the last to be evicted, and they all fit.
        while len(self._free) < len(new):
            self._free.append(self._kept.popitem(last=False)[1][1])
        taken = self._free[len(self._free) - len(new) :]
        slots = dict(zip(new, taken, strict=True))
        rows = [slots[k] if k in slots else self._kept[k][1] for k in map(id, masks)]
        if new:
            self._send(taken, list(new.values()))
        # Last, so that the slots still count as free if sending fails.
        self._keep(new, slots)
        return self._table, rows

    def _keep(self, new: dict[int, Mask], slots: dict[int, int]) -> None:
        del self._free[len(self._free) - len(new) :]
        for key, mask in new.items():
            if mask.flags.owndata and not mask.flags.writeable:
                self._kept[key] = (mask, slots[key])
            else:
                self._free.append(slots[key])

    def _send(self, slots: Sequence[int], new: Sequence[Mask]) -> None:
        """Write ``new`` to ``slots``."""
        sent = self._upload(slots, new)
        at, words = sent[: 2 * len(slots)].view(torch.int64), sent[2 * len(slots) :]
        self._table.index_copy_(0, at, words.view(len(new), self._words))

    def _upload(self, slots: Sequence[int], masks: Sequence[Mask]) -> Tensor:
        """Copy slots (as int64), followed by masks, to the device in one transfer; int32."""
        size = len(masks) * self._words
        # Pinned memory: torch reuses it only after copies from it are done.
        pinned = self._device.type == "cuda"
        host = torch.empty(2 * len(slots) + size, dtype=torch.int32, pin_memory=pinned)
        words = host.numpy()
        words[: 2 * len(slots)].view(np.int64)[:] = slots
        if masks:
            rows = words[2 * len(slots) :].view(np.uint32).reshape(len(masks), self._words)
            np.stack(masks, out=rows)
        self.masks_sent += len(masks)
        return host.to(self._device, non_blocking=True)
