"""Decodes GGUF's blocks to codes with scales and minima; see ggml's sources.

Codes are moved and never rounded. A scale that is the product of two numbers of the file is rounded
to 16 bits: a relative error of at most 5e-4, a hundredth of a step. Other types are unpacked to
floats and rounded to 8 bits, with a scale for each 32 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from app.model.cpu.kernels.quantized_panels import (
    INT4,
    INT4_MINIMA,
    INT8,
    INT8_HALVES,
    INT8_MINIMA,
    QuantizedWeight,
    join,
    quantize,
)
from app.model.cpu.kernels.quantized_panels import dequantize as unpacked

_MIDDLE = 128
"""The code of zero, of 8 bits without minima."""
_AT_ONCE = 1 << 24
"""Bytes of a weight that are converted to floats at a time."""
_NON_LINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Values of the codes of IQ4_NL and IQ4_XS."""
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of the codes of MXFP4."""


def read(rows: NDArray[np.uint8], kind: int) -> QuantizedWeight | None:
    """``rows`` [N, bytes of a row] of ggml's type ``kind``; None: panels do not hold it."""
    reader = READERS.get(Type(kind))
    return None if reader is None else reader(torch.from_numpy(rows))


def floats(rows: NDArray[np.uint8], kind: int) -> Tensor:
    """[N, K] in float32, of any type that the package ``gguf`` can unpack.

    Raises ``NotImplementedError`` for one that it cannot.
    """
    return torch.from_numpy(dequantize(rows, Type(kind)))


def rounded(rows: NDArray[np.uint8], kind: int) -> tuple[QuantizedWeight, float]:
    """``rows`` in 8 bits with a scale for each 32 inputs, and their relative error."""
    step = max(1, _AT_ONCE // rows.shape[1])
    parts, off, whole = [], 0.0, 0.0
    for first in range(0, len(rows), step):
        values = floats(rows[first : first + step], kind)
        parts.append(quantize(values, INT8))
        off += float((unpacked(parts[-1]) - values).square().sum())
        whole += float(values.square().sum())
    return join(parts), (off / whole) ** 0.5 if whole else 0.0


def _q4_0(data: Tensor) -> QuantizedWeight:
    """Blocks of a scale (float16) and 16 bytes of codes."""
    blocks = data.view(len(data), -1, 18)
    return QuantizedWeight(INT4, blocks[..., 2:].flatten(1), _halves(blocks[..., :2]))


def _q4_1(data: Tensor) -> QuantizedWeight:
    """Blocks of a scale, a minimum to add (float16), and 16 bytes of codes."""
    blocks = data.view(len(data), -1, 20)
    minima = -_halves(blocks[..., 2:4])
    return QuantizedWeight(
        INT4_MINIMA, blocks[..., 4:].flatten(1), _halves(blocks[..., :2]), minima
    )


def _q5_0(data: Tensor) -> QuantizedWeight:
    """Blocks of a scale, 4 bytes of the codes' fifth bits and 16 of their others."""
    blocks = data.view(len(data), -1, 22)
    codes = _parts(blocks[..., 6:], 16, 2, 4) | _parts(blocks[..., 2:6], 1, 8, 1) << 4
    return QuantizedWeight(INT8, (codes + (_MIDDLE - 16)).flatten(1), _halves(blocks[..., :2]))


def _q5_1(data: Tensor) -> QuantizedWeight:
    """As Q5_0, with a minimum to add after the scale."""
    blocks = data.view(len(data), -1, 24)
    codes = _parts(blocks[..., 8:], 16, 2, 4) | _parts(blocks[..., 4:8], 1, 8, 1) << 4
    minima = -_halves(blocks[..., 2:4])
    return QuantizedWeight(INT8_MINIMA, codes.flatten(1), _halves(blocks[..., :2]), minima)


def _q8_0(data: Tensor) -> QuantizedWeight:
    """Blocks of a scale and 32 int8."""
    blocks = data.view(len(data), -1, 34)
    return QuantizedWeight(INT8, (blocks[..., 2:] ^ 0x80).flatten(1), _halves(blocks[..., :2]))


def _q3_k(data: Tensor) -> QuantizedWeight:
    """Blocks of sixteen groups of 16 codes: 32 bytes with the upper bits of eight codes each, 64
    with the lower 2 bits of four, 16 scales of 6 bits in 12 bytes, and the scale of those."""
    blocks = data.view(len(data), -1, 110)
    high, low = _parts(blocks[..., :32], 32, 8, 1), _parts(blocks[..., 32:96], 32, 4, 2)
    scales = _parts(blocks[..., 96:104], 8, 2, 4) | _parts(blocks[..., 104:108], 4, 4, 2) << 4
    return QuantizedWeight(
        INT8_HALVES,
        (low + (high << 2) + (_MIDDLE - 4)).flatten(1),
        _products(blocks[..., 108:], scales.float() - 32),
    )


def _q4_k(data: Tensor) -> QuantizedWeight:
    """Blocks of eight groups of 32 codes: see ``_group_scales``, and 128 bytes of codes, groups 0
    and 1 in the halves of the first 32, and so on."""
    blocks = data.view(len(data), -1, 144)
    halves = _parts(blocks[..., 16:], 32, 2, 4).view(len(data), -1, 2, 16)
    packed = halves[..., 0, :] | halves[..., 1, :] << 4
    return QuantizedWeight(INT4_MINIMA, packed.flatten(1), *_group_scales(blocks))


def _q5_k(data: Tensor) -> QuantizedWeight:
    """As Q4_K, with 32 bytes of the codes' fifth bits before the codes, a bit for each group."""
    blocks = data.view(len(data), -1, 176)
    codes = _parts(blocks[..., 48:], 32, 2, 4) | _parts(blocks[..., 16:48], 32, 8, 1) << 4
    return QuantizedWeight(INT8_MINIMA, codes.flatten(1), *_group_scales(blocks))


def _group_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minima of eight groups: 6 bits each, in 12 bytes after a float16 scale of all the
    scales and one of all the minima."""
    low, middle, high = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = torch.cat([low & 63, (high & 15) | (low >> 6 << 4)], dim=-1)
    minima = torch.cat([middle & 63, (high >> 4) | (middle >> 6 << 4)], dim=-1)
    return _products(blocks[..., :2], scales), _products(blocks[..., 2:4], minima)


def _q6_k(data: Tensor) -> QuantizedWeight:
    """Blocks of sixteen groups of 16 codes: 128 bytes with the lower 4 bits of two codes each, 64
    with the upper 2 of four, 16 scales of 8 bits, and the scale of those (float16)."""
    blocks = data.view(len(data), -1, 210)
    codes = _parts(blocks[..., :128], 64, 2, 4) | _parts(blocks[..., 128:192], 32, 4, 2) << 4
    scales = blocks[..., 192:208].contiguous().view(torch.int8)
    return QuantizedWeight(
        INT8_HALVES, (codes + (_MIDDLE - 32)).flatten(1), _products(blocks[..., 208:], scales)
    )


def _iq4_nl(data: Tensor) -> QuantizedWeight:
    """Blocks as Q4_0's, whose codes are those of a table."""
    blocks = data.view(len(data), -1, 18)
    codes = _looked_up(_NON_LINEAR, blocks[..., 2:])
    return QuantizedWeight(INT8, codes.flatten(1), _halves(blocks[..., :2]))


def _iq4_xs(data: Tensor) -> QuantizedWeight:
    """Blocks of eight groups of 32 such codes: a scale of their scales, the upper 2 bits of those
    in 2 bytes, the lower 4 in 4, and 128 bytes of codes."""
    blocks = data.view(len(data), -1, 136)
    scales = _parts(blocks[..., 4:8], 1, 2, 4) | _parts(blocks[..., 2:4], 1, 4, 2) << 4
    return QuantizedWeight(
        INT8,
        _looked_up(_NON_LINEAR, blocks[..., 8:]).flatten(1),
        _products(blocks[..., :2], scales.float() - 32),
    )


def _mxfp4(data: Tensor) -> QuantizedWeight | None:
    """Blocks of an exponent and 16 bytes of codes of a table; None where float16 lacks a scale."""
    blocks = data.view(len(data), -1, 17)
    exponents = blocks[..., 0].int() - 128
    scales = torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents)
    if not torch.equal(scales.half().float(), scales):
        return None
    return QuantizedWeight(INT8, _looked_up(_E2M1, blocks[..., 1:]).flatten(1), scales.half())


def _halves(pairs: Tensor) -> Tensor:
    """[..., 2] bytes -> [...] float16."""
    return pairs.contiguous().view(torch.float16).squeeze(-1)


def _products(whole: Tensor, parts: Tensor) -> Tensor:
    """A scale of scales (two bytes) times those, [N, blocks, parts] -> [N, blocks * parts]."""
    return (_halves(whole).float().unsqueeze(-1) * parts).half().flatten(1)


def _parts(bytes_: Tensor, at_once: int, count: int, width: int) -> Tensor:
    """[..., n] -> [..., n * count]: of each ``at_once`` bytes the lowest ``width`` bits, then the
    next ones, and so on."""
    groups = bytes_.reshape(*bytes_.shape[:-1], -1, 1, at_once)
    shifts = torch.arange(count, dtype=torch.uint8).unsqueeze(-1) * width
    return (groups >> shifts & ((1 << width) - 1)).flatten(-3)


def _looked_up(values: tuple[int, ...], bytes_: Tensor) -> Tensor:
    table = torch.tensor(values, dtype=torch.int16).add(_MIDDLE).to(torch.uint8)
    return table[_parts(bytes_, 16, 2, 4).long()]


READERS: Final[Mapping[Type, Callable[[Tensor], QuantizedWeight | None]]] = {
    Type.Q4_0: _q4_0,
    Type.Q4_1: _q4_1,
    Type.Q5_0: _q5_0,
    Type.Q5_1: _q5_1,
    Type.Q8_0: _q8_0,
    Type.Q3_K: _q3_k,
    Type.Q4_K: _q4_k,
    Type.Q5_K: _q5_k,
    Type.Q6_K: _q6_k,
    Type.IQ4_NL: _iq4_nl,
    Type.IQ4_XS: _iq4_xs,
    Type.MXFP4: _mxfp4,
}
"""Readers of rows [N, bytes of a row]; they return None if panels cannot hold the weight."""
