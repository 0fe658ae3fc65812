"""A naive sampler: the oracle of the samplers' tests."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from app.core.constraint import Mask
from app.core.step import Draw

Doubles = NDArray[np.float64]


def pack(allowed: set[int], size: int) -> Mask:
    mask = np.zeros(-(-size // 32), dtype=np.uint32)
    for token in allowed:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def unpack(mask: Mask | None, size: int) -> list[int]:
    if mask is None:
        return list(range(size))
    return [i for i in range(size) if int(mask[i // 32]) >> i % 32 & 1]


def adjusted(logits: NDArray[np.float32], row: Draw) -> Doubles:
    values = logits.astype(np.float64)
    params = row.params
    for token in {*row.answer, *(() if row.prompt_tokens is None else row.prompt_tokens.tolist())}:
        penalty = params.repetition_penalty
        values[token] = values[token] / penalty if values[token] > 0 else values[token] * penalty
    for token, count in Counter(row.answer).items():
        values[token] -= count * params.frequency_penalty + params.presence_penalty
    for token, bias in params.logit_bias.items():
        values[token] += bias
    return values


def logprobs(logits: NDArray[np.float32], row: Draw, ids: list[int]) -> dict[int, float]:
    values = adjusted(logits, row)[ids]
    top = values.max()
    total = np.log(np.exp(values - top).sum()) + top
    return dict(zip(ids, (values - total).tolist(), strict=True))


def distribution(logits: NDArray[np.float32], row: Draw, ids: list[int]) -> dict[int, float]:
    """Probabilities of the tokens that may be drawn, by id, in ascending order of ids."""
    params = row.params
    values = adjusted(logits, row)
    if params.temperature == 0.0:
        return {max(ids, key=lambda i: (values[i], -i)): 1.0}
    scaled = {i: values[i] / params.temperature for i in ids}
    order = sorted(ids, key=lambda i: (-values[i], i))
    weight = {i: float(np.exp(scaled[i] - scaled[order[0]])) for i in order}
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1.0:
        total, mass, kept = sum(weight[i] for i in order), 0.0, []
        for i in order:
            kept.append(i)
            mass += weight[i]
            if mass >= params.top_p * total:
                break
        order = kept
    order = [i for i in order if weight[i] >= params.min_p * weight[order[0]]]
    total = sum(weight[i] for i in order)
    return {i: weight[i] / total for i in sorted(order)}


def number(key: int, place: int) -> float:
    """Output ``place`` of SplitMix64 started at ``key``, as a number in [0, 1)."""
    z = (key + (place + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return float((z ^ z >> 31) >> 11) / 2**53


def winner(expected: dict[int, float], key: int) -> int:
    """The token that a row with this key draws, given the probabilities by token id."""
    words: dict[int, float] = defaultdict(float)
    for token, probability in expected.items():
        words[token // 32] += probability
    word = min(words, key=lambda w: _arrival(key, w, words[w]))
    tokens = [token for token in expected if token // 32 == word]
    return min(tokens, key=lambda i: _arrival(key, 2**32 + i, expected[i]))


def _arrival(key: int, place: int, probability: float) -> float:
    return -math.log1p(-number(key, place)) / probability if probability else math.inf
