"""The paged attention kernel: ragged queries, grouped heads, window, softcap, sinks, split keys.

One program computes one tile of queries of one span for one key head, over one share of the
keys, keeping a running softmax (Milakov and Gimelshein, 2018; Dao, FlashAttention-2, 2023). A
tile's rows are ``TILE`` query tokens times G query heads::

    row r of a tile   ->  query token  tile_first + r // G,   query head  kv_head * G + r % G

With more than one split, each program leaves an unfinished sum, and ``merge_splits`` weighs and
adds them. Everything a program needs to know about its step is read from device memory, so the
same launch can be captured in a CUDA graph and replayed for other spans.

This module needs triton; nothing imports it on a machine without CUDA but its tests.
"""

# ruff: noqa: N803 (compile-time constants are written as constants)
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def paged_attention(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, out: tl.tensor,
    partial_out: tl.tensor, partial_max: tl.tensor, partial_sum: tl.tensor,
    tile_span: tl.tensor, tile_first: tl.tensor,
    span_row: tl.tensor, span_length: tl.tensor, span_start: tl.tensor,
    table_start: tl.tensor, tables: tl.tensor,
    sinks: tl.tensor, scale: tl.tensor, softcap: tl.tensor, window: tl.tensor,
    query_head_stride: tl.tensor, query_row_stride: tl.tensor, rows: tl.tensor,
    GROUP: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    KEY_PAD: tl.constexpr, VALUE_PAD: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_KEYS: tl.constexpr, SPLITS: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    kv_heads = tl.num_programs(1)
    span = tl.load(tile_span + tile)
    first = tl.load(tile_first + tile)
    length = tl.load(span_length + span)
    start = tl.load(span_start + span)
    table = tables + tl.load(table_start + span)

    r = tl.arange(0, TILE_ROWS)
    token = first + r // GROUP
    head = kv_head * GROUP + r % GROUP
    real = (token < length) & (r < TILE * GROUP)
    row = (tl.load(span_row + span) + token).to(tl.int64)
    position = start + token
    d = tl.arange(0, KEY_PAD)
    e = tl.arange(0, VALUE_PAD)
    q = tl.load(
        query + head[:, None] * query_head_stride + row[:, None] * query_row_stride + d[None, :],
        mask=real[:, None] & (d < KEY_DIM)[None, :],
        other=0.0,
    )

    highest = tl.full([TILE_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([TILE_ROWS], tl.float32)
    if SINKS:  # noqa: SIM102 (known when compiling; the other only when running)
        # A sink is a key with no value, seen by the first split only.
        if split == 0:
            highest = tl.load(sinks + head, mask=real, other=0.0).to(tl.float32)
            total = tl.full([TILE_ROWS], 1.0, tl.float32)
    sums = tl.zeros([TILE_ROWS, VALUE_PAD], tl.float32)

    # Keys that some row of this tile sees: [begin, end), shared out to the splits.
    end = start + tl.minimum(length, first + TILE)
    begin = 0
    if WINDOWED:
        begin = tl.maximum(0, start + first - window + 1) // TILE_KEYS * TILE_KEYS
    share = tl.cdiv(tl.cdiv(end - begin, TILE_KEYS), SPLITS) * TILE_KEYS
    low = begin + split * share
    high = tl.minimum(end, low + share)
    for at in range(low, high, TILE_KEYS):
        key_position = at + tl.arange(0, TILE_KEYS)
        exists = key_position < end
        block = tl.load(table + key_position // BLOCK, mask=exists, other=0).to(tl.int64)
        slot = (block * BLOCK + key_position % BLOCK) * kv_heads + kv_head
        k = tl.load(
            keys + slot[None, :] * KEY_DIM + d[:, None],
            mask=exists[None, :] & (d < KEY_DIM)[:, None],
            other=0.0,
        )
        scores = tl.dot(q, k, input_precision=PRECISION) * scale
        if CAPPED:
            decay = tl.exp(-2.0 * tl.abs(scores / softcap))
            tanh = (1.0 - decay) / (1.0 + decay)
            scores = tl.where(scores < 0.0, -tanh, tanh) * softcap
        seen = (key_position[None, :] <= position[:, None]) & exists[None, :] & real[:, None]
        if WINDOWED:
            seen = seen & (position[:, None] - key_position[None, :] < window)
        scores = tl.where(seen, scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(new_highest == float("-inf"), 0.0, new_highest)
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        highest = new_highest
        v = tl.load(
            values + slot[:, None] * VALUE_DIM + e[None, :],
            mask=exists[:, None] & (e < VALUE_DIM)[None, :],
            other=0.0,
        )
        sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)

    kept = real[:, None] & (e < VALUE_DIM)[None, :]
    place = row * (GROUP * kv_heads) + head
    if SPLITS == 1:
        result = sums / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(
            out + place[:, None] * VALUE_DIM + e[None, :], result.to(out.dtype.element_ty), kept
        )
    else:
        place += split.to(tl.int64) * rows
        tl.store(partial_out + place[:, None] * VALUE_DIM + e[None, :], sums, kept)
        tl.store(partial_max + place, highest, real)
        tl.store(partial_sum + place, total, real)


@triton.jit  # type: ignore[untyped-decorator]
def merge_splits(
    partial_out: tl.tensor, partial_max: tl.tensor, partial_sum: tl.tensor, out: tl.tensor,
    rows: tl.tensor,
    VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr, SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, VALUE_PAD)
    highest = float("-inf")
    for split in tl.static_range(SPLITS):
        highest = tl.maximum(highest, tl.load(partial_max + row + split * rows))
    base = tl.where(highest == float("-inf"), 0.0, highest)
    total = 0.0
    sums = tl.zeros([VALUE_PAD], tl.float32)
    for split in tl.static_range(SPLITS):
        weight = tl.exp(tl.load(partial_max + row + split * rows) - base)
        total += weight * tl.load(partial_sum + row + split * rows)
        sums += weight * tl.load(
            partial_out + (row + split * rows) * VALUE_DIM + e, mask=e < VALUE_DIM, other=0.0
        )
    result = sums / tl.where(total == 0.0, 1.0, total)
    tl.store(out + row * VALUE_DIM + e, result.to(out.dtype.element_ty), mask=e < VALUE_DIM)
