"""Results of the engine: chunks of answers, and the measurements of steps and requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, Protocol

from app.core.choices import ScoredChoice
from app.core.errors import LeapjsonError
from app.core.step import TokenLogprob

FinishReason = Literal["stop", "length", "abort", "error"]
TokenSource = Literal["sampled", "drafted", "held", "leapt"]
"""See ``app.engine.token_sources``."""
PhaseName = Literal["compile", "queue", "prefill", "decode"]


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """A token that became part of an answer."""

    token_id: int
    data: bytes
    """The bytes this token added to the answer; b"" for a held-back or special token."""
    source: Literal["sampled", "leapt"]
    logprob: float = 0.0
    """0.0 for a leapt token, which is certain."""
    top: Sequence[TokenLogprob] = ()


@dataclass(frozen=True, slots=True)
class OriginToken:
    """A token of an answer in its current tokenization, with its source."""

    token_id: int
    data: bytes
    """All bytes that it spells; b"" for a special token."""
    source: TokenSource
    logprob: float | None = None
    """None: the token was not sampled, but comes from a new split."""
    top: Sequence[TokenLogprob] = ()


@dataclass(frozen=True, slots=True)
class Origins:
    """The current tokens of an answer from token ``index`` on."""

    index: int
    tokens: Sequence[OriginToken]


@dataclass(slots=True)  # not frozen: a step makes hundreds
class AnswerUsage:
    """Counts for one answer so far, in tokens unless said otherwise; ``sum`` adds all of them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose keys and values were found in the prefix cache."""
    completion_tokens: int = 0
    """Tokens of the answer as it stands (after re-tokenization), end of sequence included."""
    leapt_tokens: int = 0
    drafted_tokens: int = 0
    """Tokens that were drafted and drawn; like the next, in the answer's current split."""
    held_tokens: int = 0
    """Those that were drawn though a leap could have spelled them: ``app.engine.token_sources``."""
    forward_passes: int = 0
    """Steps of the engine in which this answer took part."""
    accepted_prediction_tokens: int = 0
    """Tokens that were drafted from the client's prediction and accepted."""
    rejected_prediction_tokens: int = 0
    """Tokens that were drafted from it and rejected."""
    reasoning_tokens: int = 0
    """Tokens of the reasoning, which only the answer's reader knows: 0 in the engine's counts."""

    @classmethod
    def sum(cls, counts: Iterable[AnswerUsage]) -> AnswerUsage:
        return cls(*map(sum, zip(*map(attrgetter(*cls.__dataclass_fields__), counts), strict=True)))


@dataclass(slots=True)  # not frozen: a step makes hundreds
class TokenChunk:
    """What one step added to one answer. Engine to serving."""

    request_id: str
    data: bytes
    """Bytes added to the answer; may end inside a UTF-8 character."""
    tokens: Sequence[AnswerToken]
    usage: AnswerUsage
    finish_reason: FinishReason | None = None
    """Set on the last chunk of an answer, and only there."""
    error: LeapjsonError | None = None
    """With the reason "error": the message for the client; None for an internal error."""
    stopped_by: bytes = b""
    """The stop string that ended the answer."""
    closed: bytes | None = None
    """The answer up to the end of the first JSON value that its budget cut: see ``is_closing``."""
    choices: Sequence[ScoredChoice] = ()
    """Choices scored since the last chunk, if the request asked for them."""
    origins: Origins | None = None
    """The tokens that changed since the last chunk, where the request asked for them."""
    prompt: Sequence[AnswerToken] = ()
    """The prompt's tokens, with the first chunk, where the request asked for them."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Output of one step for its requests. Engine to serving."""

    chunks: Sequence[TokenChunk] = ()
    scheduled: Sequence[str] = ()
    """Ids of the requests that this step scheduled for the first time; each is named once."""


@dataclass(slots=True)
class StepStats:
    """One step of the engine, filled in as it goes on. Durations in seconds."""

    plan_seconds: float = 0.0
    launch_seconds: float = 0.0
    mask_seconds: float = 0.0
    sample_seconds: float = 0.0
    commit_seconds: float = 0.0
    idle_seconds: float = 0.0
    """Idle time of the device before its launch: work to do, but nothing launched."""
    prompt_tokens: int = 0
    """Prompt tokens computed in this step."""
    cached_tokens: int = 0
    """Prompt tokens that the requests first scheduled in this step found in the cache."""
    sampled_tokens: int = 0
    leapt_tokens: int = 0
    drafted_tokens: int = 0
    """Drafted tokens accepted in this step."""
    proposed_tokens: int = 0
    """Drafted tokens that this step verified, accepted or not."""
    passes_saved: int = 0
    """Draws that became part of an answer in addition to another draw of the same pass."""
    skipped_tokens: int = 0
    """Answer tokens that needed no sampled row of their own."""
    batch_tokens: int = 0
    """Tokens computed in this step, all spans together."""
    void_tokens: int = 0
    """Tokens computed for answers that had ended or continued differently before the draw."""
    scored_tokens: int = 0
    """Tokens computed to score choices, which do not stay in the cache."""
    running: int = 0
    waiting: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    """Full prompt blocks looked up in the prefix cache."""
    prefix_hits: int = 0
    budget_closed: int = 0
    """Answers whose mask was first narrowed by their budget in this step."""
    drawn_again: int = 0
    """Draws rejected because of a repeated item or name, or no end within the budget."""
    masks_put_off: int = 0
    """Draws postponed to a later step, because their masks took too much work."""
    masks_given_up: int = 0
    """Masks reduced to the first token of a shortest completion."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a request's time, in seconds from its arrival."""

    name: PhaseName
    """Waiting for the constraint; in the engine's queue; until the first chunk; until the last."""
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class RequestStats:
    """One finished request (all its choices). Durations in seconds."""

    endpoint: str
    status: int
    finish_reason: str
    owner: str
    """The API key that it is counted under; "" without any."""
    adapter: str
    """The name of the adapter that it ran with; "" for the base model."""
    error: str
    """The class of the error that ended an answer that had begun; "" without one."""
    relaxed: Sequence[str]
    """Keywords that were not enforced; "": all but ``type`` of a subschema."""
    queue_seconds: float
    """From arrival until its first choice was first scheduled."""
    time_to_first_token: float | None
    e2e_seconds: float
    inter_token_seconds: Sequence[float]
    """Gaps between the chunks of each choice."""
    phases: Sequence[Phase]
    """The phases that the request reached, in order."""
    choices: int
    """Choices that have begun."""
    usage: AnswerUsage
    """Sum over all prompts; zero if the request did not reach the engine. Cached tokens: the
    maximum over the choices; forward passes: the sum over the choices."""


class StepObserver(Protocol):
    """Receives the measurements of every step; must be quick and must not raise."""

    def observe_step(self, stats: StepStats) -> None: ...


class RequestObserver(Protocol):
    """Receives measurements of requests and compilations; must be quick and must not raise."""

    def observe_request(self, stats: RequestStats) -> None: ...

    def observe_compile(self, kind: str, result: str, seconds: float) -> None:
        """``kind``: schema, object, regex, choice, grammar or structure.

        ``result``: ok or the error's code.
        """
