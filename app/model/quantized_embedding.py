"""An embedding whose weight is 8 or 4 bits wide, as a file has it: looked up row by row."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from app.model.cpu.kernels.quantized_panels import QuantizedWeight, dequantize, map_rows


class QuantizedEmbedding(nn.Module):
    """An embedding whose rows are widened as they are looked up."""

    def __init__(self, stored: QuantizedWeight, dtype: torch.dtype, scale: float | None) -> None:
        """``scale`` multiplies every row once it is rounded to ``dtype``; None: nothing does."""
        super().__init__()
        self.num_embeddings = stored.outputs
        self.embedding_dim = stored.inputs
        self.stored = stored
        self._dtype = dtype
        cpu = torch.device("cpu")  # modules are exchanged where all others are on none
        self._scale = None if scale is None else torch.tensor(scale, device=cpu).to(dtype)

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
        return rows if self._scale is None else rows * self._scale
