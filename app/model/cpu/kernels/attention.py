"""Attention over the paged cache, compiled: a row's numbers depend on its own position alone.

A work item is one span and some key heads. Positions are taken in groups, of whole vectors of 16
counted from position 0. For few rows keys and values are read where they lie, all heads of a group
before the next one, which is the order in memory (slots [Hk, D]); for many rows the values of a
head are widened once for all of them. What is added up, and in which order, is the same: see
``tiles``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from app.model.cpu.kernels import tiles
from app.model.cpu.kernels.compiled import NUMBERS, Floats, address_of, compiled, float_of_bits
from app.model.cpu.kernels.groups import VECTOR, add_all, convert_row, score_all
from app.model.cpu.kernels.llvm import copy
from app.model.cpu.kernels.records import ATTENTION, Records, at, memory
from app.model.cpu.kernels.tiles import FINISH, NARROW, ROWS, cap, soften, tile
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
def write(rows: int, slots: Ints, pool: int, size: int) -> None:
    """Put keys or values of ``size`` bytes each at an address into their slots of the pool."""
    for token in range(len(slots)):
        copy(rows + token * size, pool + slots[token] * size, size)


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
    call: Any, scores: Floats, firsts: Ints, ends: Ints, base: int, row: int, head: int,
    shares: Floats,
) -> None:  # fmt: skip
    """Convert scores to weights, see ``soften``; ``shares``: the factors that normalise them."""
    repeats, extent = call.heads // call.kv_heads, call.extent
    sinks = memory(at(call.sinks), (call.heads,), _f32)
    slopes = memory(at(call.slopes), (call.slope_count,), _f32)
    for h in range(len(scores)):
        for r in range(scores.shape[1]):
            query_head, own = (head + h) * repeats + r % repeats, scores[h, r]
            first, end = firsts[r] - base, ends[r] - base
            if extent:
                place = ((row + r // repeats) * call.heads + query_head) * extent
                for i in range(max(first, end - extent), end):
                    own[i] += slopes[place + end - 1 - i]
            elif len(slopes):
                for i in range(first, end):
                    own[i] -= slopes[query_head] * _f32(end - 1 - i)
            if call.softcap > 0.0:
                cap(own.ctypes.data, first, end, _f32(call.softcap))
            sink = sinks[query_head] if call.sinks else _f32(-np.inf)
            shares[h, r] = soften(own.ctypes.data, first, end, sink)


@compiled()
def _attend_rows(
    call: Any, blocks: int, later: Ints, row: int, length: int, start: int, head: int, heads: int
) -> None:
    """Some tokens of a span and ``heads`` key heads: token by token, each with its query heads."""
    repeats = call.heads // call.kv_heads
    rows, unit = repeats * length, VECTOR // call.query_size
    firsts, ends = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    for r in range(rows):
        position = start + r // repeats
        firsts[r], ends[r] = _first_seen(position, call.window, call.chunked), position + 1
        if len(later):
            ends[r] = max(ends[r], later[row + r // repeats])
    base = firsts[0] - firsts[0] % LANES

    size = -(-call.dim // unit) * VECTOR
    queries = np.zeros((heads, rows, size), dtype=np.uint8)
    for h in range(heads):
        for r in range(rows):
            query_head = (head + h) * repeats + r % repeats
            place = call.query + (row + r // repeats) * call.query_pitch
            place += query_head * call.dim * call.size
            convert_row(call, place, queries[h, r].ctypes.data)
    # An odd number of cache lines: neighbouring rows are not all in one cache set.
    groups = -(-(ends[-1] - base) // LANES) | 1
    scores = np.empty((heads, rows, groups * LANES), dtype=np.float32)
    score_all(call, blocks, queries, firsts[0], ends, base, head, scores)
    shares = np.empty((heads, rows), dtype=np.float32)
    _weigh(call, scores, firsts, ends, base, row, head, shares)

    dim = call.value_dim
    sums = np.zeros((heads, rows, -(-dim // unit) * unit), dtype=np.float32)
    widened = rows > _FEW_ROWS or sums.shape[2] != dim
    add_all(call, scores, blocks, firsts, ends, base, head, widened, sums)
    for h in range(heads):
        for r in range(rows):
            query_head = (row + r // repeats) * call.heads + (head + h) * repeats + r % repeats
            tile(
                call.tiles, NARROW if widened else FINISH, 0, sums[h, r].ctypes.data, 0, 0, 0, 0,
                dim if widened else dim // unit, 0,
                call.out + query_head * dim * call.size, 0, shares[h, r],
            )  # fmt: skip


def _attend(call_at: int, item: int) -> None:
    """One item of an ``ATTENTION`` record: a span and some of its key heads."""
    call = memory(at(call_at), (1,), ATTENTION)[0]
    chunk, place = item // call.span_count, item % call.span_count
    row, length, start, begin = memory(at(call.spans), (call.span_count, 4), np.int64)[place]
    later = memory(at(call.later), (call.later_count,), np.int64)
    head = call.kv_heads * chunk // call.chunks
    heads = call.kv_heads * (chunk + 1) // call.chunks - head
    repeats = call.heads // call.kv_heads
    together, tokens = heads, length
    if repeats * length > _FEW_ROWS:
        together = 1
        end = max(start + length, later[row + length - 1]) if len(later) else start + length
        seen = end - _first_seen(start, call.window, call.chunked)
        most = min(max(_SCORES // seen, ROWS), _MOST_ROWS)
        tokens = max(1, most // repeats)
    for first in range(0, heads, together):
        for done in range(0, length, tokens):
            _attend_rows(
                call, call.blocks + 8 * begin, later,
                row + done, min(tokens, length - done), start + done, head + first, together,
            )  # fmt: skip


def new_call(dtype: torch.dtype) -> Records:
    """An ``ATTENTION`` record with the fields that depend on the type of numbers alone."""
    call = np.zeros(1, dtype=ATTENTION)
    call["tiles"], call["float_tiles"] = tiles.entry(NUMBERS[dtype]), tiles.entry(np.float32)
    call["size"], call["query_size"] = dtype.itemsize, 2 if dtype == torch.bfloat16 else 4
    return call


def entry() -> int:
    """The address of the function that does an item of an ``ATTENTION`` record."""
    return address_of(_attend, "void(int64, int64)")
