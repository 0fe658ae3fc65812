"""Log-probabilities of a prompt's own tokens, for requests that ask for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.constraint import full_mask
from app.core.events import AnswerToken
from app.core.request import SamplingParams
from app.core.step import Draw, SampledToken


class PromptScores:
    """Collects, position by position, the log-probability of each token but the first.

    Every position has to be computed for that, so nothing of the prompt comes from the cache until
    all are known; what is computed again after a preemption is not scored again.
    """

    def __init__(
        self, prompt: Sequence[int], spelling: Sequence[bytes], alternatives: int, most: int
    ) -> None:
        """``spelling``: the bytes of every token id. ``most``: rows of logits in one step."""
        self.most = most
        self._prompt = prompt
        self._spelling = spelling
        self._params = SamplingParams(temperature=0.0, logprobs=alternatives)
        self._everything = full_mask(len(spelling)) if alternatives else None
        self.tokens = [AnswerToken(prompt[0], spelling[prompt[0]], "leapt")]
        """Tokens scored so far with their log-probabilities; that of the first is meaningless."""

    @property
    def is_done(self) -> bool:
        return len(self.tokens) == len(self._prompt)

    def wanted(self, start: int, end: int) -> range:
        """Positions from ``start`` to ``end`` whose logits are needed."""
        return range(max(start, len(self.tokens) - 1), min(end, len(self._prompt) - 1))

    def draws(self, positions: range) -> list[Draw]:
        """Draws that score each position; with alternatives, also its likeliest tokens."""
        return [
            Draw(
                self._params,
                key=0,
                mask=self._everything,
                scored=(np.array([self._prompt[position + 1]], dtype=np.int32),),
            )
            for position in positions
        ]

    def take(self, positions: range, drawn: Sequence[SampledToken]) -> None:
        """Record results in order; a step that was in flight may repeat a position."""
        for position, found in zip(positions, drawn, strict=True):
            if position + 1 == len(self.tokens):
                token = self._prompt[position + 1]
                # The same number as in ``top``: clients compare them to find greedy tokens.
                alike = [each.logprob for each in found.top if each.token_id == token]
                logprob = alike[0] if alike else found.scores[0]
                data = self._spelling[token]
                self.tokens.append(AnswerToken(token, data, "leapt", logprob, found.top))
