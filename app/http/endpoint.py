"""A request from its first byte to its last: read, parsed, answered whole or as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar

from fastapi import Request, Response
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.answer.pieces import Piece
from app.core.constraint import Vocabulary
from app.core.errors import InvalidRequest, LeapjsonError, RequestError, Role, UnknownSchema
from app.http.config import ApiConfig
from app.http.errors import error_response, let_go, status_of
from app.http.keys import owner_of
from app.http.models import ServedModels
from app.http.reports import relaxed_headers
from app.http.requests.body import read_body
from app.http.requests.constraints import ConstraintReader
from app.http.requests.wire import Ignored
from app.serving.admission import Ticket
from app.serving.compiling.graphs import Graphs
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.generation import CLIENT_LEFT, Generation
from app.serving.kept_responses import ResponseStore
from app.serving.service import GenerationRequest, GenerationService
from app.serving.tasks import in_thread_if_large
from app.serving.timeline import Timeline
from app.serving.usage import UsageByKey
from app.store.store import Store

logger = logging.getLogger(__name__)

SCHEMA_IN_PROMPT = "x-leapjson-schema-in-prompt"
CLIPPED = "x-leapjson-max-tokens"

_MOST_FETCHED = 16
"""Schemas of one request that are read from the store."""
_UNHURRIED = 32
"""Chunks that are collected of an answer that is not streamed before it is woken."""
UPLOADS = 8
"""At a time, of all clients: each has a file on the disk until it is in the store."""

Call = TypeVar("Call")
T = TypeVar("T")


@dataclass(slots=True)
class Api:
    """What routes read requests with, and answer them: an application's ``state.api``."""

    config: ApiConfig
    service: GenerationService
    vocabulary: Vocabulary
    schemas: SchemaRegistry
    graphs: Graphs
    render_metrics: Callable[[], tuple[bytes, str]]
    """The exposition and its type."""
    responses: ResponseStore | None = None
    """None: none are kept."""
    store: Store | None = None
    """None: there are no files and batches."""
    usage: UsageByKey | None = None
    wake: Callable[[], None] = lambda: None
    """Called when a batch is made or cancelled."""
    models: ServedModels = field(init=False)
    constraints: ConstraintReader = field(init=False)
    uploads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UPLOADS))
    large_answers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Of ``/tokenize`` and ``/detokenize``."""

    def __post_init__(self) -> None:
        self.models = ServedModels(self.config, self.service.adapters)
        self.constraints = ConstraintReader(self.config.whitespace, self.schemas.schema)


def api_of(request: Request) -> Api:
    api: Api = request.app.state.api
    return api


def endpoint(
    path: str,
    parse: Callable[[Mapping[str, Any], Ignored, Api], Call],
    respond: Callable[[Call, Ticket, Api], Coroutine[Any, Any, Any]] | None = None,
    *,
    resume: Callable[[dict[str, Any], Request], Awaitable[tuple[Mapping[str, Any], int]]]
    | None = None,
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Reads the body by hand, for its limits; answers every error; ends when its client leaves.

    ``parse`` checks a body, perhaps on a thread; fields that it leaves out are named in the
    answer's headers. ``respond`` returns the answer, its JSON or a value; None: the body is parsed
    to an ``AnswerCall``. ``resume`` puts into a body what it refers to, and returns how many bytes
    more that has. All raise ``LeapjsonError``.
    """

    async def answer(request: Request) -> Response:
        api, ticket = api_of(request), request.state.ticket
        config = api.config
        timeline = Timeline(
            path,
            request.state.request_id,
            api.service.observer,
            api.service.clock,
            owner_of(request.scope),
        )
        ignored = Ignored(refuses=config.unknown_fields == "refuse")
        try:
            async with ticket.deadline().holds("the request had not been parsed"):
                with ticket.reading():
                    read, size = await read_body(
                        request, ticket, config.max_body_bytes, config.max_nesting
                    )
                    body: Mapping[str, Any] = read
                    if resume is not None:
                        body, more = await resume(read, request)
                        size += more
                    parsing = partial(parse, body, ignored, api)
                    call = await _parsed(api, size, ticket.tenant, parsing)
            if respond is None:
                assert isinstance(call, AnswerCall)
                work = _generate(api, call, timeline, ticket)
                response = await while_connected(request.receive, work)
            else:
                found = await while_connected(request.receive, respond(call, ticket, api))
                timeline.end(status=200, finish_reason="stop")
                data = found if isinstance(found, bytes) else to_json(found)
                response = Response(data, media_type="application/json")
            response.headers.update(ignored.headers)
            return response
        except (ClientLeft, ClientDisconnect):
            timeline.end(status=CLIENT_LEFT, finish_reason="abort")
            return Response(status_code=CLIENT_LEFT)
        except Exception as error:
            timeline.end(status=status_of(error), finish_reason="error")
            return error_response(error, path)

    return answer


async def _parsed(api: Api, size: int, tenant: str, parse: Callable[[], Call]) -> Call:
    """``parse()``, again after each unknown schema that the store had."""
    for _ in range(_MOST_FETCHED):
        try:
            return await in_thread_if_large(size, tenant, parse)
        except UnknownSchema as error:
            if not (error.schema_id and await api.schemas.fetch(error.schema_id)):
                raise
    raise InvalidRequest(
        f"the request refers to more than {_MOST_FETCHED} schemas that this server had to read "
        "from the store (the limit); send it again"
    )


class Renderer(ABC):
    """Writes the answers to one request in an API's form; what it returns is sent at once.

    The renderer of an answer that is not streamed returns all of it from ``end``.
    """

    response: Mapping[str, Any] | None = None
    """The answer as an object once it has ended, of an API whose answers are kept."""
    ping: ClassVar[bytes] = b": ping\n\n"
    """Sent while a stream is silent."""

    def begin(self) -> bytes:
        """What comes before the first pieces, or before an error where the API wants it there."""
        return b""

    @abstractmethod
    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        """What was added to the choice ``index``; b"" where there is nothing to send."""

    @abstractmethod
    def end(self) -> bytes: ...

    def fail(self, error: Exception) -> bytes:
        """The event of an error in a stream. Of an answer that is not streamed it is raised."""
        raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCall(GenerationRequest):
    """A checked request: what to generate, and how to write it."""

    names: Mapping[Role, str]
    """This API's names of the fields that errors name by their role."""
    renderer: Callable[[Generation], Renderer]
    stream: bool
    logprobs: bool
    """Whether log-probabilities were asked for: writing many of them takes a second."""
    keep: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    """Keeps the answer for later requests, before its end is sent; None: it is not kept."""


async def _generate(api: Api, call: AnswerCall, timeline: Timeline, ticket: Ticket) -> Response:
    """Open the generation and send what its renderer writes: at once, or as a stream."""
    try:
        generation = await api.service.open(call, timeline, ticket)
        try:
            output = _output(api, generation, call)
            headers = relaxed_headers(generation)
            if generation.shows_schema is not None:
                shown = "told" if generation.shows_schema else "left out: too long"
                headers[SCHEMA_IN_PROMPT] = shown
            asked = call.options.max_tokens
            if asked is not None and generation.max_tokens < asked:
                headers[CLIPPED] = str(generation.max_tokens)
            if call.stream:
                await generation.begun(within=api.config.head_seconds)
                return EventStream(output, generation.close, headers)
            body = b"".join([data async for data in output])
        except BaseException:
            generation.close()
            raise
        generation.close()
        return Response(body, headers=headers, media_type="application/json")
    except RequestError as error:
        raise error.named(call.names) from None


async def _output(api: Api, generation: Generation, call: AnswerCall) -> AsyncIterator[bytes]:
    """What is to be sent, in order; what is ready together is sent together."""
    renderer, begun = call.renderer(generation), False
    silence = api.config.ping_seconds if call.stream else None
    try:
        async for deltas in generation.batches(1 if call.stream else _UNHURRIED, silence=silence):
            if not deltas:
                yield renderer.ping
                continue
            head = b"" if begun else renderer.begin()
            begun = True
            yield head + b"".join([renderer.chunk(*each) for each in deltas])
        if generation.relaxed is not None:
            await api.service.validation.complete(generation.relaxed, generation.tenant)
        data = await asyncio.to_thread(renderer.end) if call.logprobs else renderer.end()
        if call.keep is not None and renderer.response is not None:
            await call.keep(renderer.response)
        yield data
    except Exception as error:
        if call.stream and not isinstance(error, LeapjsonError):
            logger.exception("a stream failed")
        event = renderer.fail(error.named(call.names) if isinstance(error, RequestError) else error)
        let_go(error)
        yield event


class ClientLeft(Exception):
    """The connection closed before the work was done; nobody reads the answer."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; if the client leaves first, ``work`` is cancelled: ``ClientLeft``.

    ``receive`` is the request's ASGI channel, from which the body has been read: the next message
    is that the client has left.
    """
    task = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait({task, listener}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        await _cancel(task)
        await _cancel(listener)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel and wait, so that what the task cleans up is clean when this returns."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved: the caller has raised it already, or nobody is left to see


class EventStream(Response):
    """Sends what ``events`` yields, each item in one write, as it comes; empty ones are left out.

    A slow client makes ``events`` wait and nobody else. ``close`` is called once in the end,
    whether the stream was read to its end, the client left or nothing was sent at all.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        close: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        own = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(headers={**own, **(headers or {})})
        # The length of an empty body, which the base class has counted, is not this body's.
        del self.headers["content-length"]
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with contextlib.suppress(ClientLeft):
                # Past the layers that look at the head alone: see ``app.http.edge``.
                body: Send = scope.get("state", {}).get("send_body", send)
                await while_connected(receive, self._write(send, body))
        finally:
            self._close()

    async def _write(self, send_head: Send, send_body: Send) -> None:
        await send_head(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        async for event in self._events:
            if not event:
                continue
            await send_body({"type": "http.response.body", "body": event, "more_body": True})
        await send_body({"type": "http.response.body", "body": b"", "more_body": False})
