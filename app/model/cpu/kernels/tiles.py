"""Attention's sums for a few rows at a time, in one order however many rows and keys there are.

A compiler chooses the order of sums in a loop, and another one for one row than for four. These are
written instruction by instruction, so that a number depends on its own row alone:

- a score adds up 16 products at a time, lane by lane, and then the lanes, by halves;
- a sum of values adds one position after the other;
- a softmax adds up 16 lanes, then the lanes; a position is in the lane of its number modulo 16.

Sums are float32, by ``fma``. Addresses, and pitches from row to row, are in bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from app.model.cpu.kernels.compiled import address_of, narrow, widen
from app.model.cpu.kernels.llvm import FLOAT, I32, I64, VOID, declare, defined, intrinsic, pointer
from app.model.cpu.kernels.records import at, memory
from app.model.cpu.kernels.vectors import (
    FLOATS,
    HALVES,
    LANES,
    LOG2_E,
    WORDS,
    address_in,
    as_floats,
    as_pairs,
    dot,
    exp2,
    fetch,
    filled,
    fma,
    halves,
    lane_sums,
    loop,
    narrowed,
    numbers_in,
    single,
    spread,
)

ROWS = 4
"""Maximum rows that are processed together."""
TOGETHER = 4
"""Keys that are processed together."""
WIDE = 64
"""Numbers of a value that are processed together, if it has so many."""

SCORE, ADD, ADD_WIDE, FINISH, WIDEN, NARROW = range(6)

_f32: Any = np.float32
_NAMES = {types.uint16: "bfloat16", types.int16: "float16", types.float32: "float32"}
"""Names of number types, by the type in ``compiled.as_numpy``."""


@intrinsic
def _sum_tile(
    _context: Any, like: Any, what: Any, rows: Any, own: Any, pitch: Any, places: Any, ahead: Any,
    offset: Any, first: Any, second: Any, out: Any, out_pitch: Any, factor: Any,
) -> Any:  # fmt: skip
    """``SCORE``, ``ADD``, ``ADD_WIDE`` or ``FINISH`` for ``like``'s type, see ``tile``."""
    if like not in _NAMES:
        return None
    by_rows: dict[int, tuple[str, Callable[..., None]]] = {
        SCORE: ("score", _score),
        ADD: ("add", partial(_add, lines=1)),
        ADD_WIDE: ("add_wide", partial(_add, lines=WIDE // numbers_in(like))),
    }
    kinds = [I64] * 9 + [FLOAT]

    def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, what, rows, *rest = arguments
        for number, (name, write) in by_rows.items():
            with builder.if_then(builder.icmp_signed("==", what, I64(number))):
                for count in range(1, ROWS + 1):
                    own = partial(write, rows=count, like=like)
                    function = defined(builder, f"{name}_{_NAMES[like]}_{count}", kinds, own)
                    with builder.if_then(builder.icmp_signed("==", rows, I64(count))):
                        builder.call(function, rest)
        with builder.if_then(builder.icmp_signed("==", what, I64(FINISH))):
            finish = partial(_finish, like=like)
            builder.call(defined(builder, f"finish_{_NAMES[like]}", kinds, finish), rest)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 11, types.float32), emit


@functools.cache
def entry(number: Any) -> int:
    """The address of the functions for rows of a type of ``compiled.as_numpy``, see ``tile``."""

    def run(
        what: int, rows: int, own: int, pitch: int, places: int, ahead: int, offset: int,
        first: int, second: int, out: int, out_pitch: int, factor: float,
    ) -> None:  # fmt: skip
        like = number(0)
        if what == WIDEN:
            narrow_row, wide = memory(at(own), (first,), number), memory(at(out), (first,), _f32)
            for i in range(first):
                wide[i] = widen(narrow_row[i])
        elif what == NARROW:
            wide, narrow_row = memory(at(own), (first,), _f32), memory(at(out), (first,), number)
            for i in range(first):
                narrow_row[i] = narrow(wide[i] * factor, like)
        else:
            _sum_tile(
                like, what, rows, own, pitch, places, ahead, offset, first, second, out, out_pitch,
                factor,
            )  # fmt: skip

    return address_of(run, "void(" + "int64, " * 11 + "float32)")


@intrinsic
def tile(
    _context: Any, function: Any, what: Any, rows: Any, own: Any, pitch: Any, places: Any,
    ahead: Any, offset: Any, first: Any, second: Any, out: Any, out_pitch: Any, factor: Any,
) -> Any:  # fmt: skip
    """Call ``function``, an ``entry``, to do what its first argument says:

    - ``SCORE``: scores of 1 to 4 ``rows`` with ``second`` keys, filled up to a multiple of 16,
      times ``factor``. Rows are bfloat16 if the keys are, else float32; both are ``first`` vectors
      long, with ``numbers_in`` numbers each;
    - ``ADD``: add ``first`` values, from 1 on, to the sums of 1 to 4 ``rows``, by the weights of
      each row. Only the numbers of vector ``second`` are added; sums of bfloat16 have the even
      numbers of a vector, then the odd ones;
    - ``ADD_WIDE``: the same for 64 numbers from vector ``second`` on;
    - ``FINISH``: the sums of a row at ``own``, as ``ADD`` leaves them, ``first`` vectors, times
      ``factor`` to ``out``, as numbers of the entry's type;
    - ``WIDEN``: ``first`` numbers at ``own`` as float32 to ``out``;
    - ``NARROW``: ``first`` float32 at ``own``, times ``factor``, to ``out``.

    ``places`` has the addresses of keys or values, ``ahead`` those of others to fetch meanwhile,
    each plus ``offset``. Rows of queries or weights are at ``own``, ``pitch`` apart, results at
    ``out``, ``out_pitch`` apart.
    """
    kinds = [I64] * 11 + [FLOAT]

    def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        address, *rest = arguments
        builder.call(pointer(builder, address, ir.FunctionType(VOID, kinds)), rest)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 12, types.float32), emit


@intrinsic
def soften(_context: Any, scores: Any, first: Any, end: Any, sink: Any) -> Any:
    """Convert a row's scores to weights: ``2 ** ((score - largest) * log2(e))``, 0 elsewhere.

    The row begins at the address ``scores`` with a position that is a multiple of 16; its scores
    are those from ``first`` to ``end``, and vectors with one of them are weights then. ``sink`` is
    another score, or -inf. Returns 1 / (sum of all weights, with the sink's).
    """
    kinds = [types.int64] * 3
    return types.float32(*kinds, types.float32), _call(
        "soften", FLOAT, [I64] * 3 + [FLOAT], _soften
    )


@intrinsic
def cap(_context: Any, scores: Any, first: Any, end: Any, most: Any) -> Any:
    """``most * tanh(score / most)`` of the vectors of 16 that have scores from ``first`` on."""
    kinds = [types.int64] * 3
    return types.void(*kinds, types.float32), _call("cap", VOID, [I64] * 3 + [FLOAT], _cap)


def _call(name: str, result: Any, kinds: list[Any], write: Callable[[Any], None]) -> Any:
    def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        value = builder.call(defined(builder, name, kinds, write, result), arguments)
        return context.get_dummy_value() if result is VOID else value

    return emit


def _score(function: Any, rows: int, like: Any) -> None:
    query, pitch, keys, ahead, offset, vectors, total, out, out_pitch, scale = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    lines = [builder.add(query, builder.mul(pitch, I64(row))) for row in range(rows)]
    count = LANES // rows // TOGETHER * TOGETHER  # keys whose sums are one vector
    end = builder.and_(builder.add(total, I64(LANES - 1)), I64(-LANES))
    read, multiply = (as_pairs, dot) if like == types.uint16 else (as_floats, fma)
    asked_like = like if like == types.uint16 else types.float32

    def score(first: Any, _: list[Any]) -> list[Any]:
        sums: list[list[Any]] = [[] for _ in range(rows)]
        for begin in range(0, count, TOGETHER):
            numbers = [builder.add(first, I64(begin + i)) for i in range(TOGETHER)]
            own, later = (
                [address_in(builder, addresses, number, offset) for number in numbers]
                for addresses in (keys, ahead)
            )

            def turn(
                number: Any, running: list[Any], own: list[Any] = own, later: list[Any] = later
            ) -> list[Any]:
                asked = [read(builder, line, number, asked_like) for line in lines]
                found = [read(builder, key, number, like) for key in own]
                for key in later:
                    fetch(builder, key, number, like)
                pairs = zip([(a, b) for a in asked for b in found], running, strict=True)
                return [multiply(builder, *pair, old) for pair, old in pairs]

            zeros = [filled(0.0)] * (rows * TOGETHER)
            added = loop(builder, I64(0), vectors, 1, zeros, turn)
            for row in range(rows):
                sums[row] += added[row * TOGETHER : (row + 1) * TOGETHER]
        filling = [filled(0.0)] * (LANES - rows * count)
        scores = lane_sums(builder, [one for row in sums for one in row] + filling)
        scores = builder.fmul(scores, spread(builder, scale))
        for row in range(rows):
            lanes = ir.Constant(ir.VectorType(I32, count), [*range(row * count, (row + 1) * count)])
            part = scores if rows == 1 else builder.shuffle_vector(scores, scores, lanes)
            place = builder.add(out, builder.mul(out_pitch, I64(row)))
            place = builder.add(place, builder.mul(first, I64(4)))
            builder.store(part, pointer(builder, place, part.type), align=4)
        return []

    loop(builder, I64(0), end, count, [], score)
    builder.ret_void()


def _add(function: Any, rows: int, like: Any, lines: int) -> None:
    weights, pitch, values, ahead, offset, count, vector, sums, sums_pitch, _ = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    own = [builder.add(weights, builder.mul(pitch, I64(row))) for row in range(rows)]
    parts = numbers_in(like) // LANES
    read = halves if parts == 2 else single
    numbers = [builder.add(vector, I64(i)) for i in range(lines)]
    totals = [builder.add(sums, builder.mul(sums_pitch, I64(row))) for row in range(rows)]
    first = builder.mul(vector, I64(4 * LANES * parts))
    places = [
        pointer(builder, builder.add(total, builder.add(first, I64(4 * LANES * i))), FLOATS)
        for total in totals
        for i in range(parts * lines)
    ]

    def turn(number: Any, running: list[Any]) -> list[Any]:
        value = address_in(builder, values, number, offset)
        later = address_in(builder, ahead, number, offset)
        found = [part for each in numbers for part in read(builder, value, each, like)]
        for each in numbers:
            fetch(builder, later, each, like)
        added = []
        for line in own:
            place = builder.add(line, builder.mul(number, I64(4)))
            weight = spread(builder, builder.load(pointer(builder, place, FLOAT), align=4))
            added += [(weight, each) for each in found]
        return [fma(builder, *pair, old) for pair, old in zip(added, running, strict=True)]

    before = [builder.load(place, align=4) for place in places]
    after = loop(builder, I64(0), count, 1, before, turn)
    for place, value in zip(places, after, strict=True):
        builder.store(value, place, align=4)
    builder.ret_void()


def _finish(function: Any, like: Any) -> None:
    sums, _, _, _, _, vectors, _, out, _, share = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    factor = spread(builder, share)

    def product(number: Any) -> Any:
        place = builder.add(sums, builder.mul(number, I64(4 * LANES)))
        return builder.fmul(builder.load(pointer(builder, place, FLOATS), align=4), factor)

    def turn(number: Any, _: list[Any]) -> list[Any]:
        if like == types.uint16:
            first = builder.mul(number, I64(2))
            even, odd = (narrowed(builder, product(builder.add(first, I64(i)))) for i in range(2))
            value = builder.or_(builder.lshr(even, ir.Constant(WORDS, [16] * LANES)), odd)
        elif like == types.int16:
            value = builder.fptrunc(product(number), HALVES)
        else:
            value = product(number)
        size = 2 * LANES if like == types.int16 else 4 * LANES
        place = builder.add(out, builder.mul(number, I64(size)))
        builder.store(value, pointer(builder, place, value.type), align=2)
        return []

    loop(builder, I64(0), vectors, 1, [], turn)
    builder.ret_void()


def _soften(function: Any) -> None:
    scores, first, end, sink = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    begin = builder.and_(first, I64(-LANES))
    nothing = filled(float("-inf"))

    def inside(number: Any) -> Any:
        lanes = ir.Constant(WORDS, [*range(LANES)])
        at = builder.add(spread(builder, builder.trunc(number, I32)), lanes)
        low = builder.icmp_signed(">=", at, spread(builder, builder.trunc(first, I32)))
        high = builder.icmp_signed("<", at, spread(builder, builder.trunc(end, I32)))
        return builder.and_(low, high)

    def place(number: Any) -> Any:
        return pointer(builder, builder.add(scores, builder.mul(number, I64(4))), FLOATS)

    def largest(number: Any, found: list[Any]) -> list[Any]:
        own = builder.select(inside(number), builder.load(place(number), align=4), nothing)
        return [builder.select(builder.fcmp_ordered(">", own, found[0]), own, found[0])]

    (top,) = loop(builder, begin, end, LANES, [nothing], largest)
    most = builder.call(declare(builder, FLOAT, [FLOATS], "llvm.vector.reduce.fmax.v16f32"), [top])
    most = builder.select(builder.fcmp_ordered(">", sink, most), sink, most)
    height = spread(builder, most)

    def weight(score: Any) -> Any:
        return exp2(builder, builder.fmul(builder.fsub(score, height), filled(LOG2_E)))

    def weigh(number: Any, totals: list[Any]) -> list[Any]:
        own = weight(builder.load(place(number), align=4))
        own = builder.select(inside(number), own, filled(0.0))
        builder.store(own, place(number), align=4)
        return [builder.fadd(totals[0], own)]

    (totals,) = loop(builder, begin, end, LANES, [filled(0.0)], weigh)
    total = builder.extract_element(lane_sums(builder, [totals] * LANES), I32(0))
    more = builder.extract_element(weight(spread(builder, sink)), I32(0))
    none = builder.fcmp_ordered("==", sink, FLOAT(float("-inf")))
    total = builder.fadd(total, builder.select(none, FLOAT(0.0), more))
    builder.ret(builder.fdiv(FLOAT(1.0), total))


def _cap(function: Any) -> None:
    scores, first, end, most = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    height = spread(builder, most)
    sign = ir.Constant(WORDS, [-(1 << 31)] * LANES)

    def turn(number: Any, _: list[Any]) -> list[Any]:
        place = pointer(builder, builder.add(scores, builder.mul(number, I64(4))), FLOATS)
        bits = builder.bitcast(builder.fdiv(builder.load(place, align=4), height), WORDS)
        size = builder.bitcast(builder.and_(bits, builder.not_(sign)), FLOATS)
        power = exp2(builder, builder.fmul(size, filled(-2 * LOG2_E)))
        one = filled(1.0)
        share = builder.fdiv(builder.fsub(one, power), builder.fadd(one, power))
        capped = builder.bitcast(builder.fmul(share, height), WORDS)
        signed = builder.or_(capped, builder.and_(bits, sign))
        builder.store(builder.bitcast(signed, FLOATS), place, align=4)
        return []

    loop(builder, builder.and_(first, I64(-LANES)), end, LANES, [], turn)
    builder.ret_void()
