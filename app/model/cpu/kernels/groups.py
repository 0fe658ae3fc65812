"""Scores and sums of values over the paged cache, group by group of positions.

Keys and values are read where they lie, 16 to 64 positions of all heads at a time, or copied, 64 of
a head; what is added up, and in which order, is the same (``tiles``). The loops use addresses, in
int64 (numba makes a float of one in uint64): passing an array costs more than some of the tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels.compiled import Floats, Rows, compiled, narrow, widen
from app.model.cpu.kernels.records import at, memory
from app.model.cpu.kernels.tiles import (
    ROWS,
    WIDE,
    add_tile,
    add_wide_tile,
    numbers_of,
    score_tile,
)
from app.model.cpu.kernels.vectors import LANES
from app.model.inputs import Ints

_GROUP = 64
"""Maximum positions of a group: a call of a tile takes those of a whole group."""
_GROUP_BYTES = 24 << 10
"""Maximum bytes of a group of more than 16 positions: they are in the L1 cache for all heads."""

_f32: Any = np.float32


@compiled()
def _find(
    pool: Rows, blocks: Ints, size: int, group: int, first: int, end: int, places: Ints
) -> None:
    """Write the addresses of positions from ``group`` on to ``places``: up to ``end`` and, to fetch
    them meanwhile, two vectors more. Positions outside of ``first`` to ``end``, which may be
    uninitialised, get the address of the nearest inside."""
    begin, pitch = pool.ctypes.data, pool.strides[0]
    position = min(max(group, first), end - 1)
    block, place = position // size, position % size  # once: a division takes tens of cycles
    for i in range(min(len(places), end - group + 2 * LANES)):
        places[i] = begin + (blocks[block] * size + place) * pitch
        if first <= group + i < end - 1:
            place += 1
            if place == size:
                block, place = block + 1, 0


@compiled()
def _positions(pool: Rows, heads: int) -> int:
    """Number of positions of a group."""
    vectors = _GROUP_BYTES // (heads * pool.strides[1]) // LANES
    return min(max(vectors, 1) * LANES, _GROUP)


@compiled()
def _copy_group(pool: Rows, head: int, dim: int, places: Ints, count: int, out: Rows) -> None:
    """Copy a head of the positions at ``places`` to ``out`` [count, D filled up], to its type, and
    write the addresses there to ``places``."""
    for i in range(min(count, len(out))):
        row = memory(at(places[i] + head * pool.strides[1]), (dim,), pool.dtype)
        own = out[i]
        for j in range(dim):
            own[j] = narrow(widen(row[j]), own[j])
        places[i] = own.ctypes.data


@compiled()
def _score(
    like: Any, vectors: int, heads: int, ends: Ints, group: int, most: int,
    queries: int, query_head: int, query_pitch: int,
    places: int, ahead: int, offset: int, offset_head: int,
    scores: int, score_head: int, score_pitch: int, scale: float,
) -> None:  # fmt: skip
    """Scores of the rows of each head with ``most`` positions from ``group`` on, by addresses.

    Rows are left out that end before the group. Scores go to ``scores``, the place of the first
    position in row 0 of the first head. ``query_head`` and the like lie between heads,
    ``query_pitch`` between rows.
    """
    row, count = 0, len(ends)
    while ends[row] <= group:
        row += 1
    for h in range(heads):
        later, r = ahead, row
        while r < count:
            rows = min(ROWS, count - r)
            score_tile(
                like, rows, queries + h * query_head + r * query_pitch, query_pitch,
                places, later, offset + h * offset_head, vectors,
                min(ends[r + rows - 1] - group, most),
                scores + h * score_head + r * score_pitch, score_pitch, _f32(scale),
            )  # fmt: skip
            later, r = places, r + rows


@compiled()
def score_all(
    queries: Rows, keys: Rows, blocks: Ints, size: int, first: int, ends: Ints, base: int,
    head: int, scale: float, scores: Floats,
) -> None:  # fmt: skip
    """Scores [heads, rows, positions from ``base`` on] of ``queries`` [heads, rows, D filled up].

    A row has those of all vectors with a position before its own of ``ends`` [rows].
    """
    heads, dim, end = len(queries), keys.shape[2], ends[-1]
    asked_at, query_head, query_pitch = queries.ctypes.data, queries.strides[0], queries.strides[1]
    scores_at, score_head, score_pitch = scores.ctypes.data, scores.strides[0], scores.strides[1]
    places = np.empty(_GROUP + LANES, dtype=np.int64)
    here: Any = np.int64(places.ctypes.data)
    vectors = queries.shape[2] // numbers_of(queries[0, 0, 0])
    if queries.shape[2] != dim:
        copies = np.zeros((_GROUP, queries.shape[2]), dtype=queries.dtype)
        for h in range(heads):
            for group in range(base, end, _GROUP):
                _find(keys, blocks, size, group, first, end, places)
                _copy_group(keys, head + h, dim, places, end - group + LANES, copies)
                _score(
                    queries[0, 0, 0], vectors, 1, ends, group, _GROUP,
                    asked_at + h * query_head, 0, query_pitch, here, here, 0, 0,
                    scores_at + h * score_head + 4 * (group - base), 0, score_pitch, scale,
                )  # fmt: skip
        return
    most = _positions(keys, heads)
    for group in range(base, end, most):
        _find(keys, blocks, size, group, first, end, places[: most + LANES])
        _score(
            keys[0, 0, 0], vectors, heads, ends, group, most,
            asked_at, query_head, query_pitch,
            here, here + 8 * LANES, head * keys.strides[1], keys.strides[1],
            scores_at + 4 * (group - base), score_head, score_pitch, scale,
        )  # fmt: skip


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
            rows = min(ROWS, end - r)
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
    like: Any, numbers: int, heads: int, firsts: Ints, ends: Ints,
    group: int, after: int, base: int,
    weights: int, weight_head: int, weight_pitch: int,
    places: int, ahead: int, offset: int, offset_head: int,
    sums: int, sum_head: int, sum_pitch: int,
) -> None:  # fmt: skip
    """``_add`` for all rows and what they see of the positions from ``group`` to ``after``.

    Rows are processed together for the positions that all of them see: values of other positions
    may be NaN, which a weight of zero would not remove.
    """
    row, count = 0, len(ends)
    while row < count:
        until = row + min(ROWS, count - row)
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
    places = np.empty(_GROUP + LANES, dtype=np.int64)
    here: Any = np.int64(places.ctypes.data)
    if widened:
        wide = np.zeros((_GROUP, numbers), dtype=np.float32)
        for h in range(heads):
            for group in range(base, end, _GROUP):
                _find(values, blocks, size, group, first, end, places)
                _copy_group(values, head + h, dim, places, end - group, wide)
                _add_group(
                    _f32(0.0), numbers, 1, firsts, ends, group, group + _GROUP, base,
                    weights_at + h * weight_head, 0, weight_pitch, here, here, 0, 0,
                    sums_at + h * sum_head, 0, sum_pitch,
                )  # fmt: skip
        return
    most = _positions(values, heads)
    for group in range(base, end, most):
        _find(values, blocks, size, group, first, end, places[: most + LANES])
        _add_group(
            values[0, 0, 0], numbers, heads, firsts, ends, group, group + most, base,
            weights_at, weight_head, weight_pitch,
            here, here + 8 * LANES, head * values.strides[1], values.strides[1],
            sums_at, sum_head, sum_pitch,
        )  # fmt: skip
