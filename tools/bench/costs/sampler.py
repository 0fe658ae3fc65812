"""Cost of drawing a token from each row of logits, without a model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from app.core.constraint import Mask, full_mask
from app.core.request import SamplingParams
from app.core.step import Draw
from app.model.cpu.sampling import CpuSampler
from loadtest.tables import table

COLUMNS = ("sampler", "nearly all tokens allowed, ms", "few tokens allowed, ms")
ROWS = 32
VOCABULARY = 128_256
"""Vocabulary size of Llama 3.2."""
PARAMS = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature 1": SamplingParams(),
    "temperature 1, top_p 0.95": SamplingParams(top_p=0.95),
}


def nearly_all(vocabulary: int) -> Mask:
    """Mask as inside a string: all but every hundredth token."""
    mask = full_mask(vocabulary)
    for token in range(0, vocabulary, 100):
        mask[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
    return mask


def few(vocabulary: int) -> Mask:
    """Mask as before a digit: ten adjacent tokens."""
    mask = np.zeros_like(full_mask(vocabulary))
    mask[16 // 32] = 0x3FF << 16
    return mask


def sampler_table(times: int, threads: int | None, vocabulary: int = VOCABULARY) -> str:
    """Medians of ``times`` calls, in milliseconds; processor time if ``threads`` is 1."""
    if threads is not None:
        torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    sampler = CpuSampler(vocabulary)
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(ROWS, vocabulary, generator=generator)
    masks = nearly_all(vocabulary), few(vocabulary)
    rows = []
    for name, params in PARAMS.items():
        found = (statistics.median(_times(sampler, logits, params, m, times, clock)) for m in masks)
        rows.append([name, *(f"{1e3 * seconds:.2f}" for seconds in found)])
    return f"{ROWS} rows, {vocabulary:,} tokens\n\n{table(COLUMNS, rows)}"


def _times(
    sampler: CpuSampler,
    logits: torch.Tensor,
    params: SamplingParams,
    mask: Mask,
    times: int,
    clock: Callable[[], float],
) -> list[float]:
    found = []
    for number in range(times + 1):
        draws = [Draw(params, number * ROWS + row, mask) for row in range(ROWS)]
        drawn_from = logits.clone()  # sampling may change it
        start = clock()
        sampler.sample(drawn_from, draws)
        found.append(clock() - start)
    return found[1:]  # the first may compile
