"""Linear layers whose weights are 8 or 4 bits wide, as they were loaded and not yet in panels.

They stand in a model between loading and ``cpu.layers.fuse``, which puts panels in their place.
Until then they multiply by the weight as floats: what the self-check holds the panels against.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from app.model.cpu.kernels.quantized_panels import QuantizedWeight, dequantize


class QuantizedLinear(nn.Module):
    """A linear layer with a stored weight [out_features, in_features]."""

    def __init__(self, stored: QuantizedWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.in_features = stored.inputs
        self.out_features = stored.outputs
        self.stored = stored  # no buffer: a model's dtype is none of its scales'
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]; widens the whole weight, every time."""
        return F.linear(x, dequantize(self.stored, x.dtype), self.bias)
