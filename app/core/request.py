"""Requests as they cross borders: text as ``GenerationRequest``, tokens as ``EngineRequest``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.core.constraint import Constraint, ConstraintSpec

OnBudget = Literal["finish", "truncate"]
"""Near ``max_tokens``: finish the answer within it (law 2), or cut it as OpenAI does."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one token is drawn from the masked logits. Zero temperature is greedy.

    Order of operations: repetition, frequency and presence penalties, logit bias, mask,
    temperature, then top_k, top_p and min_p, then one draw. ``logprobs`` are taken after the
    mask and before the temperature: they are the model's own, renormalised over what is allowed.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    """Report the drawn token's log-probability and this many alternatives; None reports none."""

    @property
    def has_penalties(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One client request after the HTTP layer has checked it."""

    request_id: str
    messages: Sequence[Mapping[str, Any]]
    """Chat messages in the chat template's terms: role, content and so on."""
    constraint: ConstraintSpec | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    max_tokens: int | None = None
    """Tokens an answer may have, end of sequence not counted; None: what the context leaves."""
    stop: Sequence[str] = ()
    seed: int | None = None
    """Choice i draws from seed + i; None draws a fresh seed."""
    on_budget: OnBudget = "finish"
    leap: bool = True


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One choice of a request, in tokens: what the engine runs."""

    request_id: str
    """Unique among live engine requests."""
    prompt: Sequence[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    """64-bit key of the counter-based random numbers."""
    constraint: Constraint | None = None
    stop: Sequence[bytes] = ()
    """Byte strings that end the answer; the answer is cut before the first one to appear."""
    on_budget: OnBudget = "finish"
    leap: bool = True
