"""What a request asks of the reasoning, and how a model is asked that was not taught to reason."""

from __future__ import annotations

from dataclasses import dataclass

from app.answer.formats.reasoning import ReasoningFormat

UNTAUGHT = ReasoningFormat("<think>\n", "</think>")
"""For models whose chat template knows no reasoning, where a request asks for it all the same."""

INSTRUCTION = (
    "Think before you answer: write your thoughts between <think> and </think>. "
    "Behind </think> write the answer, and nothing but the answer."
)
"""What such a model is told. The same for all requests, so its tokens are computed once."""

_SHARES = {"low": 0.2, "medium": 0.5}
"""Of ``max_tokens``, for an effort that nobody can tell the model."""


@dataclass(frozen=True, slots=True)
class ReasoningUse:
    """How much an answer reasons before it says anything, and whether that is shown."""

    wanted: bool | None = None
    """True: the answer begins with reasoning. False: it has none. None: as the model has it."""
    max_tokens: int | None = None
    """The most that the reasoning may have; None: nothing was said."""
    share: float | None = None
    """The same as a share of the answer's ``max_tokens``."""
    shown: bool = True

    def limit(self, max_tokens: int) -> int | None:
        """The most tokens for reasoning in an answer of ``max_tokens``; None: nothing was said."""
        if self.max_tokens is None and self.share is not None:
            return int(self.share * max_tokens)
        return self.max_tokens

    @property
    def is_limited(self) -> bool:
        return self.max_tokens is not None or self.share is not None


AS_IT_IS = ReasoningUse()
"""Nothing was asked for."""


def share_of(effort: str) -> float | None:
    """The share of an answer that reasoning may have; None: as if nothing was said."""
    return _SHARES.get(effort)
