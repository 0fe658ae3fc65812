"""An embedding whose weight is 8 or 4 bits wide, as a file has it: looked up row by row."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from app.model.cpu.kernels.compiled import as_numpy
from app.model.cpu.kernels.quantized_panels import QuantizedWeight
from app.model.cpu.kernels.quantized_rows import widen_rows


class QuantizedEmbedding(nn.Module):
    """An embedding whose rows are widened as they are looked up."""

    def __init__(self, stored: QuantizedWeight, dtype: torch.dtype, scale: float | None) -> None:
        """``scale`` multiplies every row once it is rounded to ``dtype``; None: nothing does."""
        super().__init__()
        self.num_embeddings = stored.outputs
        self.embedding_dim = stored.inputs
        self.stored = stored
        minima = stored.scales[:, :0] if stored.minima is None else stored.minima
        floats = [as_numpy(part.contiguous()) for part in (stored.scales, minima)]
        self._arrays = (stored.codes.contiguous().numpy(), *floats)
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
        rows = torch.empty(*ids.shape, self.embedding_dim, dtype=self._dtype)
        kind, (codes, scales, minima) = self.stored.kind, self._arrays
        flat, out = ids.flatten().numpy(), as_numpy(rows.view(-1, self.embedding_dim))
        widen_rows(codes, scales, minima, flat, kind.bits, kind.group, out)
        return rows if self._scale is None else rows * self._scale
