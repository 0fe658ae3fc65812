"""Scans and convolutions of recurrent layers: token by token, with states in slots.

A program has one span, one head, and some columns of that head's state. It reads them from a slot,
advances them by each token, and writes them to the slot of each save that is due. Spans can have
any length and any saves, and no token's result depends on another sequence. States and sums are
float32. A step's spans and saves are the tensors of ``step_buffers.DeviceStates``, int32; spans
without tokens end at once. Compile-time constants depend on the model alone, and kernels are not
specialized for values of integers: nothing is compiled again while serving.

This module needs triton; without CUDA, only its tests import it.
"""

# ruff: noqa: N803 (compile-time constants are written as constants)
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _next_save(save_rows: tl.tensor, save: tl.tensor, last: tl.tensor) -> tl.tensor:
    """The row before which states must be saved next; -1: there is none."""
    return tl.load(save_rows + save, mask=save < last, other=-1)


@triton.jit  # type: ignore[untyped-decorator]
def _unit(x: tl.tensor) -> tl.tensor:
    return x * tl.rsqrt(tl.sum(x * x, 0) + 1e-6)


@triton.jit(do_not_specialize=["query_row", "key_row", "value_row", "decay_row", "rate_row"])  # type: ignore[untyped-decorator]
def delta_rule(
    query: tl.tensor, key: tl.tensor, value: tl.tensor, decay: tl.tensor, rate: tl.tensor,
    states: tl.tensor, out: tl.tensor, rows: tl.tensor, reads: tl.tensor,
    save_starts: tl.tensor, save_rows: tl.tensor, save_slots: tl.tensor,
    query_row: tl.tensor, key_row: tl.tensor, value_row: tl.tensor,
    decay_row: tl.tensor, rate_row: tl.tensor,
    HEADS: tl.constexpr, GROUP: tl.constexpr, KEYS: tl.constexpr, KEYS_PAD: tl.constexpr,
    VALUES: tl.constexpr, BLOCK: tl.constexpr,
    NORMALIZE: tl.constexpr, BY_CHANNEL: tl.constexpr, SCALE: tl.constexpr,
) -> None:  # fmt: skip
    """Gated delta rule; see ``recurrent.LayerScan``. Grid: spans, heads, blocks of values.

    ``*_row`` is the stride between rows, in elements. ``states`` [slots, H, V, K]; ``out``
    [T, H, V] is contiguous.
    """
    span, head = tl.program_id(0), tl.program_id(1)
    row, end = tl.load(rows + span), tl.load(rows + span + 1)
    k = tl.arange(0, KEYS_PAD)
    v = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    real_k, real_v = k < KEYS, v < VALUES
    real = real_k[:, None] & real_v[None, :]
    at = (head * VALUES + v)[None, :] * KEYS + k[:, None]
    size: tl.constexpr = HEADS * KEYS * VALUES
    if row < end:
        slot = tl.load(reads + span).to(tl.int64)
        state = tl.load(states + slot * size + at, mask=real, other=0.0)
        save, last = tl.load(save_starts + span), tl.load(save_starts + span + 1)
        due = _next_save(save_rows, save, last)
        while row < end:
            place = row.to(tl.int64)
            of_head = head // GROUP * KEYS + k
            own_key = tl.load(key + place * key_row + of_head, mask=real_k, other=0.0)
            own_query = tl.load(query + place * query_row + of_head, mask=real_k, other=0.0)
            wide_key, wide_query = own_key.to(tl.float32), own_query.to(tl.float32)
            if NORMALIZE:
                wide_key, wide_query = _unit(wide_key), _unit(wide_query)
            if BY_CHANNEL:
                fading = tl.load(
                    decay + place * decay_row + head * KEYS + k, mask=real_k, other=0.0
                )
                state = state * tl.exp(fading.to(tl.float32))[:, None]
            else:
                state = state * tl.exp(tl.load(decay + place * decay_row + head).to(tl.float32))
            wanted = tl.load(value + place * value_row + head * VALUES + v, mask=real_v, other=0.0)
            known = tl.sum(state * wide_key[:, None], 0)
            b = tl.load(rate + place * rate_row + head).to(tl.float32)
            state = state + wide_key[:, None] * ((wanted.to(tl.float32) - known) * b)[None, :]
            found = tl.sum(state * (wide_query * SCALE)[:, None], 0)
            to = out + (place * HEADS + head) * VALUES + v
            tl.store(to, found.to(out.dtype.element_ty), mask=real_v)
            row += 1
            if row == due:
                slot = tl.load(save_slots + save).to(tl.int64)
                tl.store(states + slot * size + at, state, mask=real)
                save += 1
                due = _next_save(save_rows, save, last)


@triton.jit(do_not_specialize=["x_row", "dt_row", "write_row", "read_row"])  # type: ignore[untyped-decorator]
def mamba2(
    x: tl.tensor, dt: tl.tensor, decay: tl.tensor, write: tl.tensor, read: tl.tensor,
    skip: tl.tensor, states: tl.tensor, out: tl.tensor, rows: tl.tensor, reads: tl.tensor,
    save_starts: tl.tensor, save_rows: tl.tensor, save_slots: tl.tensor,
    x_row: tl.tensor, dt_row: tl.tensor, write_row: tl.tensor, read_row: tl.tensor,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIMS: tl.constexpr, BLOCK: tl.constexpr,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, SKIPS: tl.constexpr,
) -> None:  # fmt: skip
    """Mamba 2's scan; see ``recurrent.LayerScan``. Grid: spans, heads, blocks of dimensions.

    ``states`` [slots, H, P, N]; ``out`` [T, H, P] is contiguous.
    """
    span, head = tl.program_id(0), tl.program_id(1)
    row, end = tl.load(rows + span), tl.load(rows + span + 1)
    p = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, SIZE_PAD)
    real_p, real_n = p < DIMS, n < SIZE
    real = real_p[:, None] & real_n[None, :]
    at = (head * DIMS + p)[:, None] * SIZE + n[None, :]
    size: tl.constexpr = HEADS * DIMS * SIZE
    if row < end:
        slot = tl.load(reads + span).to(tl.int64)
        state = tl.load(states + slot * size + at, mask=real, other=0.0)
        save, last = tl.load(save_starts + span), tl.load(save_starts + span + 1)
        due = _next_save(save_rows, save, last)
        rate = tl.load(decay + head).to(tl.float32)
        passed = 0.0
        if SKIPS:
            passed = tl.load(skip + head).to(tl.float32)
        while row < end:
            place = row.to(tl.int64)
            step = tl.load(dt + place * dt_row + head).to(tl.float32)
            of_group = head // GROUP * SIZE + n
            b = tl.load(write + place * write_row + of_group, mask=real_n, other=0.0)
            c = tl.load(read + place * read_row + of_group, mask=real_n, other=0.0)
            own = tl.load(x + place * x_row + head * DIMS + p, mask=real_p, other=0.0)
            own = own.to(tl.float32)
            state = state * tl.exp(step * rate) + (step * own)[:, None] * b.to(tl.float32)[None, :]
            found = tl.sum(state * c.to(tl.float32)[None, :], 1) + passed * own
            tl.store(out + (place * HEADS + head) * DIMS + p, found, mask=real_p)
            row += 1
            if row == due:
                slot = tl.load(save_slots + save).to(tl.int64)
                tl.store(states + slot * size + at, state, mask=real)
                save += 1
                due = _next_save(save_rows, save, last)


@triton.jit(do_not_specialize=["x_row", "dt_row", "write_row", "read_row"])  # type: ignore[untyped-decorator]
def mamba1(
    x: tl.tensor, dt: tl.tensor, decay: tl.tensor, write: tl.tensor, read: tl.tensor,
    states: tl.tensor, out: tl.tensor, rows: tl.tensor, reads: tl.tensor,
    save_starts: tl.tensor, save_rows: tl.tensor, save_slots: tl.tensor,
    x_row: tl.tensor, dt_row: tl.tensor, write_row: tl.tensor, read_row: tl.tensor,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr,
) -> None:  # fmt: skip
    """Mamba's selective scan; see ``recurrent.LayerScan``. Grid: spans, blocks of channels.

    ``decay`` [C, N] and ``out`` [T, C] are contiguous; ``states`` [slots, C, N].
    """
    span = tl.program_id(0)
    row, end = tl.load(rows + span), tl.load(rows + span + 1)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, SIZE_PAD)
    real_c, real_n = c < CHANNELS, n < SIZE
    real = real_c[:, None] & real_n[None, :]
    at = c[:, None] * SIZE + n[None, :]
    size: tl.constexpr = CHANNELS * SIZE
    if row < end:
        slot = tl.load(reads + span).to(tl.int64)
        state = tl.load(states + slot * size + at, mask=real, other=0.0)
        save, last = tl.load(save_starts + span), tl.load(save_starts + span + 1)
        due = _next_save(save_rows, save, last)
        rates = tl.load(decay + at, mask=real, other=0.0).to(tl.float32)
        while row < end:
            place = row.to(tl.int64)
            step = tl.load(dt + place * dt_row + c, mask=real_c, other=0.0).to(tl.float32)
            own = tl.load(x + place * x_row + c, mask=real_c, other=0.0).to(tl.float32)
            b = tl.load(write + place * write_row + n, mask=real_n, other=0.0).to(tl.float32)
            to_read = tl.load(read + place * read_row + n, mask=real_n, other=0.0).to(tl.float32)
            state = state * tl.exp(step[:, None] * rates) + (step * own)[:, None] * b[None, :]
            found = tl.sum(state * to_read[None, :], 1)
            tl.store(out + place * CHANNELS + c, found, mask=real_c)
            row += 1
            if row == due:
                slot = tl.load(save_slots + save).to(tl.int64)
                tl.store(states + slot * size + at, state, mask=real)
                save += 1
                due = _next_save(save_rows, save, last)


@triton.jit(do_not_specialize=["x_row"])  # type: ignore[untyped-decorator]
def convolve(
    x: tl.tensor, weight: tl.tensor, bias: tl.tensor, states: tl.tensor, out: tl.tensor,
    rows: tl.tensor, reads: tl.tensor, row_spans: tl.tensor,
    x_row: tl.tensor,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, TAPS: tl.constexpr,
    BIASED: tl.constexpr, ACTIVATES: tl.constexpr,
) -> None:  # fmt: skip
    """Causal depthwise convolution. Grid: rows, blocks of channels.

    ``x`` [T, C]; ``weight`` [C, TAPS] and ``out`` [T, C] are contiguous; ``states``
    [slots, TAPS - 1, C], oldest input first. ``keep_inputs`` writes the states afterwards.
    """
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = c < CHANNELS
    span = tl.load(row_spans + row)
    first, slot = tl.load(rows + span), tl.load(reads + span).to(tl.int64)
    kept: tl.constexpr = TAPS - 1
    total = tl.zeros([BLOCK], dtype=tl.float32)
    if BIASED:
        total += tl.load(bias + c, mask=real, other=0.0).to(tl.float32)
    for tap in tl.static_range(TAPS):
        back = row - kept + tap
        within = back >= first
        now = tl.load(x + back.to(tl.int64) * x_row + c, mask=real & within, other=0.0)
        old = (slot * kept + kept + back - first) * CHANNELS
        before = tl.load(states + old + c, mask=real & (back < first), other=0.0)
        w = tl.load(weight + c * TAPS + tap, mask=real, other=0.0).to(tl.float32)
        total += w * tl.where(within, now, before).to(tl.float32)
    if ACTIVATES:
        total = total * tl.sigmoid(total)
    place = row.to(tl.int64) * CHANNELS + c
    tl.store(out + place, total.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["x_row"])  # type: ignore[untyped-decorator]
def keep_inputs(
    x: tl.tensor, states: tl.tensor, rows: tl.tensor, reads: tl.tensor,
    save_starts: tl.tensor, save_rows: tl.tensor, save_slots: tl.tensor,
    x_row: tl.tensor,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
    KEPT: tl.constexpr, KEPT_PAD: tl.constexpr,
) -> None:  # fmt: skip
    """Save the last ``KEPT`` inputs before each save's row. Grid: spans, blocks of channels."""
    span = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i = tl.arange(0, KEPT_PAD)
    real_c = (c < CHANNELS)[None, :]
    real = (i < KEPT)[:, None] & real_c
    at = i[:, None] * CHANNELS + c[None, :]
    size: tl.constexpr = KEPT * CHANNELS
    save, last = tl.load(save_starts + span), tl.load(save_starts + span + 1)
    if save < last:
        first, slot = tl.load(rows + span), tl.load(reads + span).to(tl.int64)
        # Read all of it first: a save may overwrite this slot.
        old = tl.load(states + slot * size + at, mask=real, other=0.0)
        while save < last:
            done = tl.load(save_rows + save) - first
            back = done - KEPT + i
            now = tl.load(
                x + (first + back).to(tl.int64)[:, None] * x_row + c[None, :],
                mask=real & (back >= 0)[:, None],
                other=0.0,
            )
            # The state's inputs precede the span's: row ``i`` is the state's row ``i + done``.
            shifted = (i + done)[:, None, None] == i[None, :, None]
            before = tl.sum(tl.where(shifted, old[None, :, :].to(tl.float32), 0.0), 1)
            kept = tl.where((back >= 0)[:, None], now, before.to(now.dtype))
            slot = tl.load(save_slots + save).to(tl.int64)
            tl.store(states + slot * size + at, kept, mask=real)
            save += 1
