"""A request's lifetime: constraint, prompt, room, answers."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.chat.formats import ChatFormat
from app.chat.language import is_open_ended, with_reasoning
from app.chat.prompts import Opening, prepare, text_length
from app.chat.prompts import opening as find_opening
from app.core.constraint import Constraint
from app.core.errors import (
    ConstraintError,
    Draining,
    EngineDied,
    InvalidRequest,
    LeapjsonError,
    PromptTooLong,
    QueueFull,
)
from app.core.events import RequestObserver
from app.core.request import (
    Conversation,
    EngineRequest,
    GenerationRequest,
    Prompt,
    Reserve,
    TextPrompt,
    TokenPrompt,
)
from app.serving.admission import Admission, Ticket
from app.serving.constraints import ConstraintCache
from app.serving.generation import Generation
from app.serving.ports import TextDecoder, Tokenizer
from app.serving.timeline import Timeline
from app.serving.worker import DEATH_NOTICE, EngineWorker

T = TypeVar("T")

ANSWER_SHARE = 4
"""Reasoning leaves one in so many of ``max_tokens`` to the answer that a constraint asks for."""

LONG_PROMPT = 4096
"""Characters from which a prompt is tokenized on a thread: shorter ones take less than a hop."""

HUGE_PROMPT = 1 << 17
"""Characters from which prompts wait for one another, so that the threads stay free for others."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Facts and limits of this server that a request is checked against."""

    max_sequence_tokens: int
    """Tokens that a prompt and its answer may have together."""
    vocabulary_size: int
    chat_format: ChatFormat
    default_max_tokens: int | None = None
    """Where a request sets no ``max_tokens``; None: what the context leaves."""
    leap: bool = True
    """False turns the leap off for every request."""
    draft: bool = True
    """False turns drafting off for every request."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A prompt in tokens."""

    tokens: Sequence[int]
    param: str
    """The request's field that it came from."""
    opening: Opening = "closed"


class GenerationService:
    """Opens generations. Its methods run on the event loop's thread."""

    def __init__(
        self,
        config: ServiceConfig,
        *,
        worker: EngineWorker,
        admission: Admission,
        constraints: ConstraintCache,
        tokenizer: Tokenizer,
        new_decoder: Callable[[], TextDecoder],
        observer: RequestObserver,
        status_of: Callable[[LeapjsonError], int],
        clock: Callable[[], float],
        fresh_seed: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        self._config = config
        self._worker = worker
        self._admission = admission
        self._constraints = constraints
        self._tokenizer = tokenizer
        self._new_decoder = new_decoder
        self._observer = observer
        self._status_of = status_of
        self._clock = clock
        self._fresh_seed = fresh_seed
        self._huge_prompts = asyncio.Semaphore(1)

    @property
    def alive(self) -> bool:
        """Whether answers can be generated at all; False asks for a restart."""
        return self._worker.alive

    @property
    def ready(self) -> bool:
        """Whether a new request would be taken."""
        return self._worker.alive and not self._admission.draining

    def arrive(self, request_id: str, endpoint: str) -> Timeline:
        """Start a request's clock."""
        return Timeline(request_id, endpoint, self._observer, self._clock)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own, for text that is not generated."""
        return self._tokenizer

    async def tokenize(self, prompt: Prompt, *, add_special_tokens: bool = True) -> Sequence[int]:
        """The tokens that a request with this prompt would have. Raises ``InvalidRequest``."""
        return (await self._prepare(prompt, add_special_tokens=add_special_tokens)).tokens

    async def open(self, request: GenerationRequest, timeline: Timeline) -> Generation:
        """Start to answer; every reason to refuse is raised here, before anything is answered.

        Raises ``RequestError``, ``Unavailable`` or ``EngineDied``; the caller then ends the
        timeline. The caller closes the generation. Cancelling the call leaves nothing behind.
        """
        self._check_bias(request.sampling.logit_bias)
        if not self._worker.alive:
            raise EngineDied(DEATH_NOTICE)
        try:
            ticket = self._admission.admit(request.n * len(request.prompts))
        except (QueueFull, Draining) as error:
            reason = "queue_full" if isinstance(error, QueueFull) else "draining"
            self._observer.observe_rejection(reason)
            raise
        try:
            generation = await self._start(request, ticket, timeline)
        except BaseException:
            ticket.release()
            raise
        return generation

    async def _start(
        self, request: GenerationRequest, ticket: Ticket, timeline: Timeline
    ) -> Generation:
        prompts = [await self._prepare(prompt) for prompt in request.prompts]
        engine_requests = []
        for number, prompt in enumerate(prompts):
            constraint = await self._constraint(request, prompt, timeline)
            for choice in range(request.n):
                index = number * request.n + choice
                engine_requests.append(
                    self._engine_request(request, prompt, constraint, index, choice)
                )
        generation = Generation(
            request_ids=[each.request_id for each in engine_requests],
            prompt_tokens=sum(len(prompt.tokens) for prompt in prompts),
            prompts=[number for number in range(len(prompts)) for _ in range(request.n)],
            openings=[prompt.opening for prompt in prompts for _ in range(request.n)],
            decoders=[self._new_decoder() for _ in engine_requests],
            ticket=ticket,
            timeline=timeline,
            abort=self._worker.abort,
            status_of=self._status_of,
        )
        await self._worker.submit(engine_requests, generation)
        return generation

    async def _prepare(self, prompt: Prompt, *, add_special_tokens: bool = True) -> _Prepared:
        """In tokens; long ones are tokenized on a thread, huge ones one at a time."""
        match prompt:
            case TokenPrompt(tokens=tokens):
                return _Prepared(tokens, "prompt")
            case TextPrompt(text=text):
                encode = functools.partial(
                    self._tokenizer.encode_prompt, text, add_special_tokens=add_special_tokens
                )
                return _Prepared(await self._tokenized(len(text), encode), "prompt")
        length = text_length(prompt, HUGE_PROMPT)
        return await self._tokenized(length, functools.partial(self._render, prompt))

    async def _tokenized(self, length: int, work: Callable[[], T]) -> T:
        if length < LONG_PROMPT:
            return work()
        if length < HUGE_PROMPT:
            return await asyncio.to_thread(work)
        async with self._huge_prompts:
            return await asyncio.to_thread(work)

    def _render(self, conversation: Conversation) -> _Prepared:
        given = prepare(conversation, self._config.chat_format)
        rendered = self._tokenizer.render_chat(given.messages, given.tools, given.options)
        reasoning = self._config.chat_format.reasoning
        opening = "closed" if reasoning is None else find_opening(rendered.tail, reasoning)
        return _Prepared(rendered.tokens, "messages", opening)

    async def _constraint(
        self, request: GenerationRequest, prompt: _Prepared, timeline: Timeline
    ) -> Constraint | None:
        spec = request.constraint
        reasoning = self._config.chat_format.reasoning
        if reasoning is not None and prompt.opening != "closed":
            spec = with_reasoning(spec, reasoning, prompt.opening)
        if spec is None:
            return None
        try:
            with timeline.compiling():
                return await self._constraints.get(spec)
        except ConstraintError as error:  # raised for this request alone
            error.param = request.constraint_param
            raise

    def _engine_request(
        self,
        request: GenerationRequest,
        prompt: _Prepared,
        constraint: Constraint | None,
        index: int,
        choice: int,
    ) -> EngineRequest:
        max_tokens = self._max_tokens(request.max_tokens, prompt)
        seed = self._fresh_seed() if request.seed is None else request.seed + choice
        return EngineRequest(
            request_id=f"{request.request_id}-{index}",
            prompt=prompt.tokens,
            max_tokens=max_tokens,
            sampling=request.sampling,
            seed=seed % 2**64,
            constraint=constraint,
            open_ended=request.constraint is not None and is_open_ended(request.constraint),
            reserve=self._reserve(prompt, constraint, max_tokens),
            min_tokens=request.min_tokens,
            stop=[text.encode() for text in request.stop],
            stop_token_ids=request.stop_token_ids,
            ignore_eos=request.ignore_eos,
            on_budget=request.on_budget,
            leap=request.leap and self._config.leap,
            draft=request.draft and self._config.draft,
        )

    def _reserve(
        self, prompt: _Prepared, constraint: Constraint | None, max_tokens: int
    ) -> Reserve | None:
        """Room for the answer, where reasoning comes before it."""
        reasoning = self._config.chat_format.reasoning
        if reasoning is None or prompt.opening == "closed" or constraint is None:
            return None
        opening = reasoning.begin if prompt.opening == "possible" else ""
        return Reserve(max_tokens // ANSWER_SHARE, reasoning.end.encode(), opening.encode())

    def _max_tokens(self, asked: int | None, prompt: _Prepared) -> int:
        context, prompt_tokens = self._config.max_sequence_tokens, len(prompt.tokens)
        left = context - prompt_tokens
        if prompt_tokens == 0:
            raise InvalidRequest("the prompt is empty", param=prompt.param)
        if left < 1:
            raise PromptTooLong(
                f"the prompt has {prompt_tokens} tokens and the context has room for {context}, "
                f"answer included; shorten the prompt",
                param=prompt.param,
            )
        if asked is None:
            return min(left, self._config.default_max_tokens or left)
        if asked > left:
            raise PromptTooLong(
                f"the prompt has {prompt_tokens} tokens and max_tokens is {asked}, together "
                f"{prompt_tokens + asked}, but the context has room for {context}; shorten the "
                f"prompt or lower max_tokens to at most {left}",
                param="max_tokens",
            )
        return asked

    def _check_bias(self, logit_bias: Mapping[int, float]) -> None:
        for token_id in logit_bias:
            if not 0 <= token_id < self._config.vocabulary_size:
                raise InvalidRequest(
                    f"logit_bias names the token {token_id}, but the vocabulary has the ids 0 to "
                    f"{self._config.vocabulary_size - 1}",
                    param="logit_bias",
                )
