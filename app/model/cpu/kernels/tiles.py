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

from llvmlite import binding, ir  # type: ignore[import-untyped]
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
from app.model.cpu.kernels.panels import BFLOATS, DOT

LANES = 16
"""Numbers of a vector, and positions of a group."""
ROWS = 4
"""Rows that are worked on together, at most; 1 and 2 are the others."""
TOGETHER = 4
"""Keys that are worked on together."""
WIDE = 64
"""Numbers of values that are worked on together, where there are so many."""

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
def numbers_of(_context: Any, like: Any) -> Any:
    """The numbers of a vector of ``like``'s type: bfloat16 go by twos."""
    count = _numbers(like)
    return types.int64(like), lambda *_: I64(count)


@intrinsic
def asked(_context: Any, number: Any) -> Any:
    """A number as rows of queries have it: bfloat16 as it is, float16 as float32."""
    if number != types.int16:
        return number(number), lambda _, __, ___, arguments: arguments[0]

    def emit(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), FLOAT)

    return types.float32(number), emit


@intrinsic
def score_tile(
    _context: Any, like: Any, rows: Any, query: Any, pitch: Any, keys: Any, ahead: Any,
    offset: Any, vectors: Any, out: Any, out_pitch: Any, scale: Any,
) -> Any:  # fmt: skip
    """Scores of 1, 2 or 4 rows with 16, 8 or 4 keys, times ``scale``.

    ``keys`` has the addresses of keys of ``like``'s type, ``ahead`` those of keys to fetch
    meanwhile, each of them ``offset`` off. Rows of ``query`` are as ``asked`` has them; both are
    ``vectors`` long, of as many numbers as ``vector_of`` says.
    """
    given = [rows, query, pitch, keys, ahead, offset, vectors, out, out_pitch]
    return _tile("score", like, given, _score, scale=True)


@intrinsic
def add_tile(
    _context: Any, like: Any, rows: Any, weights: Any, pitch: Any, values: Any, ahead: Any,
    offset: Any, count: Any, vector: Any, sums: Any, sums_pitch: Any,
) -> Any:  # fmt: skip
    """Add ``count`` values, from 1 on, to sums of 1, 2 or 4 rows, by the weights of each row.

    Of values and sums the numbers of the vector of that number, which in sums are in the order of
    ``place_of``; the rest is as for ``score_tile``.
    """
    given = [rows, weights, pitch, values, ahead, offset, count, vector, sums, sums_pitch]
    return _tile("add", like, given, lambda *a: _add(*a, lines=1))


@intrinsic
def add_wide_tile(
    _context: Any, like: Any, rows: Any, weights: Any, pitch: Any, values: Any, ahead: Any,
    offset: Any, count: Any, vector: Any, sums: Any, sums_pitch: Any,
) -> Any:  # fmt: skip
    """``add_tile`` for 64 numbers from ``vector`` on."""
    given = [rows, weights, pitch, values, ahead, offset, count, vector, sums, sums_pitch]
    return _tile(
        "add_wide",
        like,
        given,
        lambda function, rows, like: _add(function, rows, like, lines=WIDE // _numbers(like)),
    )


def _tile(
    name: str, like: Any, given: list[Any], write: Callable[..., None], *, scale: bool = False
) -> Any:
    """``write(function, rows, like)`` writes the function that is called for so many rows."""
    if like not in _NAMES:
        return None
    kinds = [I64] * (len(given) - 1) + [FLOAT] * scale

    def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, rows, *rest = arguments
        for count in (1, 2, ROWS):
            own = f"leapjson_{name}_{_NAMES[like]}_{count}"
            function = declare(builder, VOID, kinds, own)
            if function.is_declaration:
                _define(function)
                write(function, count, like)
            with builder.if_then(builder.icmp_signed("==", rows, I64(count))):
                builder.call(function, rest)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * len(given), *[types.float32] * scale), emit


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
        function = declare(builder, result, kinds, f"leapjson_{name}")
        if function.is_declaration:
            _define(function)
            write(function)
        value = builder.call(function, arguments)
        return context.get_dummy_value() if result is VOID else value

    return emit


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
    query, pitch, keys, ahead, offset, vectors, out, out_pitch, scale = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    lines = [builder.add(query, builder.mul(pitch, I64(row))) for row in range(rows)]
    count = LANES // rows
    read, multiply = (_pairs, _dot) if like == types.uint16 else (_floats, _fma)
    asked_like = like if like == types.uint16 else types.float32
    sums: list[list[Any]] = [[] for _ in range(rows)]
    for begin in range(0, count, TOGETHER):
        places = [range(begin, begin + TOGETHER)] * 2
        own, later = (
            [_address(builder, addresses, i, offset) for i in numbers]
            for addresses, numbers in zip((keys, ahead), places, strict=True)
        )

        def turn(
            number: Any, running: list[Any], own: list[Any] = own, later: list[Any] = later
        ) -> list[Any]:
            asked = [read(builder, line, number, asked_like) for line in lines]
            found = [read(builder, key, number, like) for key in own]
            for key in later:
                _fetch(builder, key, number, like)
            pairs = [(a, b) for a in asked for b in found]
            return [multiply(builder, *pair, old) for pair, old in zip(pairs, running, strict=True)]

        zeros = [_all(0.0)] * (rows * TOGETHER)
        added = _loop(builder, I64(0), vectors, 1, zeros, turn)
        for row in range(rows):
            sums[row] += added[row * TOGETHER : (row + 1) * TOGETHER]
    scores = _lane_sums(builder, [one for row in sums for one in row])
    scores = builder.fmul(scores, _spread(builder, scale))
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


def _add(function: Any, rows: int, like: Any, *, lines: int) -> None:
    weights, pitch, values, ahead, offset, count, vector, sums, sums_pitch = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    own = [builder.add(weights, builder.mul(pitch, I64(row))) for row in range(rows)]
    parts = _numbers(like) // LANES
    read = _halves if parts == 2 else _single
    numbers = [builder.add(vector, I64(i)) for i in range(lines)]
    totals = [builder.add(sums, builder.mul(sums_pitch, I64(row))) for row in range(rows)]
    first = builder.mul(vector, I64(4 * LANES * parts))
    places = [
        pointer(builder, builder.add(total, builder.add(first, I64(4 * LANES * i))), _FLOATS)
        for total in totals
        for i in range(parts * lines)
    ]

    def turn(number: Any, running: list[Any]) -> list[Any]:
        value = _address(builder, values, number, offset)
        later = _address(builder, ahead, number, offset)
        found = [part for each in numbers for part in read(builder, value, each, like)]
        for each in numbers:
            _fetch(builder, later, each, like)
        added = []
        for line in own:
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


def _numbers(like: Any) -> int:
    """Of a vector of that type."""
    return 2 * LANES if like == types.uint16 else LANES


def _place(builder: Any, address: Any, number: Any, like: Any) -> Any:
    size = LANES * 2 if like == types.int16 else LANES * 4
    return builder.add(address, builder.mul(number, I64(size)))


def _fetch(builder: Any, address: Any, number: Any, like: Any) -> None:
    emit_prefetch(builder, pointer(builder, _place(builder, address, number, like), I8))


def _floats(builder: Any, address: Any, number: Any, like: Any) -> Any:
    """The vector of that number behind an address, of float32 or float16, as float32."""
    place = _place(builder, address, number, like)
    if like == types.float32:
        return builder.load(pointer(builder, place, _FLOATS), align=4)
    return builder.fpext(builder.load(pointer(builder, place, _HALVES), align=2), _FLOATS)


def _single(builder: Any, address: Any, number: Any, like: Any) -> list[Any]:
    return [_floats(builder, address, number, like)]


def _pairs(builder: Any, address: Any, number: Any, like: Any) -> Any:
    """The 32 bfloat16 of a vector, by twos."""
    place = _place(builder, address, number, like)
    return builder.load(pointer(builder, place, _WORDS), align=2)


def _halves(builder: Any, address: Any, number: Any, like: Any) -> list[Any]:
    return _split(builder, _pairs(builder, address, number, like))


def _dot(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """The products of two vectors of twos, added to ``c``."""
    if binding.get_host_cpu_features().get("avx512bf16", False):
        pairs = [builder.bitcast(each, BFLOATS) for each in (a, b)]
        return builder.call(
            declare(builder, _FLOATS, [_FLOATS, BFLOATS, BFLOATS], DOT), [c, *pairs]
        )
    for pair in zip(_split(builder, a), _split(builder, b), strict=True):
        c = _fma(builder, *pair, c)
    return c


def _split(builder: Any, words: Any) -> list[Any]:
    """32 bfloat16 as float32: the even ones, and the odd ones."""
    even = builder.shl(words, ir.Constant(_WORDS, [16] * LANES))
    odd = builder.and_(words, ir.Constant(_WORDS, [-(1 << 16)] * LANES))
    return [builder.bitcast(part, _FLOATS) for part in (even, odd)]


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.call(declare(builder, _FLOATS, [_FLOATS] * 3, "llvm.fma.v16f32"), [a, b, c])


def _all(number: float) -> Any:
    return ir.Constant(_FLOATS, [number] * LANES)


def _spread(builder: Any, value: Any) -> Any:
    """A vector of 16 times the same."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    single = builder.insert_element(nothing, value, I32(0))
    return builder.shuffle_vector(single, nothing, ir.Constant(_WORDS, [0] * LANES))
