"""Requests to the engine: sampling parameters, options, and one answer in tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, Protocol

from app.core.constraint import Constraint, ConstraintState
from app.core.images import PromptImages


class ServiceTier(IntEnum):
    """Tiers of requests: a higher one is scheduled before a lower one and preempted after it."""

    BATCH = 0
    """Lines of a batch. They and flex pause while a higher tier has a prompt to compute."""
    FLEX = 1
    DEFAULT = 2
    PRIORITY = 3


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
class ThinkingBudget:
    """Limit on reasoning: it ends when only the tokens kept for the rest of the answer are left."""

    kept: int
    """Number of ``max_tokens`` that may not be spent before ``end``."""
    end: bytes
    """The mark behind the reasoning."""
    begin: bytes = b""
    """The mark before the reasoning; nothing is kept if the answer begins differently."""


class JsonLocator(Protocol):
    """Finds the JSON values in a text with more than one: between reasoning, marks and calls."""

    def push(self, data: bytes) -> None:
        """``data``: the next part of the text."""

    def next_value(self, start: int) -> int | None:
        """Offset of the first value that begins at ``start`` or later; None: not known yet."""

    @property
    def outside(self) -> int:
        """Length of the text that is known to precede any value not found yet."""


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """Scoring and drawing of an answer's choices, where its constraint lists the ways on."""

    report: bool = False
    """Score them, for ``TokenChunk.choices``."""
    exact: bool = False
    """Draw whole ways by their probability, not token by token. A constraint may ask for it, too,
    for some of them."""
    locator: Callable[[], JsonLocator] | None = None
    """Makes the locator of the answer's values; None: the answer is one value."""
    is_text: bool = False
    """Whether the value is a text up to the end of the answer, not JSON."""


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How the answers of one request are drawn, when they end and what is reported beside them.

    HTTP makes it from the fields of a request; serving and the engine carry the same object.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    """Choices of each prompt."""
    max_tokens: int | None = None
    """Tokens an answer may have, end of sequence not counted; None: what the context leaves."""
    min_tokens: int = 0
    """Tokens before an end of sequence or a stop counts, if the constraint allows so many."""
    stop: Sequence[bytes] = ()
    """Byte strings that end the answer; the answer is cut before the first one to appear."""
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the answer and add no bytes to it."""
    ignore_eos: bool = False
    """Never draw an end of sequence, unless the constraint leaves nothing else."""
    seed: int | None = None
    """Choice j of each prompt draws from seed + j; None draws a fresh seed."""
    on_budget: Literal["finish", "truncate"] = "finish"
    """Near ``max_tokens``: finish the answer within it, or cut it as OpenAI does."""
    confidence: bool = False
    """Report how sure the model was of each value."""
    fields: bool = False
    """Report each value of a JSON answer as soon as it is whole."""
    prompt_logprobs: int | None = None
    """Alternatives beside each prompt token in ``TokenChunk.prompt``; for free text only."""
    origins: bool = False
    """Report where each token came from, in ``TokenChunk.origins``."""
    spans: bool = False
    """Report the positions of ``x-verbatim`` values in the prompt."""
    choices: Literal["tokens", "exact"] | None = None
    """Sampling of values of a finite set: token by token, or exact choices; None: the server's
    default."""
    leap: bool = True
    draft: bool = True
    prediction: bytes = b""
    """Text that the client expects as the answer, for drafts; b"": not sent."""
    timeout: float | None = None
    """Seconds until the last token; None: the server's maximum."""
    tier: ServiceTier = ServiceTier.DEFAULT
    """Tier that the client asks for; see ``EngineRequest.tier``."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One choice of a request, in tokens: what the engine runs."""

    request_id: str
    """Unique among live engine requests."""
    prompt: Sequence[int]
    max_tokens: int
    """Maximum tokens of this answer: ``options.max_tokens``, limited by the context."""
    options: GenerationOptions = field(default_factory=GenerationOptions)
    seed: int = 0
    """64-bit key of the counter-based random numbers."""
    images: PromptImages | None = None
    """Images in the expanded prompt; None: it is text alone."""
    constraint: Constraint | None = None
    start: ConstraintState | None = None
    """State of the constraint at the end of the prompt; None: its start."""
    open_ended: bool = False
    """The constraint ends in free text: an answer that ``max_tokens`` ends there was cut."""
    thinking: ThinkingBudget | None = None
    choices: ChoiceOptions | None = None
    """None: choices are neither scored nor exact, even if the constraint requires it."""
    tenant: str = ""
    """Tenants take turns; service is counted for each."""
    tier: ServiceTier = ServiceTier.DEFAULT
    """Tier granted by the server; tenants take turns within a tier."""
    adapter: int = 0
    """Slot of the adapter; 0: the base model. ``scope`` must differ between adapters."""
    scope: str = ""
    """Requests of one scope share cached prefixes and draft statistics, so the timing of one can
    reveal others."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A loaded adapter. One that is loaded later under the same name is a different one."""

    name: str
    slot: int
    """Value of ``Span.adapter`` for its tokens; never 0."""
    number: int
    """Number of adapters loaded before it in this process."""
    root: str
    """The folder or the Hub's name that it was loaded from."""
    identity: str
    """Follows from its configuration and weights alone."""
    created: int
    """When it was loaded, in seconds since the epoch."""

    @property
    def scope(self) -> str:
        """Scope of its requests: keys and values computed with it and draft statistics of its
        answers are of no use to other adapters."""
        return f"{self.number} {self.name}"
