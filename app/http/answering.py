"""Answers, whole or as a stream: one driver for every API, which brings a renderer of its own."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Response
from pydantic_core import to_json

from app.answer.pieces import Delta
from app.core.errors import LeapjsonError, RequestError, Role
from app.http.config import ApiConfig
from app.http.endpoint import Caller, Endpoint
from app.http.errors import envelope
from app.http.sse import EventStream
from app.serving.generation import Generation
from app.serving.request import GenerationRequest
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

logger = logging.getLogger(__name__)

_SLICE = 32
"""Deltas that are written in one go: with all log-probabilities they take some milliseconds."""


class Renderer(Protocol):
    """Writes the answers to one request in an API's words; what it returns is sent as it comes.

    That of a whole answer returns all of it in the end.
    """

    def begin(self) -> bytes: ...

    def chunk(self, delta: Delta, /) -> bytes: ...

    def end(self) -> bytes: ...

    def fail(self, error: Exception, /) -> bytes:
        """What is said of an error in a stream; that of a whole answer is raised again."""


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A checked request: what to generate, and how to write it."""

    request: GenerationRequest
    names: Mapping[Role, str]
    """What this API calls the fields that errors name by their role."""
    renderer: Callable[[Generation], Renderer]
    stream: bool
    logprobs: bool
    """Whether log-probabilities were asked for: to write many takes a second."""


def answer_endpoint(
    path: str,
    service: GenerationService,
    config: ApiConfig,
    parse: Callable[[Mapping[str, Any], Caller], AnswerCall],
) -> Endpoint[AnswerCall]:
    """An endpoint that generates. ``parse`` checks a body: see ``Endpoint``."""
    respond = functools.partial(_respond, service)
    return Endpoint(path, service, config, parse=parse, respond=respond)


async def _respond(service: GenerationService, call: AnswerCall, timeline: Timeline) -> Response:
    try:
        generation = await service.open(call.request, timeline)
        parts = _parts(generation, call)
        if call.stream:
            await _until_begun(generation)
            return EventStream(parts, close=generation.close)
        try:
            body = b"".join([part async for part in parts])
        finally:
            generation.close()
        return Response(body, media_type="application/json")
    except RequestError as error:
        raise error.named(call.names) from None


async def _until_begun(generation: Generation) -> None:
    """Wait for the first delta, so that an error that comes first has a status of its own.

    If it does, the generation is closed, as it is when the client leaves.
    """
    try:
        await generation.begun()
    except BaseException:
        generation.close()
        raise


async def _parts(generation: Generation, call: AnswerCall) -> AsyncIterator[bytes]:
    """What is to be sent, in turn; what is ready together is one part."""
    renderer = call.renderer(generation)
    try:
        yield renderer.begin()
        at_least = 1 if call.stream else _SLICE
        async for deltas in in_slices(generation.batches(at_least)):
            yield b"".join([renderer.chunk(delta) for delta in deltas])
        yield await asyncio.to_thread(renderer.end) if call.logprobs else renderer.end()
    except Exception as error:
        if call.stream and not isinstance(error, LeapjsonError):
            logger.exception("a stream failed")
        yield renderer.fail(error.named(call.names) if isinstance(error, RequestError) else error)


async def in_slices(batches: AsyncIterator[Sequence[Delta]]) -> AsyncIterator[Sequence[Delta]]:
    """``batches`` in parts of bounded size, other tasks having their turn in between.

    What a slow client has not read yet is one batch, which may be a whole answer.
    """
    async for batch in batches:
        for start in range(0, len(batch), _SLICE):
            if start:
                await asyncio.sleep(0)
            yield batch[start : start + _SLICE]


def error_event(error: Exception) -> bytes:
    """The event that ends a stream in which an answer failed: the status line is long sent."""
    return b"data: " + to_json(envelope(error)) + b"\n\n"
