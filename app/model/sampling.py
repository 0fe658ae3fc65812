"""Drawing one token from each row of logits, on the CPU.

The order of operations is that of ``SamplingParams``. Randomness is a counter: a row's 64-bit
key gives every mask word and every token a number of its own, and with them they race (see
``sampling_kernels``). So a draw is a function of the row's logits, mask, parameters and key
alone, and hardly ever of the logits' last bits, which depend on who else is in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from app.core.constraint import Mask
from app.core.request import SamplingParams
from app.core.step import SampledToken, SampleRow, TokenLogprob
from app.model import sampling_kernels as kernels
from app.model.sampling_kernels import Floats, Longs

_LOG2_E = 1.0 / math.log(2.0)
_SORTED_WHOLE = 1024
"""Up to this many values, sorting them is quicker than going over all the buckets."""


class Sampler(Protocol):
    def sample(
        self, logits: torch.Tensor, rows: Sequence[SampleRow], masks: Sequence[Mask | None]
    ) -> list[SampledToken]:
        """One token for each row of logits [R, width]; ``masks`` as in ``Runner.sample``."""


def full_mask(vocab_size: int) -> Mask:
    """The packed mask that allows every token id below ``vocab_size``."""
    mask = np.full(-(-vocab_size // 32), 0xFFFFFFFF, dtype=np.uint32)
    if vocab_size % 32:
        mask[-1] = (1 << vocab_size % 32) - 1
    return mask


class CpuSampler:
    """Samples row by row with compiled loops; keeps scratch memory, so one thread at a time.

    Cost for a row of 128k float32 logits, one core: 0.1 ms greedy, 0.25 ms with a temperature,
    a few us where the mask allows few tokens; top_k and top_p sort what they may keep.
    """

    def __init__(self, vocab_size: int) -> None:
        self._size = vocab_size
        self._everything = full_mask(vocab_size)
        self._totals: Longs = np.empty(len(self._everything), dtype=np.int64)
        self._ids: Longs = np.empty(vocab_size, dtype=np.int64)
        self._weights: Longs = np.empty(vocab_size, dtype=np.int64)
        self._ranking = _Ranking(vocab_size)

    def warm_up(self) -> None:
        """Compile the loops now rather than in the first request.

        Arrays that may be written and those that may not are compiled for separately.
        """
        frozen = full_mask(self._size)
        frozen.flags.writeable = False
        narrow = SamplingParams(top_k=2, top_p=0.9, logprobs=1)
        rows = [SampleRow(0, 0, params, key=0) for params in (SamplingParams(), narrow)]
        for mask in (frozen, None):
            self.sample(torch.zeros(2, self._size), rows, [mask, mask])

    def sample(
        self, logits: torch.Tensor, rows: Sequence[SampleRow], masks: Sequence[Mask | None]
    ) -> list[SampledToken]:
        """One token for each row of ``logits`` [R, width], which may be changed in place.

        Raises ``ValueError`` where a mask allows no token.
        """
        assert len(logits) == len(rows) == len(masks), "one mask and one row of logits each"
        values: Floats = logits.float().numpy()
        return [
            self._sample_row(value, row, self._everything if mask is None else mask)
            for value, row, mask in zip(values, rows, masks, strict=True)
        ]

    def _sample_row(self, logits: Floats, row: SampleRow, mask: Mask) -> SampledToken:
        params = row.params
        adjust(logits, row)
        ceiling = kernels.highest(logits, mask, self._size)
        best = kernels.first_at(logits, mask, self._size, ceiling)
        if best < 0:
            raise ValueError("a mask allows no token")
        if params.temperature <= 0.0 or not math.isfinite(ceiling):
            token = best
        elif params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0:
            token = self._draw_among_likeliest(logits, row, mask, ceiling, best)
        else:
            token = self._draw(logits, row, mask, ceiling, best)
        if params.logprobs is None:
            return SampledToken(token_id=token)
        return self._with_logprobs(token, logits, mask, params.logprobs)

    def _draw(self, logits: Floats, row: SampleRow, mask: Mask, ceiling: float, best: int) -> int:
        sharpness = _LOG2_E / row.params.temperature
        total = kernels.weigh_words(logits, mask, self._size, ceiling, sharpness, self._totals)
        if total == 0:  # a temperature so small that dividing by it overflows
            return best
        key = np.uint64(row.key)
        word = kernels.race_words(self._totals, key)
        return kernels.race_in_word(logits, mask, self._size, ceiling, sharpness, word, key)

    def _draw_among_likeliest(
        self, logits: Floats, row: SampleRow, mask: Mask, ceiling: float, best: int
    ) -> int:
        ids = self._allowed(mask)
        values = logits[ids] + np.float32(0.0)  # so that -0.0 ranks as 0.0 does
        sharpness = _LOG2_E / row.params.temperature
        weights = self._weights[: len(ids)]
        total = kernels.weigh(values, ceiling, sharpness, weights)
        if total == 0:
            return best
        kept = self._ranking.keep(values, weights, total, row.params)
        return kernels.race_among(ids[kept], weights[kept], np.uint64(row.key))

    def _with_logprobs(
        self, token: int, logits: Floats, mask: Mask, alternatives: int
    ) -> SampledToken:
        ids = self._allowed(mask)
        values = logits[ids] + np.float32(0.0)
        top = self._ranking.greatest(values, alternatives)
        logprobs = values.astype(np.float64) - float(values.max())
        logprobs -= math.log(np.exp(logprobs).sum())
        return SampledToken(
            token_id=token,
            logprob=float(logprobs[np.searchsorted(ids, token)]),
            top=tuple(TokenLogprob(int(ids[i]), float(logprobs[i])) for i in top),
        )

    def _allowed(self, mask: Mask) -> Longs:
        return self._ids[: kernels.allowed_ids(mask, self._size, self._ids)]


def adjust(logits: Floats, row: SampleRow) -> None:
    """Apply penalties and logit bias to one row, in place.

    Repetition (Keskar et al., CTRL, 2019) counts prompt and answer, frequency and presence the
    answer alone, as OpenAI defines them.
    """
    params = row.params
    if params.has_penalties and len(row.history):
        history = np.asarray(row.history, dtype=np.int64)
        if params.repetition_penalty != 1.0:
            seen = np.unique(history)
            value = logits[seen]
            penalty = np.float32(params.repetition_penalty)
            logits[seen] = np.where(value > 0, value / penalty, value * penalty)
        tokens, counts = np.unique(history[row.answer_start :], return_counts=True)
        logits[tokens] -= (params.frequency_penalty * counts + params.presence_penalty).astype(
            np.float32
        )
    for token, bias in params.logit_bias.items():
        logits[token] += np.float32(bias)


class _Ranking:
    """Finds the greatest of many values without sorting all of them.

    A pass over the values finds the bucket in which the last one wanted lies; only that bucket
    is sorted. Equal values rank by position.
    """

    def __init__(self, size: int) -> None:
        self._scratch: Longs = np.empty((2, kernels.BUCKETS), dtype=np.int64)
        self._above: Longs = np.empty(size, dtype=np.int64)
        self._within: Longs = np.empty(size, dtype=np.int64)
        self._zeros: Longs = np.zeros(size, dtype=np.int64)

    def keep(self, values: Floats, weights: Longs, total: int, params: SamplingParams) -> Longs:
        """Positions that top_k, then top_p, then min_p leave, in ascending order; at least one.

        ``weights`` and their sum, ``total``, are those of all ``values``.
        """
        kept: Longs = np.arange(len(values))
        if 0 < params.top_k < len(values):
            kept = np.sort(self.greatest(values, params.top_k))
            total = int(weights[kept].sum())
        if params.top_p < 1.0:
            needed = max(1, math.ceil(params.top_p * total))
            kept = kept[self._heaviest(values[kept], weights[kept], needed)]
        if params.min_p > 0.0:
            left = weights[kept]
            kept = kept[left >= params.min_p * left.max()]
        return kept

    def greatest(self, values: Floats, count: int) -> Longs:
        """Positions of the ``count`` greatest values, the greatest first."""
        if count == 0:
            return self._above[:0]
        above, within = self._split(values, self._zeros[: len(values)], count, 1)
        found = np.concatenate([above, within])
        return found[np.argsort(-values[found], kind="stable")][:count]

    def _heaviest(self, values: Floats, weights: Longs, needed: int) -> Longs:
        """Positions of the greatest values that together weigh ``needed``, in ascending order.

        They are as few as can be, and at least one.
        """
        above, within = self._split(values, weights, len(values), needed)
        sums = np.cumsum(weights[within]) + weights[above].sum()
        return np.sort(np.concatenate([above, within[: int(np.searchsorted(sums, needed)) + 1]]))

    def _split(self, values: Floats, weights: Longs, most: int, needed: int) -> tuple[Longs, Longs]:
        """Positions surely wanted, in order; and those of which the first few are, ranked."""
        if len(values) <= _SORTED_WHOLE:
            return self._above[:0], np.argsort(-values, kind="stable")
        edge = kernels.boundary(values, weights, most, needed, self._scratch)
        n_above, n_within = kernels.split(values, edge, self._above, self._within)
        within = self._within[:n_within]
        return self._above[:n_above], within[np.argsort(-values[within], kind="stable")]
