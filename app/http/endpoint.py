"""Handling of a request: read, parse, answer whole or as a stream."""

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
from app.http.errors import StoreOff, drop_tracebacks, error_response, status_of
from app.http.keys import owner_of
from app.http.models import ServedModels
from app.http.reports import relaxed_headers
from app.http.requests.body import read_body
from app.http.requests.constraints import ConstraintReader
from app.http.requests.wire import Body, Ignored
from app.serving.admission import Ticket
from app.serving.compiling.graphs import Graphs
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.generation import CLIENT_LEFT, Generation
from app.serving.kept_responses import ResponseStore
from app.serving.service import GenerationRequest, GenerationService
from app.serving.tasks import Turns, in_thread_if_large
from app.serving.timeline import Timeline
from app.serving.usage import UsageByKey
from app.store.store import Store

logger = logging.getLogger(__name__)

SCHEMA_IN_PROMPT = "x-leapjson-schema-in-prompt"
CLIPPED = "x-leapjson-max-tokens"

_MOST_FETCHED = 16
"""Maximum schemas that are read from the store for one request."""
_UNSTREAMED_CHUNKS = 32
"""Chunks that are collected before the task of an unstreamed answer wakes."""

Call = TypeVar("Call")
T = TypeVar("T")
Wired = TypeVar("Wired", bound=Body)


@dataclass(slots=True, kw_only=True)
class Api:
    """The objects that routes read and answer requests with: an application's ``state.api``."""

    config: ApiConfig
    service: GenerationService
    vocabulary: Vocabulary
    schemas: SchemaRegistry
    graphs: Graphs
    render_metrics: Callable[[], tuple[bytes, str]]
    """Returns the metrics text and its content type."""
    responses: ResponseStore | None = None
    """None: responses are not stored."""
    store: Store | None = None
    """None: files and batches are disabled."""
    usage: UsageByKey | None = None
    """None: usage is not counted by key."""
    wake: Callable[[], None] = lambda: None
    """Called after a batch was created or cancelled."""
    scrapes: Turns = field(default_factory=Turns)
    """Turns to render metrics, which takes the event loop 10 ms: its other work comes between."""
    models: ServedModels = field(init=False)
    constraints: ConstraintReader = field(init=False)

    def __post_init__(self) -> None:
        self.models = ServedModels(self.config, self.service.adapters)
        self.constraints = ConstraintReader(self.config.whitespace, self.schemas.schema)

    def stored(self, what: str) -> Store:
        """The store. Raises ``StoreOff`` if there is none, for ``what``."""
        if self.store is None:
            raise StoreOff(what)
        return self.store


def api_of(request: Request) -> Api:
    api: Api = request.app.state.api
    return api


def reading(body: type[Wired]) -> Callable[[Mapping[str, Any], Ignored, Api], Wired]:
    """A ``parse`` of ``endpoint`` that only reads ``body``."""
    return lambda given, ignored, _: body.read(given, ignored)


def endpoint(
    path: str,
    parse: Callable[[Mapping[str, Any], Ignored, Api], Call],
    respond: Callable[[Call, Ticket, Api], Coroutine[Any, Any, Any]] | None = None,
    *,
    resume: Callable[[dict[str, Any], Request], Awaitable[tuple[Mapping[str, Any], int]]]
    | None = None,
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """A handler that reads the body itself, for its limits, and stops if the client disconnects.

    ``parse`` checks a body, perhaps on a thread; fields that it ignores are named in the answer's
    headers. ``respond`` returns the answer, its JSON or a value; None: ``parse`` returns an
    ``AnswerCall``. ``resume`` returns the body with the items that it refers to, and their size in
    bytes. All raise ``LeapjsonError``, and every error is answered.
    """

    async def answer(request: Request) -> Response:
        api = api_of(request)
        ticket: Ticket = request.state.ticket
        timeline = Timeline(
            path,
            request.state.request_id,
            api.service.observer,
            api.service.clock,
            owner_of(request.scope),
        )
        ignored = Ignored(refuses=api.config.unknown_fields == "refuse")
        try:
            async with ticket.deadline().holds("the request had not been parsed"):
                with ticket.reading():
                    read, size = await read_body(
                        request, ticket, api.config.max_body_bytes, api.config.max_nesting
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
    """The result of ``parse``, repeated after each unknown schema that is found in the store."""
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
    """Writes the answers to one request in an API's format; the bytes returned are sent at once.

    The renderer of an unstreamed answer returns all of it from ``end``.
    """

    response: Mapping[str, Any] | None = None
    """The finished answer as an object, for APIs whose answers are stored."""
    ping: ClassVar[bytes] = b": ping\n\n"
    """Sent while a stream is silent."""

    def begin(self) -> bytes:
        """The bytes before the first pieces, or before an error if the API requires them there."""
        return b""

    @abstractmethod
    def chunk(self, index: int, pieces: Sequence[Piece]) -> bytes:
        """The bytes for ``pieces`` of the choice ``index``; b"" if there is nothing to send."""

    @abstractmethod
    def end(self) -> bytes: ...

    def fail(self, error: Exception) -> bytes:
        """The event of an error in a stream; for an unstreamed answer the error is raised."""
        raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCall(GenerationRequest):
    """A checked request: what to generate, and how to write it."""

    names: Mapping[Role, str]
    """Names of this API's fields by the role that errors give."""
    renderer: Callable[[Generation], Renderer]
    stream: bool
    logprobs: bool
    """Whether log-probabilities were asked for: writing many of them takes a second."""
    keep: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    """Stores the answer for later requests, before its end is sent; None: it is not stored."""


async def _generate(api: Api, call: AnswerCall, timeline: Timeline, ticket: Ticket) -> Response:
    """Start the generation, and return its rendered answer, whole or as a stream."""
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
    """The bytes to send, in order; all that is ready is sent together."""
    renderer, begun = call.renderer(generation), False
    silence = api.config.ping_seconds if call.stream else None
    try:
        at_least = 1 if call.stream else _UNSTREAMED_CHUNKS
        async for deltas in generation.batches(at_least, silence=silence):
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
        drop_tracebacks(error)
        yield event


class ClientLeft(Exception):
    """The client disconnected before the work was done."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``. If the client disconnects first, cancel it and raise ``ClientLeft``.

    ``receive`` is the request's ASGI channel, from which the body has been read: the next message
    is the disconnect.
    """
    task = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait({task, listener}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        task.cancel()
        listener.cancel()
        await asyncio.gather(task, listener, return_exceptions=True)  # until they have cleaned up


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends the items of ``events``, each in one write, as they come; empty ones are skipped.

    A slow client delays only its own ``events``. ``close`` is called once at the end, even if the
    client disconnected or nothing was sent.
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
        # The base class has set the length of an empty body.
        del self.headers["content-length"]
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with contextlib.suppress(ClientLeft):
                # Bypasses the layers that only need the head: see ``app.http.edge``.
                body: Send = scope.get("state", {}).get("send_body", send)
                await while_connected(receive, self._write(send, body))
        finally:
            self._close()

    async def _write(self, send_head: Send, send_body: Send) -> None:
        await send_head(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        async for event in self._events:
            if not event:
                continue
            await send_body({"type": "http.response.body", "body": event, "more_body": True})
        await send_body({"type": "http.response.body", "body": b"", "more_body": False})
