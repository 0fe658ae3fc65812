"""Weights of linear layers in panels, and the records by which ``kernels.jobs`` reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from app.model.checkpoints.stored_quantization import weight_bytes
from app.model.cpu.kernels import (
    amx,
    panels,
    products,
    quantized_panels,
    quantized_products,
    records,
)
from app.model.cpu.kernels.quantized_panels import PanelKind
from app.model.cpu.kernels.rounded_rows import ROUNDED_BYTES
from app.model.cpu.packed_linear import PackedLinear
from app.model.kv_storage import fresh_pages
from app.model.layers.architecture import is_plain_linear
from app.model.layers.quantized import QuantizedEmbedding, QuantizedLinear

Linear = nn.Linear | QuantizedLinear

_HUGE_PAGE, _CACHE_LINE = 1 << 21, 64


class _HugePages:
    """Places weights one after the other on huge pages, since most are smaller than one."""

    def __init__(self) -> None:
        self._room = torch.empty(0, dtype=torch.uint8)

    def place(self, data: Tensor) -> Tensor:
        """A contiguous copy of ``data``."""
        nbytes = -(-data.nbytes // _CACHE_LINE) * _CACHE_LINE
        if nbytes > len(self._room):
            room = fresh_pages(max(nbytes, 32 * _HUGE_PAGE) + _HUGE_PAGE)
            self._room = room[-room.data_ptr() % _HUGE_PAGE :]
        own, self._room = self._room[: data.nbytes], self._room[nbytes:]
        return own.view(data.dtype).view(data.shape).copy_(data)


_PAGES = _HugePages()


class PanelWeights:
    """The weights of linear layers that read the same input, side by side.

    Neighbours of one kind become one weight with one record.
    """

    def __init__(self, linears: Sequence[Linear], *, interleaved: bool = False) -> None:
        """``interleaved``: a gate and an up projection of one kind become one weight with a panel
        of the first before each one of the second."""
        runs = [linears] if interleaved else [[*run] for _, run in groupby(linears, kind_of)]
        self._rounds = max(
            each.rounds if isinstance(each, QuantizedLinear) else 0 for each in linears
        )
        self._kind = kind_of(linears[0])
        self._records = np.zeros(len(runs), dtype=records.WEIGHT)
        self._kept: list[Tensor] = []
        self.bytes_by_type: Counter[str] = Counter()
        """Memory of the panels and biases, by type."""
        for number, run in enumerate(runs):
            bias = _joined_bias(run)
            if not interleaved:
                outputs = sum(each.out_features for each in run)
                self._put(number, run[0], _joined(run), bias, outputs)
                continue
            outputs = run[0].out_features
            if bias is not None:
                padded = nn.functional.pad(bias.view(2, -1), (0, -outputs % panels.WIDTH))
                bias = padded.view(2, -1, panels.WIDTH).transpose(0, 1)
            data = torch.stack([_joined([part]) for part in run], dim=1)
            self._put(number, run[0], data, bias, outputs)

    @property
    def address(self) -> int:
        """Address of the first record."""
        return self._records.ctypes.data

    @property
    def parts(self) -> int:
        return len(self._records)

    @property
    def rounded_bytes(self) -> int:
        """Bytes of a rounded or widened row of the input; 0 if rows are read as they are."""
        each = self._records
        return int((each["units"] * each["input_bytes"] * abs(each["rounds"])).max())

    def row_reader(self) -> Callable[[Tensor], Tensor]:
        """A function from ids [n] to these rows of the first weight: [n, K], bfloat16."""
        if self._kind is None:
            return panels.row_reader(self._kept[0])
        return quantized_panels.row_reader(self._kept[0], self._kind)

    def _put(
        self, number: int, like: Linear, data: Tensor, bias: Tensor | None, outputs: int
    ) -> None:
        kind = kind_of(like)
        record = self._records[number]
        data = _PAGES.place(data)
        self._kept.append(data)
        self.bytes_by_type["bfloat16" if kind is None else f"int{kind.bits}"] += data.nbytes
        if bias is not None:
            bias = bias.detach().bfloat16().contiguous()
            self._kept.append(bias)
            self.bytes_by_type["bfloat16"] += bias.nbytes
        if kind is None:
            unit, unit_bytes, input_bytes = 2, 4 * panels.WIDTH, panels.input_bytes()
            multiply, by_tiles = panels.entry(), 0 if amx.missing() else amx.entry()
        else:
            unit, unit_bytes, input_bytes = quantized_panels.BLOCK, kind.block_bytes, ROUNDED_BYTES
            multiply = by_tiles = quantized_products.entry(kind)
        values = {
            "multiply": multiply,
            "by_tiles": by_tiles,
            "panels": data.data_ptr(),
            "bias": 0 if bias is None else bias.data_ptr(),
            "inputs": like.in_features,
            "outputs": outputs,
            "units": like.in_features // unit,
            "unit_bytes": unit_bytes,
            "input_bytes": input_bytes,
            "units_at_once": products.INPUTS_AT_ONCE // unit,
            "rounds": self._rounds if kind else records.WIDENED * panels.widened(),
        }
        for name, value in values.items():
            record[name] = value


def kind_of(linear: Linear) -> PanelKind | None:
    """Kind of the quantised weight; None: bfloat16."""
    return linear.stored.kind if isinstance(linear, QuantizedLinear) else None


def reordered(linear: Linear, rows: Tensor) -> Linear:
    """``linear`` with these of its outputs, in this order."""
    bias = None if linear.bias is None else linear.bias.detach()[rows]
    if isinstance(linear, QuantizedLinear):
        other = QuantizedLinear(linear.stored.reordered(rows), bias)
        other.rounds = linear.rounds
        return other
    made = nn.Linear(linear.in_features, len(rows), bias=bias is not None, device="meta")
    made.weight = nn.Parameter(linear.weight.detach()[rows], requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


def held_bytes(model: PreTrainedModel) -> dict[str, int]:
    """Memory of all weights on the CPU by the name of their type, panels and packed ones, too."""
    found = Counter(weight_bytes(model))
    for module in model.modules():
        held: Any = getattr(module, "weights", ())
        for weights in held if isinstance(held, list) else ():
            found.update(weights.bytes_by_type)
        if isinstance(module, PackedLinear):
            found["bfloat16"] += module.nbytes
        if isinstance(module, QuantizedEmbedding):
            found[f"int{module.stored.kind.bits}"] += module.stored.nbytes
    return dict(found)


def has_panels(module: nn.Module) -> bool:
    """Whether the weight of ``module`` can be put into panels that run on this processor."""
    if not panels.runs_here():
        return False
    return isinstance(module, QuantizedLinear) or (
        is_plain_linear(module)
        and module.weight.dtype == torch.bfloat16
        and module.in_features % 2 == 0
    )


def _joined(linears: Sequence[Linear]) -> Tensor:
    """Panels of weights of one kind, one below the other."""
    stored = [linear.stored for linear in linears if isinstance(linear, QuantizedLinear)]
    if stored:
        return quantized_panels.pack(quantized_panels.join(stored))
    plain = [linear.weight.detach() for linear in linears if isinstance(linear, nn.Linear)]
    return panels.pack(plain[0] if len(plain) == 1 else torch.cat(plain))


def _joined_bias(linears: Sequence[Linear]) -> Tensor | None:
    if all(linear.bias is None for linear in linears):
        return None
    biases = [torch.zeros(one.out_features) if one.bias is None else one.bias for one in linears]
    return torch.cat([bias.bfloat16() for bias in biases])
