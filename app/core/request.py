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
class FunctionTool:
    """A function that an answer may call."""

    name: str
    description: str | None = None
    parameters: Any = None
    """JSON Schema of the arguments; None: there are none."""
    strict: bool | None = None
    """False leaves objects open, as the specification does; else they are closed."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages for the chat template, whose last one the model answers."""

    messages: Sequence[Mapping[str, Any]]
    """In OpenAI's form with content as text: role, content, name, tool_calls, tool_call_id."""
    tools: Sequence[FunctionTool] = ()
    """What the prompt shows the model; calls are admitted by the constraint alone."""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the chat template (``enable_thinking``, ...)."""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that the model goes on with, as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """The same in tokens, all of them ids of the vocabulary."""

    tokens: Sequence[int]


Prompt = Conversation | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One client request after the HTTP layer has checked it."""

    request_id: str
    prompts: Sequence[Prompt]
    """One or more; each gets ``n`` choices. Choice j of prompt i has the index ``i * n + j``."""
    constraint: ConstraintSpec | None = None
    constraint_param: str = "response_format"
    """The field that the constraint came from, for errors to name."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    max_tokens: int | None = None
    """Tokens an answer may have, end of sequence not counted; None: what the context leaves."""
    min_tokens: int = 0
    """Before so many tokens nothing ends the answer, as far as the constraint can go on."""
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the answer and are not part of its text."""
    ignore_eos: bool = False
    """The model's end of sequence does not end the answer, as far as the constraint can go on."""
    seed: int | None = None
    """Choice j of each prompt draws from seed + j; None draws a fresh seed."""
    on_budget: OnBudget = "finish"
    leap: bool = True
    draft: bool = True
    tenant: str = ""
    """Who asks: requests of different tenants take turns."""
    timeout: float | None = None
    """Seconds until the last token; None: as long as the server lets any request take."""
    max_tokens_param: str = "max_tokens"
    """The field that ``max_tokens`` came from, for errors to name."""


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """How long an answer may reason: until only the tokens are left that are kept for the rest."""

    kept: int
    """How many of ``max_tokens`` may not be spent before ``end``."""
    end: bytes
    """The mark behind the reasoning."""
    begin: bytes = b""
    """Nothing is kept where the answer begins in another way: it does not reason."""


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
    open_ended: bool = False
    """The constraint ends in free text: an answer that ``max_tokens`` ends there was cut."""
    thinking: ThinkingBudget | None = None
    min_tokens: int = 0
    """Before so many tokens of the answer no end of sequence is drawn and no stop counts."""
    stop: Sequence[bytes] = ()
    """Byte strings that end the answer; the answer is cut before the first one to appear."""
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the answer and add no bytes to it."""
    ignore_eos: bool = False
    """Never draw an end of sequence, unless the constraint leaves nothing else."""
    on_budget: OnBudget = "finish"
    leap: bool = True
    draft: bool = True
    tenant: str = ""
    """Tenants take turns; what they have been served is counted apart."""
    scope: str = ""
    """Requests of one scope share the computed beginnings of prompts and what drafts learn: what
    an answer cost tells of the others."""
