"""Probabilities of sets of tokens in a row of logits, compiled."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.model.cpu.kernels.attention import LOG2_E, exp2
from app.model.cpu.kernels.compiled import address_of, compiled, widen
from app.model.cpu.kernels.records import at, memory, record

SETS = record("logits", "pitch", "size", "rows", "sets", "count", "ids", "ends", "out")
"""Log-probabilities of sets of tokens, to ``out`` [S], among the first ``size`` tokens.

``rows`` [count] of ``logits``, ``pitch`` bytes apart, have the sets up to ``sets`` [count], each
from where the row before it ended; a set has the ``ids`` up to its own of ``ends`` [S]. Results
are within 1e-6 of the exact ones."""

_f32: Any = np.float32
_f64: Any = np.float64
_i64: Any = np.int64
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


@functools.cache
def score_row(number: Any) -> int:
    """The address of the function that does a row of a ``SETS`` record, for ``records.share``;
    ``number`` is the type of logits in ``compiled.as_numpy``."""

    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), SETS)[0]
        places = memory(at(call.rows), (call.count,), _i64)
        sets = memory(at(call.sets), (call.count,), _i64)
        row = memory(at(call.logits + call.pitch * places[item]), (call.size,), number)
        top = _greatest(row, call.size)
        total = 0.0
        for begin in range(0, call.size, _TOGETHER):
            total += float(_weight(row, begin, min(call.size, begin + _TOGETHER), top))
        whole = math.log(total)
        last = sets[call.count - 1]
        ends, out = memory(at(call.ends), (last,), _i64), memory(at(call.out), (last,), _f64)
        ids = memory(at(call.ids), (ends[last - 1],), _i64)
        for place in range(sets[item - 1] if item else 0, sets[item]):
            weight = 0.0
            for i in range(ends[place - 1] if place else 0, ends[place]):
                weight += math.exp(float(widen(row[ids[i]])) - float(top))
            out[place] = math.log(weight) - whole if weight > 0.0 else -np.inf

    return address_of(run, "void(int64, int64)")
