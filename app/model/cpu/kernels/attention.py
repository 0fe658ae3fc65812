"""Attention of short spans over the paged cache, compiled: keys and values are read where they lie.

A work item is one span and some key heads. Positions are taken four at a time, all heads of one
before the next four, which is the order in memory (slots [Hk, D]). Scores are float32.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from app.model.cpu.kernels.compiled import compiled, float_of_bits, narrow, prefetch, widen
from app.model.inputs import Ints

Floats = NDArray[np.float32]
Rows = NDArray[Any]
"""Values of half or single width, see ``compiled.as_numpy``."""

_f32: Any = np.float32
LOG2_E = _f32(1.4426950408889634)
_LN2 = _f32(0.6931471805599453)
_SQRT2 = _f32(1.4142135623730951)
_ONE = _f32(1.0)
_LEAST = _f32(-126.0)


@compiled()
def write(rows: Rows, slots: Ints, pool: Rows) -> None:
    """Put keys or values [T, Hk, D] into their slots of ``pool``."""
    for token in range(len(slots)):
        pool[slots[token]] = rows[token]


@compiled(reassociate=True)
def exp2(x: Any) -> Any:
    """``2 ** x`` for x up to 0, within 2e-7 of it; what is below 2 ** -126 becomes that."""
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
def _slots(blocks: Ints, size: int, position: int, end: int) -> tuple[int, int, bool]:
    """The slot of a position, the one to fetch meanwhile, and whether four lie side by side."""
    slot = blocks[position // size] * size + position % size
    later = min(position + 8, end - 1)
    ahead = blocks[later // size] * size + later % size
    return slot, ahead, position % size + 4 <= size and position + 4 <= end


@compiled()
def _fetch(pool: Rows, slot: int, head: int) -> None:
    """Ask for four positions of a head before they are read: blocks lie anywhere in memory."""
    for place in range(slot, slot + 4):
        row = pool[place, head]
        for i in range(0, len(row), 64 // pool.itemsize):
            prefetch(row, i)


@compiled(reassociate=True)
def _scores(
    query: Floats, keys: Rows, blocks: Ints, size: int, first: int, end: int,
    head: int, group: int, scores: Floats,
) -> None:  # fmt: skip
    """Scores [rows, positions] of ``query`` [rows, D]; ``group`` rows for each key head."""
    dim = query.shape[1]
    heads = query.shape[0] // group
    position = first
    while position < end:
        slot, ahead, four = _slots(blocks, size, position, end)
        for h in range(heads):
            _fetch(keys, ahead, head + h)
            a = keys[slot, head + h]
            if four:
                b = keys[slot + 1, head + h]
                c = keys[slot + 2, head + h]
                d = keys[slot + 3, head + h]
                for row in range(h * group, (h + 1) * group):
                    s = t = u = v = _f32(0.0)
                    for i in range(dim):
                        x = query[row, i]
                        s += x * widen(a[i])
                        t += x * widen(b[i])
                        u += x * widen(c[i])
                        v += x * widen(d[i])
                    out = scores[row]
                    out[position] = s
                    out[position + 1] = t
                    out[position + 2] = u
                    out[position + 3] = v
            else:
                for row in range(h * group, (h + 1) * group):
                    s = _f32(0.0)
                    for i in range(dim):
                        s += query[row, i] * widen(a[i])
                    scores[row, position] = s
        position += 4 if four else 1


@compiled(reassociate=True)
def _weighted_sums(
    weights: Floats, values: Rows, blocks: Ints, size: int, first: int, end: int,
    head: int, group: int, sums: Floats,
) -> None:  # fmt: skip
    """Sums [rows, Dv] of the values, by the weights [rows, positions]."""
    dim = sums.shape[1]
    heads = sums.shape[0] // group
    sums[:] = _f32(0.0)
    position = first
    while position < end:
        slot, ahead, four = _slots(blocks, size, position, end)
        for h in range(heads):
            _fetch(values, ahead, head + h)
            a = values[slot, head + h]
            if four:
                b = values[slot + 1, head + h]
                c = values[slot + 2, head + h]
                d = values[slot + 3, head + h]
                for row in range(h * group, (h + 1) * group):
                    own = weights[row]
                    s, t = own[position], own[position + 1]
                    u, v = own[position + 2], own[position + 3]
                    for i in range(dim):
                        sums[row, i] += (s * widen(a[i]) + t * widen(b[i])) + (
                            u * widen(c[i]) + v * widen(d[i])
                        )
            else:
                for row in range(h * group, (h + 1) * group):
                    s = weights[row, position]
                    for i in range(dim):
                        sums[row, i] += s * widen(a[i])
        position += 4 if four else 1


@compiled(reassociate=True)
def _softmax(scores: Floats, softcap: float, sink: float) -> None:
    """Softmax of one row of scores and its sink, in place; the sink's weight is left out."""
    if softcap > 0.0:
        cap = _f32(softcap)
        for i in range(len(scores)):
            scores[i] = cap * _f32(np.tanh(scores[i] / cap))
    top = _f32(sink)
    for i in range(len(scores)):
        top = max(top, scores[i])
    total = _f32(0.0) if sink == -np.inf else exp2((_f32(sink) - top) * LOG2_E)
    for i in range(len(scores)):
        weight = exp2((scores[i] - top) * LOG2_E)
        scores[i] = weight
        total += weight
    share = _ONE / total
    for i in range(len(scores)):
        scores[i] *= share


@compiled()
def _first_seen(position: int, window: int, chunked: bool) -> int:
    """The first key that a query at ``position`` sees."""
    if window == 0:
        return 0
    return position - position % window if chunked else max(0, position - window + 1)


@compiled()
def attend_item(
    query: Rows, keys: Rows, values: Rows, blocks: Ints, size: int,
    row: int, length: int, start: int, head: int, heads: int,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    extent: int, out: Rows,
) -> None:  # fmt: skip
    """One span and ``heads`` key heads from ``head`` on."""
    repeats = query.shape[1] // keys.shape[1]
    group = repeats * length  # rows of a key head: its query heads, each with every token
    rows = heads * group
    end = start + length
    first = _first_seen(start, window, chunked)
    wide = np.empty((rows, query.shape[2]), dtype=np.float32)
    scores = np.empty((rows, end), dtype=np.float32)
    sums = np.empty((rows, out.shape[2]), dtype=np.float32)
    for r in range(rows):
        asked = query[row + r % length, head * repeats + r // length]
        for i in range(len(asked)):
            wide[r, i] = widen(asked[i]) * _f32(scale)
    _scores(wide, keys, blocks, size, first, end, head, group, scores)
    for r in range(rows):
        own_end = start + r % length + 1
        own_first = _first_seen(own_end - 1, window, chunked)
        if extent:
            place = (row + r % length) * query.shape[1] + head * repeats + r // length
            for position in range(max(own_first, own_end - extent), own_end):
                scores[r, position] += slopes[place * extent + own_end - 1 - position]
        elif len(slopes):
            slope = slopes[head * repeats + r // length]
            for position in range(own_first, own_end):
                scores[r, position] -= slope * _f32(own_end - 1 - position)
        sink = _f32(-np.inf)
        if len(sinks):
            sink = sinks[head * repeats + r // length]
        _softmax(scores[r, own_first:own_end], softcap, sink)
        scores[r, first:own_first] = _f32(0.0)
        scores[r, own_end:] = _f32(0.0)
    _weighted_sums(scores, values, blocks, size, first, end, head, group, sums)
    for r in range(rows):
        result = out[row + r % length, head * repeats + r // length]
        for i in range(len(result)):
            result[i] = narrow(sums[r, i], result[i])


@compiled(parallel=True)
def attend(
    query: Rows, keys: Rows, values: Rows, spans: Ints, blocks: Ints, size: int,
    chunks: int, parallel: bool,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    extent: int, out: Rows,
) -> None:  # fmt: skip
    """Attend for the spans [n, 4]: row, tokens, first position, and where its ``blocks`` begin.

    ``query`` [T, Hq, D] over the pools ``keys`` and ``values`` [slots, Hk, D] into ``out``
    [T, Hq, Dv]. ``window`` and ``softcap`` 0 and ``sinks`` and ``slopes`` of no length stand for
    none. With ``extent`` E the slopes are ``AttentionOptions.near`` instead, [T * Hq * E]: what is
    added to a token's scores by distance. The key heads are cut into ``chunks``; ``parallel``
    shares the items out among numba's threads.
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
                query, keys, values, blocks[begin:], size, row, length, start, head, heads,
                scale, window, chunked, softcap, sinks, slopes, extent, out,
            )  # fmt: skip
    else:
        for number in range(count):
            row, length, start, begin = spans[number]
            attend_item(
                query, keys, values, blocks[begin:], size, row, length, start, 0, total,
                scale, window, chunked, softcap, sinks, slopes, extent, out,
            )  # fmt: skip
