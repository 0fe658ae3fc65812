"""Scores and sums of values over the paged cache, group by group of 16 positions.

Keys and values are read where they lie, or copied, a head's 16 positions at a time; what is added
up, and in which order, is the same (``tiles``). The loops use addresses: passing an array costs
more than some of the tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels.compiled import Floats, Rows, compiled, widen
from app.model.cpu.kernels.tiles import (
    ROWS,
    WIDE,
    add_tile,
    add_wide_tile,
    asked,
    numbers_of,
    score_tile,
)
from app.model.cpu.kernels.vectors import LANES
from app.model.inputs import Ints

_f32: Any = np.float32


@compiled()
def _tile_rows(left: int) -> int:
    """Number of the remaining rows that are processed together."""
    return ROWS if left >= ROWS else min(left, 2)


@compiled()
def _find(
    pool: Rows, blocks: Ints, size: int, group: int, first: int, end: int, places: Ints
) -> None:
    """Write the addresses of 16 positions from ``group`` on to ``places``. Positions outside of
    ``first`` to ``end``, which may be uninitialised, get the address of the nearest inside."""
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
def score_all(
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
    """The first row of the tile with the first row that sees a position of a group."""
    row = max(0, group - start) * repeats
    return row - row % ROWS


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

    Rows are processed together for the positions that all of them see: values of other positions
    may be NaN, which a weight of zero would not remove.
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
def add_all(
    weights: Floats, values: Rows, blocks: Ints, size: int, firsts: Ints, ends: Ints, base: int,
    head: int, dim: int, widened: bool, sums: Floats,
) -> None:  # fmt: skip
    """Weighted sums of the values: [heads, rows, Dv padded]."""
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
