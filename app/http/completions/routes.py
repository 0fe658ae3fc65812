"""``POST /v1/completions``: reads a request, answers whole or as a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from app.core.constraint import Vocabulary
from app.http.completions.answers import CompletionBuilder, CompletionHead, CompletionWriter
from app.http.completions.logprobs import spelled
from app.http.completions.translate import CompletionCall, completion_call
from app.http.config import ApiConfig
from app.http.endpoint import (
    Caller,
    Endpoint,
    chunk_events,
    collect,
    made,
    or_error_event,
    until_begun,
)
from app.http.requests.constraints import ConstraintReader
from app.http.sse import EventStream
from app.http.usage import usage_object
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

PATH = "/v1/completions"


def completions_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    constraints: ConstraintReader,
    wall_clock: Callable[[], float] = time.time,
) -> APIRouter:
    """The router of completions."""
    router = APIRouter()
    answering = _CompletionAnswers(service, vocabulary, config, wall_clock)

    def parse(body: Mapping[str, Any], caller: Caller) -> CompletionCall:
        return completion_call(body, caller, config, constraints, vocabulary.size)

    endpoint = Endpoint(PATH, service, config, parse=parse, respond=answering.respond)

    @router.post(PATH)
    async def create_completion(request: Request) -> Response:
        return await endpoint.answer(request)

    return router


class _CompletionAnswers:
    """Answers checked requests, whole or as a stream."""

    def __init__(
        self,
        service: GenerationService,
        vocabulary: Vocabulary,
        config: ApiConfig,
        wall_clock: Callable[[], float],
    ) -> None:
        self._service = service
        self._vocabulary = vocabulary
        self._config = config
        self._wall_clock = wall_clock

    async def respond(self, call: CompletionCall, timeline: Timeline) -> Response:
        generation = await self._service.open(call.generation, timeline)
        head = CompletionHead(
            id=f"cmpl-{call.generation.request_id}",
            created=int(self._wall_clock()),
            model=self._config.served_model,
            fingerprint=self._config.fingerprint,
        )
        name = self._name if call.logprobs else None
        if call.stream:
            await until_begun(generation)
            writer = CompletionWriter(
                head, generation.n, name, usage_key=call.include_usage or call.continuous_usage
            )
            events = chunk_events(
                generation,
                writer,
                lambda: usage_object(generation),
                include_usage=call.include_usage,
                continuous_usage=call.continuous_usage,
            )
            return EventStream(or_error_event(events), close=generation.close)
        builder = CompletionBuilder(head, generation.n, name)
        await collect(generation, builder.add)
        usage = usage_object(generation)
        body = await made(lambda: builder.build(usage), long=call.logprobs)
        return Response(body, media_type="application/json")

    def _name(self, token: int) -> str:
        """Tokens without bytes of their own are special ones, which the tokenizer can write."""
        data = self._vocabulary.token_bytes[token]
        return self._service.tokenizer.decode([token]) if data is None else spelled(data)
