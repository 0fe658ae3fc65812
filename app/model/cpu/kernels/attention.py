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
    """Addresses of 16 positions from ``group`` on. What is not from ``first`` to ``end`` has that
    of a neighbour: there nobody may have written."""
    begin, pitch = pool.ctypes.data, pool.strides[0]
    for i in range(LANES):
        position = min(max(group + i, first), end - 1)
        places[i] = begin + (blocks[position // size] * size + position % size) * pitch


@compiled()
def _copy_group(
    pool: Rows, blocks: Ints, size: int, group: int, first: int, end: int, head: int, dim: int,
    out: Rows,
) -> None:  # fmt: skip
    """16 positions of a head, see ``_find``, into ``out`` [16, D filled up]."""
    for i in range(LANES):
        position = min(max(group + i, first), end - 1)
        row, own = pool[blocks[position // size] * size + position % size, head], out[i]
        for j in range(dim):
            own[j] = asked(row[j])


@compiled()
def _widen_group(
    pool: Rows, blocks: Ints, size: int, group: int, first: int, end: int, head: int, dim: int,
    out: Floats,
) -> None:  # fmt: skip
    """``_copy_group`` to float32."""
    for i in range(LANES):
        position = min(max(group + i, first), end - 1)
        row, own = pool[blocks[position // size] * size + position % size, head], out[i]
        for j in range(dim):
            own[j] = widen(row[j])


@compiled()
def _addresses(rows: Rows, places: Ints) -> None:
    for i in range(len(rows)):
        places[i] = rows.ctypes.data + i * rows.strides[0]


@compiled()
def _score(
    like: Any, queries: Rows, ends: Ints, places: Ints, ahead: Ints, offset: int, place: int,
    group: int, scale: float, scores: Floats,
) -> None:  # fmt: skip
    """Scores of a head's ``queries`` [rows, D] with the 16 positions from ``group`` on.

    They go to ``place`` of each row of ``scores``. Rows that end before are left out.
    """
    row, vectors = 0, queries.shape[1] // numbers_of(like)
    while row < len(queries):
        rows = _tile_rows(len(queries) - row)
        if ends[row + rows - 1] > group:
            keys = LANES // rows
            for part in range(rows):
                at = 8 * part * keys
                score_tile(
                    like, rows, queries.ctypes.data + row * queries.strides[0], queries.strides[0],
                    places.ctypes.data + at, ahead.ctypes.data + at, offset, vectors,
                    scores.ctypes.data + row * scores.strides[0] + 4 * (place + part * keys),
                    scores.strides[0], _f32(scale),
                )  # fmt: skip
            ahead = places
        row += rows


@compiled()
def _score_all(
    queries: Rows, keys: Rows, blocks: Ints, size: int, first: int, base: int, ends: Ints,
    head: int, scale: float, scores: Floats,
) -> None:  # fmt: skip
    """Scores [heads, rows, positions from ``base`` on] of ``queries`` [heads, rows, D filled up]"""
    end, dim = ends[-1], keys.shape[2]
    places, ahead = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    if queries.shape[2] != dim:
        copies = np.zeros((LANES, queries.shape[2]), dtype=queries.dtype)
        _addresses(copies, places)
        for h in range(len(queries)):
            for group in range(base, end, LANES):
                _copy_group(keys, blocks, size, group, first, end, head + h, dim, copies)
                _score(
                    queries[0, 0, 0], queries[h], ends, places, places, 0, group - base, group,
                    scale, scores[h],
                )  # fmt: skip
        return
    _find(keys, blocks, size, base, first, end, ahead)
    for group in range(base, end, LANES):
        places, ahead = ahead, places
        _find(keys, blocks, size, min(group + LANES, end - 1), first, end, ahead)
        for h in range(len(queries)):
            offset = (head + h) * keys.strides[1]
            _score(
                keys[0, 0, 0], queries[h], ends, places, ahead, offset, group - base, group,
                scale, scores[h],
            )  # fmt: skip


@compiled()
def _weigh(
    scores: Floats, firsts: Ints, ends: Ints, base: int, repeats: int, head: int,
    softcap: float, sinks: Floats, slopes: Floats, shares: Floats,
) -> None:  # fmt: skip
    """Make weights of scores, see ``soften``; what they are to be multiplied by are ``shares``."""
    for h in range(len(scores)):
        for r in range(scores.shape[1]):
            query_head, own = (head + h) * repeats + r % repeats, scores[h, r]
            first, end = firsts[r] - base, ends[r] - base
            if len(slopes):
                for i in range(first, end):
                    own[i] -= slopes[query_head] * _f32(end - 1 - i)
            if softcap > 0.0:
                cap(own.ctypes.data, first, end, _f32(softcap))
            sink = sinks[query_head] if len(sinks) else _f32(-np.inf)
            shares[h, r] = soften(own.ctypes.data, first, end, sink)


@compiled()
def _add(
    like: Any, weights: Floats, row: int, rows: int, places: Ints, ahead: Ints, offset: int,
    place: int, group: int, first: int, end: int, sums: Floats,
) -> None:  # fmt: skip
    """Add the values of positions ``first`` to ``end``, those of ``group``, to ``rows`` sums."""
    first, end = max(first, group), min(end, group + LANES)
    if first >= end:
        return
    numbers = numbers_of(like)
    vectors, vector, wide = sums.shape[1] // numbers, 0, WIDE // numbers
    weight = weights.ctypes.data + row * weights.strides[0] + 4 * (place + first - group)
    at = 8 * (first - group)
    value, later = places.ctypes.data + at, ahead.ctypes.data + at
    total = sums.ctypes.data + row * sums.strides[0]
    while vector + wide <= vectors:
        add_wide_tile(
            like, rows, weight, weights.strides[0], value, later, offset, end - first, vector,
            total, sums.strides[0],
        )  # fmt: skip
        vector += wide
    while vector < vectors:
        add_tile(
            like, rows, weight, weights.strides[0], value, later, offset, end - first, vector,
            total, sums.strides[0],
        )  # fmt: skip
        vector += 1


@compiled()
def _add_group(
    like: Any, weights: Floats, firsts: Ints, ends: Ints, places: Ints, ahead: Ints, offset: int,
    place: int, group: int, sums: Floats,
) -> None:  # fmt: skip
    """Add the values of 16 positions to a head's sums [rows, Dv].

    Rows are taken together for the positions that all of them see: what a row does not see may be
    no number, which a weight of zero would not take away.
    """
    row = 0
    while row < len(sums):
        rows = _tile_rows(len(sums) - row)
        after = row + rows
        first, end = firsts[after - 1], ends[row]
        if ends[after - 1] > group and (rows == 1 or (first <= group and group + LANES <= end)):
            _add(like, weights, row, rows, places, ahead, offset, place, group, first, end, sums)
        elif ends[after - 1] > group:
            if first >= end:
                first = end = ends[after - 1]
            for own in range(row, after):
                _add(
                    like, weights, own, 1, places, ahead, offset, place, group,
                    firsts[own], min(first, ends[own]), sums,
                )  # fmt: skip
            _add(like, weights, row, rows, places, places, offset, place, group, first, end, sums)
            for own in range(row, after):
                _add(
                    like, weights, own, 1, places, places, offset, place, group,
                    max(end, firsts[own]), ends[own], sums,
                )  # fmt: skip
        row = after


@compiled()
def _add_all(
    weights: Floats, values: Rows, blocks: Ints, size: int, firsts: Ints, ends: Ints, base: int,
    head: int, dim: int, widened: bool, sums: Floats,
) -> None:  # fmt: skip
    """Sums [heads, rows, Dv filled up] of the values, by the weights."""
    first, end = firsts[0], ends[-1]
    places, ahead = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    if widened:
        wide = np.zeros((LANES, sums.shape[2]), dtype=np.float32)
        _addresses(wide, places)
        for h in range(len(sums)):
            for group in range(base, end, LANES):
                _widen_group(values, blocks, size, group, first, end, head + h, dim, wide)
                _add_group(
                    _f32(0.0), weights[h], firsts, ends, places, places, 0, group - base, group,
                    sums[h],
                )  # fmt: skip
        return
    _find(values, blocks, size, base, first, end, ahead)
    for group in range(base, end, LANES):
        places, ahead = ahead, places
        _find(values, blocks, size, min(group + LANES, end - 1), first, end, ahead)
        for h in range(len(sums)):
            _add_group(
                values[0, 0, 0], weights[h], firsts, ends, places, ahead,
                (head + h) * values.strides[1], group - base, group, sums[h],
            )  # fmt: skip


@compiled()
def _attend_rows(
    query: Rows, keys: Rows, values: Rows, blocks: Ints, size: int,
    row: int, length: int, start: int, head: int, heads: int,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    out: Rows,
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
    scores = np.empty((heads, rows, -(-(ends[-1] - base) // LANES) * LANES), dtype=np.float32)
    _score_all(queries, keys, blocks, size, firsts[0], base, ends, head, scale, scores)
    shares = np.empty((heads, rows), dtype=np.float32)
    _weigh(scores, firsts, ends, base, repeats, head, softcap, sinks, slopes, shares)

    sums = np.zeros((heads, rows, -(-out_dim // unit) * unit), dtype=np.float32)
    widened = rows > ROWS or sums.shape[2] != out_dim
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
    out: Rows,
) -> None:  # fmt: skip
    """One span and ``heads`` key heads from ``head`` on."""
    repeats = query.shape[1] // keys.shape[1]
    together, tokens = heads, length
    if repeats * length > ROWS:
        together = 1
        seen = start + length - _first_seen(start, window, chunked)
        most = min(max(_SCORES // seen, ROWS), _MOST_ROWS)
        tokens = max(1, most // repeats)
    for first in range(0, heads, together):
        for begin in range(0, length, tokens):
            _attend_rows(
                query, keys, values, blocks, size,
                row + begin, min(tokens, length - begin), start + begin, head + first, together,
                scale, window, chunked, softcap, sinks, slopes, out,
            )  # fmt: skip


@compiled(parallel=True)
def attend(
    query: Rows, keys: Rows, values: Rows, spans: Ints, blocks: Ints, size: int,
    chunks: int, parallel: bool,
    scale: float, window: int, chunked: bool, softcap: float, sinks: Floats, slopes: Floats,
    out: Rows,
) -> None:  # fmt: skip
    """Attend for the spans [n, 4]: row, tokens, first position, and where its ``blocks`` begin.

    ``query`` [T, Hq, D] over the pools ``keys`` and ``values`` [slots, Hk, D] into ``out``
    [T, Hq, Dv]. ``window`` and ``softcap`` 0 and ``sinks`` and ``slopes`` of no length stand for
    none. The key heads are cut into ``chunks``; ``parallel`` shares the items out among numba's
    threads.
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
                scale, window, chunked, softcap, sinks, slopes, out,
            )  # fmt: skip
    else:
        for number in range(count):
            row, length, start, begin = spans[number]
            attend_item(
                query, keys, values, blocks[begin:], size, row, length, start, 0, total,
                scale, window, chunked, softcap, sinks, slopes, out,
            )  # fmt: skip
