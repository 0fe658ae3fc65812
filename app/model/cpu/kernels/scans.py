"""What recurrent layers do along their sequences, compiled: token by token, in states in slots.

A work item is one span and some heads (or channels). Its state is read from a slot, advanced by
every token, and written to the slot of each save on the way; so spans have any length and any
saves, and no token's numbers depend on another sequence. States and sums are float32.

What a step reads and saves are the arrays of ``inputs.StateArrays``: ``rows`` [S + 1], ``reads``
[S], ``save_starts`` [S + 1], ``save_rows`` and ``save_slots`` [N].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from app.model.cpu.kernels.attention import LOG2_E, Floats, Rows, exp2
from app.model.cpu.kernels.compiled import compiled, narrow, widen
from app.model.inputs import Ints

_f32: Any = np.float32
_ZERO = _f32(0.0)
_ONE = _f32(1.0)
_LEAST_NORM = _f32(1e-6)
_COLUMNS = 32
_TOKENS = 64
"""Columns of a delta rule's state, and the tokens they are advanced through before the next columns
are: with 128 rows the columns stay in the first cache, keys and queries in the second."""


@compiled(reassociate=True)
def _unit_factor(row: Any, normalize: bool) -> Any:
    """What divides a row by its norm, as transformers does it; 1 without ``normalize``."""
    if not normalize:
        return _ONE
    total = _ZERO
    for i in range(len(row)):
        value = widen(row[i])
        total += value * value
    return _ONE / np.sqrt(total + _LEAST_NORM)


@compiled(reassociate=True)
def _exp(x: Any) -> Any:
    """``e ** x`` for x up to 0."""
    return exp2(x * LOG2_E)


@compiled(reassociate=True)
def _recall(state: Floats, key: Floats, query: Floats, known: Floats, read: Floats) -> None:
    """``known = key state``, ``read = query state``; four rows of the state at a time."""
    count, columns = state.shape
    known[:] = _ZERO
    read[:] = _ZERO
    whole = count // 4 * 4
    for i in range(0, whole, 4):
        k0, k1, k2, k3 = key[i], key[i + 1], key[i + 2], key[i + 3]
        q0, q1, q2, q3 = query[i], query[i + 1], query[i + 2], query[i + 3]
        for j in range(columns):
            a, b, c, d = state[i, j], state[i + 1, j], state[i + 2, j], state[i + 3, j]
            known[j] += (k0 * a + k1 * b) + (k2 * c + k3 * d)
            read[j] += (q0 * a + q1 * b) + (q2 * c + q3 * d)
    for i in range(whole, count):
        for j in range(columns):
            known[j] += key[i] * state[i, j]
            read[j] += query[i] * state[i, j]


@compiled(reassociate=True)
def _learn(state: Floats, kept: Any, key: Floats, new: Floats) -> None:
    """``state = kept * state + key new``."""
    count, columns = state.shape
    for i in range(count):
        k = key[i]
        for j in range(columns):
            state[i, j] = kept * state[i, j] + k * new[j]


@compiled(reassociate=True)
def _fade(state: Floats, decay: Rows) -> None:
    """Each row of the state by the exponential of its ``decay``."""
    count, columns = state.shape
    for i in range(count):
        kept = _exp(widen(decay[i]))
        for j in range(columns):
            state[i, j] *= kept


@compiled(reassociate=True)
def delta_item(
    query: Rows, key: Rows, value: Rows, decay: Rows, rate: Rows, normalize: bool,
    states: Floats, first_row: int, end_row: int, read_slot: int,
    save_rows: Ints, save_slots: Ints, save: int, last_save: int,
    first_head: int, end_head: int, out: Rows,
) -> None:  # fmt: skip
    """Gated delta rule of one span, for some heads; see ``recurrent.LayerScan``.

    With S the state, k, q, v, b and d a token's key, query, value, rate and decay::

        u = b (v - d k S)        out = d q S + (q k) u        S = d S + k u
    """
    _, heads, rows, columns = states.shape
    group = heads // key.shape[1]
    by_channel = decay.shape[2] > 1
    parts = (columns + _COLUMNS - 1) // _COLUMNS
    tile = min(_TOKENS, end_row - first_row)
    keys = np.empty((tile, rows), dtype=np.float32)
    queries = np.empty((tile, rows), dtype=np.float32)
    products = np.empty(tile, dtype=np.float32)
    state = np.zeros((parts, rows, _COLUMNS), dtype=np.float32)
    known = np.empty(_COLUMNS, dtype=np.float32)
    result = np.empty(_COLUMNS, dtype=np.float32)
    scale = _ONE / np.sqrt(_f32(rows))
    for head in range(first_head, end_head):
        for part in range(parts):
            begin = part * _COLUMNS
            width = min(_COLUMNS, columns - begin)
            state[part, :, :width] = states[read_slot, head, :, begin : begin + width]
        next_save = save
        for first in range(first_row, end_row, tile):
            end = min(first + tile, end_row)
            for row in range(first, end):
                own_key, own_query = key[row, head // group], query[row, head // group]
                k_factor = _unit_factor(own_key, normalize)
                q_factor = _unit_factor(own_query, normalize) * scale
                wide_key, wide_query, total = keys[row - first], queries[row - first], _ZERO
                for i in range(rows):
                    k, q = widen(own_key[i]) * k_factor, widen(own_query[i]) * q_factor
                    wide_key[i], wide_query[i] = k, q
                    total += k * q
                products[row - first] = total
            place = next_save
            for part in range(parts):
                begin = part * _COLUMNS
                width = min(_COLUMNS, columns - begin)
                own_state = state[part]
                place = next_save
                for row in range(first, end):
                    kept = _ONE
                    if by_channel:
                        _fade(own_state, decay[row, head])
                    else:
                        kept = _exp(widen(decay[row, head, 0]))
                    wide_key = keys[row - first]
                    _recall(own_state, wide_key, queries[row - first], known, result)
                    b, shared = widen(rate[row, head]), products[row - first]
                    own_value = value[row, head, begin : begin + width]
                    own_out = out[row, head, begin : begin + width]
                    for j in range(width):
                        new = b * (widen(own_value[j]) - kept * known[j])
                        known[j] = new
                        own_out[j] = narrow(kept * result[j] + shared * new, own_out[j])
                    _learn(own_state, kept, wide_key, known)
                    if place < last_save and save_rows[place] == row + 1:
                        states[save_slots[place], head, :, begin : begin + width] = own_state[
                            :, :width
                        ]
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
    state = np.empty((dims, size), dtype=np.float32)
    b, c = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
    for head in range(first_head, end_head):
        state[:] = states[read_slot, head]
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
                states[save_slots[place], head] = state
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
    state[:] = states[read_slot, first_channel:end_channel]
    b, c = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
    for row in range(first_row, end_row):
        for j in range(size):
            b[j], c[j] = widen(write[row, j]), widen(read[row, j])
        for i in range(count):
            channel = first_channel + i
            step = widen(dt[row, channel])
            add, total = step * widen(x[row, channel]), _ZERO
            own, rates = state[i], decay[channel]
            for j in range(size):
                own[j] = own[j] * _exp(step * rates[j]) + add * b[j]
                total += own[j] * c[j]
            out[row, channel] = total
        if save < last_save and save_rows[save] == row + 1:
            states[save_slots[save], first_channel:end_channel] = state
            save += 1


@compiled(reassociate=True)
def convolve_item(
    x: Rows, weight: Floats, bias: Floats, silu: bool,
    states: Rows, first_row: int, end_row: int, read_slot: int,
    save_rows: Ints, save_slots: Ints, save: int, last_save: int,
    first_channel: int, end_channel: int, out: Rows,
) -> None:  # fmt: skip
    """Convolution of one span, for some channels; ``weight`` [K, C], ``states`` [slots, K - 1, C].

    The sum is rounded before its activation, as transformers does it.
    """
    kept = len(weight) - 1
    count = end_channel - first_channel
    channels = slice(first_channel, end_channel)
    before = np.empty((kept, count), dtype=x.dtype)
    before[:] = states[read_slot, :, channels]
    sums = np.empty(count, dtype=np.float32)
    for row in range(first_row, end_row):
        sums[:] = bias[channels]
        for k in range(kept + 1):
            source = row - kept + k
            factors = weight[k, channels]
            values = (
                x[source, channels] if source >= first_row else before[kept + source - first_row]
            )
            for i in range(count):
                sums[i] += factors[i] * widen(values[i])
        result = out[row, channels]
        for i in range(count):
            result[i] = narrow(sums[i], result[i])
        if silu:
            for i in range(count):
                value = widen(result[i])
                power = _exp(-abs(value))
                share = _ONE / (_ONE + power)
                share = share if value >= _ZERO else power * share
                result[i] = narrow(value * share, result[i])
        if save < last_save and save_rows[save] == row + 1:
            for k in range(kept):
                source = row + 1 - kept + k
                values = (
                    x[source, channels]
                    if source >= first_row
                    else before[kept + source - first_row]
                )
                states[save_slots[save], k, channels] = values
            save += 1
