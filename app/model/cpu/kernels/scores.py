"""Probabilities of sets of tokens in a row of logits, compiled."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from app.model.cpu.kernels.attention import LOG2_E, exp2
from app.model.cpu.kernels.compiled import compiled, widen
from app.model.cpu.kernels.sampling import Doubles
from app.model.inputs import Ints

_f32: Any = np.float32
_TOGETHER = 1024
"""Weights added up in float32 before they go into a sum of float64."""


@compiled()
def _greatest(row: NDArray[Any], size: int) -> Any:
    """The greatest of ``size`` logits."""
    top = _f32(-np.inf)
    for i in range(size):
        top = max(top, widen(row[i]))
    return top


@compiled(reassociate=True)
def _weight(row: NDArray[Any], begin: int, end: int, top: Any) -> Any:
    """Sum of the weights of a few logits, relative to ``top``."""
    total = _f32(0.0)
    for i in range(begin, end):
        total += exp2((widen(row[i]) - top) * LOG2_E)
    return total


@compiled()
def _score_row(
    row: NDArray[Any], size: int, ids: Ints, ends: Ints, first: int, last: int, out: Doubles
) -> None:
    top = _greatest(row, size)
    total = 0.0
    for begin in range(0, size, _TOGETHER):
        total += float(_weight(row, begin, min(size, begin + _TOGETHER), top))
    whole = math.log(total)
    for number in range(first, last):
        begin = ends[number - 1] if number else 0
        weight = 0.0
        for i in range(begin, ends[number]):
            weight += math.exp(float(widen(row[ids[i]])) - float(top))
        out[number] = math.log(weight) - whole if weight > 0.0 else -np.inf


@compiled(parallel=True)
def score_rows(
    logits: NDArray[Any], size: int, rows: Ints, sets: Ints, ids: Ints, ends: Ints,
    parallel: bool, out: Doubles,
) -> None:  # fmt: skip
    """Log-probabilities of sets of tokens, into ``out`` [S], among the first ``size`` tokens.

    ``rows`` [R] of ``logits`` [*, width] have the sets up to ``sets`` [R], each from where the row
    before it ended; a set has the ``ids`` up to its own of ``ends`` [S].
    Results are within 1e-6 of the exact ones.
    """
    if parallel:
        for i in numba.prange(len(rows)):
            first = sets[i - 1] if i else 0
            _score_row(logits[rows[i]], size, ids, ends, first, sets[i], out)
    else:
        for i in range(len(rows)):
            first = sets[i - 1] if i else 0
            _score_row(logits[rows[i]], size, ids, ends, first, sets[i], out)
