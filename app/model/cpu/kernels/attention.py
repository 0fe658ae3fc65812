"""Attention over the paged cache, compiled: a row's numbers depend on its own position alone.

A work item is one span and some key heads. Positions are taken 16 at a time, counted from position
0. For few rows keys and values are read where they lie, all heads of 16 positions before the next
ones, which is the order in memory (slots [Hk, D]); for many rows 16 positions of a head are widened
once for all of them. What is added up, and in which order, is the same: see ``tiles``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from app.model.cpu.kernels.compiled import compiled, float_of_bits, narrow, widen
from app.model.cpu.kernels.tiles import (
    LANES,
    ROWS,
    WIDE,
    add_tile,
    add_wide_tile,
    asked,
    cap,
    numbers_of,
    score_tile,
    soften,
)
from app.model.inputs import Ints

Floats = NDArray[np.float32]
Rows = NDArray[Any]
"""Values of half or single width, see ``compiled.as_numpy``."""

_FEW_ROWS = 16
"""Rows of a head up to which all heads of some positions are read before the next ones."""
_MOST_ROWS = 64
"""Rows of a head for which positions are widened at a time: token by token, each with its heads."""
_SCORES = 1 << 18
"""Scores that are kept at a time, where that leaves a few rows: they stay in the second cache."""

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
def _first_seen(position: int, window: int, chunked: bool) -> int:
    """The first key that a query at ``position`` sees."""
    if window == 0:
        return 0
    return position - position % window if chunked else max(0, position - window + 1)


@compiled()
def _tile_rows(left: int) -> int:
    """How many of the rows that are left are worked on together."""
    return ROWS if left >= ROWS else min(left, 2)


@compiled()
def _find(
    pool: Rows, blocks: Ints, size: int, group: int, first: int, end: int, places: Ints
) -> None:
    """Put addresses of 16 positions from ``group`` on to ``places``. What is not from ``first`` to
    ``end`` has that of a neighbour: there nobody may have written."""
    begin, pitch = pool.ctypes.data, pool.strides[0]
    for i in range(LANES):
        position = min(max(group + i, first), end - 1)
        places[i] = begin + (blocks[position // size] * size + position % size) * pitch


@compiled()
def _copy_group(
    pool: Rows, blocks: Ints, size: int, group: int, first: int, end: int, head: int, dim: int,
    out: Rows, places: Ints,
) -> None:  # fmt: skip
    """16 positions of a head, see ``_find``, into ``out`` [16, D filled up], at ``places``."""
    for i in range(LANES):
        places[i] = out.ctypes.data + i * out.strides[0]
        position = min(max(group + i, first), end - 1)
        row, own = pool[blocks[position // size] * size + position % size, head], out[i]
        for j in range(dim):
            own[j] = asked(row[j])


@compiled()
def _widen_group(
    pool: Rows, blocks: Ints, size: int, group: int, first: int, end: int, head: int, dim: int,
    out: Floats, places: Ints,
) -> None:  # fmt: skip
    """``_copy_group`` to float32."""
    for i in range(LANES):
        places[i] = out.ctypes.data + i * out.strides[0]
        position = min(max(group + i, first), end - 1)
        row, own = pool[blocks[position // size] * size + position % size, head], out[i]
        for j in range(dim):
            own[j] = widen(row[j])


@compiled()
def _score(
    like: Any, vectors: int, heads: int, row: int, count: int,
    queries: int, query_head: int, query_pitch: int,
    places: int, ahead: int, offset: int, offset_head: int,
    scores: int, score_head: int, score_pitch: int, scale: float,
) -> None:  # fmt: skip
    """Scores of rows ``row`` to ``count`` of each head with 16 positions, by addresses.

    They go to ``scores``, the place of the first of the positions in row 0 of the first head.
    ``query_head`` and the like lie between heads, ``query_pitch`` between rows.
    """
    for h in range(heads):
        later, r = ahead, row
        while r < count:
            rows = _tile_rows(count - r)
            keys = LANES // rows
            for part in range(rows):
                score_tile(
                    like, rows, queries + h * query_head + r * query_pitch, query_pitch,
                    places + 8 * part * keys, later + 8 * part * keys, offset + h * offset_head,
                    vectors, scores + h * score_head + r * score_pitch + 4 * part * keys,
                    score_pitch, _f32(scale),
                )  # fmt: skip
            later, r = places, r + rows


@compiled()
def _score_all(
    queries: Rows, keys: Rows, blocks: Ints, size: int, first: int, end: int, base: int,
    start: int, repeats: int, head: int, scale: float, scores: Floats,
) -> None:  # fmt: skip
    """Scores [heads, rows, positions from ``base`` on] of ``queries`` [heads, rows, D filled up].

    Rows are left out that end before a group of positions.
    """
    heads, rows, dim = len(queries), queries.shape[1], keys.shape[2]
    asked_at, query_head, query_pitch = queries.ctypes.data, queries.strides[0], queries.strides[1]
    scores_at, score_head, score_pitch = scores.ctypes.data, scores.strides[0], scores.strides[1]
    places, ahead = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    here, there = places.ctypes.data, ahead.ctypes.data
    vectors = queries.shape[2] // numbers_of(queries[0, 0, 0])
    if queries.shape[2] != dim:
        copies = np.zeros((LANES, queries.shape[2]), dtype=queries.dtype)
        for h in range(heads):
            for group in range(base, end, LANES):
                _copy_group(keys, blocks, size, group, first, end, head + h, dim, copies, places)
                _score(
                    queries[0, 0, 0], vectors, 1, _first_row(group, start, repeats), rows,
                    asked_at + h * query_head, 0, query_pitch, here, here, 0, 0,
                    scores_at + h * score_head + 4 * (group - base), 0, score_pitch, scale,
                )  # fmt: skip
        return
    _find(keys, blocks, size, base, first, end, places)
    for group in range(base, end, LANES):
        _find(keys, blocks, size, min(group + LANES, end - 1), first, end, ahead)
        _score(
            keys[0, 0, 0], vectors, heads, _first_row(group, start, repeats), rows,
            asked_at, query_head, query_pitch,
            here, there, head * keys.strides[1], keys.strides[1],
            scores_at + 4 * (group - base), score_head, score_pitch, scale,
        )  # fmt: skip
        places, ahead, here, there = ahead, places, there, here


@compiled()
def _first_row(group: int, start: int, repeats: int) -> int:
    """The first one that is worked on with a row that sees a position of a group."""
    row = max(0, group - start) * repeats
    return row - row % ROWS


@compiled()
def _weigh(
    scores: Floats, firsts: Ints, ends: Ints, base: int, row: int, repeats: int, query_heads: int,
    head: int, softcap: float, sinks: Floats, slopes: Floats, extent: int, shares: Floats,
) -> None:  # fmt: skip
    """Make weights of scores, see ``soften``; what they are to be multiplied by are ``shares``."""
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
def _add(
    like: Any, numbers: int, heads: int, row: int, end: int, positions: int,
    weights: int, weight_head: int, weight_pitch: int,
    places: int, ahead: int, offset: int, offset_head: int,
    sums: int, sum_head: int, sum_pitch: int,
) -> None:  # fmt: skip
    """Add the values of some positions to the sums of rows ``row`` to ``end`` of each head.

    By addresses, as in ``_score``: ``weights`` and ``places`` are those of the first position, and
    ``numbers`` are in a sum.
    """
    if positions <= 0:
        return
    unit = numbers_of(like)
    vectors, wide = numbers // unit, WIDE // unit
    for h in range(heads):
        later, r, own = ahead, row, offset + h * offset_head
        while r < end:
            rows = _tile_rows(end - r)
            weight = weights + h * weight_head + r * weight_pitch
            total = sums + h * sum_head + r * sum_pitch
            vector = 0
            while vector + wide <= vectors:
                add_wide_tile(
                    like, rows, weight, weight_pitch, places, later, own, positions, vector, total,
                    sum_pitch,
                )  # fmt: skip
                vector += wide
            while vector < vectors:
                add_tile(
                    like, rows, weight, weight_pitch, places, later, own, positions, vector, total,
                    sum_pitch,
                )  # fmt: skip
                vector += 1
            later, r = places, r + rows


@compiled()
def _add_group(
    like: Any, numbers: int, heads: int, firsts: Ints, ends: Ints, group: int, base: int,
    weights: int, weight_head: int, weight_pitch: int,
    places: int, ahead: int, offset: int, offset_head: int,
    sums: int, sum_head: int, sum_pitch: int,
) -> None:  # fmt: skip
    """``_add`` for all rows and what they see of the 16 positions from ``group`` on.

    Rows are taken together for the positions that all of them see: what a row does not see may be
    no number, which a weight of zero would not take away.
    """
    count, after = len(ends), group + LANES
    row = 0
    while row < count:
        until = row + _tile_rows(count - row)
        first, end = max(firsts[until - 1], group), min(ends[row], after)
        if row == 0 and firsts[count - 1] <= group and after <= end:
            until = count  # all see all
        if first >= end:  # the last one may see what the first one does not, and none all of them
            first = end = min(ends[until - 1], after)
        if first > group or end < after:
            for own in range(row, until):
                begin, stop = max(firsts[own], group), min(first, ends[own])
                at = begin - group
                _add(
                    like, numbers, heads, own, own + 1, stop - begin,
                    weights + 4 * (begin - base), weight_head, weight_pitch,
                    places + 8 * at, ahead + 8 * at, offset, offset_head, sums, sum_head, sum_pitch,
                )  # fmt: skip
        at = first - group
        _add(
            like, numbers, heads, row, until, end - first,
            weights + 4 * (first - base), weight_head, weight_pitch,
            places + 8 * at, ahead + 8 * at, offset, offset_head, sums, sum_head, sum_pitch,
        )  # fmt: skip
        if first > group or end < after:
            for own in range(row, until):
                begin, stop = max(end, firsts[own]), min(ends[own], after)
                at = begin - group
                _add(
                    like, numbers, heads, own, own + 1, stop - begin,
                    weights + 4 * (begin - base), weight_head, weight_pitch,
                    places + 8 * at, ahead + 8 * at, offset, offset_head, sums, sum_head, sum_pitch,
                )  # fmt: skip
        row = until


@compiled()
def _add_all(
    weights: Floats, values: Rows, blocks: Ints, size: int, firsts: Ints, ends: Ints, base: int,
    head: int, dim: int, widened: bool, sums: Floats,
) -> None:  # fmt: skip
    """Sums [heads, rows, Dv filled up] of the values, by the weights."""
    first, end = firsts[0], ends[-1]
    heads, numbers = len(sums), sums.shape[2]
    weights_at, weight_head, weight_pitch = (
        weights.ctypes.data, weights.strides[0], weights.strides[1]
    )  # fmt: skip
    sums_at, sum_head, sum_pitch = sums.ctypes.data, sums.strides[0], sums.strides[1]
    places, ahead = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    here, there = places.ctypes.data, ahead.ctypes.data
    if widened:
        wide = np.zeros((LANES, numbers), dtype=np.float32)
        for h in range(heads):
            for group in range(base, end, LANES):
                _widen_group(values, blocks, size, group, first, end, head + h, dim, wide, places)
                _add_group(
                    _f32(0.0), numbers, 1, firsts, ends, group, base,
                    weights_at + h * weight_head, 0, weight_pitch, here, here, 0, 0,
                    sums_at + h * sum_head, 0, sum_pitch,
                )  # fmt: skip
        return
    _find(values, blocks, size, base, first, end, places)
    for group in range(base, end, LANES):
        _find(values, blocks, size, min(group + LANES, end - 1), first, end, ahead)
        _add_group(
            values[0, 0, 0], numbers, heads, firsts, ends, group, base,
            weights_at, weight_head, weight_pitch,
            here, there, head * values.strides[1], values.strides[1], sums_at, sum_head, sum_pitch,
        )  # fmt: skip
        places, ahead, here, there = ahead, places, there, here


@compiled()
def _attend_rows(
    query: Rows, keys: Rows, values: Rows, blocks: Ints, size: int,
    row: int, length: int, start: int, head: int, heads: int,
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

    number = np.full(1, asked(query[0, 0, 0]))
    width = -(-query.shape[2] // unit) * unit
    queries = np.zeros((heads, rows, width), dtype=number.dtype)
    for h in range(heads):
        for r in range(rows):
            own = query[row + r // repeats, (head + h) * repeats + r % repeats]
            for i in range(len(own)):
                queries[h, r, i] = asked(own[i])
    # An odd number of cache lines: rows side by side are not all in one place of the cache.
    groups = -(-(ends[-1] - base) // LANES) | 1
    scores = np.empty((heads, rows, groups * LANES), dtype=np.float32)
    _score_all(
        queries, keys, blocks, size, firsts[0], ends[-1], base, start, repeats, head, scale, scores
    )
    shares = np.empty((heads, rows), dtype=np.float32)
    _weigh(
        scores, firsts, ends, base, row, repeats, query.shape[1], head, softcap, sinks, slopes,
        extent, shares,
    )  # fmt: skip

    sums = np.zeros((heads, rows, -(-out_dim // unit) * unit), dtype=np.float32)
    widened = rows > _FEW_ROWS or sums.shape[2] != out_dim
    _add_all(scores, values, blocks, size, firsts, ends, base, head, out_dim, widened, sums)
    by_twos = unit > LANES and not widened
    for h in range(heads):
        for r in range(rows):
            result = out[row + r // repeats, (head + h) * repeats + r % repeats]
            share, own = shares[h, r], sums[h, r]
            if by_twos:  # of 32 numbers the even ones, then the odd ones
                for begin in range(0, out_dim, unit):
                    for i in range(LANES):
                        even, odd = begin + 2 * i, begin + 2 * i + 1
                        result[even] = narrow(own[begin + i] * share, result[even])
                        result[odd] = narrow(own[begin + LANES + i] * share, result[odd])
            else:
                for i in range(out_dim):
                    result[i] = narrow(own[i] * share, result[i])


@compiled()
def attend_item(
    query: Rows, keys: Rows, values: Rows, blocks: Ints, size: int,
    row: int, length: int, start: int, head: int, heads: int,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    extent: int, out: Rows,
) -> None:  # fmt: skip
    """One span and ``heads`` key heads from ``head`` on."""
    repeats = query.shape[1] // keys.shape[1]
    together, tokens = heads, length
    if repeats * length > _FEW_ROWS:
        together = 1
        seen = start + length - _first_seen(start, window, chunked)
        most = min(max(_SCORES // seen, ROWS), _MOST_ROWS)
        tokens = max(1, most // repeats)
    for first in range(0, heads, together):
        for begin in range(0, length, tokens):
            _attend_rows(
                query, keys, values, blocks, size,
                row + begin, min(tokens, length - begin), start + begin, head + first, together,
                scale, window, chunked, softcap, sinks, slopes, extent, out,
            )  # fmt: skip


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
