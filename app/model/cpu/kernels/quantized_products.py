"""Products of few rows with weights of 8 and 4 bits in panels, by AVX512-VNNI.

The instruction multiplies four unsigned bytes with four signed ones and adds the sums to 32 bits.
Codes are the unsigned ones, as they lie; activations are rounded to the signed ones, row by row,
before they are multiplied with anything (``rounded_rows``).

What the codes' offset adds too much is the offset times the sum of the values: sums of a block
begin with that, so it costs nothing. Sums of a block are whole numbers and exact; they are
multiplied by both scales and added in float32, block after block, in one order for any number of
rows: a row's result does not depend on those beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from app.core.kernels import has
from app.model.cpu.kernels.compiled import address_of
from app.model.cpu.kernels.llvm import FLOAT, I8, I32, I64, declare, of_integers, pointer
from app.model.cpu.kernels.panels import MULTIPLY, WIDTH, by_rows, everywhere
from app.model.cpu.kernels.quantized_panels import (
    BLOCK,
    INT4,
    INT4_MINIMA,
    INT8,
    INT8_HALVES,
    INT8_MINIMA,
    PanelKind,
)
from app.model.cpu.kernels.rounded_rows import ROUNDED_BYTES, SCALE, SUMS, VALUES

_LANES = 16
_VECTORS = WIDTH // _LANES
_IN_REGISTERS = 3
"""Up to so many rows float sums stay in registers; with more they are in the first cache."""

_I16 = ir.IntType(16)
_FLOATS = ir.VectorType(FLOAT, _LANES)
_HALVES = ir.VectorType(ir.HalfType(), _LANES)
_WORDS = ir.VectorType(I32, _LANES)
_SHORTS = ir.VectorType(_I16, 2 * _LANES)
_BYTES = ir.VectorType(I8, 4 * _LANES)


def runs_here() -> bool:
    """Whether this processor has the instructions, and the system the calls of ``team``."""
    return not missing()


def missing() -> list[str]:
    """What the loops take that is not here, by its name."""
    names = {"avx512f": "AVX512F", "avx512bw": "AVX512BW", "avx512vnni": "AVX512-VNNI"}
    found = [name for feature, name in names.items() if not has(feature)]
    return found if sys.platform == "linux" else [*found, "Linux"]


def entry(kind: PanelKind) -> int:
    """The address of the product with panels of a kind, see ``panels.MULTIPLY``.

    Compiled on the first call for the kind. Panels are [K / 32, block bytes], their unit a block;
    ``x`` are rounded rows.
    """
    return address_of(_ENTRIES[kind], MULTIPLY)


class _Loop:
    """What is read in a turn of the loop: a block of panels, and 32 inputs of each row."""

    def __init__(self, builder: Any, block: Any, rows: list[Any]) -> None:
        self.builder = builder
        self.block = block
        self.rows = rows

    def weights(self, offset: int, kind: Any = _WORDS) -> list[Any]:
        """The 64 outputs' words at an offset in the block, or their scales."""
        step = 64 if kind is _WORDS else 2 * _LANES
        places = [self.builder.add(self.block, I64(offset + step * i)) for i in range(_VECTORS)]
        return [_load(self.builder, place, kind, step) for place in places]

    def weights_again(self, offset: int) -> list[Any]:
        """As ``weights``, but the compiler does not see that it has them: registers are few."""
        same = ir.FunctionType(I64, [I64])
        hidden = self.builder.asm(same, "", "=r,0", [self.block], side_effect=True)
        return _Loop(self.builder, hidden, self.rows).weights(offset)

    def inputs(self, row: int, offset: int, kind: Any) -> Any:
        """The 32 bits at an offset in a row's inputs, in every lane, as a ``kind`` of vector."""
        place = self.builder.add(self.rows[row], I64(offset))
        return self.builder.bitcast(everywhere(self.builder, place), kind)


@dataclass(frozen=True, slots=True)
class _Group:
    """Inputs of a block that share a scale, by their places in it."""

    words: int
    inputs: int
    """Of the values in the rounded inputs."""
    scales: int
    offsets: tuple[int, int]
    """What codes are too large by, where a sum of 16 values counts; as it is multiplied."""


def _groups(kind: PanelKind) -> list[_Group]:
    offset = 0 if kind.minima else -(1 << kind.bits - 1)
    words = WIDTH * kind.group * kind.bits // 8
    if kind.group == BLOCK:
        return [_Group(0, VALUES, words, (offset, offset))]
    half = words + 2 * WIDTH
    return [
        _Group(0, VALUES, words, (offset, 0)),
        _Group(half, VALUES + kind.group, half + words, (0, offset)),
    ]


def _write(function: Any, kind: PanelKind, count: int) -> None:
    """The loop over blocks for one kind of panels and one number of rows."""
    x, stride, weights, blocks, sums = function.args
    before = function.append_basic_block("entry")
    loop, after = function.append_basic_block("block"), function.append_basic_block("done")
    builder = ir.IRBuilder(before)
    cells = [(row, i) for row in range(count) for i in range(_VECTORS)]
    places = {cell: builder.add(sums, I64(4 * WIDTH * cell[0] + 64 * cell[1])) for cell in cells}
    rows = [builder.add(x, builder.mul(stride, I64(row))) for row in range(count)]
    in_registers = count <= _IN_REGISTERS
    first = {cell: _load(builder, places[cell], _FLOATS) for cell in cells if in_registers}
    builder.branch(loop)

    builder.position_at_end(loop)
    number = builder.phi(I64)
    number.add_incoming(I64(0), before)
    running = {cell: builder.phi(_FLOATS) for cell in first}
    for cell, value in first.items():
        running[cell].add_incoming(value, before)
    block = builder.add(weights, builder.mul(number, I64(kind.block_bytes)))
    inputs = builder.mul(number, I64(ROUNDED_BYTES))
    turn = _Loop(builder, block, [builder.add(row, inputs) for row in rows])
    added: dict[tuple[int, int], Any] = dict(running)
    for group in _groups(kind):
        whole = _whole_sums(turn, kind, group)
        scales = [builder.fpext(half, _FLOATS) for half in turn.weights(group.scales, _HALVES)]
        for row in range(count):
            own = turn.inputs(row, SCALE, _FLOATS)
            for i, scale in enumerate(scales):
                value = builder.sitofp(whole[row, i], _FLOATS)
                old = added.get((row, i)) or _load(builder, places[row, i], _FLOATS)
                added[row, i] = _fma(builder, value, builder.fmul(own, scale), old)
    if kind.minima:
        _take_minima(turn, kind, count, added)
    following = builder.add(number, I64(1))
    number.add_incoming(following, loop)
    if not in_registers:
        _store(builder, added, places)
    for cell, phi in running.items():
        phi.add_incoming(added[cell], loop)
    builder.cbranch(builder.icmp_unsigned("<", following, blocks), loop, after)

    builder.position_at_end(after)
    if in_registers:
        _store(builder, added, places)
    builder.ret_void()


def _whole_sums(turn: _Loop, kind: PanelKind, group: _Group) -> dict[tuple[int, int], Any]:
    """Codes times values of a group, by row and vector of outputs: 16 int32 each."""
    builder, count = turn.builder, len(turn.rows)
    dot = declare(builder, _WORDS, [_WORDS, _BYTES, _BYTES], "llvm.x86.avx512.vpdpbusd.512")
    begin = [_offset_sums(turn, row, group) for row in range(count)]
    sums = {(row, i): begin[row] for row in range(count) for i in range(_VECTORS)}

    def multiply(codes: list[Any], inputs: int) -> None:
        for row in range(count):
            values = turn.inputs(row, inputs, _BYTES)
            for i, code in enumerate(codes):
                own = builder.bitcast(code, _BYTES)
                sums[row, i] = builder.call(dot, [sums[row, i], own, values])

    for step in range(kind.group * kind.bits // 32):
        words = turn.weights(group.words + 4 * WIDTH * step)
        inputs = group.inputs + 4 * step
        if kind.bits == 8:
            multiply(words, inputs)
            continue
        lower = ir.Constant(_WORDS, [0x0F0F0F0F] * _LANES)
        multiply([builder.and_(word, lower) for word in words], inputs)
        if count >= _IN_REGISTERS:
            words = turn.weights_again(group.words + 4 * WIDTH * step)
        four = ir.Constant(_WORDS, [4] * _LANES)
        multiply(
            [builder.and_(builder.lshr(word, four), lower) for word in words], inputs + BLOCK // 2
        )
    return sums


def _offset_sums(turn: _Loop, row: int, group: _Group) -> Any:
    """What codes' offset makes of a row's sums, in every lane."""
    if group.offsets == (0, 0):
        return ir.Constant(_WORDS, [0] * _LANES)
    return _times_sums(turn, row, group.offsets)


def _times_sums(turn: _Loop, row: int, factors: tuple[int, int]) -> Any:
    """The sums of a row's first and last 16 values, each times its factor, added: int32."""
    builder = turn.builder
    add = declare(builder, _WORDS, [_SHORTS, _SHORTS], "llvm.x86.avx512.pmaddw.d.512")
    return builder.call(add, [turn.inputs(row, SUMS, _SHORTS), _pairs(*factors)])


def _take_minima(
    turn: _Loop, kind: PanelKind, count: int, added: dict[tuple[int, int], Any]
) -> None:
    builder = turn.builder
    halves = turn.weights(kind.block_bytes - 2 * WIDTH, _HALVES)
    minima = [builder.fpext(half, _FLOATS) for half in halves]
    for row in range(count):
        total = builder.sitofp(_times_sums(turn, row, (-1, -1)), _FLOATS)
        total = builder.fmul(total, turn.inputs(row, SCALE, _FLOATS))
        for i, minimum in enumerate(minima):
            added[row, i] = _fma(builder, total, minimum, added[row, i])


def _pairs(first: int, second: int) -> Any:
    return ir.Constant(_SHORTS, [first, second] * _LANES)


def _load(builder: Any, place: Any, kind: Any, align: int = 4) -> Any:
    return builder.load(pointer(builder, place, kind), align=align)


def _store(builder: Any, values: dict[Any, Any], places: dict[Any, Any]) -> None:
    for cell, value in values.items():
        builder.store(value, pointer(builder, places[cell], _FLOATS), align=4)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.call(declare(builder, _FLOATS, [_FLOATS] * 3, "llvm.fma.v16f32"), [a, b, c])


@of_integers(types.void)
def _multiply_int8(
    builder: Any, rows: Any, x: Any, stride: Any, panel: Any, blocks: Any, sums: Any
) -> None:
    by_rows(builder, rows, [x, stride, panel, blocks, sums], "int8", _writes(INT8))


@of_integers(types.void)
def _multiply_int4(
    builder: Any, rows: Any, x: Any, stride: Any, panel: Any, blocks: Any, sums: Any
) -> None:
    by_rows(builder, rows, [x, stride, panel, blocks, sums], "int4", _writes(INT4))


@of_integers(types.void)
def _multiply_int4_minima(
    builder: Any, rows: Any, x: Any, stride: Any, panel: Any, blocks: Any, sums: Any
) -> None:
    by_rows(builder, rows, [x, stride, panel, blocks, sums], "int4m", _writes(INT4_MINIMA))


@of_integers(types.void)
def _multiply_int8_halves(
    builder: Any, rows: Any, x: Any, stride: Any, panel: Any, blocks: Any, sums: Any
) -> None:
    by_rows(builder, rows, [x, stride, panel, blocks, sums], "int8h", _writes(INT8_HALVES))


@of_integers(types.void)
def _multiply_int8_minima(
    builder: Any, rows: Any, x: Any, stride: Any, panel: Any, blocks: Any, sums: Any
) -> None:
    by_rows(builder, rows, [x, stride, panel, blocks, sums], "int8m", _writes(INT8_MINIMA))


def _writes(kind: PanelKind) -> Callable[[Any, int], None]:
    return lambda function, rows: _write(function, kind, rows)


def _int8(rows: int, x: int, stride: int, panel: int, blocks: int, sums: int) -> None:
    _multiply_int8(rows, x, stride, panel, blocks, sums)


def _int4(rows: int, x: int, stride: int, panel: int, blocks: int, sums: int) -> None:
    _multiply_int4(rows, x, stride, panel, blocks, sums)


def _int4_minima(rows: int, x: int, stride: int, panel: int, blocks: int, sums: int) -> None:
    _multiply_int4_minima(rows, x, stride, panel, blocks, sums)


def _int8_halves(rows: int, x: int, stride: int, panel: int, blocks: int, sums: int) -> None:
    _multiply_int8_halves(rows, x, stride, panel, blocks, sums)


def _int8_minima(rows: int, x: int, stride: int, panel: int, blocks: int, sums: int) -> None:
    _multiply_int8_minima(rows, x, stride, panel, blocks, sums)


_ENTRIES = {
    INT8: _int8, INT4: _int4,
    INT4_MINIMA: _int4_minima, INT8_HALVES: _int8_halves, INT8_MINIMA: _int8_minima,
}  # fmt: skip
