"""Kernels of the sampler: input are rows of logits and packed masks, output tokens and logprobs.

A *job* is one draw. A row is split into chunks of ``WORDS`` mask words (32 tokens each), with one
program a chunk, so that one row keeps a device busy and no row needs memory for each token::

    highest      greatest allowed logit of each chunk
    search       filtered rows: sums of weights (or counts) by the next digit of the logit
    mark_edge    filtered rows: lowest logit that is kept, and number of ties in each chunk
    race         winner of each chunk
    choose       winner of each row
    rank         rows with logprobs: sum of exponentials and greatest logits of each chunk
    report       rows with logprobs: the logprobs
    score        log-probabilities of sets of tokens, after ``highest`` and ``rank`` without mask

Weights, random numbers and the race are those of ``app.model.cpu.kernels.sampling``, operation by
operation in float64 and 64-bit integers, so a device that conforms to IEEE 754 gives bit-identical
weights (kernels are compiled without fused multiply-add). Only logarithms and exponentials come
from libraries; a draw can differ only if the first two of a race tie within their rounding error.

Sums of integers are exact in any order. Floats (for logprobs) are added in one order that depends
on the row's width alone, so a row's results do not depend on the other rows.

Values are compared by *keys*, integers in the order of the floats; 0.0 and -0.0 have the same key.
``search`` proceeds from the upper digits of the key to the lower, four bits a launch; ``counts``
and ``weights`` keep the sums of earlier launches. All numbers of jobs are in one int64 buffer,
field by field (see below); floats are stored as bits.

This module needs triton.
"""

# ruff: noqa: N803 (compile-time constants are written as constants)
from __future__ import annotations

import triton
import triton.language as tl

from app.model import sampling as rules

DIGIT_BITS = 4
"""Bits of the key that one launch of ``search`` determines."""

ROW, OUT, MASK, KEY, SHARPNESS, FILTER, JOB_FIELDS = range(7)
"""Fields of a job: its row in the values, its row in the results, its mask's row in the table, the
random key, log2(e) / temperature (0: greedy), and its index among the filtered jobs or -1."""

JOB, TOP_K, TOP_P, MIN_P, FILTER_FIELDS = range(5)
"""Fields of a filtered job: the index of the job, and its filters."""

JOB_OF_SET, BEGIN, END, SET_FIELDS = range(4)
"""Fields of a set of tokens: the job whose row of logits scores it, and the offsets of its first
token and of the end of its tokens in the buffer of numbers."""

AT, FACTOR, FIRST_ADDED, THEN_ADDED, CHANGE_FIELDS = range(5)
"""Fields of a changed logit: its offset in the values, the factor that multiplies or divides it,
and two summands, added one after the other."""

_NONE = tl.constexpr(-(2**63))
"""Less than every packed pair of value and token."""
_NO_TOKEN = tl.constexpr(2**31 - 1)
_ROW, _OUT, _MASK, _KEY, _SHARPNESS, _FILTER = map(
    tl.constexpr, (ROW, OUT, MASK, KEY, SHARPNESS, FILTER)
)
_JOB, _TOP_K, _TOP_P, _MIN_P = map(tl.constexpr, (JOB, TOP_K, TOP_P, MIN_P))
_JOB_OF_SET, _BEGIN, _END = map(tl.constexpr, (JOB_OF_SET, BEGIN, END))
_AT, _FACTOR, _FIRST_ADDED, _THEN_ADDED = map(tl.constexpr, (AT, FACTOR, FIRST_ADDED, THEN_ADDED))
_DIGIT_BITS = tl.constexpr(DIGIT_BITS)
_DIGITS = tl.constexpr(1 << DIGIT_BITS)
_STEP = tl.constexpr(rules.SPLITMIX_STEP)
_FIRST = tl.constexpr(rules.SPLITMIX_FIRST)
_SECOND = tl.constexpr(rules.SPLITMIX_SECOND)
_FIRST_TOKEN = tl.constexpr(rules.FIRST_TOKEN)
_HALF_OCTAVE = tl.constexpr(rules.HALF_OCTAVE * 2.0**rules.WEIGHT_BITS)
_LN2 = tl.constexpr(rules.LN2)


@triton.jit  # type: ignore[untyped-decorator]
def _key(values: tl.tensor) -> tl.tensor:
    """int32 keys in the order of the float32 values."""
    bits = values.to(tl.int32, bitcast=True)
    bits = tl.where(bits == -2147483648, 0, bits)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def _value(key: tl.tensor) -> tl.tensor:
    """The float32 of a key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _packed(values: tl.tensor, tokens: tl.tensor) -> tl.tensor:
    """int64 in the order of the values; among equal values, lower tokens are greater."""
    return (_key(values).to(tl.int64) << 32) | (tokens ^ 0x7FFFFFFF).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _packed_value(packed: tl.tensor) -> tl.tensor:
    return _value((packed >> 32).to(tl.int32))


@triton.jit  # type: ignore[untyped-decorator]
def _packed_token(packed: tl.tensor) -> tl.tensor:
    """The token of a packed pair, int64; -1 for ``_NONE``."""
    return tl.where(packed == _NONE, -1, (packed & 0xFFFFFFFF) ^ 0x7FFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def _top(tops: tl.tensor, job: tl.tensor, chunks: tl.tensor, CHUNKS: tl.constexpr) -> tl.tensor:
    """The greatest allowed value of a row, packed; ``_NONE`` if the mask is empty."""
    chunk = tl.arange(0, CHUNKS)
    parts = tl.load(tops + job * chunks + chunk, mask=chunk < chunks, other=_NONE)
    return tl.max(parts, axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _load(
    values: tl.tensor, row_stride: tl.tensor, masks: tl.tensor, words: tl.tensor, size: tl.tensor,
    numbers: tl.tensor, jobs_at: tl.tensor, jobs: tl.tensor, job: tl.tensor, chunk: tl.tensor,
    WORDS: tl.constexpr, ALIGNED: tl.constexpr,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """Tokens of a chunk of a job, whether each is allowed, and its value or -inf: [WORDS, 32].

    ``ALIGNED``: rows begin at multiples of 16 elements and cover all words of the mask, so whole
    words are read, 16 bytes at a time, unless a word allows no token.
    """
    row = tl.load(numbers + jobs_at + _ROW * jobs + job)
    mask_row = tl.load(numbers + jobs_at + _MASK * jobs + job)
    word = chunk * WORDS + tl.arange(0, WORDS)
    bit = tl.arange(0, 32)
    packed = tl.load(masks + mask_row * words + word, mask=word < words, other=0)
    token = word[:, None] * 32 + bit[None, :]
    allowed = (((packed[:, None] >> bit[None, :]) & 1) != 0) & (token < size)
    if ALIGNED:
        start = tl.multiple_of(row * row_stride, 16)
        read = tl.broadcast_to((packed != 0)[:, None], (WORDS, 32))
    else:
        start = row * row_stride
        read = allowed
    loaded = tl.load(values + start + token, mask=read, other=0.0).to(tl.float32)
    return token, allowed, tl.where(allowed, loaded, float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]
def _weight(values: tl.tensor, ceiling: tl.tensor, sharpness: tl.tensor) -> tl.tensor:
    """Weights as int64; see ``cpu.kernels.sampling``."""
    power = (values.to(tl.float64) - ceiling.to(tl.float64)) * sharpness
    power = tl.where(power > -60.0, power, -60.0)
    whole = tl.floor(power)
    x = (power - whole - 0.5) * _LN2
    series = 1.0 + x * (1 / 10) * (1.0 + x * (1 / 11))
    series = 1.0 + x * (1 / 8) * (1.0 + x * (1 / 9) * series)
    series = 1.0 + x * (1 / 6) * (1.0 + x * (1 / 7) * series)
    series = 1.0 + x * (1 / 4) * (1.0 + x * (1 / 5) * series)
    series = 1.0 + x * (1 / 2) * (1.0 + x * (1 / 3) * series)
    series = 1.0 + x * series
    return (series * _HALF_OCTAVE).to(tl.int64) >> (-whole).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _arrival(key: tl.tensor, place: tl.tensor, weights: tl.tensor) -> tl.tensor:
    """Arrival times of competitors with indices ``place``; infinity if the weight is 0."""
    z = key.to(tl.uint64) + (place.to(tl.uint64) + 1) * _STEP
    z = (z ^ (z >> 30)) * _FIRST
    z = (z ^ (z >> 27)) * _SECOND
    z = z ^ (z >> 31)
    number = (z >> 11).to(tl.int64).to(tl.float64) * (2.0**-53)
    # 1 - number is exact, so this is log1p(-number).
    times = -tl.log(1.0 - number) / tl.maximum(weights, 1).to(tl.float64)
    return tl.where(weights > 0, times, float("inf"))


@triton.jit  # type: ignore[untyped-decorator]
def _is_finite(value: tl.tensor) -> tl.tensor:
    return (value > float("-inf")) & (value < float("inf"))


@triton.jit  # type: ignore[untyped-decorator]
def _double(bits: tl.tensor) -> tl.tensor:
    return bits.to(tl.float64, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _sum(values: tl.tensor) -> tl.tensor:
    return tl.sum(tl.sum(values, axis=1), axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _ranked(values: tl.tensor, DROPPED: tl.constexpr) -> tl.tensor:
    """Keys as int64 >= 0, without the low bits that are constant for values of the dtype."""
    return (_key(values).to(tl.int64) + 2147483648) >> DROPPED


@triton.jit  # type: ignore[untyped-decorator]
def _unranked(ranked: tl.tensor, DROPPED: tl.constexpr) -> tl.tensor:
    key = ((ranked << DROPPED) - 2147483648).to(tl.int32)
    return _value(tl.where(key < 0, key | ((1 << DROPPED) - 1), key))


@triton.jit  # type: ignore[untyped-decorator]
def _descend(
    sums: tl.tensor, job: tl.tensor, jobs: tl.tensor, digits: tl.tensor, needed: tl.tensor,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """Find the key at which the sum over the greatest values reaches ``needed``.

    Returns its upper ``digits`` digits, and the part of ``needed`` that values with these digits
    contribute. ``sums`` has shape [digits, jobs, 16].
    """
    digit = tl.arange(0, _DIGITS)
    found = tl.full([], 0, tl.int64)
    for place in range(digits):
        here = tl.load(sums + (place * jobs + job) * _DIGITS + digit)
        above = tl.sum(tl.where(digit[None, :] > digit[:, None], here[None, :], 0), axis=1)
        reached = (above < needed) & (needed <= above + here)
        found = found * _DIGITS + tl.sum(tl.where(reached, digit, 0), axis=0)
        needed = tl.sum(tl.where(reached, needed - above, 0), axis=0)
    return found, needed


@triton.jit  # type: ignore[untyped-decorator]
def _digits_inside(digit: tl.tensor, inside: tl.tensor) -> tuple[tl.tensor, ...]:
    """The lowest and the highest of the digits ``inside``; if none is, the lowest is greater."""
    low = tl.min(tl.min(tl.where(inside, digit, _DIGITS), axis=1), axis=0)
    high = tl.max(tl.max(tl.where(inside, digit, -1), axis=1), axis=0)
    return low, high


@triton.jit  # type: ignore[untyped-decorator]
def _sum_of_row(sums: tl.tensor, job: tl.tensor) -> tl.tensor:
    return tl.sum(tl.load(sums + job * _DIGITS + tl.arange(0, _DIGITS)), axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _edge_of_count(
    counts: tl.tensor, job: tl.tensor, jobs: tl.tensor, digits: tl.tensor, top_k: tl.tensor,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    """The lowest ranked key among the ``top_k`` greatest values, and how many of these have it."""
    needed = tl.minimum(top_k, _sum_of_row(counts, job))
    edge, ties = _descend(counts, job, jobs, digits, needed)
    return edge, ties


@triton.jit  # type: ignore[untyped-decorator]
def _descend_by_weight(
    weights: tl.tensor, job: tl.tensor, jobs: tl.tensor, digits: tl.tensor, top_p: tl.tensor,
) -> tuple[tl.tensor, ...]:  # fmt: skip
    share = tl.ceil(top_p * _sum_of_row(weights, job).to(tl.float64)).to(tl.int64)
    found, needed = _descend(weights, job, jobs, digits, tl.maximum(share, 1))
    return found, needed


_NUMBERS = (
    "row_stride", "words", "size", "jobs_at", "jobs", "filters_at", "filters", "chunks",
    "digits", "place", "asking_at", "asking", "most", "reports_at", "changes_at", "changes",
    "copy_stride", "sets_at", "sets", "scores_at",
)  # fmt: skip
"""Integers that differ between steps or models, so kernels are not specialized for their values."""


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def widen(
    values: tl.tensor, row_stride: tl.tensor, numbers: tl.tensor, jobs_at: tl.tensor,
    jobs: tl.tensor, copies: tl.tensor, copy_stride: tl.tensor, size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Copy the jobs' rows of ``values`` (by their row in the results) to float32 ``copies``."""
    job = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(numbers + jobs_at + _OUT * jobs + job)
    row = tl.load(numbers + jobs_at + _ROW * jobs + job)
    loaded = tl.load(values + source * row_stride + at, mask=at < size, other=0.0)
    tl.store(copies + row * copy_stride + at, loaded.to(tl.float32), mask=at < size)


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def adjust(
    values: tl.tensor, numbers: tl.tensor, changes_at: tl.tensor, changes: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Apply penalties and bias in place; every logit has at most one change."""
    change = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = change < changes
    fields = numbers + changes_at + change
    at = tl.load(fields + _AT * changes, mask=real, other=0)
    factor = _double(tl.load(fields + _FACTOR * changes, mask=real, other=0)).to(tl.float32)
    first = _double(tl.load(fields + _FIRST_ADDED * changes, mask=real, other=0)).to(tl.float32)
    then = _double(tl.load(fields + _THEN_ADDED * changes, mask=real, other=0)).to(tl.float32)
    factor = tl.where(real, factor, 1.0)
    value = tl.load(values + at, mask=real, other=0.0)
    scaled = tl.where(value > 0.0, tl.math.div_rn(value, factor), value * factor)
    tl.store(values + at, scaled + first + then, mask=real)


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def highest(
    values: tl.tensor, row_stride: tl.tensor, masks: tl.tensor, words: tl.tensor, size: tl.tensor,
    numbers: tl.tensor, jobs_at: tl.tensor, jobs: tl.tensor, tops: tl.tensor, chunks: tl.tensor,
    WORDS: tl.constexpr, ALIGNED: tl.constexpr,
) -> None:  # fmt: skip
    """``tops`` [jobs, chunks]: the greatest allowed value, packed with its lowest token."""
    job = tl.program_id(0)
    chunk = tl.program_id(1)
    token, allowed, value = _load(
        values, row_stride, masks, words, size, numbers, jobs_at, jobs, job, chunk, WORDS, ALIGNED
    )
    packed = tl.where(allowed, _packed(value, token), _NONE)
    tl.store(tops + job * chunks + chunk, tl.max(tl.max(packed, axis=1), axis=0))


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def search(
    values: tl.tensor, row_stride: tl.tensor, masks: tl.tensor, words: tl.tensor, size: tl.tensor,
    numbers: tl.tensor, jobs_at: tl.tensor, jobs: tl.tensor, filters_at: tl.tensor,
    filters: tl.tensor, tops: tl.tensor, chunks: tl.tensor, counts: tl.tensor, weights: tl.tensor,
    place: tl.tensor, digits: tl.tensor, WORDS: tl.constexpr, CHUNKS: tl.constexpr,
    ALIGNED: tl.constexpr, DROPPED: tl.constexpr, BY_WEIGHT: tl.constexpr,
) -> None:  # fmt: skip
    """Add up counts (for top_k) or weights (for top_p) by the digit at ``place`` of the key.

    Only values with the digits found so far count. Both sums are int64 [digits, filters, 16], zero
    before the first launch. Weights are summed after counts, over the values that top_k keeps.
    """
    filtered = tl.program_id(0)
    chunk = tl.program_id(1)
    fields = numbers + filters_at + filtered
    top_k = tl.load(fields + _TOP_K * filters)
    top_p = _double(tl.load(fields + _TOP_P * filters))
    if (top_p < 1.0) if BY_WEIGHT else (top_k > 0):
        job = tl.load(fields + _JOB * filters)
        _tokens, allowed, value = _load(
            values, row_stride, masks, words, size, numbers, jobs_at, jobs, job, chunk,
            WORDS, ALIGNED,
        )  # fmt: skip
        ranked = _ranked(value, DROPPED)
        shift = (digits - 1 - place) * _DIGIT_BITS
        digit = ((ranked >> shift) & (_DIGITS - 1)).to(tl.int32)
        upper = ranked >> (shift + _DIGIT_BITS)
        each = tl.arange(0, _DIGITS)
        sums = tl.zeros([_DIGITS], tl.int64)
        if BY_WEIGHT:
            edge = tl.full([], 0, tl.int64)
            ties = tl.full([], 0, tl.int64)
            if top_k > 0:
                edge, ties = _edge_of_count(counts, filtered, filters, digits, top_k)
            if place > 0:
                found, _rest = _descend_by_weight(weights, filtered, filters, place, top_p)
            else:
                found = tl.full([], 0, tl.int64)
            inside = allowed & (ranked > edge) & (upper == found)
            ceiling = _packed_value(_top(tops, job, chunks, CHUNKS))
            sharpness = _double(tl.load(numbers + jobs_at + _SHARPNESS * jobs + job))
            low, high = _digits_inside(digit, inside)
            if low <= high:
                mass = tl.where(inside, _weight(value, ceiling, sharpness), 0)
                for d in range(low, high + 1):
                    sums = tl.where(each == d, _sum(tl.where(digit == d, mass, 0)), sums)
            # All values at the edge of top_k have the same weight, so their number is enough.
            if (chunk == 0) & (ties > 0) & ((edge >> (shift + _DIGIT_BITS)) == found):
                mass_of_ties = ties * _weight(_unranked(edge, DROPPED), ceiling, sharpness)
                sums += tl.where(each == ((edge >> shift) & (_DIGITS - 1)), mass_of_ties, 0)
            target = weights
        else:
            found = tl.full([], 0, tl.int64)
            if place > 0:
                found, _rest = _edge_of_count(counts, filtered, filters, place, top_k)
            inside = allowed & (upper == found)
            low, high = _digits_inside(digit, inside)
            for d in range(low, high + 1):
                count = _sum((inside & (digit == d)).to(tl.int32)).to(tl.int64)
                sums = tl.where(each == d, count, sums)
            target = counts
        at = target + (place * filters + filtered) * _DIGITS + each
        tl.atomic_add(at, sums, mask=sums != 0, sem="relaxed")


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def mark_edge(
    values: tl.tensor, row_stride: tl.tensor, masks: tl.tensor, words: tl.tensor, size: tl.tensor,
    numbers: tl.tensor, jobs_at: tl.tensor, jobs: tl.tensor, filters_at: tl.tensor,
    filters: tl.tensor, tops: tl.tensor, chunks: tl.tensor, counts: tl.tensor, weights: tl.tensor,
    digits: tl.tensor, edges: tl.tensor, ties_by_chunk: tl.tensor, WORDS: tl.constexpr,
    CHUNKS: tl.constexpr, ALIGNED: tl.constexpr, DROPPED: tl.constexpr,
) -> None:  # fmt: skip
    """``edges`` [filters, 2]: the lowest ranked key kept, and how many values with it are kept.

    ``ties_by_chunk`` [filters, chunks]: number of allowed values with this key.
    """
    filtered = tl.program_id(0)
    chunk = tl.program_id(1)
    fields = numbers + filters_at + filtered
    top_k = tl.load(fields + _TOP_K * filters)
    top_p = _double(tl.load(fields + _TOP_P * filters))
    job = tl.load(fields + _JOB * filters)
    edge = tl.full([], 0, tl.int64)
    ties = tl.full([], 0, tl.int64)
    if top_k > 0:
        edge, ties = _edge_of_count(counts, filtered, filters, digits, top_k)
    if top_p < 1.0:
        edge, needed = _descend_by_weight(weights, filtered, filters, digits, top_p)
        ceiling = _packed_value(_top(tops, job, chunks, CHUNKS))
        sharpness = _double(tl.load(numbers + jobs_at + _SHARPNESS * jobs + job))
        each = tl.maximum(_weight(_unranked(edge, DROPPED), ceiling, sharpness), 1)
        ties = (needed + each - 1) // each
    _tokens, allowed, value = _load(
        values, row_stride, masks, words, size, numbers, jobs_at, jobs, job, chunk, WORDS, ALIGNED
    )
    at_edge = allowed & (_ranked(value, DROPPED) == edge)
    tl.store(ties_by_chunk + filtered * chunks + chunk, _sum(at_edge.to(tl.int32)))
    if chunk == 0:
        tl.store(edges + filtered * 2, edge)
        tl.store(edges + filtered * 2 + 1, ties)


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def race(
    values: tl.tensor, row_stride: tl.tensor, masks: tl.tensor, words: tl.tensor, size: tl.tensor,
    numbers: tl.tensor, jobs_at: tl.tensor, jobs: tl.tensor, filters_at: tl.tensor,
    filters: tl.tensor, tops: tl.tensor, chunks: tl.tensor, edges: tl.tensor,
    ties_by_chunk: tl.tensor, times: tl.tensor, tokens: tl.tensor, WORDS: tl.constexpr,
    CHUNKS: tl.constexpr, ALIGNED: tl.constexpr, DROPPED: tl.constexpr, FILTERED: tl.constexpr,
) -> None:  # fmt: skip
    """``times`` and ``tokens`` [jobs, chunks]: arrival of the winning word, and its winner."""
    job = tl.program_id(0)
    chunk = tl.program_id(1)
    sharpness = _double(tl.load(numbers + jobs_at + _SHARPNESS * jobs + job))
    ceiling = _packed_value(_top(tops, job, chunks, CHUNKS))
    if (sharpness > 0.0) & _is_finite(ceiling):
        key = tl.load(numbers + jobs_at + _KEY * jobs + job)
        _tokens, allowed, value = _load(
            values, row_stride, masks, words, size, numbers, jobs_at, jobs, job, chunk,
            WORDS, ALIGNED,
        )  # fmt: skip
        weights = tl.where(allowed, _weight(value, ceiling, sharpness), 0)
        if FILTERED:
            filtered = tl.load(numbers + jobs_at + _FILTER * jobs + job)
            if filtered >= 0:
                min_p = _double(tl.load(numbers + filters_at + _MIN_P * filters + filtered))
                least = min_p * _weight(ceiling, ceiling, sharpness).to(tl.float64)
                edge = tl.load(edges + filtered * 2)
                ties = tl.load(edges + filtered * 2 + 1)
                ranked = _ranked(value, DROPPED)
                at_edge = (allowed & (ranked == edge)).to(tl.int32)
                by_word = tl.sum(at_edge, axis=1)
                before = tl.cumsum(by_word, axis=0) - by_word
                place = tl.cumsum(at_edge, axis=1) - at_edge + before[:, None]
                other = tl.arange(0, CHUNKS)
                place += tl.sum(
                    tl.load(ties_by_chunk + filtered * chunks + other, mask=other < chunk, other=0),
                    axis=0,
                )
                kept = (ranked > edge) | ((ranked == edge) & (place < ties))
                kept = kept & (weights.to(tl.float64) >= least)
                weights = tl.where(kept, weights, 0)
        word = chunk * WORDS + tl.arange(0, WORDS)
        arrivals = _arrival(key, word, tl.sum(weights, axis=1))
        first = tl.min(arrivals, axis=0)
        winner = tl.min(tl.where(arrivals == first, word, _NO_TOKEN), axis=0)
        of_winner = tl.sum(tl.where(word[:, None] == winner, weights, 0), axis=0)
        among = winner * 32 + tl.arange(0, 32)
        arrivals_there = _arrival(key, among.to(tl.int64) + _FIRST_TOKEN, of_winner)
        wins = arrivals_there == tl.min(arrivals_there, axis=0)
        tl.store(times + job * chunks + chunk, first)
        tl.store(tokens + job * chunks + chunk, tl.min(tl.where(wins, among, _NO_TOKEN), axis=0))


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def choose(
    numbers: tl.tensor, jobs_at: tl.tensor, jobs: tl.tensor, tops: tl.tensor, chunks: tl.tensor,
    times: tl.tensor, tokens: tl.tensor, results: tl.tensor, CHUNKS: tl.constexpr,
) -> None:  # fmt: skip
    """Write each job's token to its row of ``results`` (int64); -1 if its mask allows none."""
    job = tl.program_id(0)
    chunk = tl.arange(0, CHUNKS)
    sharpness = _double(tl.load(numbers + jobs_at + _SHARPNESS * jobs + job))
    top = _top(tops, job, chunks, CHUNKS)
    token = _packed_token(top)
    if (sharpness > 0.0) & _is_finite(_packed_value(top)):
        place = job * chunks + chunk
        arrivals = tl.load(times + place, mask=chunk < chunks, other=float("inf"))
        winners = tl.load(tokens + place, mask=chunk < chunks, other=_NO_TOKEN)
        first = tl.min(arrivals, axis=0)
        if first < float("inf"):  # otherwise the temperature is so small that 1 / it overflows
            token = tl.min(tl.where(arrivals == first, winners, _NO_TOKEN), axis=0).to(tl.int64)
    tl.store(results + tl.load(numbers + jobs_at + _OUT * jobs + job), token)


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def rank(
    values: tl.tensor, row_stride: tl.tensor, masks: tl.tensor, words: tl.tensor, size: tl.tensor,
    numbers: tl.tensor, jobs_at: tl.tensor, jobs: tl.tensor, asking_at: tl.tensor, tops: tl.tensor,
    chunks: tl.tensor, sums: tl.tensor, greatest: tl.tensor, most: tl.tensor, WORDS: tl.constexpr,
    CHUNKS: tl.constexpr, ALIGNED: tl.constexpr,
) -> None:  # fmt: skip
    """Write the ``sums`` [asking, chunks] of exponentials, and the ``most`` greatest values of each
    chunk, packed, to ``greatest`` [asking, chunks, most]."""
    asking = tl.program_id(0)
    chunk = tl.program_id(1)
    job = tl.load(numbers + asking_at + asking)
    ceiling = _packed_value(_top(tops, job, chunks, CHUNKS))
    token, allowed, value = _load(
        values, row_stride, masks, words, size, numbers, jobs_at, jobs, job, chunk, WORDS, ALIGNED
    )
    terms = tl.exp(value.to(tl.float64) - ceiling.to(tl.float64))
    place = asking * chunks + chunk
    tl.store(sums + place, _sum(tl.where(allowed, terms, 0.0)))
    packed = tl.where(allowed, _packed(value, token), _NONE)
    for i in range(most):
        best = tl.max(tl.max(packed, axis=1), axis=0)
        tl.store(greatest + place.to(tl.int64) * most + i, best)
        packed = tl.where(packed == best, _NONE, packed)


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def report(
    values: tl.tensor, row_stride: tl.tensor, numbers: tl.tensor, jobs_at: tl.tensor,
    jobs: tl.tensor, asking_at: tl.tensor, tops: tl.tensor, chunks: tl.tensor, sums: tl.tensor,
    greatest: tl.tensor, most: tl.tensor, results: tl.tensor, reports_at: tl.tensor,
    CHUNKS: tl.constexpr,
) -> None:  # fmt: skip
    """Write 1 + 2 * ``most`` numbers for each job with logprobs to ``results`` at ``reports_at``:
    its token's logprob, the most likely tokens (-1 for none) and their logprobs, as bits."""
    asking = tl.program_id(0)
    job = tl.load(numbers + asking_at + asking)
    row = tl.load(numbers + jobs_at + _ROW * jobs + job)
    token = tl.load(results + tl.load(numbers + jobs_at + _OUT * jobs + job))
    ceiling = _packed_value(_top(tops, job, chunks, CHUNKS)).to(tl.float64)
    chunk = tl.arange(0, CHUNKS)
    parts = tl.load(sums + asking * chunks + chunk, mask=chunk < chunks, other=0.0)
    total = tl.log(tl.sum(parts, axis=0))
    own = tl.load(values + row * row_stride + token, mask=token >= 0, other=0.0).to(tl.float64)
    out = results + reports_at + asking * (1 + 2 * most)
    tl.store(out, (own - ceiling - total).to(tl.int64, bitcast=True))
    # The list of each chunk is sorted, so the next value is the head of one of the lists.
    taken = tl.zeros([CHUNKS], tl.int64)
    lists = greatest + (asking * chunks + chunk).to(tl.int64) * most
    for i in range(most):
        heads = tl.load(lists + taken, mask=(chunk < chunks) & (taken < most), other=_NONE)
        best = tl.max(heads, axis=0)
        taken += ((heads == best) & (best != _NONE)).to(tl.int64)
        logprob = _packed_value(best).to(tl.float64) - ceiling - total
        tl.store(out + 1 + i, _packed_token(best))
        tl.store(out + 1 + most + i, logprob.to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def score(
    values: tl.tensor, row_stride: tl.tensor, numbers: tl.tensor, jobs_at: tl.tensor,
    jobs: tl.tensor, sets_at: tl.tensor, sets: tl.tensor, tops: tl.tensor, chunks: tl.tensor,
    sums: tl.tensor, results: tl.tensor, scores_at: tl.tensor,
    CHUNKS: tl.constexpr, TOKENS: tl.constexpr,
) -> None:  # fmt: skip
    """Write the log-probability of each set, as bits, to ``results`` at ``scores_at``. A program
    has one set. ``sums`` [jobs, chunks] are those of ``rank``."""
    number = tl.program_id(0)
    job = tl.load(numbers + sets_at + _JOB_OF_SET * sets + number)
    place = tl.load(numbers + sets_at + _BEGIN * sets + number)
    end = tl.load(numbers + sets_at + _END * sets + number)
    row = tl.load(numbers + jobs_at + _ROW * jobs + job)
    ceiling = _packed_value(_top(tops, job, chunks, CHUNKS)).to(tl.float64)
    chunk = tl.arange(0, CHUNKS)
    parts = tl.load(sums + job * chunks + chunk, mask=chunk < chunks, other=0.0)
    weights = tl.zeros([TOKENS], tl.float64)
    while place < end:
        within = place + tl.arange(0, TOKENS)
        token = tl.load(numbers + within, mask=within < end, other=0)
        value = tl.load(values + row * row_stride + token, mask=within < end, other=float("-inf"))
        weights += tl.exp(value.to(tl.float64) - ceiling)
        place += TOKENS
    logprob = tl.log(tl.sum(weights, axis=0)) - tl.log(tl.sum(parts, axis=0))
    tl.store(results + scores_at + number, logprob.to(tl.int64, bitcast=True))
