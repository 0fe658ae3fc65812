"""Drawing one token from each row of logits, on the CPU; see ``app.model.sampling``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.core.constraint import Mask, full_mask
from app.core.request import SamplingParams
from app.core.step import NOT_DRAWN, Draw, SampledToken, StepResult, TokenLogprob
from app.model.cpu.kernels import sampling as kernels
from app.model.cpu.kernels.compiled import NUMBERS, spreading
from app.model.cpu.kernels.records import share
from app.model.cpu.kernels.sampling import Bits, Floats
from app.model.inputs import Ints
from app.model.sampling import (
    WEIGHT_BITS,
    is_changed,
    is_drawn,
    is_filtered,
    offsets,
    repeated_tokens,
    sharpness,
)

_SPREAD_WORDS = 1 << 14
"""Mask words with an allowed token from which several threads are used: 0.2 ms of one thread."""
_SORTED_WHOLE = 1024
"""Up to this many values, sorting them is quicker than going over all the buckets."""


class CpuSampler:
    """Samples with compiled loops; keeps scratch memory, so one thread at a time.

    Rows without filters, penalties, bias and logprobs are drawn in one call, on several threads
    where there is enough to do; the others one by one. Cost for a row of 128k logits, one core:
    0.1 ms, greedy or with a temperature, a few us where the mask allows few tokens; top_k
    and top_p sort what they may keep.
    """

    def __init__(self, vocab_size: int) -> None:
        self._size = vocab_size
        self._everything = full_mask(vocab_size)
        self._draws, self._sets = np.zeros(1, dtype=kernels.DRAWS), np.zeros(1, dtype=kernels.SETS)
        self._draws["size"] = self._sets["size"] = vocab_size
        self._draws["words"] = len(self._everything)
        self._make_room(1)
        self._ids: Ints = np.empty(vocab_size, dtype=np.int64)
        self._weights: Ints = np.empty(vocab_size, dtype=np.int64)
        self._ranking = _Ranking(vocab_size)

    def warm_up(self, dtype: torch.dtype) -> None:
        """Compile the loops for logits of that type now rather than in the first request."""
        narrow = SamplingParams(top_p=0.9, logprobs=1)
        biased = SamplingParams(logit_bias={0: 1.0})
        draws = [Draw(each, key=0) for each in (SamplingParams(), narrow, biased)]
        self.sample(torch.zeros(3, self._size, dtype=dtype), draws)
        scored = Draw(SamplingParams(), key=0, scored=[np.zeros(1, dtype=np.int32)])
        self.sample(torch.zeros(1, self._size, dtype=dtype), [scored])

    def _make_room(self, threads: int) -> None:
        """Allocate scratch memory; it is kept, as fresh pages cost more than the loops."""
        self._wide = np.empty((threads, self._size), dtype=np.float32)
        self._tops = np.empty((threads, len(self._everything)), dtype=np.int64)
        self._draws["wide"] = self._wide.ctypes.data
        self._draws["tops"] = self._tops.ctypes.data

    def sample(self, logits: Tensor, draws: Sequence[Draw | None]) -> StepResult:
        """See ``Sampler``."""
        assert len(logits) == len(draws), "one row of logits for each draw"
        scored = {i: draw.scored for i, draw in enumerate(draws) if draw and draw.scored}
        if scored:
            # First of all: penalties change float32 logits in place.
            scores = self._score(logits, scored)
            drawn = [draw if draw and is_drawn(draw) else None for draw in draws]
            tokens = [*self._draw(logits, drawn)]
            for index, found in scores.items():
                tokens[index] = replace(tokens[index], scores=found)
            return StepResult(tokens)
        return StepResult(self._draw(logits, draws))

    def _score(
        self, logits: Tensor, scored: Mapping[int, Sequence[NDArray[np.int32]]]
    ) -> dict[int, tuple[float, ...]]:
        """By row of ``scored``, the log-probabilities of its sets."""
        flat = [each for sets in scored.values() for each in sets]
        counts: Ints = np.cumsum([len(sets) for sets in scored.values()])
        out = np.empty(len(flat))
        with spreading(len(scored) > 1) as threads:
            _share(
                kernels.score_row, self._sets, logits, len(scored), threads > 1,
                rows=np.array([*scored]), sets=counts, count=len(scored), out=out,
                ids=np.concatenate(flat, dtype=np.int64),
                ends=np.cumsum([len(each) for each in flat]),
            )  # fmt: skip
        parts = np.split(out, counts[:-1])
        return {row: tuple(part.tolist()) for row, part in zip(scored, parts, strict=True)}

    def _draw(self, logits: Tensor, draws: Sequence[Draw | None]) -> list[SampledToken]:
        tokens = [NOT_DRAWN] * len(draws)
        plain = {i: draw for i, draw in enumerate(draws) if draw and _is_plain(draw.params)}
        if plain:
            ids = self._draw_plain(
                logits if len(plain) == len(draws) else logits[[*plain]], [*plain.values()]
            )
            for index, token in zip(plain, ids, strict=True):
                tokens[index] = SampledToken(token)
        for index, draw in enumerate(draws):
            if draw is not None and index not in plain:
                values: Floats = logits[index].float().numpy()
                # A copy: the loops are compiled for masks that may be written.
                tokens[index] = self._draw_one(values, draw, self._mask(draw).copy())
        return tokens

    def _mask(self, draw: Draw) -> Mask:
        return self._everything if draw.mask is None else draw.mask

    def _draw_plain(self, logits: Tensor, draws: Sequence[Draw]) -> list[int]:
        masks: Bits = np.stack([self._mask(draw) for draw in draws])
        assert masks.shape[1] == len(self._everything)
        out: Ints = np.empty(len(draws), dtype=np.int64)
        much = len(draws) > 1 and int(np.count_nonzero(masks)) > _SPREAD_WORDS
        with spreading(much) as threads:
            if threads > len(self._tops):
                self._make_room(threads)
            _share(
                kernels.draw_rows, self._draws, logits, threads, threads > 1,
                masks=masks, rows=len(draws), threads=threads,
                sharpness=np.array([sharpness(draw.params) for draw in draws]),
                keys=np.array([draw.key for draw in draws], dtype=np.uint64), out=out,
            )  # fmt: skip
        if out.min() < 0:
            raise ValueError("a mask allows no token")
        tokens: list[int] = out.tolist()
        return tokens

    def _draw_one(self, logits: Floats, draw: Draw, mask: Mask) -> SampledToken:
        params, key = draw.params, np.uint64(draw.key)
        repeated = repeated_tokens(draw)
        if len(repeated):
            value = logits[repeated]
            penalty = np.float32(draw.params.repetition_penalty)
            logits[repeated] = np.where(value > 0, value / penalty, value * penalty)
        for tokens, amounts in offsets(draw):
            logits[tokens] += amounts.astype(np.float32)
        if is_filtered(params) and params.temperature > 0.0:
            token = self._draw_among_likeliest(logits, mask, params, key)
        else:
            tops = self._tops[0]
            token = kernels.draw(logits, mask, self._size, sharpness(params), key, tops)
        if token < 0:
            raise ValueError("a mask allows no token")
        if params.logprobs is None:
            return SampledToken(token_id=token)
        ids = self._allowed(logits, mask)
        values = logits[ids] + np.float32(0.0)
        top = self._ranking.greatest(values, params.logprobs)
        logprobs = values.astype(np.float64) - float(values.max())
        logprobs -= math.log(np.exp(logprobs).sum())
        return SampledToken(
            token_id=token,
            logprob=float(logprobs[np.searchsorted(ids, token)]),
            top=tuple(TokenLogprob(int(ids[i]), float(logprobs[i])) for i in top),
        )

    def _draw_among_likeliest(
        self, logits: Floats, mask: Mask, params: SamplingParams, key: np.uint64
    ) -> int:
        """As ``kernels.draw``, but among the tokens that the filters leave."""
        ceiling = kernels.highest(logits, mask, self._size, self._tops[0])
        best = kernels.first_at(logits, mask, self._size, ceiling)
        sharp = sharpness(params)
        if best < 0 or not (math.isfinite(ceiling) and math.isfinite(sharp)):  # as in kernels.draw
            return best
        total = 0
        if params.top_p < 1.0 and not params.top_k:
            total = kernels.weigh_all(logits, mask, self._size, ceiling, sharp)
        ids = self._allowed(logits, mask, self._least(params, ceiling, sharp, total))
        values = logits[ids] + np.float32(0.0)  # so that -0.0 ranks as 0.0 does
        weights = self._weights[: len(ids)]
        kernels.weigh(values, ceiling, sharp, weights)
        kept = self._ranking.keep(values, weights, total, params)
        return kernels.race_among(ids[kept], weights[kept], key)

    def _least(self, params: SamplingParams, ceiling: float, sharp: float, total: int) -> np.int32:
        """A logit below which the first filter keeps no token, as ``kernels.ordered`` bits.

        ``total``: of all weights, for top_p. It is two units in the last place lower than computed,
        as numbers are rounded, and -0.0 is as great as 0.0.
        """
        tops = self._tops[0]
        if params.top_k > len(tops):
            return kernels.LEAST_KEY
        if params.top_k:  # ``top_k`` words have a token at least as great
            key = int(np.partition(tops, -params.top_k)[-params.top_k])
        else:
            fraction = params.min_p
            if params.top_p < 1.0:  # all tokens of less weight do not add up to 1 - top_p
                fraction = (1.0 - params.top_p) * total / self._size / (1 << WEIGHT_BITS)
            least = np.float32(ceiling + math.log2(0.999 * fraction) / sharp)
            key = int(kernels.ordered(least.view(np.int32)))
        return np.int32(max(key - 2, int(kernels.LEAST_KEY)))

    def _allowed(self, logits: Floats, mask: Mask, least: np.int32 = kernels.LEAST_KEY) -> Ints:
        count = kernels.allowed_ids(logits, mask, self._size, self._tops[0], least, self._ids)
        return self._ids[:count]


def _share(
    function: Callable[[Any], int],
    call: NDArray[Any],
    logits: Tensor,
    items: int,
    parallel: bool,
    **fields: NDArray[Any] | int,
) -> None:
    """Run the items of a record with these fields; arrays are passed by address."""
    assert logits.stride(1) == 1, "the numbers of a row of logits lie together"
    call["logits"], call["pitch"] = logits.data_ptr(), logits.stride(0) * logits.itemsize
    for name, value in fields.items():
        call[name] = value if isinstance(value, int) else value.ctypes.data
    share(function(NUMBERS[logits.dtype]), call.ctypes.data, items, parallel)


def _is_plain(params: SamplingParams) -> bool:
    """Whether a draw depends on the row's logits, mask, temperature and key alone."""
    return not (is_filtered(params) or params.logprobs is not None or is_changed(params))


class _Ranking:
    """Finds the greatest of many values without sorting all of them.

    A pass over the values finds the bucket in which the last one wanted lies; only that bucket
    is sorted. Equal values rank by position.
    """

    def __init__(self, size: int) -> None:
        self._scratch: Ints = np.empty((2, kernels.BUCKETS), dtype=np.int64)
        self._above: Ints = np.empty(size, dtype=np.int64)
        self._within: Ints = np.empty(size, dtype=np.int64)
        self._zeros: Ints = np.zeros(size, dtype=np.int64)

    def keep(self, values: Floats, weights: Ints, total: int, params: SamplingParams) -> Ints:
        """Positions that top_k, then top_p, then min_p leave, in ascending order; at least one.

        ``weights`` are those of ``values``, and ``total`` the sum of all that top_p counts, unless
        top_k comes first.
        """
        kept: Ints = np.arange(len(values))
        if params.top_k:
            if params.top_k < len(values):
                kept = np.sort(self.greatest(values, params.top_k))
            total = int(weights[kept].sum())
        if params.top_p < 1.0:
            needed = max(1, math.ceil(params.top_p * total))
            kept = kept[self._heaviest(values[kept], weights[kept], needed)]
        if params.min_p > 0.0:
            left = weights[kept]
            kept = kept[left >= params.min_p * left.max()]
        return kept

    def greatest(self, values: Floats, count: int) -> Ints:
        """Positions of the ``count`` greatest values, the greatest first."""
        if count == 0:
            return self._above[:0]
        above, within = self._split(values, self._zeros[: len(values)], count, 1)
        found = np.concatenate([above, within])
        return found[np.argsort(-values[found], kind="stable")][:count]

    def _heaviest(self, values: Floats, weights: Ints, needed: int) -> Ints:
        """Positions of the greatest values that together weigh ``needed``, in ascending order.

        They are as few as can be, and at least one.
        """
        above, within = self._split(values, weights, len(values), needed)
        sums = np.cumsum(weights[within]) + weights[above].sum()
        last = int(np.searchsorted(sums, needed)) + 1
        return np.sort(np.concatenate([above, within[:last]]), kind="stable")  # nearly sorted

    def _split(self, values: Floats, weights: Ints, most: int, needed: int) -> tuple[Ints, Ints]:
        """Positions to keep, ascending, and ranked positions of which the first ones are kept."""
        if len(values) <= _SORTED_WHOLE:
            return self._above[:0], np.argsort(-values, kind="stable")
        edge = kernels.boundary(values, weights, most, needed, self._scratch)
        n_above, n_within = kernels.split(values, edge, self._above, self._within)
        within = self._within[:n_within]
        return self._above[:n_above], within[np.argsort(-values[within], kind="stable")]
