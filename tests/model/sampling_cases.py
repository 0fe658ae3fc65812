"""Rows of logits and sampling parameters, for the tests of both samplers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from app.core.constraint import Mask
from app.core.request import SamplingParams
from app.core.step import Draw, SampledToken
from app.model.sampling import Sampler

VOCAB = 75
WIDTH = 80
"""Width of a row: the vocabulary and padding, which has the highest logits in these tests."""

ANSWER = (9, 70, 9, 9, 12)

CASES = {
    "plain": SamplingParams(),
    "greedy": SamplingParams(temperature=0.0),
    "cool": SamplingParams(temperature=0.3),
    "hot": SamplingParams(temperature=3.0),
    "top_k": SamplingParams(top_k=5),
    "top_k of one": SamplingParams(top_k=1),
    "top_k of more than there are": SamplingParams(top_k=1000),
    "top_p": SamplingParams(top_p=0.6),
    "top_p of nothing": SamplingParams(top_p=0.0),
    "min_p": SamplingParams(min_p=0.2),
    "all three": SamplingParams(temperature=1.5, top_k=20, top_p=0.8, min_p=0.05),
    "repetition": SamplingParams(repetition_penalty=1.7),
    "frequency": SamplingParams(frequency_penalty=0.9),
    "presence": SamplingParams(presence_penalty=-1.1),
    "all penalties, greedy": SamplingParams(
        temperature=0.0, repetition_penalty=0.5, frequency_penalty=-0.4, presence_penalty=0.3
    ),
    "bias": SamplingParams(logit_bias={9: 6.0, 70: -100.0}),
    "bias and a penalty on one token": SamplingParams(
        logit_bias={9: 2.0}, presence_penalty=1.0, temperature=0.5
    ),
}


def random_logits(seed: int, rows: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, WIDTH, generator=generator) * 2
    logits[:, VOCAB:] = 50.0
    return logits


def row_of(params: SamplingParams, key: int) -> Draw:
    prompt_tokens = None if params.repetition_penalty == 1.0 else np.array([3, 9])
    answer = ANSWER if params.has_penalties else ()
    return Draw(params, key, answer=answer, prompt_tokens=prompt_tokens)


def sample_one(
    sampler: Sampler, logits: torch.Tensor, row: Draw, mask: Mask | None
) -> SampledToken:
    [token] = sampler.sample(logits.clone(), [replace(row, mask=mask)]).wait().tokens
    return token
