"""Products of few rows with weights of 8 and 4 bits in panels, by AVX512-VNNI or AVX2.

An instruction of VNNI multiplies four unsigned bytes with four signed ones and adds the sums to 32
bits; without it two or three of AVX2 do, with the same whole numbers. Codes are the unsigned bytes,
as they lie; activations are rounded to the signed ones, row by row, before they are multiplied with
anything (``rounded_rows``).

The error by the codes' offset is the offset times the sum of the values: sums of a block start
with its correction, so it costs nothing. Sums of a block are whole numbers and exact; they are
multiplied by both scales and added in float32, block after block, in one order for any number of
rows: a row's result does not depend on those beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from app.core.kernels import has
from app.model.cpu.kernels import amx
from app.model.cpu.kernels.compiled import address_of
from app.model.cpu.kernels.llvm import I8, I32, I64, declare, pointer
from app.model.cpu.kernels.panels import MULTIPLY, VECTORS, WIDTH, by_rows, columns, everywhere
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
from app.model.cpu.kernels.vectors import FLOATS, HALVES, LANES, WORDS, fma, loop, registers

_SHORTS = ir.VectorType(ir.IntType(16), 2 * LANES)
_BYTES = ir.VectorType(I8, 4 * LANES)
_HAS_VNNI = has("avx512vnni") and has("avx512bw")


def entry(kind: PanelKind) -> int:
    """The address of the product with panels of a kind, see ``panels.MULTIPLY``; with AMX also of
    up to ``amx.MOST_ROWS`` rows.

    Compiled on the first call for the kind. Panels are [K / 32, block bytes], their unit a block;
    ``x`` are rounded rows.
    """
    return address_of(_ENTRIES[kind], MULTIPLY)


class _Turn:
    """A block of panels that a turn of the loop reads, and 32 inputs of each row."""

    def __init__(self, builder: Any, block: Any, rows: list[Any], columns: range) -> None:
        self.builder = builder
        self.block = block
        self.rows = rows
        self.columns = columns
        """The vectors of outputs that are summed."""

    def weights(self, offset: int, kind: Any = WORDS) -> list[Any]:
        """The outputs' words at an offset in the block, or their scales."""
        step = 64 if kind is WORDS else 2 * LANES
        places = [self.builder.add(self.block, I64(offset + step * i)) for i in self.columns]
        return [_load(self.builder, place, kind, step) for place in places]

    def weights_again(self, offset: int) -> list[Any]:
        """As ``weights``, loaded again, which the compiler does not see: registers are few."""
        same = ir.FunctionType(I64, [I64])
        hidden = self.builder.asm(same, "", "=r,0", [self.block], side_effect=True)
        return _Turn(self.builder, hidden, self.rows, self.columns).weights(offset)

    def halves(self, offset: int) -> list[Any]:
        """The outputs' scales or minima at an offset in the block, float32."""
        return [self.builder.fpext(half, FLOATS) for half in self.weights(offset, HALVES)]

    def inputs(self, row: int, offset: int, kind: Any) -> Any:
        """The 32 bits at an offset in a row's inputs, in every lane, as a ``kind`` of vector."""
        place = self.builder.add(self.rows[row], I64(offset))
        return self.builder.bitcast(everywhere(self.builder, place), kind)


@dataclass(frozen=True, slots=True)
class _Group:
    """Byte offsets of the inputs of a block that share a scale."""

    words: int
    inputs: int
    """Byte offset of the values in the rounded inputs."""
    scales: int
    offsets: tuple[int, int]
    """Factors of the sums of 16 values, to correct the codes' offset; 0: none."""


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


def _write(kind: PanelKind, function: Any, rows: int) -> None:
    """The loops over blocks for one kind of panels and one number of rows."""
    x, stride, weights, blocks, sums = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    lines = [builder.add(x, builder.mul(stride, I64(row))) for row in range(rows)]
    for own in columns(rows):
        cells = [(row, i) for row in range(rows) for i in own]
        places = {(row, i): builder.add(sums, I64(4 * WIDTH * row + 64 * i)) for row, i in cells}
        # Beside integer sums, the scales and an input; otherwise they are in the L1 cache.
        kept = cells if 2 * len(cells) + len(own) < registers() else []

        def turn(
            number: Any,
            running: list[Any],
            own: range = own,
            kept: list[tuple[int, int]] = kept,
            places: dict[tuple[int, int], Any] = places,
        ) -> list[Any]:
            block = builder.add(weights, builder.mul(number, I64(kind.block_bytes)))
            inputs = builder.mul(number, I64(ROUNDED_BYTES))
            here = _Turn(builder, block, [builder.add(line, inputs) for line in lines], own)
            added = dict(zip(kept, running, strict=True))
            _add_block(here, kind, partial(_whole_sums, here, kind), places, added)
            return list(added.values())

        first = [_load(builder, places[cell], FLOATS) for cell in kept]
        last = loop(builder, I64(0), blocks, 1, first, turn)
        _store(builder, dict(zip(kept, last, strict=True)), places)
    builder.ret_void()


def _add_block(
    turn: _Turn,
    kind: PanelKind,
    sums_of: Callable[[_Group], dict[tuple[int, int], Any]],
    places: dict[tuple[int, int], Any],
    added: dict[tuple[int, int], Any],
) -> None:
    """Scale the whole ``sums_of`` groups, and add them to ``added``; if empty, at ``places``.

    A row at a time, from memory to memory: the sums of all rows do not fit in registers.
    """
    builder, groups = turn.builder, _groups(kind)
    for group in groups:
        whole = sums_of(group)
        scales = turn.halves(group.scales)
        is_last = group is groups[-1]  # minima are those of the block
        minima = turn.halves(kind.block_bytes - 2 * WIDTH) if kind.minima and is_last else []
        for row in range(len(turn.rows)):
            factor = turn.inputs(row, SCALE, FLOATS)
            cells = [(row, i) for i in turn.columns]
            sums = [
                added[cell] if added else _load(builder, places[cell], FLOATS) for cell in cells
            ]
            for n, cell in enumerate(cells):
                value = builder.sitofp(whole[cell], FLOATS)
                sums[n] = fma(builder, value, builder.fmul(factor, scales[n]), sums[n])
            if minima:
                total = builder.sitofp(_times_sums(turn, row, (-1, -1)), FLOATS)
                total = builder.fmul(total, factor)
                sums = [fma(builder, total, *each) for each in zip(minima, sums, strict=True)]
            found = dict(zip(cells, sums, strict=True))
            if added:
                added.update(found)
            else:
                _store(builder, found, places)


def _whole_sums(turn: _Turn, kind: PanelKind, group: _Group) -> dict[tuple[int, int], Any]:
    """Codes times values of a group, by row and vector of outputs: 16 int32 each."""
    builder, count = turn.builder, len(turn.rows)
    begin = [_offset_sums(turn, row, group) for row in range(count)]
    # Without VNNI, eight sums of two 4-bit products fit in 16 bits: at most 8 * 2 * 15 * 127.
    short = kind.bits == 4 and not _HAS_VNNI
    first = [ir.Constant(_SHORTS, [0] * 2 * LANES)] * count if short else begin
    sums = {(row, i): first[row] for row in range(count) for i in turn.columns}

    def multiply(codes: list[Any], inputs: int) -> None:
        for row in range(count):
            values = turn.inputs(row, inputs, _BYTES)
            for i, code in zip(turn.columns, codes, strict=True):
                if short:
                    pairs = _add_pairs(builder, builder.bitcast(code, _BYTES), values)
                    sums[row, i] = builder.add(sums[row, i], pairs)
                else:
                    sums[row, i] = _dot(builder, sums[row, i], code, values)

    for step in range(kind.group * kind.bits // 32):
        words = turn.weights(group.words + 4 * WIDTH * step)
        inputs = group.inputs + 4 * step
        if kind.bits == 8:
            multiply(words, inputs)
            continue
        lower = ir.Constant(WORDS, [0x0F0F0F0F] * LANES)
        multiply([builder.and_(word, lower) for word in words], inputs)
        if count >= 3:
            words = turn.weights_again(group.words + 4 * WIDTH * step)
        four = ir.Constant(WORDS, [4] * LANES)
        multiply(
            [builder.and_(builder.lshr(word, four), lower) for word in words], inputs + BLOCK // 2
        )
    if short:
        one = ir.Constant(_SHORTS, [1] * 2 * LANES)
        for row, i in sums:
            sums[row, i] = builder.add(begin[row], _add_pairs(builder, sums[row, i], one))
    return sums


def _dot(builder: Any, sums: Any, codes: Any, values: Any) -> Any:
    """``sums`` and, by fours, the products of unsigned bytes with signed ones: 16 int32."""
    if _HAS_VNNI:
        name = "llvm.x86.avx512.vpdpbusd.512"
        dot = declare(builder, WORDS, [WORDS, _BYTES, _BYTES], name)
        return builder.call(dot, [sums, builder.bitcast(codes, _BYTES), values])
    # Even and odd bytes as numbers of 16 bits, whose products have room in 32.
    codes, values = builder.bitcast(codes, _SHORTS), builder.bitcast(values, _SHORTS)
    eight, low = (ir.Constant(_SHORTS, [number] * 2 * LANES) for number in (8, 0xFF))
    even = builder.ashr(builder.shl(values, eight), eight)
    sums = builder.add(sums, _add_pairs(builder, builder.and_(codes, low), even))
    odd = _add_pairs(builder, builder.lshr(codes, eight), builder.ashr(values, eight))
    return builder.add(sums, odd)


def _add_pairs(builder: Any, a: Any, b: Any) -> Any:
    """The products of two vectors, added by twos: 16 int32 of int16, 32 int16 of unsigned and
    signed bytes."""
    shorts = a.type == _SHORTS
    kinds = (WORDS, _SHORTS) if shorts else (_SHORTS, _BYTES)
    if has("avx512bw"):
        name = "llvm.x86.avx512.pmaddw.d.512" if shorts else "llvm.x86.avx512.pmaddubs.w.512"
        return builder.call(declare(builder, kinds[0], [kinds[1]] * 2, name), [a, b])
    out, given = (ir.VectorType(kind.element, kind.count // 2) for kind in kinds)
    name = "llvm.x86.avx2.pmadd.wd" if shorts else "llvm.x86.avx2.pmadd.ub.sw"
    add = declare(builder, out, [given, given], name)
    parts = []
    for first in (0, given.count):
        lanes = ir.Constant(ir.VectorType(I32, given.count), [*range(first, first + given.count)])
        parts.append(
            builder.call(add, [builder.shuffle_vector(each, each, lanes) for each in (a, b)])
        )
    both = ir.Constant(ir.VectorType(I32, kinds[0].count), [*range(kinds[0].count)])
    return builder.shuffle_vector(*parts, both)


def _offset_sums(turn: _Turn, row: int, group: _Group) -> Any:
    """The offset of codes times a row's sums, in every lane."""
    if group.offsets == (0, 0):
        return ir.Constant(WORDS, [0] * LANES)
    return _times_sums(turn, row, group.offsets)


def _times_sums(turn: _Turn, row: int, factors: tuple[int, int]) -> Any:
    """The sums of a row's first and last 16 values, each times its factor, added: int32."""
    pairs = ir.Constant(_SHORTS, [*factors] * LANES)
    return _add_pairs(turn.builder, turn.inputs(row, SUMS, _SHORTS), pairs)


def _load(builder: Any, place: Any, kind: Any, align: int = 4) -> Any:
    return builder.load(pointer(builder, place, kind), align=align)


def _write_tiles(kind: PanelKind, function: Any) -> None:
    """The loop over blocks by AMX, for 1 to ``amx.MOST_ROWS`` rows.

    Tiles multiply a block's codes with the values of all rows; then the sums are scaled, row by row
    and in the order of ``_write``.
    """
    rows, x, stride, weights, blocks, sums = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    two = builder.icmp_signed(">", rows, I64(amx.ROWS))
    # Of an odd number both tiles have the row in the middle.
    half = builder.ashr(builder.add(rows, I64(1)), I64(1))
    high = builder.select(two, half, rows)
    depth = kind.group // 4
    values, codes = 4, (5, 6, 7)
    amx.configure(
        builder,
        [(high, I64(64))] * 4 + [(high, I64(kind.group))] + [(I64(depth), I64(64))] * len(codes),
    )
    groups = _groups(kind)
    room = ir.ArrayType(WORDS, amx.MOST_ROWS * VECTORS)
    whole = [builder.ptrtoint(builder.alloca(room), I64) for _ in groups]
    unpacked = builder.ptrtoint(builder.alloca(ir.ArrayType(WORDS, depth * VECTORS)), I64)

    def multiply(first: Any, inputs: Any, block: Any, group: _Group, whole: Any) -> None:
        row = builder.add(builder.add(x, builder.mul(stride, first)), inputs)
        amx.load(builder, values, builder.add(row, I64(group.inputs)), stride)
        for i in range(VECTORS):
            tile = codes[i % len(codes)]
            amx.tile_call(builder, "tilezero", i)
            amx.load(builder, tile, builder.add(block, I64(64 * i)), I64(amx.PITCH))
            amx.tile_call(builder, "tdpbsud", i, values, tile)
            place = builder.add(whole, builder.mul(first, I64(amx.PITCH)))
            amx.store(builder, i, builder.add(place, I64(64 * i)), I64(amx.PITCH))

    def turn(number: Any, _: Any) -> list[Any]:
        block = builder.add(weights, builder.mul(number, I64(kind.block_bytes)))
        inputs = builder.mul(number, I64(ROUNDED_BYTES))
        for group, place in zip(groups, whole, strict=True):
            words = builder.add(block, I64(group.words))
            if kind.bits == 4:
                _unpack(builder, words, unpacked)
                words = unpacked
            multiply(I64(0), inputs, words, group, place)
            with builder.if_then(two):
                multiply(builder.sub(rows, high), inputs, words, group, place)

        def scale(row: Any, _: Any) -> list[Any]:
            values = builder.add(builder.add(x, builder.mul(stride, row)), inputs)
            here = _Turn(builder, block, [values], range(VECTORS))
            offset = builder.mul(row, I64(amx.PITCH))

            def sums_of(group: _Group) -> dict[tuple[int, int], Any]:
                begin = _offset_sums(here, 0, group)
                first = builder.add(whole[groups.index(group)], offset)
                found = [_load(builder, each, WORDS) for each in _vectors(builder, first)]
                return {(0, i): builder.add(begin, value) for i, value in enumerate(found)}

            places = {
                (0, i): place
                for i, place in enumerate(_vectors(builder, builder.add(sums, offset)))
            }
            _add_block(here, kind, sums_of, places, {})
            return []

        loop(builder, I64(0), rows, 1, [], scale)
        return []

    loop(builder, I64(0), blocks, 1, [], turn)
    amx.tile_call(builder, "tilerelease")
    builder.ret_void()


def _vectors(builder: Any, address: Any) -> list[Any]:
    """Addresses of the vectors of a panel's outputs."""
    return [builder.add(address, I64(64 * i)) for i in range(VECTORS)]


def _unpack(builder: Any, words: Any, out: Any) -> None:
    """A block's codes of 4 bits as bytes, [8, 64 outputs] words of four."""
    lower = ir.Constant(WORDS, [0x0F0F0F0F] * LANES)
    four = ir.Constant(WORDS, [4] * LANES)
    size = 4 * amx.PITCH
    for offset in range(0, size, 64):
        word = _load(builder, builder.add(words, I64(offset)), WORDS)
        for begin, bits in ((0, word), (size, builder.lshr(word, four))):
            place = pointer(builder, builder.add(out, I64(begin + offset)), WORDS)
            builder.store(builder.and_(bits, lower), place, align=4)


def _store(builder: Any, values: dict[Any, Any], places: dict[Any, Any]) -> None:
    for cell, value in values.items():
        builder.store(value, pointer(builder, places[cell], FLOATS), align=4)


_multiply_int8 = by_rows("int8", partial(_write, INT8), partial(_write_tiles, INT8))
_multiply_int4 = by_rows("int4", partial(_write, INT4), partial(_write_tiles, INT4))
_multiply_int4_minima = by_rows(
    "int4m", partial(_write, INT4_MINIMA), partial(_write_tiles, INT4_MINIMA)
)
_multiply_int8_halves = by_rows(
    "int8h", partial(_write, INT8_HALVES), partial(_write_tiles, INT8_HALVES)
)
_multiply_int8_minima = by_rows(
    "int8m", partial(_write, INT8_MINIMA), partial(_write_tiles, INT8_MINIMA)
)


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
