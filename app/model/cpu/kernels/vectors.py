"""LLVM code for reading, multiplying and adding vectors of 16 numbers.

Every operation is explicit, so that sums have one order and no compiler chooses another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from app.core.kernels import has
from app.model.cpu.kernels.llvm import FLOAT, I32, I64, declare, pointer, prefetch, rounded

LANES = 16
"""Numbers of a vector."""

FLOATS = ir.VectorType(FLOAT, LANES)
WORDS = ir.VectorType(I32, LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)


class _Bfloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bfloat)

    def __hash__(self) -> int:
        return hash(_Bfloat)


_BFLOATS = ir.VectorType(_Bfloat(), 2 * LANES)

_FIRSTHALVES, _LASTHALVES = [*range(8), *range(16, 24)], [*range(8, 16), *range(24, 32)]
_FIRST_QUARTERS = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27]
_LAST_QUARTERS = [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31]


def _by_fours(*lanes: int) -> list[int]:
    """These lanes of every four of two vectors, those of the second one counted from 16 on."""
    return [4 * four + lane for four in range(4) for lane in lanes]


LOG2_E = 1.4426950408889634
_LN2, _SQRT2 = 0.6931471805599453, 1.4142135623730951
_SERIES = [_SQRT2 * _LN2**n / f for n, f in enumerate((1, 1, 2, 6, 24, 120, 720, 5040))]
"""Taylor coefficients of ``2 ** (y + 1 / 2)``, y from -1 / 2 to 1 / 2."""
_LEAST = -126.0


def loop(
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


def lane_sums(builder: Any, sums: list[Any]) -> Any:
    """Of 16 vectors the sum of each one's lanes; all are added up in the same order.

    Halves of 8 lanes are added, then of 4, 2 and 1, as many vectors at once as there is room for.
    """
    places = [4 * four + i for i in range(4) for four in range(4)]
    sums = [sums[place] for place in places]
    sums = _joined(builder, sums, _FIRSTHALVES, _LASTHALVES)
    sums = _joined(builder, sums, _FIRST_QUARTERS, _LAST_QUARTERS)
    sums = _joined(builder, sums, _by_fours(0, 1, 16, 17), _by_fours(2, 3, 18, 19))
    (total,) = _joined(builder, sums, _by_fours(0, 2, 16, 18), _by_fours(1, 3, 17, 19))
    return total


def _joined(builder: Any, sums: list[Any], first: list[int], last: list[int]) -> list[Any]:
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return [
        builder.fadd(
            *[builder.shuffle_vector(a, b, ir.Constant(WORDS, part)) for part in (first, last)]
        )
        for a, b in pairs
    ]


def exp2(builder: Any, x: Any) -> Any:
    """``2 ** x`` for x up to 0, within 2e-7 of it, and at least 2 ** -126."""
    least = filled(_LEAST)
    x = builder.select(builder.fcmp_ordered("<", x, least), least, x)
    floor = declare(builder, FLOATS, [FLOATS], "llvm.floor.v16f32")
    whole = builder.call(floor, [x])
    y = builder.fsub(builder.fsub(x, whole), filled(0.5))
    series = filled(_SERIES[-1])
    for factor in reversed(_SERIES[:-1]):
        series = fma(builder, series, y, filled(factor))
    exponent = builder.add(builder.fptosi(whole, WORDS), ir.Constant(WORDS, [127] * LANES))
    bits = builder.shl(exponent, ir.Constant(WORDS, [23] * LANES))
    return builder.fmul(series, builder.bitcast(bits, FLOATS))


def address_in(builder: Any, addresses: Any, number: Any, offset: Any) -> Any:
    """Address ``number`` of a list of addresses, plus ``offset``."""
    number = number if isinstance(number, ir.Value) else I64(number)
    place = builder.add(addresses, builder.mul(number, I64(8)))
    return builder.add(builder.load(pointer(builder, place), align=8), offset)


def numbers_in(like: Any) -> int:
    """Count of numbers in a vector of that type."""
    return 2 * LANES if like == types.uint16 else LANES


def _place(builder: Any, address: Any, number: Any, like: Any) -> Any:
    size = LANES * 2 if like == types.int16 else LANES * 4
    return builder.add(address, builder.mul(number, I64(size)))


def fetch(builder: Any, address: Any, number: Any, like: Any) -> None:
    prefetch(builder, _place(builder, address, number, like))


def as_floats(builder: Any, address: Any, number: Any, like: Any) -> Any:
    """The vector of that number behind an address, of float32 or float16, as float32."""
    place = _place(builder, address, number, like)
    if like == types.float32:
        return builder.load(pointer(builder, place, FLOATS), align=4)
    return builder.fpext(builder.load(pointer(builder, place, HALVES), align=2), FLOATS)


def single(builder: Any, address: Any, number: Any, like: Any) -> list[Any]:
    return [as_floats(builder, address, number, like)]


def as_pairs(builder: Any, address: Any, number: Any, like: Any) -> Any:
    """The 32 bfloat16 of a vector, by twos."""
    place = _place(builder, address, number, like)
    return builder.load(pointer(builder, place, WORDS), align=2)


def halves(builder: Any, address: Any, number: Any, like: Any) -> list[Any]:
    return split(builder, as_pairs(builder, address, number, like))


def registers() -> int:
    """Vectors of 16 numbers that fit the registers."""
    return 32 if has("avx512f") else 8


def dot(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """The products of two vectors of pairs of bfloat16, added to ``c``."""
    if has("avx512bf16"):
        pairs = [builder.bitcast(each, _BFLOATS) for each in (a, b)]
        kinds = [FLOATS, _BFLOATS, _BFLOATS]
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        return builder.call(declare(builder, FLOATS, kinds, name), [c, *pairs])
    for pair in zip(split(builder, a), split(builder, b), strict=True):
        c = fma(builder, *pair, c)
    return c


def split(builder: Any, words: Any) -> list[Any]:
    """32 bfloat16 as float32: the even ones, and the odd ones."""
    even = builder.shl(words, ir.Constant(WORDS, [16] * LANES))
    odd = builder.and_(words, ir.Constant(WORDS, [-(1 << 16)] * LANES))
    return [builder.bitcast(part, FLOATS) for part in (even, odd)]


def widened(builder: Any, address: Any) -> Any:
    """16 bfloat16 at an address as float32."""
    kind = ir.VectorType(ir.IntType(16), LANES)
    shorts = builder.load(pointer(builder, address, kind), align=2)
    wide = builder.shl(builder.zext(shorts, WORDS), ir.Constant(WORDS, [16] * LANES))
    return builder.bitcast(wide, FLOATS)


def narrowed(builder: Any, value: Any) -> Any:
    """16 float32 rounded to bfloat16, as words with these in the upper half and zeros below."""
    return builder.and_(rounded(builder, value), ir.Constant(WORDS, [-(1 << 16)] * LANES))


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.call(declare(builder, FLOATS, [FLOATS] * 3, "llvm.fma.v16f32"), [a, b, c])


def filled(number: float) -> Any:
    return ir.Constant(FLOATS, [number] * LANES)


def spread(builder: Any, value: Any) -> Any:
    """A vector of 16 times the same."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    single = builder.insert_element(nothing, value, I32(0))
    return builder.shuffle_vector(single, nothing, ir.Constant(WORDS, [0] * LANES))
