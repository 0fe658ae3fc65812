"""Functions of a single row: norms and activations. Numbers are as in ``as_numpy``."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels.attention import LOG2_E, exp2
from app.model.cpu.kernels.compiled import compiled, narrow, widen

_f32: Any = np.float32
_ONE = _f32(1.0)
_ZERO = _f32(0.0)


@compiled(reassociate=True)
def _factor(row: Any, eps: float) -> Any:
    """The factor that divides a row by its root mean square."""
    total = _ZERO
    for i in range(len(row)):
        value = widen(row[i])
        total += value * value
    return _ONE / np.sqrt(total / _f32(len(row)) + _f32(eps))


@compiled(reassociate=True)
def rms_norm(row: Any, weight: Any, shifted: int, eps: float, out: Any) -> None:
    """RMSNorm of one row; ``out`` may be ``row``.

    ``shifted``: times 1 + ``weight``, and rounded once; else rounded before it is multiplied.
    """
    factor = _factor(row, eps)
    if shifted:
        for i in range(len(row)):
            out[i] = narrow(widen(row[i]) * factor * (_ONE + widen(weight[i])), out[i])
    else:
        for i in range(len(row)):
            value = widen(narrow(widen(row[i]) * factor, row[i]))
            out[i] = narrow(value * widen(weight[i]), out[i])


@compiled(reassociate=True)
def gated_rms_norm(row: Any, weight: Any, gates: Any, eps: float) -> None:
    """RMSNorm of one row, in place, times SiLU of its gates."""
    factor = _factor(row, eps)
    for i in range(len(row)):
        value = widen(narrow(widen(row[i]) * factor, row[i]))
        value = widen(narrow(value * widen(weight[i]), row[i]))
        row[i] = narrow(value * silu(widen(gates[i])), row[i])


@compiled(reassociate=True)
def sigmoid(x: Any) -> Any:
    power = exp2(-abs(x) * LOG2_E)
    share = _ONE / (_ONE + power)
    return share if x >= _ZERO else power * share


@compiled(reassociate=True)
def silu(x: Any) -> Any:
    return x * sigmoid(x)
