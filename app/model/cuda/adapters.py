"""LoRA products on a GPU: two tensors hold all slots of a product, at addresses fixed for graphs.

The kernels read each token's slot on the device, so a captured step serves any mix of adapters.
An adapter loaded later is copied into the tensors that the kernels already read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from app.model.adapters.peft import Pair
from app.model.adapters.targets import Target
from app.model.cuda.kernels.adapters import RankTiles, add_low_rank, padded_rank


class CudaBank:
    """See ``Bank``. Stores ``count * padded rank * (modules * K + N)`` numbers."""

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        count: int,
        rank: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        widths = [target.width for target in targets]
        self._bounds = [sum(widths[:i]) for i in range(len(widths) + 1)]
        depth, rank = targets[0].depth, padded_rank(rank)
        self._a = torch.zeros(count, len(widths), rank, depth, dtype=dtype, device=device)
        self._b = torch.zeros(count, self._bounds[-1], rank, dtype=dtype, device=device)
        self._columns = torch.tensor(self._bounds, dtype=torch.int32, device=device)
        self._tiles = RankTiles.of(depth, max(widths), rank, dtype)

    def put(self, slot: int, pairs: Sequence[Pair | None]) -> None:
        a, b = self._a[slot - 1], self._b[slot - 1]
        a.zero_()
        b.zero_()
        for part, pair in enumerate(pairs):
            if pair is not None:
                a[part, : pair.rank].copy_(pair.a)
                b[self._bounds[part] : self._bounds[part + 1], : pair.rank].copy_(pair.b)

    def add(self, x: Tensor, out: Tensor, adapters: Tensor) -> None:
        add_low_rank(x.contiguous(), self._a, self._b, self._columns, adapters, out, self._tiles)

    def adapters(self, slots: Sequence[int]) -> Tensor:
        return torch.tensor(slots, dtype=torch.int32, device=self._a.device)
