"""Kernels of paged attention: a fixed number of programs work through a list of items, then merge.

An item is one tile of queries of one span against one chunk of its keys, for one key head at a
time (program axis 1), with an online softmax (Milakov and Gimelshein, 2018; Dao, FlashAttention-2,
2023). A tile's rows are query tokens times the G query heads of a key head::

    row r of a tile   ->  query token  r // G,   query head  kv_head * G + r % G

    item    row  tokens  position  table  low  high  partial  tree       (int32 each)
            |    |       |         |      |    |     |        first row of the tree; -1: no tree
            |    |       |         |      |    |     row of its partial sums; -1: the output
            |    |       |         |      keys read: [low, high)
            |    |       |         offset of the span's blocks in ``tables``
            |    |       position of the tile's first token
            |    tokens in the tile
            the tile's first token

If a tile's keys span several chunks, ``merge_chunks`` weighs and adds the partial sums, in the
order of the chunks. All inputs that differ between steps are read from device memory, so one launch
serves every step, and a CUDA graph can replay it. The keys of a chunk are processed in tiles at
absolute multiples of ``TILE_KEYS``, so a row's sums do not depend on other rows.

In a step with trees (``TREES``; see ``core.step``) the keys' slots are the same as without
trees, positions come from ``positions``, and the bits of ``ancestors`` select the keys of its own
span that a row attends to. Other steps read neither; they use another variant of the kernel.

If the cache has latents (``LATENT``, see ``app.model.layers.latent``), only ``keys`` is read: a
value is the first VALUE_DIM dimensions of its key, and scores are the sum of two products, of those
and of the KEY_DIM - VALUE_DIM after them (KEY_PAD wide). All query heads share the one key head;
they are processed GROUP at a time, KV_HEADS times.

If keys and values are stored in 8 bits (``SCALED``), the program that writes a head divides it by a
scale, so that its largest number is E4M3's largest. Scores are multiplied by the keys' scales, and
weights by the values', both in float32; products take the stored numbers in a type that represents
them exactly.

Integers that differ between steps or models are ``do_not_specialize``: Triton would compile a
variant for values of 1, or for multiples of 16. For the same reason pointers must be aligned to 16
bytes; ``cuda.attention`` ensures it.

This module needs triton; without CUDA, only its tests import it.
"""

# ruff: noqa: N803 (compile-time constants are written as constants)
from __future__ import annotations

import triton
import triton.language as tl

ITEM = 8
"""Number of integers in a work item."""
MERGE = 8
"""Number of integers in a merge: row, its first partial row, partial rows between chunks, index of
the first chunk, index after the last one; three are unused."""
COUNTS = 4
"""Number of lengths of lists: short tiles, long tiles, merges, and one unused."""


@triton.jit(do_not_specialize=["window", "query_head_stride", "query_row_stride"])  # type: ignore[untyped-decorator]
def paged_attention(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, out: tl.tensor,
    partial_out: tl.tensor, partial_max: tl.tensor, partial_sum: tl.tensor,
    items: tl.tensor, counts: tl.tensor, tables: tl.tensor, sinks: tl.tensor, slopes: tl.tensor,
    key_scales: tl.tensor, value_scales: tl.tensor,
    positions: tl.tensor, ancestors: tl.tensor, ends: tl.tensor,
    scale: tl.tensor, softcap: tl.tensor, window: tl.tensor,
    query_head_stride: tl.tensor, query_row_stride: tl.tensor,
    LIST: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    KEY_PAD: tl.constexpr, VALUE_PAD: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_KEYS: tl.constexpr,
    WINDOWED: tl.constexpr, CHUNKED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr,
    SLOPES: tl.constexpr, EXTENT: tl.constexpr, PRECISION: tl.constexpr, LATENT: tl.constexpr,
    SCALED: tl.constexpr, WEIGHED: tl.constexpr, TREES: tl.constexpr,
    LATER: tl.constexpr,
) -> None:  # fmt: skip
    kv_head = tl.program_id(1)
    count = tl.load(counts + LIST)
    query_head_stride = tl.multiple_of(query_head_stride, UNIT)
    query_row_stride = tl.multiple_of(query_row_stride, UNIT)
    r = tl.arange(0, TILE_ROWS)
    head = kv_head * GROUP + r % GROUP
    d = tl.arange(0, KEY_PAD)
    e = tl.arange(0, VALUE_PAD)
    for index in range(tl.program_id(0), count, tl.num_programs(0)):
        item = items + index * 8
        row = tl.load(item)
        tokens = tl.load(item + 1)
        first = tl.load(item + 2)
        table = tables + tl.load(item + 3)
        low = tl.load(item + 4)
        high = tl.load(item + 5)
        partial = tl.load(item + 6)

        token = r // GROUP
        real = token < tokens
        position = first + token
        # The last key that a row sees: one comparison covers padding, the chunk's end, causality.
        last = position
        if LATER:
            own_end = tl.load(ends + row + token, mask=real, other=0).to(tl.int32)
            last = tl.maximum(last, own_end - 1)
        last = tl.where(real, tl.minimum(last, high - 1), -1)
        if TREES:
            position = tl.load(positions + row + token, mask=real, other=0).to(tl.int32)
            own = tl.load(ancestors + row + token, mask=real, other=0)
            tree = tl.load(item + 7)
            # Index of the tree's first key; larger than every key's if there is no tree.
            behind = tl.where(tree < 0, 1 << 30, first - row + tree)
        asked = (
            query
            + head[:, None].to(tl.int64) * query_head_stride
            + (row + token)[:, None].to(tl.int64) * query_row_stride
        )
        first_dim = 0
        if LATENT:
            first_dim = VALUE_DIM
            latent_q = tl.load(
                asked + e[None, :], mask=real[:, None] & (e < VALUE_DIM)[None, :], other=0.0
            )
        q = tl.load(
            asked + first_dim + d[None, :],
            mask=real[:, None] & (first_dim + d < KEY_DIM)[None, :],
            other=0.0,
        )
        if SLOPES:
            slope = tl.load(slopes + head, mask=real, other=0.0) * 1.4426950408889634
        highest = tl.full([TILE_ROWS], float("-inf"), tl.float32)
        total = tl.zeros([TILE_ROWS], tl.float32)
        sums = tl.zeros([TILE_ROWS, VALUE_PAD], tl.float32)

        begin = low // TILE_KEYS * TILE_KEYS
        key_position = begin + tl.arange(0, TILE_KEYS)
        exists = (key_position >= low) & (key_position < high)
        # Read one iteration ahead: the addresses of keys and values depend on it.
        block = tl.load(table + key_position // BLOCK, mask=exists, other=0)
        for at in range(begin, high, TILE_KEYS):
            key_position = at + tl.arange(0, TILE_KEYS)
            # Blocks before ``low`` may belong to another sequence by now.
            exists = (key_position >= low) & (key_position < high)
            slot = block.to(tl.int64) * BLOCK + key_position % BLOCK
            if not LATENT:
                slot = slot * KV_HEADS + kv_head
            later = key_position + TILE_KEYS
            block = tl.load(table + later // BLOCK, mask=later < high, other=0)
            k = tl.load(
                keys + slot[None, :] * KEY_DIM + first_dim + d[:, None],
                mask=exists[None, :] & (first_dim + d < KEY_DIM)[:, None],
                other=0.0,
            )
            if SCALED:
                key_scale = tl.load(key_scales + slot, mask=exists, other=0.0)
                value_scale = tl.load(value_scales + slot, mask=exists, other=0.0)
            scores = tl.dot(q, k.to(q.dtype), input_precision=PRECISION)
            if LATENT:
                v = tl.load(
                    keys + slot[:, None] * KEY_DIM + e[None, :],
                    mask=exists[:, None] & (e < VALUE_DIM)[None, :],
                    other=0.0,
                )
                shared = tl.trans(v).to(q.dtype)
                scores = tl.dot(latent_q, shared, scores, input_precision=PRECISION)
            if SCALED:
                scores = scores * key_scale[None, :]
            # Scores are exponents of 2: scale and softcap include log2(e).
            scores = scores * (scale * 1.4426950408889634)
            if CAPPED:
                cap = softcap * 1.4426950408889634
                decay = tl.exp2(-2.885390081777927 * tl.abs(scores / cap))
                tanh = (1.0 - decay) / (1.0 + decay)
                scores = tl.where(scores < 0.0, -tanh, tanh) * cap
            seen = key_position[None, :] <= last[:, None]
            if TREES:
                within = key_position - behind
                bit = tl.minimum(tl.maximum(within, 0), 63).to(tl.int64)
                ancestor = ((own[:, None] >> bit[None, :]) & 1) != 0
                seen = seen & (ancestor | (within < 0)[None, :])
                inside = (within >= 0) & exists
                there = tl.load(positions + tree + within, mask=inside, other=0).to(tl.int32)
                key_position = tl.where(inside, there, key_position)
            if EXTENT:
                # ``slopes`` are ``AttentionOptions.near``: offsets of scores by distance.
                back = position[:, None] - key_position[None, :]
                place = (row + token).to(tl.int64) * (GROUP * KV_HEADS) + head
                nearby = real[:, None] & (back >= 0) & (back < EXTENT)
                gained = tl.load(slopes + place[:, None] * EXTENT + back, mask=nearby, other=0.0)
                scores = scores + gained * 1.4426950408889634
            if SLOPES:
                back = (position[:, None] - key_position[None, :]).to(tl.float32)
                scores = scores - slope[:, None] * back
            if WINDOWED:
                if CHUNKED:
                    near = key_position[None, :] >= (position // window * window)[:, None]
                else:
                    near = position[:, None] - key_position[None, :] < window
                seen = seen & near & exists[None, :]
            scores = tl.where(seen, scores, float("-inf"))
            new_highest = tl.maximum(highest, tl.max(scores, 1))
            base = tl.where(new_highest == float("-inf"), 0.0, new_highest)
            weights = tl.exp2(scores - base[:, None])
            shrink = tl.exp2(highest - base)
            total = total * shrink + tl.sum(weights, 1)
            highest = new_highest
            if not LATENT:
                v = tl.load(
                    values + slot[:, None] * VALUE_DIM + e[None, :],
                    mask=exists[:, None] & (e < VALUE_DIM)[None, :],
                    other=0.0,
                )
            if SCALED:
                weights = weights * value_scale[None, :]
                v = v.to(WEIGHED)
            sums = tl.dot(weights.to(v.dtype), v, sums * shrink[:, None], input_precision=PRECISION)

        kept = real[:, None] & (e < VALUE_DIM)[None, :]
        if partial < 0:
            whole, weight = sums, total
            if SINKS:
                whole, weight = _add_sink(sums, total, highest, sinks, head, real)
            result = whole / tl.where(weight == 0.0, 1.0, weight)[:, None]
            place = (row + token).to(tl.int64) * (GROUP * KV_HEADS) + head
            tl.store(
                out + place[:, None] * VALUE_DIM + e[None, :], result.to(out.dtype.element_ty), kept
            )
        else:
            place = (partial + token).to(tl.int64) * (GROUP * KV_HEADS) + head
            tl.store(partial_out + place[:, None] * VALUE_DIM + e[None, :], sums, kept)
            tl.store(partial_max + place, highest, real)
            tl.store(partial_sum + place, total, real)


@triton.jit  # type: ignore[untyped-decorator]
def _add_sink(
    sums: tl.tensor, total: tl.tensor, highest: tl.tensor,
    sinks: tl.tensor, head: tl.tensor, real: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """Add the sink, a key without a value, to the sums [R, D] over all other keys."""
    sink = tl.load(sinks + head, mask=real, other=0.0).to(tl.float32) * 1.4426950408889634
    highest_of_all = tl.maximum(highest, sink)
    shrink = tl.exp2(highest - highest_of_all)
    return sums * shrink[:, None], total * shrink + tl.exp2(sink - highest_of_all)


@triton.jit  # type: ignore[untyped-decorator]
def merge_chunks(
    partial_out: tl.tensor, partial_max: tl.tensor, partial_sum: tl.tensor, out: tl.tensor,
    merges: tl.tensor, counts: tl.tensor, sinks: tl.tensor,
    LIST: tl.constexpr, HEADS: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr,
    CHUNKS: tl.constexpr, SINKS: tl.constexpr,
) -> None:  # fmt: skip
    """Merge one row of one head at a time; chunk c is in lane c % CHUNKS of the sum."""
    count = tl.load(counts + LIST) * HEADS
    e = tl.arange(0, VALUE_PAD)
    for index in range(tl.program_id(0), count, tl.num_programs(0)):
        head = index % HEADS
        merge = merges + index // HEADS * 8
        row = tl.load(merge)
        partial = tl.load(merge + 1)
        stride = tl.load(merge + 2)
        first = tl.load(merge + 3)
        end = tl.load(merge + 4)
        begin = first // CHUNKS * CHUNKS

        highest = float("-inf")
        for at in range(begin, end, CHUNKS):
            chunk = at + tl.arange(0, CHUNKS)
            there = (chunk >= first) & (chunk < end)
            place = (partial + (chunk - first) * stride).to(tl.int64) * HEADS + head
            highest = tl.maximum(
                highest,
                tl.max(tl.load(partial_max + place, mask=there, other=float("-inf")), 0),
            )
        base = tl.where(highest == float("-inf"), 0.0, highest)
        total = 0.0
        sums = tl.zeros([VALUE_PAD], tl.float32)
        for at in range(begin, end, CHUNKS):
            chunk = at + tl.arange(0, CHUNKS)
            there = (chunk >= first) & (chunk < end)
            place = (partial + (chunk - first) * stride).to(tl.int64) * HEADS + head
            weights = tl.exp2(tl.load(partial_max + place, mask=there, other=float("-inf")) - base)
            total += tl.sum(weights * tl.load(partial_sum + place, mask=there, other=0.0), 0)
            each = tl.load(
                partial_out + place[:, None] * VALUE_DIM + e[None, :],
                mask=there[:, None] & (e < VALUE_DIM)[None, :],
                other=0.0,
            )
            sums += tl.sum(weights[:, None] * each, 0)
        if SINKS:
            sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
            highest_of_all = tl.maximum(highest, sink)
            shrink = tl.exp2(highest - highest_of_all)
            sums = sums * shrink
            total = total * shrink + tl.exp2(sink - highest_of_all)
        result = sums / tl.where(total == 0.0, 1.0, total)
        place = row.to(tl.int64) * HEADS + head
        tl.store(out + place * VALUE_DIM + e, result.to(out.dtype.element_ty), mask=e < VALUE_DIM)


@triton.jit(
    do_not_specialize=["key_head_stride", "key_row_stride", "value_head_stride", "value_row_stride"]
)  # type: ignore[untyped-decorator]
def store_keys_and_values(
    key: tl.tensor, value: tl.tensor, keys: tl.tensor, values: tl.tensor,
    key_scales: tl.tensor, value_scales: tl.tensor, slots: tl.tensor,
    key_head_stride: tl.tensor, key_row_stride: tl.tensor,
    value_head_stride: tl.tensor, value_row_stride: tl.tensor,
    KV_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    KEY_PAD: tl.constexpr, VALUE_PAD: tl.constexpr,
    KEY_UNIT: tl.constexpr, VALUE_UNIT: tl.constexpr, LATENT: tl.constexpr, SCALED: tl.constexpr,
) -> None:  # fmt: skip
    """Copy ``key`` and ``value`` [Hk, T, D] to slots [slots, Hk, D]; one program a token and head.

    Latents are keys and values at once (``LATENT``): ``value`` and ``values`` are not used.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    key_head_stride = tl.multiple_of(key_head_stride, KEY_UNIT)
    key_row_stride = tl.multiple_of(key_row_stride, KEY_UNIT)
    value_head_stride = tl.multiple_of(value_head_stride, VALUE_UNIT)
    value_row_stride = tl.multiple_of(value_row_stride, VALUE_UNIT)
    place = tl.load(slots + token).to(tl.int64) * KV_HEADS + head
    d = tl.arange(0, KEY_PAD)
    e = tl.arange(0, VALUE_PAD)
    k = tl.load(
        key + head * key_head_stride + token * key_row_stride + d, mask=d < KEY_DIM, other=0.0
    )
    if SCALED:
        key_scale = scale_of(tl.max(tl.abs(k.to(tl.float32)), 0))
        tl.store(key_scales + place, key_scale)
        k = rounded_to_fp8(k, key_scale)
    tl.store(keys + place * KEY_DIM + d, k, mask=d < KEY_DIM)
    if not LATENT:
        v = tl.load(
            value + head * value_head_stride + token * value_row_stride + e,
            mask=e < VALUE_DIM,
            other=0.0,
        )
        if SCALED:
            value_scale = scale_of(tl.max(tl.abs(v.to(tl.float32)), 0))
            tl.store(value_scales + place, value_scale)
            v = rounded_to_fp8(v, value_scale)
        tl.store(values + place * VALUE_DIM + e, v, mask=e < VALUE_DIM)


@triton.jit  # type: ignore[untyped-decorator]
def scale_of(largest: tl.tensor) -> tl.tensor:
    """Divisor that maps a head's ``largest`` number to E4M3's largest, 448."""
    return tl.where(largest == 0.0, 1.0, largest * (1.0 / 448.0))


@triton.jit  # type: ignore[untyped-decorator]
def rounded_to_fp8(x: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """``x / scale`` in E4M3."""
    scaled = x.to(tl.float32) / scale
    # Division may round up beyond 448, which would become NaN.
    return tl.minimum(tl.maximum(scaled, -448.0), 448.0).to(tl.float8e4nv)


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def take_drawn(
    token_ids: tl.tensor, drawn_rows: tl.tensor, drawn: tl.tensor, tokens: tl.tensor,
    SIZE: tl.constexpr,
) -> None:  # fmt: skip
    """Set token ids [T] to the previous step's draws of rows ``drawn_rows`` [T]; -1: no change.

    A failed draw is -1 and becomes token 0: its answer has failed, but the pass must go on for the
    other answers.
    """
    t = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    row = tl.load(drawn_rows + t, mask=t < tokens, other=-1)
    there = row >= 0
    # A row whose mask allowed no token has -1; the host reads that later.
    ids = tl.maximum(tl.load(drawn + row, mask=there, other=0), 0)
    tl.store(token_ids + t, ids.to(token_ids.dtype.element_ty), mask=there)
