"""Drawing one token from each row of logits, on the device that computed them.

The same rules as ``CpuSampler`` in whole-batch tensor operations: weights are integers and add
up exactly in whatever order the device chooses, and the same race decides, so here too a draw
depends on its own row alone. The only wait for the device is the copy of what was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from app.core.constraint import Mask
from app.core.step import NOT_DRAWN, Draw, SampledToken, StepResult, TokenLogprob
from app.model.cpu.kernels.sampling import (
    FIRST_TOKEN,
    SPLITMIX_FIRST,
    SPLITMIX_SECOND,
    SPLITMIX_STEP,
    WEIGHT_BITS,
)
from app.model.cuda.mask_table import MaskTable
from app.model.inputs import Ints
from app.model.sampling import LOG2_E, full_mask, is_filtered, offsets, repeated_tokens

_FIRST, _SECOND = (int(factor.view(np.int64)) for factor in (SPLITMIX_FIRST, SPLITMIX_SECOND))


class DeviceSampler:
    """Samples whole batches with tensor operations; R rows, V token ids."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._size = vocab_size
        self._device = device
        self._everything = full_mask(vocab_size)
        self._everything.flags.writeable = False
        self._table = MaskTable(len(self._everything), device)
        self._ids = torch.arange(vocab_size, device=device)
        self._shifts = torch.arange(32, device=device, dtype=torch.int32)
        self._words = len(self._everything)
        self._word_states = _states(0, self._words, device)
        self._token_states = _states(int(FIRST_TOKEN), self._words * 32, device).view(-1, 32)

    def sample(self, logits: Tensor, draws: Sequence[Draw | None]) -> StepResult:
        """See ``Sampler``."""
        assert len(logits) == len(draws), "one row of logits for each draw"
        wanted = {i: draw for i, draw in enumerate(draws) if draw is not None}
        tokens = [NOT_DRAWN] * len(draws)
        if wanted:
            rows = (
                logits if len(wanted) == len(draws) else logits[self._upload(np.array([*wanted]))]
            )
            for index, token in zip(wanted, self._sample(rows, [*wanted.values()]), strict=True):
                tokens[index] = token
        return StepResult(tokens)

    def _sample(self, logits: Tensor, rows: Sequence[Draw]) -> list[SampledToken]:
        values = logits[:, : self._size].to(torch.float32, copy=True)
        self._adjust(values, rows)
        allowed = self._unpack([row.mask for row in rows])
        values.masked_fill_(~allowed, -math.inf)
        ceiling = values.amax(1, keepdim=True)
        best = self._first(allowed & (values == ceiling))
        best = torch.where(best < self._size, best, self._first(allowed))

        tokens = best.clone()
        drawn = [i for i, row in enumerate(rows) if row.params.temperature > 0.0]
        if drawn:
            at = self._upload(np.array(drawn))
            tokens[at] = self._draw(values[at], ceiling[at], best[at], [rows[i] for i in drawn])
        ids: list[int] = tokens.tolist()
        if max(ids) >= self._size:
            raise ValueError("a mask allows no token")
        return self._with_logprobs(ids, values, rows)

    def _draw(self, values: Tensor, ceiling: Tensor, best: Tensor, rows: Sequence[Draw]) -> Tensor:
        sharpness = self._upload(np.array([[LOG2_E / row.params.temperature] for row in rows]))
        keys = self._upload(np.array([[row.key] for row in rows], dtype=np.uint64).view(np.int64))
        powers = (values.double() - ceiling.double()) * sharpness
        weights = torch.exp2(powers.nan_to_num(nan=-math.inf) + WEIGHT_BITS).long()

        filtered = [i for i, row in enumerate(rows) if is_filtered(row.params)]
        if filtered:
            at = self._upload(np.array(filtered))
            weights[at] = self._keep_likeliest(values[at], weights[at], [rows[i] for i in filtered])
        padded = functional.pad(weights, (0, self._words * 32 - self._size))
        by_word = padded.view(len(rows), self._words, 32)
        totals = by_word.sum(2)
        word = _race(keys + self._word_states, totals)
        each = torch.arange(len(rows), device=self._device)
        token = word * 32 + _race(keys + self._token_states[word], by_word[each, word])
        return torch.where((totals > 0).any(1), token, best)

    def _keep_likeliest(self, values: Tensor, weights: Tensor, rows: Sequence[Draw]) -> Tensor:
        """Weights with those outside top_k, then top_p, then min_p set to zero."""
        limits = [
            (p.top_k or self._size, p.top_p if p.top_p < 1.0 else math.inf, p.min_p)
            for p in [row.params for row in rows]
        ]
        top_k, top_p, min_p = self._upload(np.array(limits)).unsqueeze(2).unbind(1)
        order = values.sort(dim=1, descending=True, stable=True).indices
        ranked = weights.gather(1, order)
        ranked.masked_fill_(self._ids >= top_k, 0)
        sums = ranked.cumsum(1)
        heavier = sums - ranked
        kept = (heavier < top_p * sums[:, -1:].double()) | (self._ids == 0)
        kept &= ranked >= min_p * ranked[:, :1].double()
        return torch.zeros_like(weights).scatter_(1, order, ranked * kept)

    def _with_logprobs(
        self, ids: list[int], values: Tensor, rows: Sequence[Draw]
    ) -> list[SampledToken]:
        tokens = [SampledToken(token_id=token) for token in ids]
        asking = [i for i, row in enumerate(rows) if row.params.logprobs is not None]
        if not asking:
            return tokens
        most = max(rows[i].params.logprobs or 0 for i in asking)
        at = self._upload(np.array(asking))
        logprobs = values[at].double().log_softmax(1)
        own = logprobs.gather(1, self._upload(np.array([[ids[i]] for i in asking])))
        ranked = logprobs.sort(dim=1, descending=True, stable=True)
        best, theirs = ranked.indices[:, :most].tolist(), ranked.values[:, :most].tolist()
        for i, logprob, *pairs in zip(asking, own[:, 0].tolist(), best, theirs, strict=True):
            top = [TokenLogprob(t, v) for t, v in zip(*pairs, strict=True) if v > -math.inf]
            tokens[i] = SampledToken(ids[i], logprob, tuple(top[: rows[i].params.logprobs]))
        return tokens

    def _adjust(self, values: Tensor, rows: Sequence[Draw]) -> None:
        """Apply penalties and logit bias to all rows, in place."""
        flat = values.view(-1)
        repeated, added = [], []
        for first, row in zip(range(0, len(flat), self._size), rows, strict=True):
            tokens = repeated_tokens(row)
            if len(tokens):
                penalties = np.full(len(tokens), row.params.repetition_penalty)
                repeated.append((first + tokens, penalties))
            added += [(first + tokens, amounts) for tokens, amounts in offsets(row)]
        if repeated:
            at, by = self._upload_pairs(repeated)
            old = flat[at]
            flat[at] = torch.where(old > 0, old / by, old * by).float()
        if added:
            at, by = self._upload_pairs(added)
            flat.index_put_((at,), by.float(), accumulate=True)

    def _upload_pairs(self, pairs: Sequence[tuple[Ints, NDArray[np.float64]]]) -> list[Tensor]:
        """Places in the flat logits and an amount for each, one after the other."""
        return [self._upload(np.concatenate(part)) for part in zip(*pairs, strict=True)]

    def _unpack(self, masks: Sequence[Mask | None]) -> Tensor:
        """Packed masks on the host -> booleans [R, V] on the device."""
        words = self._table.gather([self._everything if mask is None else mask for mask in masks])
        bits = (words.unsqueeze(2) >> self._shifts) & 1
        return bits.view(len(masks), -1)[:, : self._size].bool()

    def _first(self, chosen: Tensor) -> Tensor:
        """Lowest token id chosen in each row; V where there is none."""
        return torch.where(chosen, self._ids, self._size).amin(1)

    def _upload(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)


def _states(first: int, count: int, device: torch.device) -> Tensor:
    """What a stream's key grows by up to each of ``count`` places; see ``kernels.uniform``."""
    places = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    return torch.from_numpy((places * SPLITMIX_STEP).view(np.int64)).to(device)


def _race(states: Tensor, weights: Tensor) -> Tensor:
    """Which of each row's weights [R, N] wins with the numbers of ``states``: [R].

    A weight of 0 never wins over a positive one. The numbers are those of ``kernels.uniform``;
    integers wrap around, and a right shift of theirs brings in copies of the sign, masked off.
    """
    z = (states ^ ((states >> 30) & ((1 << 34) - 1))) * _FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND
    z ^= (z >> 31) & ((1 << 33) - 1)
    numbers = ((z >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
    times = -torch.log1p(-numbers) / weights
    return times.masked_fill_(weights == 0, math.inf).argmin(1)
