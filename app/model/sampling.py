"""The protocol of samplers, and the rules of a draw that both devices share.

The order of operations is that of ``SamplingParams``. Randomness is a counter: a row's 64-bit
key gives every mask word and every token a number of its own, and with them they race (see
``cpu.kernels.sampling``). So a draw is a function of the row's logits, mask, parameters and key
alone. It hardly ever depends on the logits' last bits, which other rows of the batch can change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.core.request import SamplingParams
from app.core.step import Draw, StepResult
from app.model.inputs import NO_INTS, Ints

if TYPE_CHECKING:
    from app.model.cuda.sampling import DeviceDraws

LOG2_E = 1.0 / math.log(2.0)

WEIGHT_BITS = 44
"""Bits of a token's weight: the sum over 2 ** 18 tokens fits in 63 bits."""

FIRST_TOKEN = 1 << 32
"""Index of the first token's number in a row's random stream; mask words come before it."""

SPLITMIX_STEP = 0x9E3779B97F4A7C15
SPLITMIX_FIRST = 0xBF58476D1CE4E5B9
SPLITMIX_SECOND = 0x94D049BB133111EB

HALF_OCTAVE = math.sqrt(2.0)
LN2 = math.log(2.0)


class Sampler(Protocol):
    def warm_up(self, dtype: torch.dtype) -> None:
        """Compile everything for logits of that type now rather than in the first request."""

    def sample(self, logits: Tensor, draws: Sequence[Draw | None]) -> StepResult | DeviceDraws:
        """One token for each row of logits [R, width], and the scores asked for; ``draws`` as in
        ``Runner.sample``.

        float32 logits may be changed in place; the caller must not read them afterwards. This or
        ``wait`` raises ``ValueError`` if a mask allows no token.
        """


def is_drawn(draw: Draw) -> bool:
    """Whether a token is drawn, not only sets scored."""
    return not draw.scored or draw.mask is not None


def is_filtered(params: SamplingParams) -> bool:
    """Whether only the likeliest of the allowed tokens may be drawn."""
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def is_changed(params: SamplingParams) -> bool:
    """Whether logits are changed before the draw."""
    return bool(params.logit_bias) or params.has_penalties


def sharpness(params: SamplingParams) -> float:
    """log2(e) / temperature: the factor from logits to exponents of 2; 0: greedy."""
    return LOG2_E / params.temperature if params.temperature > 0.0 else 0.0


def repeated_tokens(draw: Draw) -> Ints:
    """Tokens with a repetition penalty: those of prompt and answer, each once.

    Source: Keskar et al., CTRL, 2019.
    """
    if draw.prompt_tokens is None:
        return NO_INTS
    answer: Ints = np.unique(np.asarray(draw.answer, dtype=np.int64))
    more = np.setdiff1d(answer, draw.prompt_tokens, assume_unique=True)
    return np.concatenate([draw.prompt_tokens, more])


def offsets(draw: Draw) -> Iterator[tuple[Ints, NDArray[np.float64]]]:
    """Tokens, and the offsets to add to their logits: penalties, then logit bias.

    Frequency and presence penalty count the answer alone, as OpenAI defines them.
    """
    params = draw.params
    if len(draw.answer) and (params.frequency_penalty or params.presence_penalty):
        tokens, counts = np.unique(np.asarray(draw.answer, dtype=np.int64), return_counts=True)
        yield (
            tokens,
            -(params.frequency_penalty * counts.astype(np.float64) + params.presence_penalty),
        )
    if params.logit_bias:
        yield (
            np.fromiter(params.logit_bias.keys(), dtype=np.int64),
            np.fromiter(params.logit_bias.values(), dtype=np.float64),
        )
