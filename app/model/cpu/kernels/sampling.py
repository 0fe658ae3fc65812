"""The sampler's inner loops over one row of logits and one packed mask, compiled, without the GIL.

Weights are integers: each allowed token weighs ``2 ** WEIGHT_BITS`` times its probability
relative to the likeliest one, rounded down. Integers add up to the same total in any order, so a
draw cannot depend on how a sum was split. Tokens below ``2 ** -WEIGHT_BITS`` of the likeliest one
weigh nothing; all of them together are under 2e-8.

A draw is a race: a competitor of weight w arrives after a time that is exponential of rate w, so
it comes in first with probability w over the sum of the weights (the Gumbel-max trick by another
name; Maddison, Tarlow and Minka, A* Sampling, 2014). Mask words race with the weight of their 32
tokens, then the tokens of the winner among themselves. Times come from numbers that belong to the
row's key and to the word or the token, whatever the weights: a small change of the weights moves
all times a little, and changes the winner only where the first two all but tie.

Rows are float32, one value for each token id and maybe more; ``size`` token ids count. Masks
are packed as in ``app.core.constraint.Mask``.

Sets of tokens are scored by floats: ``score_row``.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.model.cpu.kernels.attention import LOG2_E, exp2
from app.model.cpu.kernels.compiled import address_of, compiled, float_of_bits, widen
from app.model.cpu.kernels.records import at, memory, record
from app.model.inputs import Ints
from app.model.sampling import (
    FIRST_TOKEN,
    HALF_OCTAVE,
    LN2,
    SPLITMIX_FIRST,
    SPLITMIX_SECOND,
    SPLITMIX_STEP,
    WEIGHT_BITS,
)

Floats = NDArray[np.float32]
Bits = NDArray[np.uint32]

BUCKETS = 1 << 16
"""Number of different upper halves of a float32."""

DRAWS = record(
    "logits", "pitch", "size", "masks", "words", "sharpness", "keys", "rows", "threads",
    "wide", "tops", "out",
)  # fmt: skip
"""Rows of logits, ``pitch`` bytes apart, with what ``draw`` takes for each: [rows], masks [rows,
words]. ``wide`` [threads, size] float32 and ``tops`` [threads, words] are scratch memory."""

SETS = record("logits", "pitch", "size", "rows", "sets", "count", "ids", "ends", "out")
"""Log-probabilities of sets of tokens, to ``out`` [S], among the first ``size`` tokens.

``rows`` [count] of ``logits``, ``pitch`` bytes apart, have the sets up to ``sets`` [count], each
from where the row before it ended; a set has the ``ids`` up to its own of ``ends`` [S]. Results
are within 1e-6 of the exact ones."""

_f32: Any = np.float32
_f64: Any = np.float64
_i64: Any = np.int64
_FULL = np.uint32(0xFFFFFFFF)
LEAST_KEY = np.int32(-0x80000000)
"""The least integer of ``ordered``: of words without an allowed token."""
_TOGETHER = 1024
"""Weights added up in float32 before they go into a sum of float64."""
_SCALE = float(1 << WEIGHT_BITS)
_FIRST_TOKEN = np.uint64(FIRST_TOKEN)
_STEP, _FIRST, _SECOND = map(np.uint64, (SPLITMIX_STEP, SPLITMIX_FIRST, SPLITMIX_SECOND))


@compiled()
def _has(word: np.uint32, bit: int) -> bool:
    return bool((word >> np.uint32(bit)) & np.uint32(1))


@compiled()
def ordered(bits: np.int32) -> np.int32:
    """Bits of a float32 as integers that compare as the floats do, and back again."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@compiled()
def highest(logits: Floats, mask: Bits, size: int, tops: Ints) -> float:
    """The greatest allowed logit; -inf where the mask is empty, NaN where a logit is NaN.

    ``tops`` [words]: the greatest one of each word, as ``ordered`` bits.
    """
    keys = logits.view(np.int32)  # only the maximum of integers becomes SIMD
    best = LEAST_KEY
    for word in range((size + 31) // 32):
        allowed = mask[word]
        start, top = word * 32, LEAST_KEY
        if allowed == _FULL and start + 32 <= size:
            for i in range(start, start + 32):
                top = max(top, ordered(keys[i]))
        elif allowed != 0:
            for i in range(min(32, size - start)):
                if _has(allowed, i):
                    top = max(top, ordered(keys[start + i]))
        tops[word] = top
        best = max(best, top)
    return -np.inf if best == LEAST_KEY else float(float_of_bits(ordered(best)))


@compiled()
def first_at(logits: Floats, mask: Bits, size: int, value: float) -> int:
    """The lowest allowed token id with that logit, else the lowest allowed one, else -1."""
    lowest = -1
    wanted = np.float32(value)
    for word in range((size + 31) // 32):
        allowed = mask[word]
        if allowed == 0:
            continue
        start = word * 32
        if allowed == _FULL and start + 32 <= size:
            equal = 0  # counted, so that it becomes SIMD
            for i in range(start, start + 32):
                equal += logits[i] == wanted
            if equal == 0:
                lowest = start if lowest < 0 else lowest
                continue
        for i in range(min(32, size - start)):
            if _has(allowed, i):
                if logits[start + i] == wanted:
                    return start + i
                if lowest < 0:
                    lowest = start + i
    return lowest


@compiled()
def allowed_ids(
    logits: Floats, mask: Bits, size: int, tops: Ints, least: np.int32, out: Ints
) -> int:
    """Write the allowed ids with logits from ``least`` on to ``out``, in order; returns how many.

    ``least`` and the words' ``tops`` are as in ``highest``.
    """
    keys = logits.view(np.int32)
    count = 0
    for word in range((size + 31) // 32):
        if mask[word] == 0 or tops[word] < least:
            continue
        start = word * 32
        for i in range(min(32, size - start)):
            if _has(mask[word], i) and ordered(keys[start + i]) >= least:
                out[count] = start + i
                count += 1
    return count


@compiled()
def _weight(logit: float, ceiling: float, sharpness: float) -> int:
    """``2 ** WEIGHT_BITS * exp((logit - ceiling) / temperature)``, rounded down; 0 for NaN.

    ``sharpness`` is log2(e) / temperature. The power of two comes from a Taylor series on half
    an octave (error below 1e-14), which unlike ``exp`` compiles to SIMD.
    """
    power = (logit - ceiling) * sharpness
    power = power if power > -60.0 else -60.0
    whole = math.floor(power)
    x = (power - whole - 0.5) * LN2
    series = 1.0 + x * (1 / 10) * (1.0 + x * (1 / 11))
    series = 1.0 + x * (1 / 8) * (1.0 + x * (1 / 9) * series)
    series = 1.0 + x * (1 / 6) * (1.0 + x * (1 / 7) * series)
    series = 1.0 + x * (1 / 4) * (1.0 + x * (1 / 5) * series)
    series = 1.0 + x * (1 / 2) * (1.0 + x * (1 / 3) * series)
    series = 1.0 + x * series
    return int(np.int64(series * (HALF_OCTAVE * _SCALE)) >> np.int64(-whole))


@compiled()
def _word_weight(
    logits: Floats, mask: Bits, size: int, ceiling: float, sharpness: float, word: int
) -> int:
    """The weights of a word's allowed tokens, added up."""
    start, total = word * 32, 0
    if mask[word] == _FULL and start + 32 <= size:
        for i in range(start, start + 32):
            total += _weight(logits[i], ceiling, sharpness)
    else:
        for i in range(min(32, size - start)):
            if _has(mask[word], i):
                total += _weight(logits[start + i], ceiling, sharpness)
    return total


@compiled()
def uniform(key: np.uint64, place: np.uint64) -> float:
    """The number in [0, 1) at ``place`` in a row's stream, with 53 random bits.

    Mask words are at places 0, 1, 2 and on, token ids from ``FIRST_TOKEN`` on. SplitMix64 started
    at ``key``; source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014
    (with the constants of Vigna's splitmix64).
    """
    z = key + (place + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z ^= z >> np.uint64(31)
    return float(np.int64(z >> np.uint64(11))) * 2.0**-53


@compiled()
def _arrival(key: np.uint64, place: np.uint64, weight: int, record: float) -> float:
    """When a competitor arrives, if that is before ``record``; else ``record`` or later."""
    number = uniform(key, place)
    # The logarithm is at least the number: nearly always that alone says that it is too late.
    if number >= record * weight:
        return record
    return -math.log1p(-number) / weight


@compiled()
def _race(weights: Ints, key: np.uint64, place: np.uint64) -> int:
    """Index of the weight that wins, with numbers from ``place`` on; -1 if all weights are 0."""
    record, winner = np.inf, -1
    for i in range(len(weights)):
        if weights[i] > 0:
            time = _arrival(key, place + np.uint64(i), weights[i], record)
            if time < record:
                record, winner = time, i
    return winner


@compiled()
def _widen_allowed(given: NDArray[Any], mask: Bits, size: int, out: Floats) -> None:
    """The values of the words that allow some token, in float32."""
    for word in range(size // 32):
        if mask[word] != 0:
            for i in range(word * 32, word * 32 + 32):
                out[i] = widen(given[i])
    for i in range(size // 32 * 32, size):
        out[i] = widen(given[i])


@compiled()
def draw(
    logits: Floats, mask: Bits, size: int, sharpness: float, key: np.uint64, tops: Ints
) -> int:
    """The token of one row, -1 where its mask allows none; ``tops`` [words] is scratch.

    ``sharpness`` is log2(e) / temperature (infinite if that overflows), or 0 for the likeliest
    token. Only words that may win are weighed: no token weighs more than its word's greatest one.
    """
    ceiling = highest(logits, mask, size, tops)
    best = first_at(logits, mask, size, ceiling)
    if sharpness == 0.0 or best < 0 or not (math.isfinite(ceiling) and math.isfinite(sharpness)):
        return best
    word = best // 32
    weight = _word_weight(logits, mask, size, ceiling, sharpness, word)
    record = _arrival(key, np.uint64(word), weight, np.inf)
    for other in range((size + 31) // 32):
        if mask[other] == 0 or other == best // 32:
            continue
        top = float(float_of_bits(ordered(np.int32(tops[other]))))
        power = (top - ceiling) * sharpness
        power = power if power > -60.0 else -60.0  # NaN, too
        # 33 times the next power of two, as weights are off by rounding errors.
        most = (33 << np.int64(WEIGHT_BITS + 1)) >> np.int64(-math.floor(power))
        if uniform(key, np.uint64(other)) < record * most:
            weight = _word_weight(logits, mask, size, ceiling, sharpness, other)
            if weight > 0:
                time = _arrival(key, np.uint64(other), weight, record)
                if time < record:
                    record, word = time, other
    start = word * 32
    weights = np.zeros(32, dtype=np.int64)
    for i in range(min(32, size - start)):
        if _has(mask[word], i):
            weights[i] = _weight(logits[start + i], ceiling, sharpness)
    return start + _race(weights, key, _FIRST_TOKEN + np.uint64(start))


@functools.cache
def draw_rows(number: Any) -> int:
    """The address of the function that draws a thread's part of a ``DRAWS`` record's rows, for
    ``records.share``; ``number`` is the type of logits in ``compiled.as_numpy``."""

    def run(call_at: int, thread: int) -> None:
        call = memory(at(call_at), (1,), DRAWS)[0]
        size, words, rows = call.size, call.words, call.rows
        wide = memory(at(call.wide + 4 * size * thread), (size,), _f32)
        tops = memory(at(call.tops + 8 * words * thread), (words,), _i64)
        keys = memory(at(call.keys), (rows,), np.uint64)
        sharpness = memory(at(call.sharpness), (rows,), _f64)
        out = memory(at(call.out), (rows,), _i64)
        for row in range(rows * thread // call.threads, rows * (thread + 1) // call.threads):
            logits = memory(at(call.logits + call.pitch * row), (size,), number)
            mask = memory(at(call.masks + 4 * words * row), (words,), np.uint32)
            _widen_allowed(logits, mask, size, wide)
            out[row] = draw(wide, mask, size, sharpness[row], keys[row], tops)

    return address_of(run, "void(int64, int64)")


@compiled()
def race_among(ids: Ints, weights: Ints, key: np.uint64) -> int:
    """The token that wins among ``ids``, which ascend and of which one weighs something.

    By the rule of ``draw``, where tokens not listed weigh nothing.
    """
    record, first, last = np.inf, 0, 0
    begin = 0
    while begin < len(ids):
        word, total, end = ids[begin] // 32, 0, begin
        while end < len(ids) and ids[end] // 32 == word:
            total += weights[end]
            end += 1
        if total > 0:
            time = _arrival(key, np.uint64(word), total, record)
            if time < record:
                record, first, last = time, begin, end
        begin = end
    start: int = ids[first] // 32 * 32
    tokens = np.zeros(32, dtype=np.int64)
    for i in range(first, last):
        tokens[ids[i] - start] = weights[i]
    return start + _race(tokens, key, _FIRST_TOKEN + np.uint64(start))


@compiled()
def weigh_all(logits: Floats, mask: Bits, size: int, ceiling: float, sharpness: float) -> int:
    """The sum of the weights of all allowed tokens."""
    total = 0
    for word in range((size + 31) // 32):
        if mask[word] != 0:
            total += _word_weight(logits, mask, size, ceiling, sharpness, word)
    return total


@compiled()
def weigh(values: Floats, ceiling: float, sharpness: float, out: Ints) -> None:
    """Weights of ``values``, all allowed, into ``out``."""
    for i in range(len(values)):
        out[i] = _weight(values[i], ceiling, sharpness)


@compiled()
def _bucket(bits: np.int32) -> int:
    return int(ordered(bits) >> np.int32(16)) + 0x8000


@compiled()
def boundary(values: Floats, weights: Ints, most: int, needed: int, scratch: Ints) -> int:
    """The bucket at which the greatest values reach the count ``most`` or the weight ``needed``.

    A value's bucket is its upper 16 bits: there are 2 ** 16 of them, ascending as the values do.
    ``scratch`` has shape [2, 2 ** 16]; ``most`` and ``needed`` are positive.
    """
    scratch[:] = 0
    counts, masses = scratch[0], scratch[1]
    keys = values.view(np.int32)
    for i in range(len(values)):
        bucket = _bucket(keys[i])
        counts[bucket] += 1
        masses[bucket] += weights[i]
    for bucket in range(len(counts) - 1, -1, -1):
        if counts[bucket] >= most or masses[bucket] >= needed:
            return bucket
        most -= counts[bucket]
        needed -= masses[bucket]
    return 0


@compiled()
def split(values: Floats, boundary: int, above: Ints, within: Ints) -> tuple[int, int]:
    """Write the positions of values above a bucket, and of those in it; returns how many."""
    keys = values.view(np.int32)
    n_above, n_within = 0, 0
    for i in range(len(values)):
        bucket = _bucket(keys[i])
        if bucket > boundary:
            above[n_above] = i
            n_above += 1
        elif bucket == boundary:
            within[n_within] = i
            n_within += 1
    return n_above, n_within


@compiled()
def _greatest(row: NDArray[Any], size: int) -> Any:
    """The greatest of ``size`` logits."""
    top = _f32(-np.inf)
    for i in range(size):
        top = max(top, widen(row[i]))
    return top


@compiled(reassociate=True)
def _sum_of_weights(row: NDArray[Any], begin: int, end: int, top: Any) -> Any:
    """Sum of the weights of a few logits, relative to ``top``."""
    total = _f32(0.0)
    for i in range(begin, end):
        total += exp2((widen(row[i]) - top) * LOG2_E)
    return total


@functools.cache
def score_row(number: Any) -> int:
    """The address of the function that does a row of a ``SETS`` record, for ``records.share``;
    ``number`` is the type of logits in ``compiled.as_numpy``."""

    def run(call_at: int, item: int) -> None:
        call = memory(at(call_at), (1,), SETS)[0]
        places = memory(at(call.rows), (call.count,), _i64)
        sets = memory(at(call.sets), (call.count,), _i64)
        row = memory(at(call.logits + call.pitch * places[item]), (call.size,), number)
        top = _greatest(row, call.size)
        total = 0.0
        for begin in range(0, call.size, _TOGETHER):
            total += float(_sum_of_weights(row, begin, min(call.size, begin + _TOGETHER), top))
        whole = math.log(total)
        last = sets[call.count - 1]
        ends, out = memory(at(call.ends), (last,), _i64), memory(at(call.out), (last,), _f64)
        ids = memory(at(call.ids), (ends[last - 1],), _i64)
        for place in range(sets[item - 1] if item else 0, sets[item]):
            weight = 0.0
            for i in range(ends[place - 1] if place else 0, ends[place]):
                weight += math.exp(float(widen(row[ids[i]])) - float(top))
            out[place] = math.log(weight) - whole if weight > 0.0 else -np.inf

    return address_of(run, "void(int64, int64)")
