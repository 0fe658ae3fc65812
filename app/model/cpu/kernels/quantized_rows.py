"""Rows of a weight of 8 or 4 bits, widened one by one: what an embedding looks up.

With torch's operations a row takes 60 us, most of it to call them; here it takes 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels.compiled import compiled, narrow, widen
from app.model.cpu.kernels.quantized_panels import BLOCK

_HALF = BLOCK // 2
_f32: Any = np.float32


@compiled()
def widen_rows(
    codes: Any, scales: Any, minima: Any, ids: Any, bits: int, group: int, out: Any
) -> None:
    """Rows ``ids`` of a ``QuantizedWeight`` -> ``out`` [ids, K], as ``dequantize`` has them.

    Floats are as in ``compiled.as_numpy``; ``minima`` of a weight without them are [N, 0].
    """
    middle = _f32(1 << (bits - 1))
    for place in range(len(ids)):
        row = ids[place]
        for i in range(out.shape[1]):
            if bits == 8:
                code = _f32(codes[row, i])
            else:
                inner = i % BLOCK
                both = codes[row, i // BLOCK * _HALF + inner % _HALF]
                code = _f32(both >> 4) if inner >= _HALF else _f32(both & 15)
            scale = widen(scales[row, i // group])
            if minima.shape[1]:
                value = code * scale - widen(minima[row, i // BLOCK])
            else:
                value = (code - middle) * scale
            out[place, i] = narrow(value, out[place, i])
