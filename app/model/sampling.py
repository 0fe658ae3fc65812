"""What the samplers of both devices share: their border, and the rules they read from a draw.

The order of operations is that of ``SamplingParams``. Randomness is a counter: a row's 64-bit
key gives every mask word and every token a number of its own, and with them they race (see
``cpu.kernels.sampling``). So a draw is a function of the row's logits, mask, parameters and key
alone, and hardly ever of the logits' last bits, which depend on who else is in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from app.core.constraint import Mask
from app.core.request import SamplingParams
from app.core.step import Draw, PendingDraws
from app.model.inputs import Ints

LOG2_E = 1.0 / math.log(2.0)


class Sampler(Protocol):
    def sample(self, logits: Tensor, draws: Sequence[Draw | None]) -> PendingDraws:
        """One token for each row of logits [R, width]; ``draws`` as in ``Runner.sample``.

        float32 logits may be changed in place. Raises ``ValueError`` where a mask allows no token.
        """


def full_mask(vocab_size: int) -> Mask:
    """The packed mask that allows every token id below ``vocab_size``."""
    mask = np.full(-(-vocab_size // 32), 0xFFFFFFFF, dtype=np.uint32)
    if vocab_size % 32:
        mask[-1] = (1 << vocab_size % 32) - 1
    return mask


def is_filtered(params: SamplingParams) -> bool:
    """Whether only the likeliest of the allowed tokens may be drawn."""
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def repeated_tokens(draw: Draw) -> Ints:
    """The tokens that the draw's repetition penalty falls on: those of prompt and answer.

    Source: Keskar et al., CTRL, 2019.
    """
    history = draw.history if draw.params.repetition_penalty != 1.0 else ()
    return np.unique(np.asarray(history, dtype=np.int64))


def offsets(draw: Draw) -> Iterator[tuple[Ints, NDArray[np.float64]]]:
    """What is added to the logits of which tokens: penalties, then logit bias.

    Frequency and presence penalty count the answer alone, as OpenAI defines them.
    """
    params = draw.params
    if params.has_penalties and len(draw.history):
        answer = np.asarray(draw.history[draw.answer_start :], dtype=np.int64)
        tokens, counts = np.unique(answer, return_counts=True)
        yield (
            tokens,
            -(params.frequency_penalty * counts.astype(np.float64) + params.presence_penalty),
        )
    if params.logit_bias:
        yield (
            np.fromiter(params.logit_bias.keys(), dtype=np.int64),
            np.fromiter(params.logit_bias.values(), dtype=np.float64),
        )
