"""Attention over the paged cache, compiled: a row's numbers depend on its own position alone.

A work item is one span and some key heads. Positions are taken in groups, of whole vectors of 16
counted from position 0. For few rows keys and values are read where they lie, all heads of a group
before the next one, which is the order in memory (slots [Hk, D]); for many rows the values of a
head are widened once for all of them. What is added up, and in which order, is the same: see
``tiles``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from app.model.cpu.kernels.compiled import Floats, Rows, compiled, float_of_bits, narrow
from app.model.cpu.kernels.groups import add_all, score_all
from app.model.cpu.kernels.llvm import copy
from app.model.cpu.kernels.tiles import ROWS, asked, cap, finish, numbers_of, soften
from app.model.cpu.kernels.vectors import LANES
from app.model.inputs import Ints

_FEW_ROWS = 16
"""Rows of a head up to which all heads of some positions are read before the next ones."""
_MOST_ROWS = 64
"""Rows of a head for which positions are widened at a time: token by token, each with its heads."""
_SCORES = 1 << 18
"""Scores in memory at a time, if that leaves a few rows: they stay in the L2 cache."""

_f32: Any = np.float32
LOG2_E = _f32(1.4426950408889634)
_LN2 = _f32(0.6931471805599453)
_SQRT2 = _f32(1.4142135623730951)
_ONE = _f32(1.0)
_LEAST = _f32(-126.0)


@compiled()
def write(rows: Rows, slots: Ints, pool: Rows) -> None:
    """Put keys or values [T, Hk, D], contiguous, into their slots of ``pool``."""
    for token in range(len(slots)):
        copy(rows[token].ctypes.data, pool[slots[token]].ctypes.data, rows.strides[0])


@compiled(reassociate=True)
def exp2(x: Any) -> Any:
    """``2 ** x`` for x up to 0, within 2e-7 of it, and at least 2 ** -126."""
    x = max(x, _LEAST)
    whole = np.floor(x)
    y = (x - whole - _f32(0.5)) * _LN2
    series = _ONE + y * _f32(1 / 7)
    series = _ONE + y * _f32(1 / 6) * series
    series = _ONE + y * _f32(1 / 5) * series
    series = _ONE + y * _f32(1 / 4) * series
    series = _ONE + y * _f32(1 / 3) * series
    series = _ONE + y * _f32(1 / 2) * series
    series = _ONE + y * series
    power = float_of_bits(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    return series * _SQRT2 * power


@compiled()
def _first_seen(position: int, window: int, chunked: bool) -> int:
    """The first key that a query at ``position`` sees."""
    if window == 0:
        return 0
    return position - position % window if chunked else max(0, position - window + 1)


@compiled()
def _weigh(
    scores: Floats, firsts: Ints, ends: Ints, base: int, row: int, repeats: int, query_heads: int,
    head: int, softcap: float, sinks: Floats, slopes: Floats, extent: int, shares: Floats,
) -> None:  # fmt: skip
    """Convert scores to weights, see ``soften``; ``shares``: the factors that normalise them."""
    for h in range(len(scores)):
        for r in range(scores.shape[1]):
            query_head, own = (head + h) * repeats + r % repeats, scores[h, r]
            first, end = firsts[r] - base, ends[r] - base
            if extent:
                place = ((row + r // repeats) * query_heads + query_head) * extent
                for i in range(max(first, end - extent), end):
                    own[i] += slopes[place + end - 1 - i]
            elif len(slopes):
                for i in range(first, end):
                    own[i] -= slopes[query_head] * _f32(end - 1 - i)
            if softcap > 0.0:
                cap(own.ctypes.data, first, end, _f32(softcap))
            sink = sinks[query_head] if len(sinks) else _f32(-np.inf)
            shares[h, r] = soften(own.ctypes.data, first, end, sink)


@compiled()
def _attend_rows(
    query: Rows, keys: Rows, values: Rows, blocks: Ints, size: int,
    row: int, length: int, start: int, later: Ints, head: int, heads: int,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    extent: int, out: Rows,
) -> None:  # fmt: skip
    """Some tokens of a span and ``heads`` key heads: token by token, each with its query heads."""
    repeats = query.shape[1] // keys.shape[1]
    rows, out_dim = repeats * length, out.shape[2]
    unit = numbers_of(keys[0, 0, 0])
    firsts, ends = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    for r in range(rows):
        position = start + r // repeats
        firsts[r], ends[r] = _first_seen(position, window, chunked), position + 1
    base = firsts[0] - firsts[0] % LANES
    if len(later):
        for r in range(rows):
            ends[r] = max(ends[r], later[row + r // repeats])

    number = np.full(1, asked(query[0, 0, 0]))
    width = -(-query.shape[2] // unit) * unit
    queries = np.zeros((heads, rows, width), dtype=number.dtype)
    for h in range(heads):
        for r in range(rows):
            own = query[row + r // repeats, (head + h) * repeats + r % repeats]
            for i in range(len(own)):
                queries[h, r, i] = asked(own[i])
    # An odd number of cache lines: neighbouring rows are not all in one cache set.
    groups = -(-(ends[-1] - base) // LANES) | 1
    scores = np.empty((heads, rows, groups * LANES), dtype=np.float32)
    score_all(queries, keys, blocks, size, firsts[0], ends, base, head, scale, scores)
    shares = np.empty((heads, rows), dtype=np.float32)
    _weigh(
        scores, firsts, ends, base, row, repeats, query.shape[1], head, softcap, sinks, slopes,
        extent, shares,
    )  # fmt: skip

    sums = np.zeros((heads, rows, -(-out_dim // unit) * unit), dtype=np.float32)
    widened = rows > _FEW_ROWS or sums.shape[2] != out_dim
    add_all(scores, values, blocks, size, firsts, ends, base, head, out_dim, widened, sums)
    for h in range(heads):
        for r in range(rows):
            result = out[row + r // repeats, (head + h) * repeats + r % repeats]
            share, own = shares[h, r], sums[h, r]
            if widened:
                for i in range(out_dim):
                    result[i] = narrow(own[i] * share, result[i])
            else:
                vectors = out_dim // unit
                finish(result[0], own.ctypes.data, vectors, share, result.ctypes.data)


@compiled()
def attend_item(
    query: Rows, keys: Rows, values: Rows, blocks: Ints, size: int,
    row: int, length: int, start: int, later: Ints, head: int, heads: int,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    extent: int, out: Rows,
) -> None:  # fmt: skip
    """One span and ``heads`` key heads from ``head`` on."""
    repeats = query.shape[1] // keys.shape[1]
    together, tokens = heads, length
    if repeats * length > _FEW_ROWS:
        together = 1
        end = max(start + length, later[row + length - 1]) if len(later) else start + length
        seen = end - _first_seen(start, window, chunked)
        most = min(max(_SCORES // seen, ROWS), _MOST_ROWS)
        tokens = max(1, most // repeats)
    for first in range(0, heads, together):
        for begin in range(0, length, tokens):
            _attend_rows(
                query, keys, values, blocks, size,
                row + begin, min(tokens, length - begin), start + begin, later,
                head + first, together,
                scale, window, chunked, softcap, sinks, slopes, extent, out,
            )  # fmt: skip


@compiled(parallel=True)
def attend(
    query: Rows, keys: Rows, values: Rows, spans: Ints, later: Ints, blocks: Ints, size: int,
    chunks: int, parallel: bool,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    extent: int, out: Rows,
) -> None:  # fmt: skip
    """Attend for the spans [n, 4]: row, tokens, first position, and where its ``blocks`` begin.

    ``query`` [T, Hq, D] over the pools ``keys`` and ``values`` [slots, Hk, D] into ``out``
    [T, Hq, Dv]. ``later`` are ``StepImages.ends``; of no length they stand for none, and so do
    ``sinks`` and ``slopes``, and ``window`` and ``softcap`` 0. With ``extent`` E the slopes are
    ``AttentionOptions.near`` instead, [T * Hq * E]: what is added to a token's scores by distance.
    The key heads are cut into ``chunks``; ``parallel`` shares the items out among numba's threads.
    """
    total = keys.shape[1]
    count = len(spans)
    if parallel:
        for item in numba.prange(count * chunks):
            chunk, number = item // count, item % count
            head = total * chunk // chunks
            heads = total * (chunk + 1) // chunks - head
            row, length, start, begin = spans[number]
            attend_item(
                query, keys, values, blocks[begin:], size, row, length, start, later, head, heads,
                scale, window, chunked, softcap, sinks, slopes, extent, out,
            )  # fmt: skip
    else:
        first: Any = np.int64(0)  # a literal would be a type of its own, compiled once more
        for number in range(count):
            row, length, start, begin = spans[number]
            attend_item(
                query, keys, values, blocks[begin:], size, row, length, start, later, first, total,
                scale, window, chunked, softcap, sinks, slopes, extent, out,
            )  # fmt: skip
