"""Log-probabilities of the rows of a runner's steps, and those of a plain model."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from app.core.request import SamplingParams
from app.core.step import Draw, SampledToken, Span
from app.model.runner import TorchRunner
from tests.model.tiny import VOCAB, PagedSequence
from tests.steps import planned

EVERY_LOGPROB = SamplingParams(temperature=0.0, logprobs=VOCAB)

Row = NDArray[np.float64]
"""Log-probabilities [V] at a position."""


def drawn_rows(
    runner: TorchRunner, spans: Sequence[Span], rows: Sequence[tuple[int, int]]
) -> Sequence[SampledToken]:
    """Run a step of spans; ``rows`` are those wanted, as pairs of span number and token index."""
    runner.launch(planned(spans, rows))
    return runner.sample([Draw(EVERY_LOGPROB, 0)] * len(rows)).wait().tokens


def row_logprobs(
    runner: TorchRunner, spans: Sequence[Span], rows: Sequence[tuple[int, int]]
) -> list[Row]:
    """The log-probabilities of all tokens in ``drawn_rows``."""
    found = np.empty((len(rows), VOCAB))
    for row, token in zip(found, drawn_rows(runner, spans, rows), strict=True):
        for entry in token.top:
            row[entry.token_id] = entry.logprob
    return list(found)


@torch.inference_mode()
def expected_logprobs(model: PreTrainedModel, tokens: list[int]) -> NDArray[np.float64]:
    """Log-probabilities [tokens, V] by the model's own forward pass over the whole text."""
    logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    found: NDArray[np.float64] = logits.double().log_softmax(-1).numpy()
    return found


def run_randomly(
    runner: TorchRunner,
    sequences: Sequence[PagedSequence],
    dice: random.Random,
    *,
    share: float = 0.4,
) -> list[dict[int, Row]]:
    """Compute every sequence in random chunks and random batches.

    Returns, for each sequence, ``share`` of its rows by position.
    """
    found: list[dict[int, Row]] = [{} for _ in sequences]
    while any(s.computed < len(s.tokens) for s in sequences):
        spans: list[Span] = []
        rows: list[tuple[int, int]] = []
        places: list[tuple[int, int]] = []
        for index, sequence in enumerate(sequences):
            left = len(sequence.tokens) - sequence.computed
            if left == 0 or dice.random() < 0.3:
                continue
            length = min(left, dice.choice([1, 1, 2, 5, 20]))
            start = sequence.computed
            for offset in range(length):
                if dice.random() < share:
                    rows.append((len(spans), offset))
                    places.append((index, start + offset))
            spans.append(sequence.span(length, runner.block_size))
        if spans:
            for (index, at), row in zip(places, row_logprobs(runner, spans, rows), strict=True):
                found[index][at] = row
    return found


def random_sequences(
    runner: TorchRunner, lengths: Sequence[int], dice: random.Random
) -> list[PagedSequence]:
    """Sequences of random texts on blocks in random order."""
    pool = list(range(runner.cache_groups[-1].num_blocks))
    dice.shuffle(pool)
    groups = len(runner.cache_groups)
    return [
        PagedSequence([dice.randrange(VOCAB) for _ in range(length)], pool, groups=groups)
        for length in lengths
    ]
