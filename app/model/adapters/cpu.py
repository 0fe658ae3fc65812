"""Products of adapters on the CPU: each adapter of a step multiplies its own rows.

Rows of the base model are never touched, and a step without adapters costs one check. Products in
bfloat16 use the loops of ``kernels.panels`` where those run: there a row does not depend on the
others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from app.model.adapters.peft import Pair
from app.model.adapters.targets import AdapterRows, Product, adapter_rows
from app.model.cpu.layers import PanelLinear
from app.model.cpu.workspace import CpuTeam

_EVEN = 2
"""Divisor of the number of inputs in panels, which hold pairs."""


def team_of(model: nn.Module) -> CpuTeam | None:
    """The team that computes the model's products; None: torch does."""
    panels = (module for module in model.modules() if isinstance(module, PanelLinear))
    return next((each.team for each in panels), None)


class CpuBank:
    """A ``Bank`` for one module."""

    def __init__(self, dtype: torch.dtype, workers: CpuTeam | None) -> None:
        """``workers``: the team that computes products; None: torch does."""
        self._dtype = dtype
        self._workers = workers
        self._products: dict[int, tuple[Product, Product]] = {}

    def put(self, slot: int, pairs: Sequence[Pair | None]) -> None:
        (pair,) = pairs
        self._products.pop(slot, None)
        if pair is not None:
            odd = pair.rank % _EVEN
            a = nn.functional.pad(pair.a, (0, 0, 0, odd))
            b = nn.functional.pad(pair.b, (0, odd))
            self._products[slot] = (self._product(a), self._product(b))

    def add(self, x: Tensor, out: Tensor, adapters: AdapterRows) -> None:
        for slot, rows in adapters:
            if (products := self._products.get(slot)) is not None:
                a, b = products
                out[rows] += b(a(x[rows]))

    def adapters(self, slots: Sequence[int]) -> AdapterRows:
        return adapter_rows(np.array(slots, dtype=np.int64))

    def _product(self, weight: Tensor) -> Product:
        width, depth = weight.shape
        linear = nn.Linear(depth, width, bias=False, dtype=self._dtype)
        linear.weight = nn.Parameter(weight.to(self._dtype), requires_grad=False)
        if self._workers is None or depth % _EVEN:
            return linear
        return PanelLinear(linear, self._workers)
