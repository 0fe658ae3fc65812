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
from torch.nn import functional

from app.core.constraint import Mask
from app.core.step import SampledToken, SampleRow, TokenLogprob
from app.model.cpu.kernels.sampling import (
    FIRST_TOKEN,
    SPLITMIX_FIRST,
    SPLITMIX_SECOND,
    SPLITMIX_STEP,
    WEIGHT_BITS,
)
from app.model.cpu.sampling import full_mask
from app.model.cuda.mask_table import MaskTable

_LOG2_E = 1.0 / math.log(2.0)
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

    def sample(
        self, logits: torch.Tensor, rows: Sequence[SampleRow], masks: Sequence[Mask | None]
    ) -> list[SampledToken]:
        """One token for each row of ``logits`` [R, width].

        Raises ``ValueError`` where a mask allows no token.
        """
        assert len(logits) == len(rows) == len(masks), "one mask and one row of logits each"
        values = logits[:, : self._size].to(torch.float32, copy=True)
        self._adjust(values, rows)
        allowed = self._unpack(masks)
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

    def _draw(
        self,
        values: torch.Tensor,
        ceiling: torch.Tensor,
        best: torch.Tensor,
        rows: Sequence[SampleRow],
    ) -> torch.Tensor:
        sharpness = self._upload(np.array([[_LOG2_E / row.params.temperature] for row in rows]))
        keys = self._upload(np.array([[row.key] for row in rows], dtype=np.uint64).view(np.int64))
        powers = (values.double() - ceiling.double()) * sharpness
        weights = torch.exp2(powers.nan_to_num(nan=-math.inf) + WEIGHT_BITS).long()

        narrowed = [
            i
            for i, row in enumerate(rows)
            if row.params.top_k > 0 or row.params.top_p < 1.0 or row.params.min_p > 0.0
        ]
        if narrowed:
            at = self._upload(np.array(narrowed))
            weights[at] = self._keep_likeliest(values[at], weights[at], [rows[i] for i in narrowed])
        padded = functional.pad(weights, (0, self._words * 32 - self._size))
        by_word = padded.view(len(rows), self._words, 32)
        totals = by_word.sum(2)
        word = _race(keys + self._word_states, totals)
        each = torch.arange(len(rows), device=self._device)
        token = word * 32 + _race(keys + self._token_states[word], by_word[each, word])
        return torch.where((totals > 0).any(1), token, best)

    def _keep_likeliest(
        self, values: torch.Tensor, weights: torch.Tensor, rows: Sequence[SampleRow]
    ) -> torch.Tensor:
        """Weights with those outside top_k, then top_p, then min_p set to zero."""
        host = np.array(
            [
                (
                    row.params.top_k or self._size,
                    math.inf if row.params.top_p >= 1.0 else row.params.top_p,
                    row.params.min_p,
                )
                for row in rows
            ]
        )
        top_k, top_p, min_p = self._upload(host).unsqueeze(2).unbind(1)
        order = values.sort(dim=1, descending=True, stable=True).indices
        ranked = weights.gather(1, order)
        ranked.masked_fill_(self._ids >= top_k, 0)
        sums = ranked.cumsum(1)
        heavier = sums - ranked
        kept = (heavier < top_p * sums[:, -1:].double()) | (self._ids == 0)
        kept &= ranked >= min_p * ranked[:, :1].double()
        return torch.zeros_like(weights).scatter_(1, order, ranked * kept)

    def _with_logprobs(
        self, ids: list[int], values: torch.Tensor, rows: Sequence[SampleRow]
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
        ranked_values, ranked_ids = ranked.values[:, :most].cpu(), ranked.indices[:, :most].cpu()
        for place, (i, logprob) in enumerate(zip(asking, own[:, 0].tolist(), strict=True)):
            count = rows[i].params.logprobs or 0
            pairs = zip(
                ranked_ids[place, :count].tolist(),
                ranked_values[place, :count].tolist(),
                strict=True,
            )
            tokens[i] = SampledToken(
                token_id=ids[i],
                logprob=logprob,
                top=tuple(TokenLogprob(t, v) for t, v in pairs if v > -math.inf),
            )
        return tokens

    def _adjust(self, values: torch.Tensor, rows: Sequence[SampleRow]) -> None:
        """Apply penalties and logit bias to all rows, in place."""
        flat = values.view(-1)
        factors = _Edits()
        offsets = _Edits()
        for index, row in enumerate(rows):
            params, first = row.params, index * self._size
            if params.has_penalties and len(row.history):
                history = np.asarray(row.history, dtype=np.int64)
                if params.repetition_penalty != 1.0:
                    seen = np.unique(history)
                    factors.add(first + seen, np.full(len(seen), params.repetition_penalty))
                answered, counts = np.unique(history[row.answer_start :], return_counts=True)
                offsets.add(
                    first + answered,
                    -(params.frequency_penalty * counts + params.presence_penalty),
                )
            if params.logit_bias:
                biased = np.fromiter(params.logit_bias.keys(), dtype=np.int64)
                offsets.add(
                    first + biased, np.fromiter(params.logit_bias.values(), dtype=np.float64)
                )
        if factors:
            at, by = self._upload(factors.places), self._upload(factors.amounts)
            old = flat[at]
            flat[at] = torch.where(old > 0, old / by, old * by).float()
        if offsets:
            at, by = self._upload(offsets.places), self._upload(offsets.amounts)
            flat.index_put_((at,), by.float(), accumulate=True)

    def _unpack(self, masks: Sequence[Mask | None]) -> torch.Tensor:
        """Packed masks on the host -> booleans [R, V] on the device."""
        words = self._table.gather([self._everything if mask is None else mask for mask in masks])
        bits = (words.unsqueeze(2) >> self._shifts) & 1
        return bits.view(len(masks), -1)[:, : self._size].bool()

    def _first(self, chosen: torch.Tensor) -> torch.Tensor:
        """Lowest token id chosen in each row; V where there is none."""
        return torch.where(chosen, self._ids, self._size).amin(1)

    def _upload(self, values: NDArray[np.generic]) -> torch.Tensor:
        host = torch.from_numpy(values)
        return host if self._device.type == "cpu" else host.to(self._device, non_blocking=True)


def _states(first: int, count: int, device: torch.device) -> torch.Tensor:
    """What a stream's key grows by up to each of ``count`` places; see ``kernels.uniform``."""
    places = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    return torch.from_numpy((places * SPLITMIX_STEP).view(np.int64)).to(device)


def _race(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
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


class _Edits:
    """Places in the flat logits and what happens to them."""

    def __init__(self) -> None:
        self._places: list[NDArray[np.int64]] = []
        self._amounts: list[NDArray[np.floating]] = []

    def add(self, places: NDArray[np.int64], amounts: NDArray[np.floating]) -> None:
        self._places.append(places)
        self._amounts.append(amounts)

    def __bool__(self) -> bool:
        return bool(self._places)

    @property
    def places(self) -> NDArray[np.int64]:
        return np.concatenate(self._places)

    @property
    def amounts(self) -> NDArray[np.floating]:
        return np.concatenate(self._amounts)
