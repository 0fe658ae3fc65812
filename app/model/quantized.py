"""Linear layers whose weights are 8 or 4 bits wide, as they were loaded and not yet in panels.

They stand in a model between loading and ``cpu.layers.fuse``, which puts panels in their place.
Until then they multiply by the weight as floats: what the self-check holds the panels against.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from app.model.cpu.kernels.quantized_panels import QuantizedWeight, dequantize, map_rows


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


class QuantizedEmbedding(nn.Module):
    """An embedding whose rows are widened as they are looked up."""

    def __init__(self, stored: QuantizedWeight, dtype: torch.dtype, scale: float | None) -> None:
        """``scale`` multiplies every row once it is rounded to ``dtype``; None: nothing does."""
        super().__init__()
        self.num_embeddings = stored.outputs
        self.embedding_dim = stored.inputs
        self.stored = stored
        self._dtype = dtype
        self._scale = scale

    @classmethod
    def in_place_of(
        cls, module: nn.Embedding, stored: QuantizedWeight
    ) -> QuantizedEmbedding | None:
        """None where the module is no plain embedding, nor one with a scale as Gemma's."""
        scale = getattr(module, "scalar_embed_scale", None)
        if type(module) is not nn.Embedding and scale is None:
            return None
        return cls(stored, module.weight.dtype, scale)

    def forward(self, ids: Tensor) -> Tensor:
        """[...] -> [..., embedding_dim]."""
        flat = ids.flatten()
        rows = dequantize(map_rows(lambda part: part[flat], self.stored), self._dtype)
        rows = rows.view(*ids.shape, self.embedding_dim)
        if self._scale is None:
            return rows
        return rows * torch.tensor(self._scale).to(self._dtype)
