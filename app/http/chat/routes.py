"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from app.core.constraint import Vocabulary
from app.http.chat.answers import AnswerHead, ChunkWriter, CompletionBuilder
from app.http.chat.translate import ChatCall, chat_call
from app.http.choices import ChoiceReaders
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
from app.serving.generation import Generation
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

PATH = "/v1/chat/completions"


def chat_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    constraints: ConstraintReader,
    wall_clock: Callable[[], float] = time.time,
) -> APIRouter:
    """The router of chat completions."""
    router = APIRouter()
    answering = _ChatAnswers(service, vocabulary, config, wall_clock)

    def parse(body: Mapping[str, Any], caller: Caller) -> ChatCall:
        return chat_call(body, caller, config, constraints)

    endpoint = Endpoint(PATH, service, config, parse=parse, respond=answering.respond)

    @router.post(PATH)
    async def create_chat_completion(request: Request) -> Response:
        return await endpoint.answer(request)

    return router


class _ChatAnswers:
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

    async def respond(self, call: ChatCall, timeline: Timeline) -> Response:
        generation = await self._service.open(call.generation, timeline)
        head = AnswerHead(
            id=f"chatcmpl-{call.generation.request_id}",
            created=int(self._wall_clock()),
            model=self._config.served_model,
            fingerprint=self._config.fingerprint,
        )
        readers = ChoiceReaders(self._config.chat_format, generation.openings, call.expected)
        vocabulary = self._vocabulary if call.logprobs else None
        if call.stream:
            await until_begun(generation)
            events = or_error_event(_events(generation, call, head, readers, vocabulary))
            return EventStream(events, close=generation.close)
        builder = CompletionBuilder(head, readers, vocabulary)
        await collect(generation, builder.add)
        usage = usage_object(generation, readers.reasoning_tokens)
        body = await made(lambda: builder.build(usage), long=call.logprobs)
        return Response(body, media_type="application/json")


async def _events(
    generation: Generation,
    call: ChatCall,
    head: AnswerHead,
    readers: ChoiceReaders,
    vocabulary: Vocabulary | None,
) -> AsyncIterator[bytes]:
    writer = ChunkWriter(
        head, readers, vocabulary, usage_key=call.include_usage or call.continuous_usage
    )
    yield b"".join(writer.introduction(index) for index in range(generation.n))
    async for events in chunk_events(
        generation,
        writer,
        lambda: usage_object(generation, readers.reasoning_tokens),
        include_usage=call.include_usage,
        continuous_usage=call.continuous_usage,
    ):
        yield events
