"""What the bytes of GGUF's blocks mean, as codes with scales and minima; see ggml's sources.

Codes are moved and never rounded. Of Q4_K and Q6_K a scale is the product of two numbers of the
file, which becomes one of 16 bits: off by 5e-4 of itself at most, a hundredth of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import torch
from torch import Tensor

from app.model.cpu.kernels.quantized_panels import (
    BLOCK,
    INT4_MINIMA,
    INT8_HALVES,
    QuantizedWeight,
    from_q4_0,
    from_q8_0,
)

_K = 256
"""Inputs of a block of the k-quants."""


def from_q4_1(blocks: Tensor) -> QuantizedWeight:
    """Blocks [N, K / 32 * 20]: a scale and a minimum to add (float16), and 16 bytes of codes."""
    rows = blocks.view(len(blocks), -1, 4 + BLOCK // 2)
    heads = rows[..., :4].contiguous().view(torch.float16)
    return QuantizedWeight(
        INT4_MINIMA, rows[..., 4:].flatten(1), heads[..., 0].contiguous(), -heads[..., 1]
    )


def from_q4_k(blocks: Tensor) -> QuantizedWeight:
    """Blocks [N, K / 256 * 144]: eight groups of 32 codes.

    Two scales (float16) of the groups' scales and minima, those with 6 bits each in 12 bytes, and
    128 bytes of codes: groups 0 and 1 in the halves of the first 32, and so on.
    """
    rows = blocks.view(len(blocks), -1, 16 + _K // 2)
    whole = rows[..., :4].contiguous().view(torch.float16).float()
    low, middle, high = rows[..., 4:8], rows[..., 8:12], rows[..., 12:16]
    scales = torch.cat([low & 63, (high & 15) | (low >> 6 << 4)], dim=-1)
    minima = torch.cat([middle & 63, (high >> 4) | (middle >> 6 << 4)], dim=-1)
    pairs = rows[..., 16:].view(len(rows), -1, 4, 1, BLOCK)
    codes = torch.cat([pairs & 15, pairs >> 4], dim=-2)
    half = BLOCK // 2
    return QuantizedWeight(
        INT4_MINIMA,
        (codes[..., :half] | codes[..., half:] << 4).flatten(1),
        (whole[..., :1] * scales).half().flatten(1),
        (whole[..., 1:] * minima).half().flatten(1),
    )


def from_q6_k(blocks: Tensor) -> QuantizedWeight:
    """Blocks [N, K / 256 * 210]: sixteen groups of 16 codes.

    128 bytes with the lower 4 bits of two codes each, 64 with the upper 2 of four, 16 scales of 8
    bits, and the scale of those (float16).
    """
    rows = blocks.view(len(blocks), -1, 210)
    low = rows[..., :128].view(len(rows), -1, 2, 1, 64)
    low = torch.cat([low & 15, low >> 4], dim=-2).view(len(rows), -1, 2, 4, BLOCK)
    high = rows[..., 128:192].view(len(rows), -1, 2, 1, BLOCK)
    high = torch.cat([high >> shift & 3 for shift in (0, 2, 4, 6)], dim=-2)
    scales = rows[..., 192:208].contiguous().view(torch.int8)
    whole = rows[..., 208:].contiguous().view(torch.float16).float()
    return QuantizedWeight(
        INT8_HALVES,
        ((low | high << 4) + 96).flatten(1),  # what is 32 there is 128 here: zero
        (whole * scales).half().flatten(1),
    )


READERS: MappingProxyType[int, Callable[[Tensor], QuantizedWeight]] = MappingProxyType(
    {2: from_q4_0, 3: from_q4_1, 8: from_q8_0, 12: from_q4_k, 14: from_q6_k}
)
"""By ggml's numbers, of uint8 [N, bytes of a row]."""
NAMES = "Q4_0, Q4_1, Q8_0, Q4_K and Q6_K"
