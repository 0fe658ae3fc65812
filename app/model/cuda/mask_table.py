"""Token masks kept on the device, so that a step sends row numbers instead of masks.

A constraint memoises its masks and keeps equal ones once, so an array that was sent before is
known by its identity. What is new is sent in one buffer::

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
"""Bound of the table on the device: 4,185 masks of Llama 3.2's 128,256 tokens.

As much host memory is kept from being freed while the masks in the table have no other owner.
"""

_MOST_SLOTS = 1 << 14
"""Bound on the bookkeeping where masks are small: a few hundred bytes for each slot."""


class MaskTable:
    """Packed masks on one device, the least recently used evicted first. One thread at a time.

    All work goes to the current stream, always the same one, so a slot is overwritten only after
    the steps that read it, however many are queued: what a step was told of its slots holds for
    all that it queues before the next call. Nothing waits for the device: what is sent lies in
    pinned memory, which torch keeps and uses again.
    """

    def __init__(self, words: int, device: torch.device, max_bytes: int = MASK_TABLE_BYTES) -> None:
        """Allocate the table, at most ``max_bytes`` of it, for masks of ``words`` words."""
        self._words = words
        self._device = device
        self.slots = min(max_bytes // (4 * words), _MOST_SLOTS)
        """Masks that fit."""
        self._table = torch.empty(self.slots, words, dtype=torch.int32, device=device)
        self._kept: OrderedDict[int, tuple[Mask, int]] = OrderedDict()
        """What the table surely holds, the least recently used first: by the id of a mask its slot,
        and the mask, so that no other array gets that id."""
        self._free = list(range(self.slots))
        """Slots of no kept mask; the last one is taken first."""
        self.nbytes = self._table.nbytes
        """Device memory of the table."""
        self.masks_sent = 0
        """Masks copied to the device since the start."""

    def __len__(self) -> int:
        """Masks that need not be sent again."""
        return len(self._kept)

    def place(self, masks: Sequence[Mask]) -> tuple[Tensor, list[int]]:
        """int32 [*, words] on the device, and in which of its rows each of ``masks`` is.

        Good for what is queued before the next call. Only read-only arrays that own their memory
        are kept: nothing changes them later. Others (masks narrowed by a budget) are sent every
        time, to slots that are free again after. Where a step has more distinct masks than there
        are slots, all are sent past the table.

        Raises ``ValueError`` where a mask has another number of words; the table stays right.
        Cost: a look-up for each row and, for masks not kept, their copy, all in one transfer.
        """
        wanted = {id(mask): mask for mask in masks}
        if len(wanted) > self.slots:
            past = self._upload((), masks).view(len(masks), self._words)
            return past, list(range(len(masks)))
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
        # Only now: had sending failed, the slots would still count as free.
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
        """Slots (as int64) and masks on the device, in one transfer: int32, one after the other."""
        size = len(masks) * self._words
        # Memory that torch reuses only once copies from it are done.
        pinned = self._device.type == "cuda"
        host = torch.empty(2 * len(slots) + size, dtype=torch.int32, pin_memory=pinned)
        words = host.numpy()
        words[: 2 * len(slots)].view(np.int64)[:] = slots
        if masks:
            rows = words[2 * len(slots) :].view(np.uint32).reshape(len(masks), self._words)
            np.stack(masks, out=rows)
        self.masks_sent += len(masks)
        return host.to(self._device, non_blocking=True)
