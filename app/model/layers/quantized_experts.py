"""Experts whose weights are 8 or 4 bits wide, as a file has them: two linear layers each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from app.model.cpu.kernels.quantized_panels import QuantizedWeight
from app.model.layers.quantized import QuantizedLinear


class QuantizedExperts(nn.Module):
    """In the place of transformers' modules of all experts of a layer.

    Their linear layers are put into panels as all others are (``cpu.layers.fuse``). A token's
    experts are added in the order of their numbers, whatever its company.
    """

    def __init__(self, experts: Any, gate_up: QuantizedWeight, down: QuantizedWeight) -> None:
        """``gate_up`` and ``down`` have the rows of all experts, one after the other."""
        super().__init__()
        self.num_experts = experts.num_experts
        self._apply_gate = experts._apply_gate
        self.gate_up = nn.ModuleList(_each(gate_up, self.num_experts))
        self.down = nn.ModuleList(_each(down, self.num_experts))
        self.gate_up_proj_bias = getattr(experts, "gate_up_proj_bias", None)
        self.down_proj_bias = getattr(experts, "down_proj_bias", None)

    def forward(self, hidden: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """[T, H], the numbers of each token's experts [T, K] and their weights -> [T, H]."""
        out = torch.zeros_like(hidden)
        for number in torch.unique(experts).tolist():
            tokens, places = (experts == number).nonzero(as_tuple=True)
            mixed = self.gate_up[number](hidden[tokens])
            if self.gate_up_proj_bias is not None:
                mixed = mixed + self.gate_up_proj_bias[number]
            mixed = self.down[number](self._apply_gate(mixed))
            if self.down_proj_bias is not None:
                mixed = mixed + self.down_proj_bias[number]
            mixed = mixed * weights[tokens, places, None]
            out.index_add_(0, tokens, mixed.to(out.dtype))
        return out


def _each(weight: QuantizedWeight, count: int) -> list[QuantizedLinear]:
    own = weight.outputs // count
    firsts = range(0, weight.outputs, own)
    return [QuantizedLinear(weight.reordered(slice(at, at + own)), None) for at in firsts]
