"""Linear layers with weights in oneDNN's own layout, for bfloat16 on the CPU.

A plain linear repacks its weight at every call. Packing once gives a decoding step 15 to 25%
(0.5B parameters, AMX). The operations are private to torch, so they are tried before use, and
everything stays as it was where one is missing or fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from app.model.layers.architecture import is_plain_linear


def replace_modules(
    model: nn.Module, wanted: Callable[[nn.Module], bool], make: Callable[[Any], nn.Module]
) -> int:
    """Replace every ``wanted`` module by the result of ``make`` for it; returns the number.

    Their weights are freed one by one as they are replaced, except those another module still
    holds (an output layer tied to the embedding).
    """
    found = [(name, module) for name, module in model.named_modules() if wanted(module)]
    count = len(found)
    while found:
        name, module = found.pop()
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, make(module))
        del module
    return count


class PackedLinear(nn.Module):
    """Same result as ``linear``, whose weight it replaces by a packed copy."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self._bias = linear.bias
        self.nbytes = linear.weight.nbytes
        self.weight = linear.weight.new_empty(0)
        """Some models ask for its dtype."""
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        if not (count := len(rows)):
            # oneDNN has no kernel for no rows: a step that samples nothing ends up here.
            return x.new_empty(*x.shape[:-1], self.out_features)
        if more := padded(count) - count:
            rows = nn.functional.pad(rows, (0, 0, 0, more))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self._bias, "none", [], ""
        )
        return out[:count].view(*x.shape[:-1], self.out_features)


def padded(rows: int) -> int:
    """``rows`` and at most an eighth more: 80 numbers up to 4,096, as oneDNN compiles and keeps a
    kernel (0.5 to 1 MiB) for each shape."""
    step = 1 << max(0, rows.bit_length() - 4)
    return -(-rows // step) * step


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether packing is faster and this torch has the operations; tries one."""
    if device.type != "cpu" or dtype != torch.bfloat16:
        return False
    linear = nn.Linear(64, 32, dtype=dtype)
    x = torch.ones(2, 64, dtype=dtype)
    try:
        with torch.inference_mode():
            same = torch.allclose(PackedLinear(linear)(x), linear(x), rtol=0.02, atol=0.02)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return same


def pack_linears(model: nn.Module) -> int:
    """Replace every plain linear of ``model``; returns how many."""
    return replace_modules(model, is_plain_linear, PackedLinear)
