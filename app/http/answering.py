"""Answers, whole or as a stream: one driver for every API, which brings a renderer of its own."""

from __future__ import annotations

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fastapi import APIRouter, Response
from pydantic_core import to_json

from app.answer.pieces import Delta
from app.core.errors import LeapjsonError, RequestError, Role
from app.http.config import ApiConfig
from app.http.endpoint import Api, Endpoint, Resume
from app.http.errors import envelope
from app.http.relaxed import relaxed_headers
from app.http.sse import EventStream
from app.serving.admission import Ticket
from app.serving.generation import Generation
from app.serving.request import GenerationRequest
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

logger = logging.getLogger(__name__)

TOLD = "x-leapjson-schema-in-prompt"
CLIPPED = "x-leapjson-max-tokens"

_UNHURRIED = 32
"""Chunks that are collected before a whole answer goes on: it need not wake for each step."""


class Renderer(ABC):
    """Writes the answers to one request in an API's words; what it returns is sent at once.

    The renderer of a whole answer returns all of it from ``end``.
    """

    response: Mapping[str, Any] | None = None
    """The answer as an object once it has ended, of an API whose answers are kept."""
    ping: ClassVar[bytes] = b": ping\n\n"
    """What tells a client that waits for a stream that its answer is worked on."""

    def begin(self) -> bytes:
        """What comes before the first delta, or before an error where the API wants it there."""
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
    keep: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    """Keeps the answer for later requests, before its end is sent; None: it is not kept."""


def answer_router(
    path: str,
    operation: dict[str, Any],
    api: Api,
    parse: Callable[..., AnswerCall],
    resume: Resume | None = None,
) -> APIRouter:
    """The router of a route that generates.

    ``operation`` is what it tells of itself; ``parse`` checks a body: see ``Endpoint``.
    """
    endpoint = Endpoint(
        path,
        api,
        parse=functools.partial(parse, api=api),
        respond=functools.partial(_respond, api.service, api.config),
        resume=resume,
    )
    router = APIRouter()
    router.post(path, openapi_extra=operation)(endpoint.answer)
    return router


async def _respond(
    service: GenerationService,
    config: ApiConfig,
    call: AnswerCall,
    timeline: Timeline,
    ticket: Ticket,
) -> Response:
    try:
        generation = await service.open(call.request, timeline, ticket)
        try:
            output = _output(service, generation, call, ticket, config.ping_seconds)
            headers = {
                **relaxed_headers(generation),
                **_headers(generation, call.request.options.max_tokens),
            }
            if call.stream:
                await generation.begun(within=config.head_seconds)
                return EventStream(output, generation.close, headers)
            body = b"".join([data async for data in output])
        except BaseException:
            generation.close()
            raise
        generation.close()
        return Response(body, headers=headers, media_type="application/json")
    except RequestError as error:
        raise error.named(call.names) from None


def _headers(generation: Generation, asked: int | None) -> dict[str, str]:
    """Whether the prompt has the schema, where it was to have it; and the ``max_tokens`` that the
    context left, where more were ``asked`` for."""
    headers, told = {}, generation.told_schema
    if told is not None:
        headers[TOLD] = "told" if told else "left out: too long"
    if asked is not None and generation.max_tokens < asked:
        headers[CLIPPED] = str(generation.max_tokens)
    return headers


async def _output(
    service: GenerationService,
    generation: Generation,
    call: AnswerCall,
    ticket: Ticket,
    ping_seconds: float,
) -> AsyncIterator[bytes]:
    """What is to be sent, in order; what is ready together is sent together."""
    renderer = call.renderer(generation)
    begun = False
    try:
        batches = (
            generation.batches(silence=ping_seconds)
            if call.stream
            else generation.batches(_UNHURRIED)
        )
        async for deltas in batches:
            if not deltas:
                yield renderer.ping
                continue
            head = b"" if begun else renderer.begin()
            begun = True
            yield head + b"".join(map(renderer.chunk, deltas))
        await service.validate(generation, ticket)
        data = await asyncio.to_thread(renderer.end) if call.logprobs else renderer.end()
        if call.keep is not None and renderer.response is not None:
            await call.keep(renderer.response)
        yield data
    except Exception as error:
        if call.stream and not isinstance(error, LeapjsonError):
            logger.exception("a stream failed")
        yield renderer.fail(error.named(call.names) if isinstance(error, RequestError) else error)


def error_event(error: Exception) -> bytes:
    """The event that ends a stream in which an answer failed: the status line is long sent."""
    return b"data: " + to_json(envelope(error)) + b"\n\n"
