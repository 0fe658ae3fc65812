"""The compiled scans of recurrent layers along sequences: token by token, on states in slots.

A work item is one span and some heads (or channels). Its state is read from a slot, advanced by
every token, and written to the slot of each save on the way; so spans have any length and any
saves, and no token's numbers depend on another sequence. States and sums are float32.

What a step reads and saves are the arrays of ``inputs.StateArrays``: ``rows`` [S + 1], ``reads``
[S], ``save_starts`` [S + 1], ``save_rows`` and ``save_slots`` [N].

``CpuScan`` calls them with a record of numbers and addresses, ``CALL``: its items are shared out
among threads, and are done by a function that is known by its address, see ``records.share``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from app.model.cpu.kernels.attention import LOG2_E, exp2
from app.model.cpu.kernels.by_row import silu as silu_of
from app.model.cpu.kernels.compiled import Floats, Rows, address_of, compiled, narrow, widen
from app.model.cpu.kernels.llvm import copy
from app.model.cpu.kernels.records import at, memory, record
from app.model.inputs import Ints

CALL = record(
    "spans", "rows", "reads", "save_starts", "save_rows", "save_slots",
    "chunks", "tokens", "slots", "states", "heads", "sources", "height", "width",
    "extra", "x", "a", "b", "c", "d", "out",
)  # fmt: skip
"""Sizes, and the addresses of what a step reads and saves, of the states
[slots, heads, height, width], and of what is particular to a scan. ``heads`` are shared out."""

_f32: Any = np.float32
_i64: Any = np.int64
_ZERO = _f32(0.0)
_ONE = _f32(1.0)
_LEAST_NORM = _f32(1e-6)
_ROWS = 32
_TOKENS = 64
"""Rows of a delta rule's state, and the tokens they are advanced through before the next rows are:
with 128 columns the rows stay in the L1 cache, keys and queries in L2."""


@compiled(reassociate=True)
def _product(a: Rows, b: Rows) -> Any:
    """The inner product of two rows, by a loop that only reads.

    A loop that also writes is compiled twice, with and without SIMD, and the distance of its arrays
    in memory decides which one runs: equal rows would not always have equal bits.
    """
    total = _ZERO
    for i in range(len(a)):
        total += widen(a[i]) * widen(b[i])
    return total


@compiled(reassociate=True)
def _unit_factor(row: Any, normalize: bool) -> Any:
    """The factor that divides a row by its norm, as in transformers; 1 without ``normalize``."""
    if not normalize:
        return _ONE
    return _ONE / np.sqrt(_product(row, row) + _LEAST_NORM)


@compiled(reassociate=True)
def _exp(x: Any) -> Any:
    """``e ** x`` for x up to 0."""
    return exp2(x * LOG2_E)


@compiled(reassociate=True)
def _advance(
    before: Floats, state: Floats, moved: bool,
    kept: Floats, key: Floats, faded_key: Floats, faded_query: Floats,
    shared: Any, rate: Any, value: Rows, out: Rows,
) -> None:  # fmt: skip
    """One token of the delta rule, for some rows of a head's state; see ``delta_item``.

    ``moved``: the state is read from ``before``; else that is ``state`` itself.
    """
    count = state.shape[1]
    for row in range(len(state)):
        own = state[row]
        if moved:
            old = before[row]
            for i in range(count):
                own[i] = old[i]
        known = read = _ZERO
        for i in range(count):
            known += faded_key[i] * own[i]
            read += faded_query[i] * own[i]
        new = rate * (widen(value[row]) - known)
        out[row] = narrow(read + shared * new, out[row])
        for i in range(count):
            own[i] = kept[i] * own[i] + new * key[i]


@compiled(reassociate=True)
def delta_item(
    query: Rows, key: Rows, value: Rows, decay: Floats, rate: Floats, normalize: bool,
    states: Floats, first_row: int, end_row: int, read_slot: int,
    save_rows: Ints, save_slots: Ints, save: int, last_save: int,
    first_head: int, end_head: int, out: Rows,
) -> None:  # fmt: skip
    """Gated delta rule of one span, for some heads; see ``recurrent.LayerScan``.

    With S the state [V, K], and k, q, v, b and d a token's key, query, value, rate and decay, the
    last one for each column of S or for all::

        u = b (v - S (d k))        out = S (d q) + (q k) u        S = d S + u k

    A row of S is advanced on its own: it is read and written once for a token.
    """
    _, heads, values, size = states.shape
    group = heads // key.shape[1]
    tile = min(_TOKENS, end_row - first_row)
    kept = np.empty((tile, size), dtype=np.float32)
    keys = np.empty((tile, size), dtype=np.float32)
    faded_keys = np.empty((tile, size), dtype=np.float32)
    faded_queries = np.empty((tile, size), dtype=np.float32)
    products = np.empty(tile, dtype=np.float32)
    state = np.empty((values, size), dtype=np.float32)
    scale = _ONE / np.sqrt(_f32(size))
    for head in range(first_head, end_head):
        next_save = save
        for first in range(first_row, end_row, tile):
            end = min(first + tile, end_row)
            for row in range(first, end):
                t = row - first
                own_key, own_query = key[row, head // group], query[row, head // group]
                k_factor = _unit_factor(own_key, normalize)
                q_factor = _unit_factor(own_query, normalize) * scale
                own_decay = decay[row, head]
                if len(own_decay) == 1:
                    kept[t] = _exp(own_decay[0])
                else:
                    for i in range(size):
                        kept[t, i] = _exp(own_decay[i])
                for i in range(size):
                    k, q = widen(own_key[i]) * k_factor, widen(own_query[i]) * q_factor
                    keys[t, i] = k
                    faded_keys[t, i], faded_queries[t, i] = k * kept[t, i], q * kept[t, i]
                products[t] = _product(own_query, own_key) * (k_factor * q_factor)
            place = next_save
            for begin in range(0, values, _ROWS):
                part = slice(begin, min(begin + _ROWS, values))
                place = next_save
                for row in range(first, end):
                    t = row - first
                    before = after = state[part]
                    moved = row == first_row
                    if moved:
                        before = states[read_slot, head, part]
                    saved = place < last_save and save_rows[place] == row + 1
                    if saved and row + 1 == end_row:
                        # A decode goes from slot to slot, often the same one.
                        after = states[save_slots[place], head, part]
                        moved = not moved or save_slots[place] != read_slot
                    _advance(
                        before, after, moved, kept[t], keys[t], faded_keys[t], faded_queries[t],
                        products[t], rate[row, head], value[row, head, part], out[row, head, part],
                    )  # fmt: skip
                    if saved:
                        if row + 1 < end_row:
                            saved_part = states[save_slots[place], head, part]
                            copy(after.ctypes.data, saved_part.ctypes.data, after.nbytes)
                        place += 1
            next_save = place


@compiled(reassociate=True)
def mamba2_item(
    x: Rows, dt: Floats, decay: Floats, write: Rows, read: Rows, skip: Floats,
    states: Floats, first_row: int, end_row: int, read_slot: int,
    save_rows: Ints, save_slots: Ints, save: int, last_save: int,
    first_head: int, end_head: int, out: Floats,
) -> None:  # fmt: skip
    """Mamba 2's scan of one span, for some heads; see ``recurrent.LayerScan``."""
    _, heads, dims, size = states.shape
    group = heads // write.shape[1]
    # In one array, so that LLVM finds the same distances each time, see ``_product``.
    space = np.empty((dims + 2, size), dtype=np.float32)
    state, b, c = space[:dims], space[dims], space[dims + 1]
    for head in range(first_head, end_head):
        copy(states[read_slot, head].ctypes.data, state.ctypes.data, state.nbytes)
        place = save
        for row in range(first_row, end_row):
            own_write, own_read = write[row, head // group], read[row, head // group]
            for j in range(size):
                b[j], c[j] = widen(own_write[j]), widen(own_read[j])
            step = dt[row, head]
            kept = _exp(step * decay[head])
            for i in range(dims):
                value = widen(x[row, head, i])
                add, total = step * value, _ZERO
                own = state[i]
                for j in range(size):
                    own[j] = own[j] * kept + add * b[j]
                    total += own[j] * c[j]
                out[row, head, i] = total + skip[head] * value
            if place < last_save and save_rows[place] == row + 1:
                copy(state.ctypes.data, states[save_slots[place], head].ctypes.data, state.nbytes)
                place += 1


@compiled(reassociate=True)
def mamba1_item(
    x: Rows, dt: Rows, decay: Floats, write: Rows, read: Rows,
    states: Floats, first_row: int, end_row: int, read_slot: int,
    save_rows: Ints, save_slots: Ints, save: int, last_save: int,
    first_channel: int, end_channel: int, out: Floats,
) -> None:  # fmt: skip
    """Mamba's selective scan of one span, for some channels; see ``recurrent.LayerScan``."""
    size = decay.shape[1]
    count = end_channel - first_channel
    state = np.empty((count, size), dtype=np.float32)
    copy(states[read_slot, first_channel].ctypes.data, state.ctypes.data, state.nbytes)
    b, c = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
    for row in range(first_row, end_row):
        for j in range(size):
            b[j], c[j] = widen(write[row, j]), widen(read[row, j])
        for i in range(count):
            channel = first_channel + i
            step = widen(dt[row, channel])
            add, own, rates = step * widen(x[row, channel]), state[i], decay[channel]
            for j in range(size):
                own[j] = own[j] * _exp(step * rates[j]) + add * b[j]
            out[row, channel] = _product(own, c)
        if save < last_save and save_rows[save] == row + 1:
            saved = states[save_slots[save], first_channel]
            copy(state.ctypes.data, saved.ctypes.data, state.nbytes)
            save += 1


@compiled(reassociate=True)
def convolve_item(
    x: Rows, weight: Floats, bias: Floats, silu: bool,
    states: Rows, first_row: int, end_row: int, read_slot: int,
    save_rows: Ints, save_slots: Ints, save: int, last_save: int,
    first_channel: int, end_channel: int, out: Rows, out_channel: int,
) -> None:  # fmt: skip
    """Convolution of one span, for some channels; ``weight`` [K, C], ``states`` [slots, K - 1, C].

    ``x`` may have more channels; the first one goes to ``out_channel``. The sum is rounded before
    its activation, as transformers does it.
    """
    kept = len(weight) - 1
    count = end_channel - first_channel
    channels = slice(first_channel, end_channel)
    before = np.empty((kept, count), dtype=x.dtype)
    for k in range(kept):
        old = states[read_slot, k, channels]
        copy(old.ctypes.data, before[k].ctypes.data, count * old.itemsize)
    sums = np.empty(count, dtype=np.float32)
    for row in range(first_row, end_row):
        copy(bias[channels].ctypes.data, sums.ctypes.data, sums.nbytes)
        for k in range(kept + 1):
            source = row - kept + k
            factors = weight[k, channels]
            values = (
                x[source, channels] if source >= first_row else before[kept + source - first_row]
            )
            for i in range(count):
                sums[i] += factors[i] * widen(values[i])
        result = out[row, out_channel : out_channel + count]
        for i in range(count):
            result[i] = narrow(sums[i], result[i])
        if silu:
            for i in range(count):
                result[i] = narrow(silu_of(widen(result[i])), result[i])
        if save < last_save and save_rows[save] == row + 1:
            for k in range(kept):
                source = row + 1 - kept + k
                values = (
                    x[source, channels]
                    if source >= first_row
                    else before[kept + source - first_row]
                )
                saved = states[save_slots[save], k, channels]
                copy(values.ctypes.data, saved.ctypes.data, count * values.itemsize)
            save += 1


@compiled()
def _span(call: Any, item: int) -> Any:
    """Arguments of every scan for its item: first and end row, slot, saves, and heads."""
    s, chunk = item % call.spans, item // call.spans
    rows = memory(at(call.rows), (call.spans + 1,), _i64)
    starts = memory(at(call.save_starts), (call.spans + 1,), _i64)
    saves = starts[call.spans]
    return (
        rows[s], rows[s + 1], memory(at(call.reads), (call.spans,), _i64)[s],
        memory(at(call.save_rows), (saves,), _i64),
        memory(at(call.save_slots), (saves,), _i64), starts[s], starts[s + 1],
        call.heads * chunk // call.chunks, call.heads * (chunk + 1) // call.chunks,
    )  # fmt: skip


def _delta_rule(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        keys = (call.tokens, call.sources, call.width)
        values = (call.tokens, call.heads, call.height)
        by_channel = call.extra >= 2
        delta_item(
            memory(at(call.x), keys, number),
            memory(at(call.a), keys, number),
            memory(at(call.b), values, number),
            memory(at(call.c), (call.tokens, call.heads, call.width if by_channel else 1), _f32),
            memory(at(call.d), (call.tokens, call.heads), _f32),
            call.extra % 2 == 1,
            memory(at(call.states), (call.slots, call.heads, call.height, call.width), _f32),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), values, number),
        )  # fmt: skip

    return run


def _mamba2(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        values = (call.tokens, call.heads, call.height)
        groups = (call.tokens, call.sources, call.width)
        mamba2_item(
            memory(at(call.x), values, number),
            memory(at(call.a), (call.tokens, call.heads), _f32),
            memory(at(call.b), (call.heads,), _f32),
            memory(at(call.c), groups, number),
            memory(at(call.d), groups, number),
            memory(at(call.extra), (call.heads,), _f32),
            memory(at(call.states), (call.slots, call.heads, call.height, call.width), _f32),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), values, _f32),
        )  # fmt: skip

    return run


def _mamba1(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        mamba1_item(
            memory(at(call.x), (call.tokens, call.heads), number),
            memory(at(call.a), (call.tokens, call.heads), _f32),
            memory(at(call.b), (call.heads, call.width), _f32),
            memory(at(call.c), (call.tokens, call.width), number),
            memory(at(call.d), (call.tokens, call.width), number),
            memory(at(call.states), (call.slots, call.heads, call.width), _f32),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), (call.tokens, call.heads), _f32),
        )  # fmt: skip

    return run


def _convolve(number: Any) -> Callable[[int, int], None]:
    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), CALL)[0]
        first, end, read, save_rows, save_slots, save, last, head, end_head = _span(call, item)
        convolve_item(
            memory(at(call.x), (call.tokens, call.heads), number),
            memory(at(call.a), (call.height + 1, call.heads), _f32),
            memory(at(call.b), (call.heads,), _f32),
            call.extra == 1,
            memory(at(call.states), (call.slots, call.height, call.heads), number),
            first, end, read, save_rows, save_slots, save, last, head, end_head,
            memory(at(call.out), (call.tokens, call.heads), number), head,
        )  # fmt: skip

    return run


_SCANS = {"delta_rule": _delta_rule, "mamba2": _mamba2, "mamba1": _mamba1, "convolve": _convolve}


@functools.cache
def address_of_scan(scan: str, number: Any) -> int:
    """The address of the function that does an item; compiled on the first call.

    ``number`` is the type of the model's activations in ``compiled.as_numpy``.
    """
    return address_of(_SCANS[scan](number), "void(int64, int64)")
