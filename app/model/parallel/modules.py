"""Wrappers of the layers that ranks share, which split their inputs and combine their outputs.

Each replaces a module, which is its ``inner``; attributes that a wrapper does not have are those of
the inner module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from app.model.parallel.group import Group


class _Around(nn.Module):
    inner: Any

    def __init__(self, inner: nn.Module, group: Group) -> None:
        super().__init__()
        self.inner = inner
        self.group = group

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


class Summed(_Around):
    """Adds the ranks' outputs: each has multiplied its part of the input by its rows."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.inner(*args, **kwargs)
        return self.group.sum(out)


class Gathered(_Around):
    """Joins the ranks' outputs, each its part of the columns: [..., width]."""

    def __init__(self, inner: nn.Module, group: Group, width: int) -> None:
        super().__init__(inner, group)
        self._width = width
        self._part = -(width // -group.size)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.inner(*args, **kwargs)
        if out.shape[-1] < self._part:  # the last ranks have fewer columns, or none
            out = nn.functional.pad(out, (0, self._part - out.shape[-1]))
        return self.group.gather(out)[..., : self._width]


class Split(_Around):
    """Gives the inner module this rank's part of the input's columns."""

    def forward(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        part = -(width // -self.group.size)
        start = min(self.group.rank * part, width)
        out: Tensor = self.inner(x[..., start : min(start + part, width)])
        return out


class SharedEmbedding(_Around):
    """Looks up this rank's tokens; rows of others are 0, and the ranks' outputs are added."""

    def __init__(self, inner: nn.Embedding, group: Group, tokens: int) -> None:
        super().__init__(inner, group)
        inner.padding_idx = None  # matters to gradients alone, and may be another rank's
        self._start = min(group.rank * -(tokens // -group.size), tokens)

    def forward(self, ids: Tensor) -> Tensor:
        own = ids - self._start
        count = self.inner.weight.shape[0]
        mine = (own >= 0) & (own < count)
        if count == 0:
            width = self.inner.weight.shape[1]
            return self.group.sum(self.inner.weight.new_zeros(*ids.shape, width))
        found: Tensor = self.inner(torch.where(mine, own, 0))
        return self.group.sum(found.masked_fill(~mine.unsqueeze(-1), 0))
