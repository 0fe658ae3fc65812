"""Weights of 8 and 4 bits: as rows of codes, and in panels of 64 outputs for the loops.

What is multiplied is a *code* times the scale of its group of inputs, less the group's minimum::

    weight [N, K]  ->  codes, scales [N, K / group], minima [N, K / group] or none

    8 bits: a byte of an input                           weight = (code - 128) * scale,
    4 bits: a byte of two inputs of 32, i and i + 16,             (code - 8) * scale,
            the first one in the lower half                       or code * scale - minimum

which are the bytes of GGUF's Q8_0 (its sign bit turned), Q4_0, Q4_1 and, unpacked, its other types.
A panel is cut into blocks of 32 inputs, which lie one behind the other as they are read::

    panels [N / 64, K / 32, block bytes], a block of
        words   [8 (8 bits) or 4 (4 bits), 64 outputs]   int32: four bytes of codes of one output
        scales  [32 / group, 64 outputs]                 float16
        minima  [64 outputs]                             float16, where there are any

with groups of 16 the first half of the words before its scales, then the other half. So a weight
that is stored so is never rounded again: its codes, scales and minima are only moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from app.model.cpu.kernels.compiled import as_numpy, compiled, narrow, widen
from app.model.cpu.kernels.panels import WIDTH

BLOCK = 32
"""Inputs of a block."""

_AT_ONCE = 1 << 21
"""Numbers that are rounded at a time, in float32: 8 MiB, which the allocator uses again."""


class PanelKind(NamedTuple):
    """How a weight is stored, see above."""

    bits: int
    group: int = BLOCK
    """Inputs that share a scale: 32, or 16 with 8 bits."""
    minima: bool = False
    """In groups of 32: a minimum a group."""

    @property
    def name(self) -> str:
        """Name of the format, for logs."""
        return f"int{self.bits} by {self.group}" + (" with minima" if self.minima else "")

    @property
    def block_bytes(self) -> int:
        heads = BLOCK // self.group + self.minima
        return WIDTH * (BLOCK * self.bits // 8 + 2 * heads)


INT8 = PanelKind(8)
"""Q8_0."""
INT4 = PanelKind(4)
"""Q4_0."""
INT4_MINIMA = PanelKind(4, minima=True)
"""Q4_1, Q4_K; AWQ and GPTQ, whose zero point times its scale is a minimum."""
INT8_HALVES = PanelKind(8, group=16)
"""Q6_K and Q3_K, whose codes have a scale for 16 inputs."""
INT8_MINIMA = PanelKind(8, minima=True)
"""Q5_1, Q5_K."""
KINDS = (INT8, INT4, INT4_MINIMA, INT8_HALVES, INT8_MINIMA)


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A weight [N, K] by rows; K is a multiple of 32."""

    kind: PanelKind
    codes: Tensor
    """uint8, [N, K] or, of 4 bits, [N, K / 2]."""
    scales: Tensor
    """float16, [N, K / group]."""
    minima: Tensor | None = None
    """float16, [N, K / 32]."""

    @property
    def outputs(self) -> int:
        return len(self.codes)

    @property
    def inputs(self) -> int:
        return self.codes.shape[1] * 8 // self.kind.bits

    @property
    def nbytes(self) -> int:
        parts = (self.codes, self.scales, self.minima)
        return sum(part.nbytes for part in parts if part is not None)

    def reordered(self, rows: Tensor | slice) -> QuantizedWeight:
        """The weight with these rows, in this order."""
        minima = None if self.minima is None else self.minima[rows]
        return QuantizedWeight(self.kind, self.codes[rows], self.scales[rows], minima)

    def with_inputs(self, columns: Tensor) -> QuantizedWeight | None:
        """The weight for inputs in this order; None if that splits blocks of 32."""
        firsts = columns[::BLOCK] // BLOCK
        blocks = torch.arange(self.inputs).view(-1, BLOCK)
        if not torch.equal(blocks[firsts].flatten(), columns):
            return None
        parts = [self.codes, self.scales, *([] if self.minima is None else [self.minima])]
        moved = [part.view(len(part), len(blocks), -1)[:, firsts].flatten(1) for part in parts]
        return QuantizedWeight(self.kind, *moved)


def fits(inputs: int) -> bool:
    """Whether a weight of so many inputs can be stored so."""
    return inputs > 0 and inputs % BLOCK == 0


def quantize(weight: Tensor, kind: PanelKind) -> QuantizedWeight:
    """Round ``weight`` [N, K] by the rule of Q8_0 or Q4_0; ``kind`` is ``INT8`` or ``INT4``.

    Scales are the largest value by 127, or the value of the largest size by -8, which becomes
    exact; ties of rounding go to the even code.
    """
    assert kind in (INT8, INT4), "only these have a rule of their own"
    rows_at_once = max(_AT_ONCE // weight.shape[1], 1)
    parts = [_quantize(rows, kind) for rows in torch.split(weight, rows_at_once)]
    codes, scales = (torch.cat(part) for part in zip(*parts, strict=True))
    return QuantizedWeight(kind, codes, scales)


def _quantize(rows: Tensor, kind: PanelKind) -> tuple[Tensor, Tensor]:
    groups = rows.detach().float().view(len(rows), -1, BLOCK)
    middle = 1 << kind.bits - 1
    if kind == INT8:
        scales = groups.abs().amax(-1) / 127
    else:
        largest = groups.abs().argmax(-1, keepdim=True)
        scales = groups.gather(-1, largest).squeeze(-1) / -middle
    inverse = torch.where(scales == 0, 0, 1 / scales)
    codes = (groups * inverse.unsqueeze(-1)).round_().add_(middle).clamp_(0, 2 * middle - 1)
    codes = codes.to(torch.uint8)
    if kind == INT4:
        codes = codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4
    return codes.flatten(1), scales.half()


def dequantize(
    weight: QuantizedWeight, dtype: torch.dtype = torch.float32, ids: Tensor | None = None
) -> Tensor:
    """[N, K], or the rows ``ids`` of it, computed in float32 and rounded to ``dtype`` once."""
    ids = torch.arange(weight.outputs) if ids is None else ids
    codes, scales = weight.codes.contiguous().numpy(), as_numpy(weight.scales.contiguous())
    minima = scales[:, :0] if weight.minima is None else as_numpy(weight.minima.contiguous())
    out = torch.empty(len(ids), weight.inputs, dtype=dtype)
    bits, group = weight.kind.bits, weight.kind.group
    _widen_rows(codes, scales, minima, ids.numpy(), bits, group, as_numpy(out))
    return out


@compiled()
def _widen_rows(
    codes: Any, scales: Any, minima: Any, ids: Any, bits: int, group: int, out: Any
) -> None:
    """Rows ``ids`` of a weight -> ``out`` [ids, K]; ``minima`` of one without them are [N, 0].

    torch's operations take 1.2 to 6.5 times as long, by kind and type.
    """
    middle, half = np.float32(1 << (bits - 1)), BLOCK // 2
    for place in range(len(ids)):
        row = ids[place]
        if not 0 <= row < len(codes):
            raise IndexError("an id is out of range of the weight")
        for first in range(0, out.shape[1], group):
            scale = widen(scales[row, first // group])
            least = middle * scale
            if minima.shape[1]:
                least = widen(minima[row, first // BLOCK])
            if bits == 8:
                for i in range(first, first + group):
                    value = np.float32(codes[row, i]) * scale - least
                    out[place, i] = narrow(value, out[place, i])
                continue
            both, own = codes[row, first // 2 :], out[place, first:]
            for i in range(half):
                own[i] = narrow(np.float32(both[i] & 15) * scale - least, own[i])
            for i in range(half):
                own[half + i] = narrow(np.float32(both[i] >> 4) * scale - least, own[i])


def row_reader(panels: Tensor, kind: PanelKind) -> Callable[[Tensor], Tensor]:
    """A function from ids to these rows of the weight in ``panels``: [ids, K], bfloat16."""
    groups = panels.view(len(panels), -1, kind.block_bytes * kind.group // BLOCK)
    size = WIDTH * kind.group * kind.bits // 8
    words = groups[..., :size].view(torch.int32).unfold(2, WIDTH, WIDTH).numpy()
    heads = groups[..., size:].view(torch.int16).unfold(2, WIDTH, WIDTH).numpy()

    def read(ids: Tensor) -> Tensor:
        out = torch.empty(len(ids), groups.shape[1] * kind.group, dtype=torch.bfloat16)
        _read_rows(words, heads, ids.numpy(), kind.bits, kind.group, as_numpy(out))
        return out

    return read


@compiled()
def _read_rows(words: Any, heads: Any, ids: Any, bits: int, group: int, out: Any) -> None:
    """Rows ``ids`` of a weight in panels -> ``out`` [ids, K]."""
    groups = words.shape[1]
    own_words = np.empty((groups, words.shape[2]), dtype=np.int32)
    own_heads = np.empty((heads.shape[2], groups), dtype=np.int16)
    codes = own_words.view(np.uint8).reshape((1, -1))
    scales, minima, first = own_heads[:1], own_heads[1:], np.zeros(1, dtype=np.int64)
    if len(minima) == 0:
        minima = np.empty((1, 0), dtype=np.int16)
    for place in range(len(ids)):
        panel, row = ids[place] // WIDTH, ids[place] % WIDTH
        if not 0 <= panel < len(words):
            raise IndexError("an id is out of range of the weight")
        for own_group in range(groups):
            for word in range(words.shape[2]):
                own_words[own_group, word] = words[panel, own_group, word, row]
            for head in range(len(own_heads)):
                own_heads[head, own_group] = heads[panel, own_group, head, row]
        _widen_rows(codes, scales, minima, first, bits, group, out[place : place + 1])


def join(parts: list[QuantizedWeight]) -> QuantizedWeight:
    """Weights of one kind, one below the other."""
    if len(parts) == 1:
        return parts[0]
    kind = parts[0].kind
    assert all(part.kind == kind for part in parts), "weights of one kind alone can be joined"
    minima = [part.minima for part in parts if part.minima is not None]
    return QuantizedWeight(
        kind,
        torch.cat([part.codes for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat(minima) if minima else None,
    )


def pack(weight: QuantizedWeight) -> Tensor:
    """Panels, uint8; N is filled up with scales of zero."""
    kind, blocks = weight.kind, weight.inputs // BLOCK
    more = -weight.outputs % WIDTH
    panels = (weight.outputs + more) // WIDTH
    halves = BLOCK // kind.group
    parts = []
    for table in (weight.codes.contiguous().view(torch.int32), weight.scales, weight.minima):
        if table is not None:
            filled = F.pad(table, (0, 0, 0, more)) if more else table  # a copy
            laid = filled.reshape(panels, WIDTH, blocks, halves, -1).permute(0, 2, 3, 4, 1)
            parts.append(laid.contiguous().view(torch.uint8).flatten(3))
    return torch.cat(parts, dim=-1).flatten(2)
