"""``/v1/responses``: to create one, and to hear that none is kept."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import to_json

from app.core.constraint import Vocabulary
from app.core.errors import LeapjsonError, RequestError
from app.http.choices import ChoiceReaders
from app.http.config import ApiConfig
from app.http.endpoint import Caller, Endpoint, collect, in_slices, made, until_begun
from app.http.requests.constraints import ConstraintReader
from app.http.responses.answers import Answer, EventWriter, ResponseHead
from app.http.responses.translate import ResponsesCall, in_own_terms, responses_call
from app.http.sse import EventStream
from app.http.usage import usage_object
from app.serving.generation import Generation
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

logger = logging.getLogger(__name__)

PATH = "/v1/responses"


def responses_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    constraints: ConstraintReader,
    wall_clock: Callable[[], float] = time.time,
) -> APIRouter:
    """The router of responses."""
    router = APIRouter()
    answering = _Responses(service, vocabulary, config, wall_clock)

    def parse(body: Mapping[str, Any], caller: Caller) -> ResponsesCall:
        return responses_call(body, caller, config, constraints)

    endpoint = Endpoint(PATH, service, config, parse=parse, respond=answering.respond)

    @router.post(PATH)
    async def create_response(request: Request) -> Response:
        return await endpoint.answer(request)

    @router.get(PATH + "/{response_id}")
    async def retrieve_response(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    @router.delete(PATH + "/{response_id}")
    async def delete_response(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    @router.post(PATH + "/{response_id}/cancel")
    async def cancel_response(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    @router.get(PATH + "/{response_id}/input_items")
    async def list_input_items(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    return router


class _Responses:
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

    async def respond(self, call: ResponsesCall, timeline: Timeline) -> Response:
        try:
            return await self._respond(call, timeline)
        except RequestError as error:
            raise in_own_terms(error) from None

    async def _respond(self, call: ResponsesCall, timeline: Timeline) -> Response:
        generation = await self._service.open(call.generation, timeline)
        head = ResponseHead(
            key=call.generation.request_id,
            created=int(self._wall_clock()),
            model=self._config.served_model,
            settings=call.settings,
        )
        readers = ChoiceReaders(self._config.chat_format, generation.openings, call.expected)
        answer = Answer(head, readers, self._vocabulary if call.logprobs else None)
        if call.stream:
            await until_begun(generation)
            return EventStream(self._stream(generation, readers, answer), close=generation.close)
        await collect(generation, answer.add)
        end = answer.end(_usage(generation, readers), self._wall_clock())
        body = await made(lambda: to_json(end["response"]), long=call.logprobs)
        return Response(body, media_type="application/json")

    async def _stream(
        self, generation: Generation, readers: ChoiceReaders, answer: Answer
    ) -> AsyncIterator[bytes]:
        """The events of a stream; those that are ready together are one item."""
        writer = EventWriter()
        try:
            yield writer.write(answer.begin())
            async for batch in in_slices(generation.batches()):
                events = b"".join(writer.write(answer.add(chunk)) for chunk in batch)
                if events:
                    yield events
            end = answer.end(_usage(generation, readers), self._wall_clock())
            yield writer.write([end])
        except Exception as error:
            if not isinstance(error, LeapjsonError):
                logger.exception("a stream failed")
            yield writer.write(answer.fail(in_own_terms(error)))


def _usage(generation: Generation, readers: ChoiceReaders) -> dict[str, Any]:
    return usage_object(generation, readers.reasoning_tokens)


def _not_kept(response_id: str) -> JSONResponse:
    message = f"there is no response {response_id!r}: this server keeps no responses"
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "response_id",
        "code": None,
    }
    return JSONResponse({"error": error}, 404)
