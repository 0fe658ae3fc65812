"""``POST /v1/chat/completions``."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from app.api.answers import AnswerHead, ChunkWriter, CompletionBuilder, usage_object
from app.api.body import read_json_object
from app.api.config import ApiConfig
from app.api.disconnect import ClientLeft, while_connected
from app.api.errors import envelope, error_response, status_of
from app.api.sse import EventStream
from app.api.translate import ChatCall, chat_call
from app.core.constraint import Vocabulary
from app.core.errors import LeapjsonError
from app.serving.generation import CLIENT_LEFT, Generation
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

logger = logging.getLogger(__name__)

PATH = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"


def chat_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    wall_clock: Callable[[], float] = time.time,
) -> APIRouter:
    """The router of chat completions; the body is read by hand, for its limits."""
    router = APIRouter()
    handler = _ChatHandler(service, vocabulary, config, wall_clock)

    @router.post(PATH)
    async def create_chat_completion(request: Request) -> Response:
        return await handler.answer(request)

    return router


class _ChatHandler:
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

    async def answer(self, request: Request) -> Response:
        request_id: str = request.state.request_id
        timeline = self._service.arrive(request_id, PATH)
        try:
            call = await self._read(request, request_id)
            return await while_connected(request.receive, self._respond(call, timeline))
        except (ClientLeft, ClientDisconnect):
            timeline.end(status=CLIENT_LEFT, finish_reason="abort")
            return Response(status_code=CLIENT_LEFT)
        except Exception as error:
            if not isinstance(error, LeapjsonError):
                logger.exception("a request failed")
            timeline.end(status=status_of(error), finish_reason="error")
            return error_response(error)

    async def _read(self, request: Request, request_id: str) -> ChatCall:
        body = await read_json_object(
            request,
            max_bytes=self._config.max_body_bytes,
            max_nesting=self._config.max_nesting,
        )
        return chat_call(body, request_id, self._config)

    async def _respond(self, call: ChatCall, timeline: Timeline) -> Response:
        generation = await self._service.open(call.generation, timeline)
        head = AnswerHead(
            id=f"chatcmpl-{call.generation.request_id}",
            created=int(self._wall_clock()),
            model=self._config.served_model,
            fingerprint=self._config.fingerprint,
        )
        vocabulary = self._vocabulary if call.logprobs else None
        if call.stream:
            return EventStream(_events(generation, call, head, vocabulary), close=generation.close)
        try:
            builder = CompletionBuilder(head, generation.n, vocabulary)
            async for batch in generation.batches():
                for chunk in batch:
                    builder.add(chunk)
        finally:
            generation.close()
        content = builder.build(usage_object(generation.prompt_tokens, generation.usage))
        return Response(content, media_type="application/json")


async def _events(
    generation: Generation, call: ChatCall, head: AnswerHead, vocabulary: Vocabulary | None
) -> AsyncIterator[bytes]:
    """The events of a stream; those that are ready together are one item."""

    def usage() -> dict[str, Any]:
        return usage_object(generation.prompt_tokens, generation.usage)

    writer = ChunkWriter(head, vocabulary, usage_key=call.include_usage or call.continuous_usage)
    yield b"".join(writer.introduction(index) for index in range(generation.n))
    try:
        async for batch in generation.batches():
            running = usage() if call.continuous_usage else None
            yield b"".join(writer.chunk(chunk, running) for chunk in batch)
    except Exception as error:
        # The status line is long sent: the error is an event, and no [DONE] follows it.
        if not isinstance(error, LeapjsonError):
            logger.exception("a stream failed")
        yield b"data: " + to_json(envelope(error)) + b"\n\n"
        return
    if call.include_usage:
        yield writer.usage(usage())
    yield DONE
