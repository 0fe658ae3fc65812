"""Draws one token from each row of logits, on the device that computed them.

Same rules as ``CpuSampler``, with the kernels of ``kernels.sampling``. A call queues on the
current stream: one upload of numbers (a second one if masks are not yet on the device), three
kernels for plain rows and more for rows with filters, changes or logprobs, three for rows that
score sets of tokens, and one copy of the results to the host. Only ``DeviceDraws.wait`` waits, for
that copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.core.constraint import full_mask
from app.core.request import SamplingParams
from app.core.step import NOT_DRAWN, Draw, SampledToken, StepResult, TokenLogprob
from app.model.cuda.kernels import sampling as kernels
from app.model.cuda.mask_table import MaskTable
from app.model.inputs import Ints
from app.model.sampling import (
    is_changed,
    is_drawn,
    is_filtered,
    offsets,
    repeated_tokens,
    sharpness,
)

CHUNK_WORDS = 64
"""Mask words in a chunk: 2,048 tokens, 16 for each thread of four warps."""

_MOST_COPIED = 64
"""Rows of 16-bit logits copied to float32 at a time, to apply penalties and bias: 33 MB for Llama
3.2's 128,256 tokens."""

_DROPPED_BITS = {torch.float32: 0, torch.float16: 12, torch.bfloat16: 16}
"""Low bits of a float32 that carry no information for values of this type; whole digits."""

_BLOCK = 1024
_SET_BLOCK = 128
"""Tokens of a set read at a time."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Draws whose logits are in one tensor, and the offsets of their numbers in the upload."""

    draws: Sequence[tuple[int, Draw]]
    """Rows of the results, and the draws for them."""
    copied: bool
    """Whether the values are a float32 copy of these rows alone."""
    row_stride: int
    jobs_at: int
    filters_at: int
    changes_at: int
    changes: int
    asking_at: int
    filtered: Sequence[SamplingParams]
    asking: Sequence[tuple[int, int]]
    """Rows of the results with logprobs, and their number of alternatives."""
    reports_at: int
    """Offset of their logprobs in the results."""

    @property
    def most(self) -> int:
        """The maximum number of alternatives of a row; the kernels find as many for every row."""
        return max((alternatives for _, alternatives in self.asking), default=0)


@dataclass(frozen=True, slots=True)
class _Scoring:
    """Offsets of the sets' numbers in the upload, and of their log-probabilities in the results."""

    rows: Sequence[tuple[int, int]]
    """Rows of the results, and the number of sets of each."""
    jobs_at: int
    asking_at: int
    sets_at: int
    sets: int
    scores_at: int

    def read(self, results: Tensor) -> Iterator[tuple[int, tuple[float, ...]]]:
        """Each row and the log-probabilities of its sets."""
        scores = results[self.scores_at : self.scores_at + self.sets]
        floats = scores.view(torch.float64).tolist()
        place = 0
        for row, count in self.rows:
            yield row, tuple(floats[place : place + count])
            place += count


class DeviceDraws:
    """Draws queued by ``DeviceSampler.sample``; see ``PendingDraws``."""

    def __init__(
        self,
        draws: Sequence[Draw | None],
        results: Tensor,
        batches: Sequence[_Batch],
        scoring: _Scoring | None,
    ) -> None:
        rows = len(draws)
        self._draws = draws
        self._batches = batches
        self._scoring = scoring
        self.ids = results[:rows]
        """Drawn token ids on the device, int64 [R], for later work on the same stream; -1 for rows
        without a draw, and if a mask allows no token (``wait`` raises the error)."""
        self._done: Any = None
        self._results = results
        if results.is_cuda:
            self._results = torch.empty(results.shape, dtype=torch.int64, pin_memory=True)
            self._results.copy_(results, non_blocking=True)
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record()

    def wait(self) -> StepResult:
        """The drawn tokens. Raises ``ValueError`` if a mask allows none."""
        if self._done is not None:
            self._done.synchronize()
        tokens = [NOT_DRAWN] * len(self._draws)
        ids: list[int] = self._results[: len(tokens)].tolist()
        for row, draw in enumerate(self._draws):
            if draw is not None and is_drawn(draw):
                if ids[row] < 0:
                    raise ValueError("a mask allows no token")
                tokens[row] = SampledToken(ids[row])
        for batch in self._batches:
            self._read_logprobs(batch, tokens)
        if self._scoring is not None:
            for row, scores in self._scoring.read(self._results):
                tokens[row] = replace(tokens[row], scores=scores)
        return StepResult(tokens)

    def _read_logprobs(self, batch: _Batch, tokens: list[SampledToken]) -> None:
        size = 1 + 2 * batch.most
        end = batch.reports_at + size * len(batch.asking)
        reports = self._results[batch.reports_at : end].view(len(batch.asking), size)
        numbers = zip(
            batch.asking, reports.tolist(), reports.view(torch.float64).tolist(), strict=True
        )
        for (row, count), ids, floats in numbers:
            pairs = zip(
                ids[1 : 1 + count], floats[1 + batch.most : 1 + batch.most + count], strict=True
            )
            top = tuple(TokenLogprob(token, logprob) for token, logprob in pairs if token >= 0)
            tokens[row] = SampledToken(tokens[row].token_id, floats[0], top)


class DeviceSampler:
    """Samples whole batches with the device's kernels, for one thread and one stream.

    Memory on the device, besides the mask table and the copies of ``_MOST_COPIED`` rows: 20 bytes
    for each chunk of 2,048 tokens of a row (1.3 KB for 128,256 tokens), 2 KB more for a filtered
    row, and 10 KB more for one with 20 alternatives.
    """

    def __init__(
        self, vocab_size: int, device: torch.device, chunk_words: int = CHUNK_WORDS
    ) -> None:
        self._size = vocab_size
        self._device = device
        self._everything = full_mask(vocab_size)
        self._everything.flags.writeable = False
        self._words = len(self._everything)
        self._table = MaskTable(self._words, device)
        self._chunk_words = chunk_words
        self._chunks = -(-self._words // chunk_words)
        self._chunks_padded = max(2, 1 << (self._chunks - 1).bit_length())

    def warm_up(self, dtype: torch.dtype) -> None:
        """Compile all variants of the kernels for logits of type ``dtype``, of any row width."""
        everything = SamplingParams(top_k=2, top_p=0.9, logprobs=1, logit_bias={0: 1.0})
        filtered = SamplingParams(top_k=2, top_p=0.9, logprobs=1)
        whole = self._words * 32
        for width in (-(-whole // 16) * 16, whole + 1):
            logits = torch.zeros(1, width, dtype=dtype, device=self._device)
            for params in (SamplingParams(), filtered, everything):
                self.sample(logits, [Draw(params, key=0)]).wait()
            sets = [np.zeros(1, dtype=np.int32)]
            self.sample(logits, [Draw(SamplingParams(), key=0, scored=sets)]).wait()

    def sample(self, logits: Tensor, draws: Sequence[Draw | None]) -> DeviceDraws:
        """See ``Sampler``. Logits may have any row stride; 16-bit logits are not changed."""
        assert len(logits) == len(draws), "one row of logits for each draw"
        if logits.stride(1) != 1 or logits.data_ptr() % 16:
            logits = logits.clone(memory_format=torch.contiguous_format)
        numbers = _Numbers()
        given = [(row, draw) for row, draw in enumerate(draws) if draw is not None]
        wanted = [each for each in given if is_drawn(each[1])]
        scored = [each for each in given if each[1].scored]
        masks = [self._everything if draw.mask is None else draw.mask for _, draw in wanted]
        if scored:
            masks.append(self._everything)
        table, slots = self._table.place(masks)
        slot_of = {row: slot for (row, _), slot in zip(wanted, slots, strict=False)}
        batches: list[_Batch] = []
        end = len(draws)
        for copied, some in self._split(logits, wanted):
            batch = self._lay_out(numbers, logits, some, slot_of, copied, end)
            end += len(batch.asking) * (1 + 2 * batch.most)
            batches.append(batch)
        scoring = None
        if scored:
            scoring = _lay_out_sets(numbers, scored, slots[-1], end)
            end += scoring.sets
        results = torch.empty(end, dtype=torch.int64, device=self._device)
        if len(wanted) < len(draws):
            results[: len(draws)].fill_(-1)
        uploaded = numbers.upload(self._device)
        if scoring is not None:  # before the draws: penalties change float32 logits in place
            self._score(scoring, logits, table, uploaded, results)
        for batch in batches:
            self._run(batch, logits, table, uploaded, results)
        return DeviceDraws(draws, results, batches, scoring)

    def _score(
        self, scoring: _Scoring, logits: Tensor, table: Tensor, numbers: Tensor, results: Tensor
    ) -> None:
        """Queue the kernels that score sets of tokens, from the unchanged logits."""
        jobs, chunks = len(scoring.rows), self._chunks
        aligned = logits.stride(0) % 16 == 0 and self._words * 32 <= logits.shape[1]
        rows = (
            logits, logits.stride(0), table, self._words, self._size,
            numbers, scoring.jobs_at, jobs,
        )  # fmt: skip
        sizes = {"WORDS": self._chunk_words, "ALIGNED": aligned}
        padded = {"CHUNKS": self._chunks_padded}
        tops, sums = self._empty(jobs, chunks), self._empty(jobs, chunks, dtype=torch.float64)
        self._launch(kernels.highest, (jobs, chunks), *rows, tops, chunks, **sizes)
        self._launch(
            kernels.rank, (jobs, chunks),
            *rows, scoring.asking_at, tops, chunks, sums, tops, 0, **sizes, **padded,
        )  # fmt: skip
        self._launch(
            kernels.score, (scoring.sets,),
            logits, logits.stride(0), numbers, scoring.jobs_at, jobs, scoring.sets_at,
            scoring.sets, tops, chunks, sums, results, scoring.scores_at,
            **padded, TOKENS=_SET_BLOCK,
        )  # fmt: skip

    def _split(
        self, logits: Tensor, wanted: Sequence[tuple[int, Draw]]
    ) -> Sequence[tuple[bool, Sequence[tuple[int, Draw]]]]:
        """Batches of draws; True: they need float32 copies of their rows."""
        if logits.dtype == torch.float32:
            return [(False, wanted)] if wanted else []
        plain = [each for each in wanted if not is_changed(each[1].params)]
        changed = [each for each in wanted if is_changed(each[1].params)]
        slices = [changed[i : i + _MOST_COPIED] for i in range(0, len(changed), _MOST_COPIED)]
        return [(False, plain)] * bool(plain) + [(True, some) for some in slices]

    def _lay_out(
        self,
        numbers: _Numbers,
        logits: Tensor,
        draws: Sequence[tuple[int, Draw]],
        slot_of: dict[int, int],
        copied: bool,
        reports_at: int,
    ) -> _Batch:
        row_stride = self._words * 32 if copied else logits.stride(0)
        jobs = np.zeros((kernels.JOB_FIELDS, len(draws)), dtype=np.int64)
        filters: list[tuple[int, SamplingParams]] = []
        asking: list[int] = []
        changes: list[Ints] = []
        jobs[kernels.OUT] = [row for row, _ in draws]
        jobs[kernels.ROW] = range(len(draws)) if copied else jobs[kernels.OUT]
        jobs[kernels.MASK] = [slot_of[row] for row, _ in draws]
        jobs[kernels.KEY] = np.array([d.key for _, d in draws], dtype=np.uint64).view(np.int64)
        jobs[kernels.SHARPNESS] = _bits([sharpness(draw.params) for _, draw in draws])
        jobs[kernels.FILTER] = -1
        for job, (_, draw) in enumerate(draws):
            params = draw.params
            if params.temperature > 0.0 and is_filtered(params):
                jobs[kernels.FILTER, job] = len(filters)
                filters.append((job, params))
            if params.logprobs is not None:
                asking.append(job)
            if is_changed(params):
                changes.append(_changes(draw, int(jobs[kernels.ROW, job]) * row_stride, self._size))
        kept = np.zeros((kernels.FILTER_FIELDS, len(filters)), dtype=np.int64)
        kept[kernels.JOB] = [job for job, _ in filters]
        kept[kernels.TOP_K] = [params.top_k for _, params in filters]
        kept[kernels.TOP_P] = _bits([params.top_p for _, params in filters])
        kept[kernels.MIN_P] = _bits([params.min_p for _, params in filters])
        changed = np.concatenate(changes, axis=1) if changes else np.zeros((0, 0), dtype=np.int64)
        return _Batch(
            draws=draws,
            copied=copied,
            row_stride=row_stride,
            jobs_at=numbers.add(jobs),
            filters_at=numbers.add(kept),
            changes_at=numbers.add(changed),
            changes=changed.shape[1],
            asking_at=numbers.add(np.array(asking, dtype=np.int64)),
            filtered=[params for _, params in filters],
            asking=[(draws[job][0], draws[job][1].params.logprobs or 0) for job in asking],
            reports_at=reports_at,
        )

    def _run(
        self, batch: _Batch, logits: Tensor, table: Tensor, numbers: Tensor, results: Tensor
    ) -> None:
        """Queue a batch's kernels."""
        jobs, asking, chunks = len(batch.draws), len(batch.asking), self._chunks
        values = logits
        if batch.copied:
            values = self._empty(jobs, batch.row_stride, dtype=torch.float32)
            self._launch(
                kernels.widen, (jobs, -(-self._size // _BLOCK)), logits, logits.stride(0),
                numbers, batch.jobs_at, jobs, values, batch.row_stride, self._size, BLOCK=_BLOCK,
            )  # fmt: skip
        if batch.changes:
            self._launch(
                kernels.adjust, (-(-batch.changes // _BLOCK),),
                values, numbers, batch.changes_at, batch.changes, BLOCK=_BLOCK,
            )  # fmt: skip
        aligned = batch.row_stride % 16 == 0 and self._words * 32 <= values.shape[1]
        rows = (
            values, batch.row_stride, table, self._words, self._size,
            numbers, batch.jobs_at, jobs,
        )  # fmt: skip
        sizes = {"WORDS": self._chunk_words, "ALIGNED": aligned}
        padded = {"CHUNKS": self._chunks_padded}
        tops = self._empty(jobs, chunks)
        self._launch(kernels.highest, (jobs, chunks), *rows, tops, chunks, **sizes)
        sizes |= padded
        times = self._empty(jobs, chunks, dtype=torch.float64)
        tokens = self._empty(jobs, chunks, dtype=torch.int32)
        if any(draw.params.temperature > 0.0 for _, draw in batch.draws):
            dropped = _DROPPED_BITS[values.dtype]
            edges, ties = self._filter(batch, rows, tops, {**sizes, "DROPPED": dropped})
            self._launch(
                kernels.race, (jobs, chunks), *rows, batch.filters_at, len(batch.filtered),
                tops, chunks, edges, ties, times, tokens,
                **sizes, DROPPED=dropped, FILTERED=bool(batch.filtered),
            )  # fmt: skip
        self._launch(
            kernels.choose, (jobs,),
            numbers, batch.jobs_at, jobs, tops, chunks, times, tokens, results, **padded,
        )  # fmt: skip
        if asking:
            sums = self._empty(asking, chunks, dtype=torch.float64)
            greatest = self._empty(asking, chunks, batch.most)
            self._launch(
                kernels.rank, (asking, chunks),
                *rows, batch.asking_at, tops, chunks, sums, greatest, batch.most, **sizes,
            )  # fmt: skip
            self._launch(
                kernels.report, (asking,), values, batch.row_stride, numbers, batch.jobs_at, jobs,
                batch.asking_at, tops, chunks, sums, greatest, batch.most,
                results, batch.reports_at, **padded,
            )  # fmt: skip

    def _filter(
        self, batch: _Batch, rows: tuple[Any, ...], tops: Tensor, sizes: dict[str, int]
    ) -> tuple[Tensor, Tensor]:
        """Find the tokens that top_k and top_p keep; see ``kernels.mark_edge``."""
        filters = len(batch.filtered)
        if not filters:
            return tops, tops
        digits = (32 - sizes["DROPPED"]) // kernels.DIGIT_BITS
        counts, weights = torch.zeros(
            2, digits, filters, 1 << kernels.DIGIT_BITS, dtype=torch.int64, device=self._device
        )
        edges = self._empty(filters, 2)
        ties = self._empty(filters, self._chunks, dtype=torch.int32)
        grid = (filters, self._chunks)
        given = (*rows, batch.filters_at, filters, tops, self._chunks, counts, weights)
        by_count = any(params.top_k > 0 for params in batch.filtered)
        by_weight = any(params.top_p < 1.0 for params in batch.filtered)
        for needed, by in ((by_count, False), (by_weight, True)):
            for place in range(digits if needed else 0):
                self._launch(kernels.search, grid, *given, place, digits, **sizes, BY_WEIGHT=by)
        self._launch(kernels.mark_edge, grid, *given, digits, edges, ties, **sizes)
        return edges, ties

    def _launch(self, kernel: Any, grid: tuple[int, ...], *given: Any, **constants: Any) -> None:
        # Rounded as on the CPU: a product, then a sum.
        kernel[grid](*given, **constants, enable_fp_fusion=False)

    def _empty(self, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self._device)


class _Numbers:
    """Integers for the kernels, sent in one transfer."""

    def __init__(self) -> None:
        self._parts: list[Ints] = []
        self._size = 0

    def add(self, part: Ints) -> int:
        """Append ``part``; returns its offset."""
        start = self._size
        self._parts.append(part.reshape(-1))
        self._size += part.size
        return start

    def upload(self, device: torch.device) -> Tensor:
        # Pinned memory: torch reuses it only after copies from it are done.
        host = torch.empty(self._size, dtype=torch.int64, pin_memory=device.type == "cuda")
        if self._parts:
            np.concatenate(self._parts, out=host.numpy())
        return host.to(device, non_blocking=True)


def _bits(values: Sequence[float] | NDArray[np.float64]) -> Ints:
    return np.asarray(values, dtype=np.float64).view(np.int64)


def _changes(draw: Draw, first: int, size: int) -> Ints:
    """Changes of logits, one a token; see ``kernels.adjust``. ``first``: offset of the row."""
    repeated = repeated_tokens(draw)
    added = [*offsets(draw)]
    tokens = np.unique(np.concatenate([repeated, *(ids for ids, _ in added)]))
    assert not len(tokens) or (tokens[0] >= 0 and tokens[-1] < size), "token id out of range"
    changes = np.zeros((kernels.CHANGE_FIELDS, len(tokens)), dtype=np.int64)
    factors = np.ones(len(tokens))
    factors[np.searchsorted(tokens, repeated)] = draw.params.repetition_penalty
    changes[kernels.AT] = first + tokens
    changes[kernels.FACTOR] = _bits(factors)
    for field, (ids, amounts) in enumerate(added, kernels.FIRST_ADDED):
        changes[field, np.searchsorted(tokens, ids)] = _bits(amounts)
    return changes


def _lay_out_sets(
    numbers: _Numbers, draws: Sequence[tuple[int, Draw]], slot: int, scores_at: int
) -> _Scoring:
    """Adds the sets to ``numbers``; ``slot``: a mask that allows all tokens."""
    jobs = np.zeros((kernels.JOB_FIELDS, len(draws)), dtype=np.int64)
    jobs[kernels.ROW] = jobs[kernels.OUT] = [row for row, _ in draws]
    jobs[kernels.MASK] = slot
    counts = [len(draw.scored) for _, draw in draws]
    flat = [ids for _, draw in draws for ids in draw.scored]
    lengths = np.array([*map(len, flat)], dtype=np.int64)
    ends = numbers.add(np.concatenate(flat, dtype=np.int64)) + np.cumsum(lengths)
    sets = np.zeros((kernels.SET_FIELDS, len(flat)), dtype=np.int64)
    sets[kernels.JOB_OF_SET] = np.repeat(np.arange(len(draws)), counts)
    sets[kernels.BEGIN] = ends - lengths
    sets[kernels.END] = ends
    return _Scoring(
        rows=[(row, count) for (row, _), count in zip(draws, counts, strict=True)],
        jobs_at=numbers.add(jobs),
        asking_at=numbers.add(np.arange(len(draws))),
        sets_at=numbers.add(sets),
        sets=len(flat),
        scores_at=scores_at,
    )
