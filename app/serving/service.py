"""A request's lifetime: constraint, prompt, room, answers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.constraint import Constraint, ConstraintSpec
from app.core.errors import (
    Draining,
    EngineDied,
    InvalidRequest,
    LeapjsonError,
    PromptTooLong,
    QueueFull,
)
from app.core.events import RequestObserver
from app.core.request import EngineRequest, GenerationRequest
from app.serving.admission import Admission
from app.serving.constraints import ConstraintCache
from app.serving.generation import Generation
from app.serving.ports import ChatTokenizer, TextDecoder
from app.serving.timeline import Timeline
from app.serving.worker import DEATH_NOTICE, EngineWorker

LONG_PROMPT = 4096
"""Characters from which a prompt is tokenized on a thread: shorter ones take less than a hop."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Facts and limits of this server that a request is checked against."""

    max_sequence_tokens: int
    """Tokens that a prompt and its answer may have together."""
    vocabulary_size: int
    default_max_tokens: int | None = None
    """Where a request sets no ``max_tokens``; None: what the context leaves."""
    leap: bool = True
    """False turns the leap off for every request."""


class GenerationService:
    """Opens generations. Its methods run on the event loop's thread."""

    def __init__(
        self,
        config: ServiceConfig,
        *,
        worker: EngineWorker,
        admission: Admission,
        constraints: ConstraintCache,
        tokenizer: ChatTokenizer,
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

    async def open(self, request: GenerationRequest, timeline: Timeline) -> Generation:
        """Start to answer; every reason to refuse is raised here, before anything is answered.

        Raises ``RequestError``, ``Unavailable`` or ``EngineDied``; the caller then ends the
        timeline. The caller closes the generation. Cancelling the call leaves nothing behind.
        """
        self._check_bias(request.sampling.logit_bias)
        if not self._worker.alive:
            raise EngineDied(DEATH_NOTICE)
        try:
            ticket = self._admission.admit(request.n)
        except (QueueFull, Draining) as error:
            reason = "queue_full" if isinstance(error, QueueFull) else "draining"
            self._observer.observe_rejection(reason)
            raise
        try:
            constraint = await self._compile(request.constraint)
            prompt = await self._tokenize(request.messages)
            engine_requests = self._engine_requests(request, prompt, constraint)
            generation = Generation(
                request_ids=[each.request_id for each in engine_requests],
                prompt_tokens=len(prompt),
                decoders=[self._new_decoder() for _ in engine_requests],
                ticket=ticket,
                timeline=timeline,
                abort=self._worker.abort,
                status_of=self._status_of,
            )
            await self._worker.submit(engine_requests, generation)
        except BaseException:
            ticket.release()
            raise
        return generation

    async def _compile(self, spec: ConstraintSpec | None) -> Constraint | None:
        return None if spec is None else await self._constraints.get(spec)

    async def _tokenize(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[int]:
        render = self._tokenizer.render_chat
        if sum(len(message.get("content") or "") for message in messages) < LONG_PROMPT:
            return render(messages)
        return await asyncio.to_thread(render, messages)

    def _engine_requests(
        self, request: GenerationRequest, prompt: Sequence[int], constraint: Constraint | None
    ) -> list[EngineRequest]:
        max_tokens = self._max_tokens(request.max_tokens, len(prompt))
        seed = self._fresh_seed() if request.seed is None else request.seed
        return [
            EngineRequest(
                request_id=f"{request.request_id}-{index}",
                prompt=prompt,
                max_tokens=max_tokens,
                sampling=request.sampling,
                seed=(seed + index) % 2**64,
                constraint=constraint,
                stop=[text.encode() for text in request.stop],
                on_budget=request.on_budget,
                leap=request.leap and self._config.leap,
            )
            for index in range(request.n)
        ]

    def _max_tokens(self, asked: int | None, prompt_tokens: int) -> int:
        context = self._config.max_sequence_tokens
        left = context - prompt_tokens
        if left < 1:
            raise PromptTooLong(
                f"the prompt has {prompt_tokens} tokens and the context has room for {context}, "
                f"answer included; shorten the prompt",
                param="messages",
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
