"""Answers, whole or as a stream: one driver for every API, which brings a renderer of its own."""

from __future__ import annotations

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response
from pydantic_core import to_json

from app.answer.pieces import Delta
from app.core.errors import LeapjsonError, RequestError, Role
from app.http.config import ApiConfig
from app.http.endpoint import Endpoint
from app.http.errors import envelope
from app.http.relaxed import relaxed_headers
from app.http.requests.ignored import Ignored
from app.http.sse import EventStream
from app.serving.admission import Ticket
from app.serving.generation import Generation
from app.serving.request import GenerationRequest
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

logger = logging.getLogger(__name__)

TOLD_HEADER = "x-leapjson-schema-in-prompt"

_UNHURRIED = 32
"""Chunks that are collected before a whole answer goes on: it need not wake for each step."""


class Renderer(ABC):
    """Writes the answers to one request in an API's words; what it returns is sent at once.

    The renderer of a whole answer returns all of it from ``end``.
    """

    def begin(self) -> bytes:
        return b""

    @abstractmethod
    def chunk(self, delta: Delta) -> bytes: ...

    @abstractmethod
    def end(self) -> bytes: ...

    def fail(self, error: Exception) -> bytes:
        """The bytes that tell of an error in a stream. For a whole answer it is raised again."""
        raise error


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A checked request: what to generate, and how to write it."""

    request: GenerationRequest
    names: Mapping[Role, str]
    """This API's names of the fields that errors name by their role."""
    renderer: Callable[[Generation], Renderer]
    stream: bool
    logprobs: bool
    """Whether log-probabilities were asked for: writing many of them takes a second."""


def answer_router(
    path: str,
    operation: dict[str, Any],
    service: GenerationService,
    config: ApiConfig,
    parse: Callable[[Mapping[str, Any], str, Ignored], AnswerCall],
) -> APIRouter:
    """The router of a route that generates.

    ``operation`` is what it tells of itself; ``parse`` checks a body: see ``Endpoint``.
    """
    respond = functools.partial(_respond, service)
    endpoint = Endpoint(path, service, config, parse=parse, respond=respond)
    router = APIRouter()
    router.post(path, openapi_extra=operation)(endpoint.answer)
    return router


async def _respond(
    service: GenerationService, call: AnswerCall, timeline: Timeline, ticket: Ticket
) -> Response:
    try:
        generation = await service.open(call.request, timeline, ticket)
        try:
            output = _output(service, generation, call, ticket)
            headers = {**relaxed_headers(generation)}
            if generation.told_schema is not None:
                told = generation.told_schema
                headers[TOLD_HEADER] = "told" if told else "left out: too long"
            if call.stream:
                await generation.begun()  # an error that comes first has a status of its own
                return EventStream(output, generation.close, headers)
            body = b"".join([data async for data in output])
        except BaseException:
            generation.close()
            raise
        generation.close()
        return Response(body, headers=headers, media_type="application/json")
    except RequestError as error:
        raise error.named(call.names) from None


async def _output(
    service: GenerationService, generation: Generation, call: AnswerCall, ticket: Ticket
) -> AsyncIterator[bytes]:
    """What is to be sent, in order; what is ready together is sent together."""
    renderer = call.renderer(generation)
    try:
        yield renderer.begin()
        async for deltas in generation.batches(1 if call.stream else _UNHURRIED):
            yield b"".join(map(renderer.chunk, deltas))
        await service.validate(generation, ticket)
        yield await asyncio.to_thread(renderer.end) if call.logprobs else renderer.end()
    except Exception as error:
        if call.stream and not isinstance(error, LeapjsonError):
            logger.exception("a stream failed")
        yield renderer.fail(error.named(call.names) if isinstance(error, RequestError) else error)


def error_event(error: Exception) -> bytes:
    """The event that ends a stream in which an answer failed: the status line is long sent."""
    return b"data: " + to_json(envelope(error)) + b"\n\n"
