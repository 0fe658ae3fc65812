"""A request for an answer from its first byte to its last, the same for every endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from fastapi import Request, Response
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from app.core.errors import LeapjsonError
from app.core.events import TextChunk
from app.http.config import ApiConfig
from app.http.disconnect import ClientLeft, while_connected
from app.http.errors import envelope, error_response, status_of
from app.http.middleware.tenants import tenant_of
from app.http.requests.body import read_body
from app.serving.generation import CLIENT_LEFT, Generation
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

logger = logging.getLogger(__name__)

Call = TypeVar("Call")


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of a request before its body is read."""

    request_id: str
    tenant: str


DONE = b"data: [DONE]\n\n"


class Endpoint(Generic[Call]):
    """Reads the body by hand, for its limits; answers every error; ends when its client leaves."""

    def __init__(
        self,
        path: str,
        service: GenerationService,
        config: ApiConfig,
        *,
        parse: Callable[[Mapping[str, Any], Caller], Call],
        respond: Callable[[Call, Timeline], Coroutine[Any, Any, Response]],
    ) -> None:
        """``parse`` checks a body; ``respond`` answers.

        ``parse`` may run on a thread, where the body is large. Both raise ``LeapjsonError`` for
        what they refuse.
        """
        self._path = path
        self._service = service
        self._config = config
        self._parse = parse
        self._respond = respond

    async def answer(self, request: Request) -> Response:
        caller = Caller(request.state.request_id, tenant_of(request.scope))
        timeline = self._service.arrive(caller.request_id, self._path)
        try:
            with self._service.bodies.reading(caller.tenant) as keep:
                call = await read_body(
                    request,
                    lambda body: self._parse(body, caller),
                    keep=keep,
                    max_bytes=self._config.max_body_bytes,
                    max_nesting=self._config.max_nesting,
                )
            return await while_connected(request.receive, self._respond(call, timeline))
        except (ClientLeft, ClientDisconnect):
            timeline.end(status=CLIENT_LEFT, finish_reason="abort")
            return Response(status_code=CLIENT_LEFT)
        except Exception as error:
            if not isinstance(error, LeapjsonError):
                logger.exception("a request failed")
            timeline.end(status=status_of(error), finish_reason="error")
            return error_response(error)


_SLICE = 32
"""Chunks that are written in one go: with all log-probabilities they take some milliseconds."""


async def in_slices(
    batches: AsyncIterator[Sequence[TextChunk]],
) -> AsyncIterator[Sequence[TextChunk]]:
    """``batches`` in parts of bounded size, other tasks having their turn in between.

    What a slow client has not read yet is one batch, which may be a whole answer.
    """
    async for batch in batches:
        for start in range(0, len(batch), _SLICE):
            if start:
                await asyncio.sleep(0)
            yield batch[start : start + _SLICE]


async def until_begun(generation: Generation) -> None:
    """Wait for the first chunk, so that an error that comes first has a status of its own.

    If it does, the generation is closed, as it is when the client leaves.
    """
    try:
        await generation.begun()
    except BaseException:
        generation.close()
        raise


async def collect(generation: Generation, add: Callable[[TextChunk], object]) -> None:
    """Give ``add`` every chunk of a whole answer; the generation is closed whatever happens."""
    try:
        async for batch in in_slices(generation.batches(at_least=_SLICE)):
            for chunk in batch:
                add(chunk)
    finally:
        generation.close()


class ChunkWriter(Protocol):
    """Writes the chunks of one stream as server-sent events."""

    def chunk(self, chunk: TextChunk, usage: dict[str, Any] | None = None, /) -> bytes: ...

    def usage(self, usage: dict[str, Any], /) -> bytes:
        """The chunk with no choices that ``include_usage`` asks for."""


async def chunk_events(
    generation: Generation,
    writer: ChunkWriter,
    usage: Callable[[], dict[str, Any]],
    *,
    include_usage: bool,
    continuous_usage: bool,
) -> AsyncIterator[bytes]:
    """The events of a stream of chunks to its end; those that are ready together are one item."""
    async for batch in in_slices(generation.batches()):
        running = usage() if continuous_usage else None
        events = b"".join(writer.chunk(chunk, running) for chunk in batch)
        if events:
            yield events
    if include_usage:
        yield writer.usage(usage())
    yield DONE


async def made(build: Callable[[], bytes], *, long: bool) -> bytes:
    """What ``build`` makes; on a thread where it takes long."""
    return await asyncio.to_thread(build) if long else build()


async def or_error_event(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """``events``, and if they fail an event with the error: the status line is long sent."""
    try:
        async for event in events:
            yield event
    except Exception as error:
        if not isinstance(error, LeapjsonError):
            logger.exception("a stream failed")
        yield b"data: " + to_json(envelope(error)) + b"\n\n"
