"""What a forward pass asks of states, found out by one that computes nothing."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from app.model.state_storage import StateShape


class StateProbe:
    """A ``LayerScan`` that notes the shapes of every layer's states."""

    def __init__(self) -> None:
        self.shapes: dict[int, StateShape] = {}

    def convolve(
        self, layer: int, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        kept = weight.shape[1] - 1
        scan = self.shapes[layer].scan if layer in self.shapes else None
        self.shapes[layer] = StateShape((kept, x.shape[1]), x.dtype, scan)
        return x.new_zeros(x.shape)

    def delta_rule(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        decay: Tensor,
        rate: Tensor,
        *,
        normalize: bool,
    ) -> Tensor:
        self._note(layer, value.shape[1], value.shape[2], key.shape[2])
        return value.new_zeros(value.shape)

    def mamba2(
        self,
        layer: int,
        x: Tensor,
        dt: Tensor,
        decay: Tensor,
        write: Tensor,
        read: Tensor,
        skip: Tensor | None,
    ) -> Tensor:
        self._note(layer, x.shape[1], x.shape[2], write.shape[2])
        return torch.zeros_like(x, dtype=torch.float32)

    def mamba1(
        self, layer: int, x: Tensor, dt: Tensor, decay: Tensor, write: Tensor, read: Tensor
    ) -> Tensor:
        self._note(layer, *decay.shape)
        return torch.zeros_like(x, dtype=torch.float32)

    def _note(self, layer: int, *shape: int) -> None:
        known = self.shapes.get(layer, StateShape(None, torch.float32, None))
        self.shapes[layer] = replace(known, scan=shape)
