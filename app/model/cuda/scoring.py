"""Sets of tokens to be scored, as numbers for the device's sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.core.step import Draw
from app.model.cuda.kernels import sampling as kernels
from app.model.inputs import Ints


@dataclass(frozen=True, slots=True)
class Scoring:
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


def lay_out_sets(
    add: Callable[[Ints], int], draws: Sequence[tuple[int, Draw]], slot: int, scores_at: int
) -> Scoring:
    """``add`` uploads numbers and returns their offset; ``slot``: a mask that allows all tokens."""
    jobs = np.zeros((kernels.JOB_FIELDS, len(draws)), dtype=np.int64)
    jobs[kernels.ROW] = jobs[kernels.OUT] = [row for row, _ in draws]
    jobs[kernels.MASK] = slot
    counts = [len(draw.scored) for _, draw in draws]
    flat = [ids for _, draw in draws for ids in draw.scored]
    lengths = np.array([*map(len, flat)], dtype=np.int64)
    ends = add(np.concatenate(flat, dtype=np.int64)) + np.cumsum(lengths)
    sets = np.zeros((kernels.SET_FIELDS, len(flat)), dtype=np.int64)
    sets[kernels.JOB_OF_SET] = np.repeat(np.arange(len(draws)), counts)
    sets[kernels.BEGIN] = ends - lengths
    sets[kernels.END] = ends
    return Scoring(
        rows=[(row, count) for (row, _), count in zip(draws, counts, strict=True)],
        jobs_at=add(jobs),
        asking_at=add(np.arange(len(draws))),
        sets_at=add(sets),
        sets=len(flat),
        scores_at=scores_at,
    )
