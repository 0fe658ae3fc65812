"""Attention's sums for a few rows at a time, in one order however many rows and keys there are.

What a compiler makes of a loop adds up in an order of its own, another one for one row than for
four. These are written instruction by instruction, so that a number depends on its own row alone:

- a score adds up 16 products at a time, lane by lane, and then the lanes, by halves;
- a sum of values adds one position after the other;
- a softmax adds up 16 lanes, then the lanes; a position is in the lane of its number modulo 16.

Sums are float32, by ``fma``. Addresses, and pitches from row to row, are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from app.model.cpu.kernels.llvm import (
    FLOAT,
    I8,
    I32,
    I64,
    VOID,
    declare,
    emit_prefetch,
    intrinsic,
    of_integers,
    pointer,
)

LANES = 16
"""Numbers of a vector, and positions of a group."""
ROWS = 4
"""Rows that are worked on together, at most; 1 and 2 are the others."""
TOGETHER = 4
"""Keys, or vectors of values, that are worked on together."""

_FLOATS = ir.VectorType(FLOAT, LANES)
_WORDS = ir.VectorType(I32, LANES)
_SHORTS = ir.VectorType(ir.IntType(16), LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)

_NAMES = {types.uint16: "bfloat16", types.int16: "float16", types.float32: "float32"}
"""What a number is, by its type in ``compiled.as_numpy``."""

_FIRST_HALVES, _LAST_HALVES = [*range(8), *range(16, 24)], [*range(8, 16), *range(24, 32)]
_FIRST_QUARTERS = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27]
_LAST_QUARTERS = [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31]


def _by_fours(*lanes: int) -> list[int]:
    """These lanes of every four of two vectors, those of the second one counted from 16 on."""
    return [4 * four + lane for four in range(4) for lane in lanes]


_LOG2_E = 1.4426950408889634
_LN2, _SQRT2 = 0.6931471805599453, 1.4142135623730951
_SERIES = [_SQRT2 * _LN2**n / f for n, f in enumerate((1, 1, 2, 6, 24, 120, 720, 5040))]
"""Of ``2 ** (y + 1 / 2)``, y from -1 / 2 to 1 / 2, by powers of y."""
_LEAST = -126.0


@intrinsic
def score_tile(
    _context: Any, like: Any, rows: Any, query: Any, pitch: Any, keys: Any, offset: Any,
    vectors: Any, out: Any, out_pitch: Any,
) -> Any:  # fmt: skip
    """Scores of 1, 2 or 4 rows with 16, 8 or 4 keys.

    ``query`` is float32, ``keys`` has the addresses of keys of ``like``'s type, each of them
    ``offset`` off; both are ``vectors`` of 16 numbers long.
    """
    return _tile("score", like, [rows, query, pitch, keys, offset, vectors, out, out_pitch], _score)


@intrinsic
def add_tile(
    _context: Any, like: Any, rows: Any, weights: Any, pitch: Any, values: Any, offset: Any,
    count: Any, vector: Any, sums: Any, sums_pitch: Any,
) -> Any:  # fmt: skip
    """Add ``count`` values, from 1 on, to sums of 1, 2 or 4 rows, by the weights of each row.

    Of values and sums the 16 numbers at ``vector``; the rest is as for ``score_tile``.
    """
    given = [rows, weights, pitch, values, offset, count, vector, sums, sums_pitch]
    return _tile("add", like, given, lambda *a: _add(*a, vectors=1))


@intrinsic
def add_wide_tile(
    _context: Any, like: Any, rows: Any, weights: Any, pitch: Any, values: Any, offset: Any,
    count: Any, vector: Any, sums: Any, sums_pitch: Any,
) -> Any:  # fmt: skip
    """``add_tile`` for four vectors from ``vector`` on."""
    given = [rows, weights, pitch, values, offset, count, vector, sums, sums_pitch]
    return _tile("add_wide", like, given, lambda *a: _add(*a, vectors=TOGETHER))


def _tile(name: str, like: Any, given: list[Any], write: Callable[..., None]) -> Any:
    """``write(function, rows, like)`` writes the function that is called for so many rows."""
    if like not in _NAMES:
        return None

    def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, rows, *rest = arguments
        for count in (1, 2, ROWS):
            own = f"leapjson_{name}_{_NAMES[like]}_{count}"
            function = _function(builder, VOID, [I64] * len(rest), own)
            if function.is_declaration:
                _define(function)
                write(function, count, like)
            with builder.if_then(builder.icmp_signed("==", rows, I64(count))):
                builder.call(function, rest)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * len(given)), emit


@intrinsic
def soften(_context: Any, scores: Any, first: Any, end: Any, sink: Any) -> Any:
    """Make weights of a row's scores: ``2 ** ((score - largest) * log2(e))``, 0 outside of them.

    The row begins at the address ``scores`` with a position that is a multiple of 16; its scores
    are those from ``first`` to ``end``, and vectors with one of them are weights then. ``sink`` is
    another score, or -inf. Returns what the weights' sum, the sink's with them, divides 1 to.
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
        function = _function(builder, result, kinds, f"leapjson_{name}")
        if function.is_declaration:
            _define(function)
            write(function)
        value = builder.call(function, arguments)
        return context.get_dummy_value() if result is VOID else value

    return emit


def _function(builder: Any, result: Any, kinds: list[Any], name: str) -> Any:
    return declare(builder, result, kinds, name)


def _define(function: Any) -> None:
    """A function of its own, which the compiler copies nowhere and changes for no caller."""
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")


@of_integers(types.void)
def fetch(builder: Any, address: Any, size: Any) -> None:
    """Begin to fetch ``size`` bytes, from 1 on."""

    def turn(at: Any, _: Any) -> list[Any]:
        emit_prefetch(builder, pointer(builder, builder.add(address, at), I8))
        return []

    _loop(builder, I64(0), size, 64, [], turn)


def _loop(
    builder: Any, first: Any, end: Any, step: int, values: Sequence[Any],
    turn: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:  # fmt: skip
    """``values = turn(number, values)`` for the numbers from ``first`` up to ``end``, once at
    least; returns the last ones."""
    before = builder.block
    inside, after = builder.append_basic_block("turn"), builder.append_basic_block("turned")
    builder.branch(inside)
    builder.position_at_end(inside)
    number = builder.phi(I64)
    number.add_incoming(first, before)
    carried = [builder.phi(value.type) for value in values]
    for phi, value in zip(carried, values, strict=True):
        phi.add_incoming(value, before)
    results = turn(number, carried)
    following = builder.add(number, I64(step))
    number.add_incoming(following, builder.block)
    for phi, value in zip(carried, results, strict=True):
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, end), inside, after)
    builder.position_at_end(after)
    return results


def _score(function: Any, rows: int, like: Any) -> None:
    query, pitch, keys, offset, vectors, out, out_pitch = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    lines = [builder.add(query, builder.mul(pitch, I64(row))) for row in range(rows)]
    count = LANES // rows
    sums: list[list[Any]] = [[] for _ in range(rows)]
    for begin in range(0, count, TOGETHER):
        own = [_address(builder, keys, begin + i, offset) for i in range(TOGETHER)]

        def turn(number: Any, running: list[Any], own: list[Any] = own) -> list[Any]:
            asked = [_vector(builder, line, number, types.float32) for line in lines]
            found = [_vector(builder, key, number, like) for key in own]
            pairs = [(a, b) for a in asked for b in found]
            return [_fma(builder, *pair, old) for pair, old in zip(pairs, running, strict=True)]

        zeros = [_all(0.0)] * (rows * TOGETHER)
        added = _loop(builder, I64(0), vectors, 1, zeros, turn)
        for row in range(rows):
            sums[row] += added[row * TOGETHER : (row + 1) * TOGETHER]
    scores = _lane_sums(builder, [one for row in sums for one in row])
    for row in range(rows):
        lanes = ir.Constant(ir.VectorType(I32, count), [*range(row * count, (row + 1) * count)])
        part = scores if rows == 1 else builder.shuffle_vector(scores, scores, lanes)
        place = builder.add(out, builder.mul(out_pitch, I64(row)))
        builder.store(part, pointer(builder, place, part.type), align=4)
    builder.ret_void()


def _lane_sums(builder: Any, sums: list[Any]) -> Any:
    """Of 16 vectors the sum of each one's lanes; all are added up in the same order.

    Halves of 8 lanes are added, then of 4, 2 and 1, as many vectors at once as there is room for.
    """
    places = [4 * four + i for i in range(4) for four in range(4)]
    sums = [sums[place] for place in places]
    sums = _joined(builder, sums, _FIRST_HALVES, _LAST_HALVES)
    sums = _joined(builder, sums, _FIRST_QUARTERS, _LAST_QUARTERS)
    sums = _joined(builder, sums, _by_fours(0, 1, 16, 17), _by_fours(2, 3, 18, 19))
    (total,) = _joined(builder, sums, _by_fours(0, 2, 16, 18), _by_fours(1, 3, 17, 19))
    return total


def _joined(builder: Any, sums: list[Any], first: list[int], last: list[int]) -> list[Any]:
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return [
        builder.fadd(
            *[builder.shuffle_vector(a, b, ir.Constant(_WORDS, part)) for part in (first, last)]
        )
        for a, b in pairs
    ]


def _add(function: Any, rows: int, like: Any, *, vectors: int) -> None:
    weights, pitch, values, offset, count, vector, sums, sums_pitch = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    lines = [builder.add(weights, builder.mul(pitch, I64(row))) for row in range(rows)]
    numbers = [builder.add(vector, I64(i)) for i in range(vectors)]
    totals = [builder.add(sums, builder.mul(sums_pitch, I64(row))) for row in range(rows)]
    offsets = [builder.mul(number, I64(4 * LANES)) for number in numbers]
    places = [
        pointer(builder, builder.add(total, at), _FLOATS) for total in totals for at in offsets
    ]

    def turn(number: Any, running: list[Any]) -> list[Any]:
        value = _address(builder, values, number, offset)
        found = [_vector(builder, value, each, like) for each in numbers]
        added = []
        for line in lines:
            place = builder.add(line, builder.mul(number, I64(4)))
            weight = _spread(builder, builder.load(pointer(builder, place, FLOAT), align=4))
            added += [(weight, each) for each in found]
        return [_fma(builder, *pair, old) for pair, old in zip(added, running, strict=True)]

    before = [builder.load(place, align=4) for place in places]
    after = _loop(builder, I64(0), count, 1, before, turn)
    for place, value in zip(places, after, strict=True):
        builder.store(value, place, align=4)
    builder.ret_void()


def _soften(function: Any) -> None:
    scores, first, end, sink = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    begin = builder.and_(first, I64(-LANES))
    nothing = _all(float("-inf"))

    def inside(number: Any) -> Any:
        lanes = ir.Constant(_WORDS, [*range(LANES)])
        at = builder.add(_spread(builder, builder.trunc(number, I32)), lanes)
        low = builder.icmp_signed(">=", at, _spread(builder, builder.trunc(first, I32)))
        high = builder.icmp_signed("<", at, _spread(builder, builder.trunc(end, I32)))
        return builder.and_(low, high)

    def place(number: Any) -> Any:
        return pointer(builder, builder.add(scores, builder.mul(number, I64(4))), _FLOATS)

    def largest(number: Any, found: list[Any]) -> list[Any]:
        own = builder.select(inside(number), builder.load(place(number), align=4), nothing)
        return [builder.select(builder.fcmp_ordered(">", own, found[0]), own, found[0])]

    (top,) = _loop(builder, begin, end, LANES, [nothing], largest)
    most = builder.call(declare(builder, FLOAT, [_FLOATS], "llvm.vector.reduce.fmax.v16f32"), [top])
    most = builder.select(builder.fcmp_ordered(">", sink, most), sink, most)
    height = _spread(builder, most)

    def weight(score: Any) -> Any:
        return _exp2(builder, builder.fmul(builder.fsub(score, height), _all(_LOG2_E)))

    def weigh(number: Any, totals: list[Any]) -> list[Any]:
        own = weight(builder.load(place(number), align=4))
        own = builder.select(inside(number), own, _all(0.0))
        builder.store(own, place(number), align=4)
        return [builder.fadd(totals[0], own)]

    (totals,) = _loop(builder, begin, end, LANES, [_all(0.0)], weigh)
    total = builder.extract_element(_lane_sums(builder, [totals] * LANES), I32(0))
    more = builder.extract_element(weight(_spread(builder, sink)), I32(0))
    none = builder.fcmp_ordered("==", sink, FLOAT(float("-inf")))
    total = builder.fadd(total, builder.select(none, FLOAT(0.0), more))
    builder.ret(builder.fdiv(FLOAT(1.0), total))


def _cap(function: Any) -> None:
    scores, first, end, most = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    height = _spread(builder, most)
    sign = ir.Constant(_WORDS, [-(1 << 31)] * LANES)

    def turn(number: Any, _: list[Any]) -> list[Any]:
        place = pointer(builder, builder.add(scores, builder.mul(number, I64(4))), _FLOATS)
        bits = builder.bitcast(builder.fdiv(builder.load(place, align=4), height), _WORDS)
        size = builder.bitcast(builder.and_(bits, builder.not_(sign)), _FLOATS)
        power = _exp2(builder, builder.fmul(size, _all(-2 * _LOG2_E)))
        one = _all(1.0)
        share = builder.fdiv(builder.fsub(one, power), builder.fadd(one, power))
        capped = builder.bitcast(builder.fmul(share, height), _WORDS)
        signed = builder.or_(capped, builder.and_(bits, sign))
        builder.store(builder.bitcast(signed, _FLOATS), place, align=4)
        return []

    _loop(builder, builder.and_(first, I64(-LANES)), end, LANES, [], turn)
    builder.ret_void()


def _exp2(builder: Any, x: Any) -> Any:
    """``2 ** x`` for x up to 0, within 2e-7 of it; what is below 2 ** -126 becomes that."""
    least = _all(_LEAST)
    x = builder.select(builder.fcmp_ordered("<", x, least), least, x)
    floor = declare(builder, _FLOATS, [_FLOATS], "llvm.floor.v16f32")
    whole = builder.call(floor, [x])
    y = builder.fsub(builder.fsub(x, whole), _all(0.5))
    series = _all(_SERIES[-1])
    for factor in reversed(_SERIES[:-1]):
        series = _fma(builder, series, y, _all(factor))
    exponent = builder.add(builder.fptosi(whole, _WORDS), ir.Constant(_WORDS, [127] * LANES))
    bits = builder.shl(exponent, ir.Constant(_WORDS, [23] * LANES))
    return builder.fmul(series, builder.bitcast(bits, _FLOATS))


def _address(builder: Any, addresses: Any, number: Any, offset: Any) -> Any:
    """The one of that number in a list of addresses, ``offset`` off."""
    number = number if isinstance(number, ir.Value) else I64(number)
    place = builder.add(addresses, builder.mul(number, I64(8)))
    return builder.add(builder.load(pointer(builder, place), align=8), offset)


def _vector(builder: Any, address: Any, number: Any, like: Any) -> Any:
    """16 numbers of ``like``'s type, the ``number``-th ones behind an address, as float32."""
    size = LANES * (4 if like == types.float32 else 2)
    place = builder.add(address, builder.mul(number, I64(size)))
    if like == types.float32:
        return builder.load(pointer(builder, place, _FLOATS), align=4)
    if like == types.int16:
        return builder.fpext(builder.load(pointer(builder, place, _HALVES), align=2), _FLOATS)
    words = builder.zext(builder.load(pointer(builder, place, _SHORTS), align=2), _WORDS)
    return builder.bitcast(builder.shl(words, ir.Constant(_WORDS, [16] * LANES)), _FLOATS)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.call(declare(builder, _FLOATS, [_FLOATS] * 3, "llvm.fma.v16f32"), [a, b, c])


def _all(number: float) -> Any:
    return ir.Constant(_FLOATS, [number] * LANES)


def _spread(builder: Any, value: Any) -> Any:
    """A vector of 16 times the same."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    single = builder.insert_element(nothing, value, I32(0))
    return builder.shuffle_vector(single, nothing, ir.Constant(_WORDS, [0] * LANES))
