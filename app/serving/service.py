"""A request's lifetime: constraint, prompt, room, answers."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.answer.formats import ChatFormat
from app.answer.plan import AnswerPlan, prepare
from app.answer.prompt import Conversation, Prompt, passages, text_length
from app.answer.spans import Quotable
from app.answer.tools import ToolUse
from app.answer.warnings import RelaxedAnswers
from app.core.choices import ChoosingState
from app.core.constraint import Constraint, ConstraintSpec, ConstraintState, Relaxation
from app.core.errors import (
    BudgetTooSmall,
    EngineDied,
    InvalidRequest,
    LeapjsonError,
    PromptTooLong,
    RejectedToken,
)
from app.core.events import RequestObserver
from app.core.memory import return_freed_memory
from app.core.request import Adapter, ChoiceOptions, EngineRequest, GenerationOptions
from app.core.text import Tokenizer
from app.core.verbatim import passages_of
from app.serving.adapters import Adapters
from app.serving.admission import Admission, Ticket
from app.serving.compiling.bindings import Bindings
from app.serving.compiling.cache import ConstraintCache
from app.serving.compiling.validation import Validation
from app.serving.generation import Generation
from app.serving.images.intake import ImageIntake
from app.serving.tasks import Turns
from app.serving.timeline import Timeline
from app.serving.worker import DEATH_NOTICE, RETRY_SECONDS, EngineWorker


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One client request: prompts, constraints on the answers, and options."""

    prompts: Sequence[Prompt]
    """One or more; each gets ``n`` choices: choice j of prompt i is number ``i * n + j``."""
    adapter: Adapter | None = None
    """Adapter to run the model with; None: the base model."""
    content: ConstraintSpec | None = None
    """Constraint on the content of an answer; None: any text."""
    tools: ToolUse | None = None
    """The functions that an answer may call; None: none."""
    options: GenerationOptions = field(default_factory=GenerationOptions)


USUAL_TOKENS = 1024
"""Tokens that the queue counts for an answer without a ``max_tokens``."""

LONG_PROMPT = 4096
"""Characters from which a prompt is tokenized on a thread: shorter ones take less than a hop."""

_BYTES_BETWEEN_STEPS = 256
"""Bytes of a prefill accepted between two steps: a new constraint may need 1 ms for each."""

HUGE_PROMPT = 1 << 17
"""Characters from which prompts are tokenized one at a time: a million take up to 400 MB."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """Facts and limits of this server that a request is checked against."""

    max_sequence_tokens: int
    """Tokens that a prompt and its answer may have together."""
    vocabulary_size: int
    chat_format: ChatFormat
    default_max_tokens: int | None = None
    """Limit of requests without ``max_tokens``; None: the rest of the context."""
    clip_max_tokens: bool = True
    """Whether to lower a ``max_tokens`` above the rest of the context; otherwise it is refused."""
    exact_choices: bool = False
    """Whether exact choices are the default."""
    tenants_share: bool = True
    """Whether tenants share computed prefixes and draft statistics."""


@dataclass(slots=True, kw_only=True)
class GenerationService:
    """Opens generations. Its methods run on the event loop's thread."""

    config: ServiceConfig
    worker: EngineWorker
    admission: Admission
    constraints: ConstraintCache
    bindings: Bindings
    validation: Validation
    """Checks whether complete answers under a relaxed schema satisfy the whole schema."""
    tokenizer: Tokenizer
    """The model's tokenizer, for text that is not generated."""
    adapters: Adapters
    images: ImageIntake | None = None
    observer: RequestObserver
    status_of: Callable[[LeapjsonError], int]
    clock: Callable[[], float]
    """``observer`` and ``clock`` are for the ``Timeline`` of a request."""
    fresh_seed: Callable[[], int] = lambda: secrets.randbits(63)
    _long_texts: Turns = field(default_factory=lambda: Turns(4), init=False)
    _huge_texts: Turns = field(default_factory=Turns, init=False)

    @property
    def fault(self) -> str | None:
        """Reason why nothing can be generated until a restart; or None."""
        if not self.worker.alive:
            return "the engine died"
        if self.worker.stalled:
            return f"the engine is stuck: its last step ended {self.worker.step_age:.0f} s ago"
        return None

    async def tokenize(
        self, prompt: Prompt, ticket: Ticket, *, add_special_tokens: bool = True
    ) -> Sequence[int]:
        """The tokens that a request with this prompt would have. Raises ``LeapjsonError``."""
        async with ticket.deadline().holds("the prompt had not been tokenised"):
            return (await self._plan(prompt, ticket, add_special_tokens=add_special_tokens)).prompt

    async def open(
        self, request: GenerationRequest, timeline: Timeline, ticket: Ticket
    ) -> Generation:
        """Start the answers. All reasons to refuse a request are raised here, before any output.

        Raises ``RequestError``, ``Unavailable`` or ``DeadlineExceeded``; the caller then ends the
        timeline. The caller closes the generation, which fails by itself at its deadline, and whose
        ticket leaves when its answers have ended. A cancelled call leaves nothing behind; the
        caller still owns the ticket.
        """
        config, options, adapter = self.config, request.options, request.adapter
        for token_id in options.sampling.logit_bias:
            if not 0 <= token_id < config.vocabulary_size:
                raise InvalidRequest(
                    f"logit_bias has the token id {token_id}; the vocabulary has ids 0 to "
                    f"{config.vocabulary_size - 1}",
                    param="logit_bias",
                )
        if not self.worker.alive:
            raise EngineDied(DEATH_NOTICE, retry_after=RETRY_SECONDS)
        exact = options.choices == "exact" if options.choices else config.exact_choices
        scope = "" if config.tenants_share else ticket.tenant
        if adapter is not None:
            self.adapters.hold(adapter, ticket)
            timeline.adapter = adapter.name
        deadline = ticket.deadline(options.timeout)
        ticket.take(options.n * len(request.prompts), options.tier)
        async with deadline.holds("the request had not reached the engine's queue"):
            plans = [await self._plan(prompt, ticket, request) for prompt in request.prompts]
            for plan in plans:
                _check_choices(options, plan, exact=exact)
            budgets = [self._max_tokens(options, plan) for plan in plans]
            is_set = options.max_tokens is not None or config.default_max_tokens is not None
            room = sum(
                len(plan.prompt) + (budget if is_set else min(budget, USUAL_TOKENS))
                for plan, budget in zip(plans, budgets, strict=True)
            )
            ticket.claim(options.n * room, deadline.left)
            choices: list[EngineRequest] = []
            texts: list[Quotable | None] = []
            relaxations: dict[Relaxation, None] = {}
            for at, (prompt, budget) in enumerate(zip(request.prompts, budgets, strict=True)):
                plan = plans[at]
                constraint, quotable, start = None, Quotable((), {}), None
                if plan.constraint is not None:
                    with timeline.compiling():
                        constraint = await self.constraints.get(
                            plan.constraint, ticket.tenant, ticket.tier, size=ticket.size
                        )
                        relaxations |= dict.fromkeys(constraint.relaxed)
                        if constraint.holes:
                            constraint, quotable = await self._bind(
                                constraint, prompt, scope, ticket.tenant
                            )
                        if plan.prefill_text:
                            start = await self._start(constraint, plan.prefill_text.encode())
                if plan.images is not None and plan.images.images:
                    assert self.images is not None
                    images = await self.images.encoder.encode(plan.images, ticket, scope)
                    plans[at] = plan = replace(plan, images=images)
                asked = options.spans or (options.confidence and quotable.documents)
                texts.append(quotable if asked else None)
                scored = None
                if plan.prefill is None and (plan.has_json or plan.is_text):
                    scored = ChoiceOptions(options.confidence, exact, plan.locator, plan.is_text)
                for number in range(options.n):
                    seed = self.fresh_seed() if options.seed is None else options.seed + number
                    choice = EngineRequest(
                        request_id=f"{timeline.request_id}-{len(choices)}",
                        prompt=plan.prompt,
                        max_tokens=budget,
                        images=plan.images,
                        options=options,
                        seed=seed % 2**64,
                        constraint=constraint,
                        start=start,
                        open_ended=plan.open_ended,
                        thinking=plan.thinking_budget(budget),
                        choices=scored,
                        tenant=ticket.tenant,
                        tier=ticket.tier,
                        adapter=0 if adapter is None else adapter.slot,
                        scope=scope if adapter is None else f"{adapter.scope}\n{scope}",
                    )
                    choices.append(choice)
            relaxed = None
            if relaxations:
                prefill = "" if plans[0].prefill is None else plans[0].prefill.content
                relaxed = RelaxedAnswers(
                    tuple(relaxations), request.content, request.tools, prefill
                )
                timeline.relaxed = tuple([each.keyword for each in relaxations if not each.inexact])
            generation = Generation(
                choices,
                plans,
                exact=exact,
                texts=texts,
                ticket=ticket,
                timeline=timeline,
                abort=self.worker.abort,
                status_of=self.status_of,
                relaxed=relaxed,
            )
            try:
                await self.worker.submit(choices, generation)
            except BudgetTooSmall as error:
                longest = max(len(plan.prompt) for plan in plans)
                if longest + error.needed <= config.max_sequence_tokens:
                    raise
                # No budget would do: the context leaves too little.
                raise PromptTooLong(
                    prompt_tokens=longest, room=config.max_sequence_tokens, needed=error.needed
                ) from None
        generation.expire(deadline)
        return generation

    async def _start(self, constraint: Constraint, given: bytes) -> ConstraintState:
        """The state of ``constraint`` after ``given``, computed between the engine's steps.

        Raises ``InvalidRequest`` if no answer begins with ``given``.
        """
        state = await self.worker.between_steps(constraint.start)
        if isinstance(state, ChoosingState) and state.has_exact_choices:
            raise InvalidRequest(
                "x-choice: exact cannot be combined with an assistant prefill; leave one of them "
                "out",
                role="constraint",
            )

        def accept(part: bytes) -> int:
            """Length of the longest prefix of ``part`` that the state accepts."""
            try:
                state.accept_bytes(part)
                return len(part)
            except RejectedToken:
                pass
            for at in range(len(part)):
                try:
                    state.accept_bytes(part[at : at + 1])
                except RejectedToken:
                    return at
            return len(part)

        for begin in range(0, len(given), _BYTES_BETWEEN_STEPS):
            part = given[begin : begin + _BYTES_BETWEEN_STEPS]
            accepted = await self.worker.between_steps(functools.partial(accept, part))
            if accepted < len(part):
                place = begin + accepted
                before = given[max(0, place - 40) : place].decode(errors="replace")
                raise InvalidRequest(
                    f"the assistant prefill is not the start of a valid answer: after {before!r} "
                    f"comes {given[place : place + 20].decode(errors='replace')!r}; change the "
                    "prefill",
                    role="prompt",
                )
        return state

    async def _bind(
        self, constraint: Constraint, prompt: Prompt, scope: str, tenant: str
    ) -> tuple[Constraint, Quotable]:
        """``constraint`` with its holes filled from the prompt's texts, and those texts."""
        texts = passages(prompt)
        for hole in constraint.holes if isinstance(prompt, Conversation) and prompt.images else ():
            if not any(passage.text for passage in passages_of(hole.source, texts)):
                raise InvalidRequest(
                    f"x-verbatim at {hole.pointer or 'the root'} refers to {hole.source}, which "
                    "has images and no text; leave x-verbatim out, or send the text as well",
                    role="constraint",
                )
        bound, documents = await self.bindings.bind(constraint, texts, scope, tenant)
        return bound, Quotable(texts, documents)

    async def _plan(
        self,
        prompt: Prompt,
        ticket: Ticket,
        request: GenerationRequest | None = None,
        *,
        add_special_tokens: bool = True,
    ) -> AnswerPlan:
        """The plan of the answers to ``prompt``; without ``request``, only its prompt is of use.

        Prompts with images are made on a thread.
        """
        config, expand = self.config, None
        if isinstance(prompt, Conversation) and prompt.images:
            assert self.images is not None, "images are refused where the model takes none"
            scope = "" if config.tenants_share else ticket.tenant
            images = await self.images.prepare(prompt.images, ticket, scope)
            expand = functools.partial(self.images.vision.expand, images=images)
        content, tools, room = None, None, None
        if request is not None:
            content, tools, asked = request.content, request.tools, request.options.max_tokens
            # What is left of the context beside an answer of usual length.
            usual = min(USUAL_TOKENS, config.max_sequence_tokens // 2)
            if asked is not None:
                usual = min(asked, usual) if config.clip_max_tokens else asked
            room = config.max_sequence_tokens - usual
        work = functools.partial(
            prepare,
            prompt,
            content,
            tools,
            self.tokenizer,
            config.chat_format,
            expand=expand,
            room=room,
            add_special_tokens=add_special_tokens,
        )
        length = text_length(prompt, HUGE_PROMPT)
        return await self.in_thread_if_long(
            length if expand is None else max(length, LONG_PROMPT), ticket.tenant, work
        )

    async def in_thread_if_long(self, length: int, tenant: str, work: Callable[[], T]) -> T:
        """``work()`` with the tokenizer on so many characters; tenants take turns on threads."""
        if length < LONG_PROMPT:
            return work()
        if length < HUGE_PROMPT:
            return await self._long_texts.run(tenant, lambda: asyncio.to_thread(work))

        def huge() -> T:
            try:
                return work()
            finally:
                return_freed_memory()

        return await self._huge_texts.run(tenant, lambda: asyncio.to_thread(huge))

    def _max_tokens(self, options: GenerationOptions, plan: AnswerPlan) -> int:
        room, prompt_tokens = self.config.max_sequence_tokens, len(plan.prompt)
        asked, left = options.max_tokens, room - prompt_tokens
        if prompt_tokens == 0:
            raise InvalidRequest("the prompt is empty", role="prompt")
        if left < 1:
            raise PromptTooLong(
                prompt_tokens=prompt_tokens, room=room, image_tokens=plan.image_tokens
            )
        if asked is None:
            return min(left, self.config.default_max_tokens or left)
        if asked > left and not self.config.clip_max_tokens:
            raise PromptTooLong(
                prompt_tokens=prompt_tokens,
                room=room,
                max_tokens=asked,
                image_tokens=plan.image_tokens,
            )
        return min(asked, left)


def _check_choices(options: GenerationOptions, plan: AnswerPlan, *, exact: bool) -> None:
    """Raises ``InvalidRequest`` for options that need values in the answer, if it has none or
    begins with a prefill."""
    if plan.prefill is not None:
        asked = {"confidence": options.confidence, "spans": options.spans, "choices": exact}
        for param, is_asked in asked.items():
            if is_asked:
                instead = 'send "choices": "tokens"' if param == "choices" else f"leave {param} out"
                raise InvalidRequest(
                    f"{param} cannot be combined with an assistant prefill; {instead}", param=param
                )
    has_value = plan.has_json or plan.is_text
    needed = {"confidence": options.confidence, "choices": options.choices == "exact"}
    for param, is_asked in needed.items():
        if is_asked and not has_value:
            raise InvalidRequest(
                f"{param} needs values in the answer: use a json_schema, a json_object, a choice, "
                "a regex, a grammar or tools",
                param=param,
            )
    if options.choices == "exact" and plan.translates:
        raise InvalidRequest(
            "exact choices are not supported in tool arguments, because this model does not "
            "write them as JSON; leave choices out",
            param="choices",
        )
    of_json = {"spans": options.spans, "stream_options.fields": options.fields}
    for param, is_asked in of_json.items():
        if is_asked and not plan.has_json:
            raise InvalidRequest(
                f"{param} needs values of JSON: use a json_schema or tools", param=param
            )
