"""Scores and sums of values over the paged cache, group by group of positions.

Keys and values are read where they lie, 16 to 64 positions of all heads at a time, or copied, 64 of
a head; what is added up, and in which order, is the same (``tiles``). The loops use addresses, in
int64 (numba makes a float of one in uint64), and functions by their address: so they are compiled
once for all types of numbers. An array exists no longer than numba sees its name in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels.compiled import ONE, ZERO, Floats, compiled
from app.model.cpu.kernels.llvm import copy
from app.model.cpu.kernels.records import at, memory
from app.model.cpu.kernels.tiles import ADD, ADD_WIDE, ROWS, SCORE, WIDE, WIDEN, tile
from app.model.cpu.kernels.vectors import LANES
from app.model.inputs import Ints

VECTOR = 64
"""Bytes of a vector of queries: 32 bfloat16 or 16 float32."""

_GROUP: Any = np.int64(64)
"""Maximum positions of a group: a call of a tile takes those of a whole group."""
_GROUP_BYTES = 24 << 10
"""Maximum bytes of a group of more than 16 positions: they are in the L1 cache for all heads."""

_FLOATS: Any = np.int64(LANES)
"""Numbers of a vector of float32."""

_f32: Any = np.float32
_NO_FACTOR = _f32(0.0)


@compiled()
def _find(
    pool: int, pitch: int, blocks: int, size: int, group: int, first: int, end: int, places: Ints
) -> None:
    """Write the addresses of positions from ``group`` on to ``places``: up to ``end`` and, to fetch
    them meanwhile, two vectors more. Positions outside of ``first`` to ``end``, which may be
    uninitialised, get the address of the nearest inside."""
    ids = memory(at(blocks), ((end + size - 1) // size,), np.int64)
    position = min(max(group, first), end - 1)
    block, place = position // size, position % size  # once: a division takes tens of cycles
    for i in range(min(len(places), end - group + 2 * LANES)):
        places[i] = pool + (ids[block] * size + place) * pitch
        if first <= group + i < end - 1:
            place += 1
            if place == size:
                block, place = block + 1, 0


@compiled()
def _positions(size: int) -> int:
    """Number of positions of a group, of ``size`` bytes each."""
    most: int = min(max(_GROUP_BYTES // size // LANES, 1) * LANES, _GROUP)
    return most


@compiled()
def widen_row(call: Any, row: int, count: int, out: int) -> None:
    """``count`` numbers as float32 to ``out``."""
    tile(call.tiles, WIDEN, 0, row, 0, 0, 0, 0, count, 0, out, 0, _NO_FACTOR)


@compiled()
def convert_row(call: Any, row: int, out: int) -> None:
    """The numbers of a query or key to ``out``, in the type of a query's vectors."""
    if call.query_size == call.size:
        copy(row, out, call.dim * call.size)
    else:
        widen_row(call, row, call.dim, out)


@compiled()
def _score(
    tiles: int, vectors: int, heads: int, ends: Ints, group: int, most: int,
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
            tile(
                tiles, SCORE, rows, queries + h * query_head + r * query_pitch, query_pitch,
                places, later, offset + h * offset_head, vectors,
                min(ends[r + rows - 1] - group, most),
                scores + h * score_head + r * score_pitch, score_pitch, _f32(scale),
            )  # fmt: skip
            later, r = places, r + rows


@compiled()
def score_all(
    call: Any, blocks: int, queries: Any, first: int, ends: Ints, base: int, head: int,
    scores: Floats,
) -> None:  # fmt: skip
    """Scores [heads, rows, positions from ``base`` on] of ``queries`` [heads, rows, bytes].

    A row has those of all vectors with a position before its own of ``ends`` [rows].
    """
    heads, end = len(scores), ends[-1]
    queries_at: Any = np.int64(queries.ctypes.data)
    query_head, query_pitch = queries.strides[0], queries.strides[1]
    vectors = query_pitch // VECTOR
    scores_at: Any = np.int64(scores.ctypes.data)
    score_head, score_pitch = scores.strides[0], scores.strides[1]
    size, pitch = call.block_size, call.slot_bytes
    offset = pitch // call.kv_heads
    places = np.empty(_GROUP + LANES, dtype=np.int64)
    here: Any = np.int64(places.ctypes.data)
    if call.dim * call.query_size != query_pitch:  # the last vector is not full
        tiles = call.tiles if call.query_size == call.size else call.float_tiles
        copies = np.zeros((_GROUP, query_pitch), dtype=np.uint8)
        for h in range(heads):
            for group in range(base, end, _GROUP):
                _find(call.keys, pitch, blocks, size, group, first, end, places)
                for i in range(min(_GROUP, end - group + LANES)):
                    own = copies[i].ctypes.data
                    convert_row(call, places[i] + (head + h) * offset, own)
                    places[i] = own
                _score(
                    tiles, vectors, ONE, ends, group, _GROUP,
                    queries_at + h * query_head, ZERO, query_pitch, here, here, ZERO, ZERO,
                    scores_at + h * score_head + 4 * (group - base), ZERO, score_pitch,
                    call.scale,
                )  # fmt: skip
        return
    most = _positions(heads * offset)
    for group in range(base, end, most):
        _find(call.keys, pitch, blocks, size, group, first, end, places[: most + LANES])
        _score(
            call.tiles, vectors, heads, ends, group, most,
            queries_at, query_head, query_pitch,
            here, here + 8 * LANES, head * offset, offset,
            scores_at + 4 * (group - base), score_head, score_pitch, call.scale,
        )  # fmt: skip


@compiled()
def _add(
    tiles: int, unit: int, numbers: int, heads: int, row: int, end: int, positions: int,
    weights: int, weight_head: int, weight_pitch: int,
    places: int, ahead: int, offset: int, offset_head: int,
    sums: int, sum_head: int, sum_pitch: int,
) -> None:  # fmt: skip
    """Add the values of some positions to the sums of rows ``row`` to ``end`` of each head.

    By addresses, as in ``_score``: ``weights`` and ``places`` are those of the first position, and
    ``numbers`` are in a sum, ``unit`` in a vector.
    """
    if positions <= 0:
        return
    vectors, wide = numbers // unit, WIDE // unit
    for h in range(heads):
        later, r, own = ahead, row, offset + h * offset_head
        while r < end:
            rows = min(ROWS, end - r)
            weight = weights + h * weight_head + r * weight_pitch
            total = sums + h * sum_head + r * sum_pitch
            vector = 0
            while vector < vectors:
                many = vector + wide <= vectors
                tile(
                    tiles, ADD_WIDE if many else ADD, rows, weight, weight_pitch,
                    places, later, own, positions, vector, total, sum_pitch, _NO_FACTOR,
                )  # fmt: skip
                vector += wide if many else 1
            later, r = places, r + rows


@compiled()
def _add_group(
    tiles: int, unit: int, numbers: int, heads: int, firsts: Ints, ends: Ints,
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
        apart = first > group or end < after
        for part in range(3):  # positions before those, those, and positions after them
            together = part == 1
            for own in range(row, row + 1 if together else until if apart else row):
                begin = first if together else max(firsts[own], end if part else group)
                stop = end if together else min(ends[own], after if part else first)
                begin_at = 8 * (begin - group)
                _add(
                    tiles, unit, numbers, heads, own, until if together else own + 1, stop - begin,
                    weights + 4 * (begin - base), weight_head, weight_pitch,
                    places + begin_at, ahead + begin_at, offset, offset_head,
                    sums, sum_head, sum_pitch,
                )  # fmt: skip
        row = until


@compiled()
def add_all(
    call: Any, weights: Floats, blocks: int, firsts: Ints, ends: Ints, base: int,
    head: int, widened: bool, sums: Floats,
) -> None:  # fmt: skip
    """Weighted sums of the values: [heads, rows, Dv padded]."""
    first, end = firsts[0], ends[-1]
    heads, numbers = len(sums), sums.shape[2]
    weights_at: Any = np.int64(weights.ctypes.data)
    weight_head, weight_pitch = weights.strides[0], weights.strides[1]
    sums_at: Any = np.int64(sums.ctypes.data)
    sum_head, sum_pitch = sums.strides[0], sums.strides[1]
    size, pitch = call.block_size, call.value_slot_bytes
    offset = pitch // call.kv_heads
    places = np.empty(_GROUP + LANES, dtype=np.int64)
    here: Any = np.int64(places.ctypes.data)
    if widened:
        wide = np.zeros((_GROUP, numbers), dtype=np.float32)
        for h in range(heads):
            for group in range(base, end, _GROUP):
                _find(call.values, pitch, blocks, size, group, first, end, places)
                for i in range(min(_GROUP, end - group)):
                    own = wide[i].ctypes.data
                    widen_row(call, places[i] + (head + h) * offset, call.value_dim, own)
                    places[i] = own
                _add_group(
                    call.float_tiles, _FLOATS, numbers, ONE, firsts, ends,
                    group, group + _GROUP, base,
                    weights_at + h * weight_head, ZERO, weight_pitch,
                    here, here, ZERO, ZERO,
                    sums_at + h * sum_head, ZERO, sum_pitch,
                )  # fmt: skip
        return
    most = _positions(heads * offset)
    for group in range(base, end, most):
        _find(call.values, pitch, blocks, size, group, first, end, places[: most + LANES])
        _add_group(
            call.tiles, VECTOR // call.query_size, numbers, heads, firsts, ends,
            group, group + most, base,
            weights_at, weight_head, weight_pitch,
            here, here + 8 * LANES, head * offset, offset,
            sums_at, sum_head, sum_pitch,
        )  # fmt: skip
