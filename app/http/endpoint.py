"""A request for an answer from its first byte to its last, the same for every endpoint."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request, Response
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from app.core.constraint import Vocabulary
from app.core.errors import LeapjsonError
from app.http.config import ApiConfig
from app.http.disconnect import ClientLeft, while_connected
from app.http.errors import error_response, status_of
from app.http.models import ServedModels
from app.http.requests.body import in_thread_if_large, read_body
from app.http.requests.constraints import ConstraintReader
from app.http.requests.ignored import Ignored
from app.serving.admission import Ticket
from app.serving.generation import CLIENT_LEFT
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

logger = logging.getLogger(__name__)

Call = TypeVar("Call")

Resume = Callable[[dict[str, Any], Request], Awaitable[tuple[Mapping[str, Any], int]]]
"""From a body to what it stands for, and how many bytes more that has."""


@dataclass(frozen=True, slots=True)
class Api:
    """What routes read requests with, and answer them."""

    service: GenerationService
    vocabulary: Vocabulary
    config: ApiConfig
    models: ServedModels
    constraints: ConstraintReader


def json_of(
    answer: Callable[[Call, Ticket], Awaitable[Any]],
) -> Callable[[Call, Timeline, Ticket], Coroutine[Any, Any, Response]]:
    """``respond`` of an endpoint that generates nothing: ``answer`` gives its JSON, or a value."""

    async def respond(call: Call, timeline: Timeline, ticket: Ticket) -> Response:
        content = await answer(call, ticket)
        timeline.end(status=200, finish_reason="stop")
        data = content if isinstance(content, bytes) else to_json(content)
        return Response(data, media_type="application/json")

    return respond


class Endpoint(Generic[Call]):
    """Reads the body by hand, for its limits; answers every error; ends when its client leaves."""

    def __init__(
        self,
        path: str,
        api: Api,
        *,
        parse: Callable[[Mapping[str, Any], str, Ignored], Call],
        respond: Callable[[Call, Timeline, Ticket], Coroutine[Any, Any, Response]],
        resume: Resume | None = None,
    ) -> None:
        """``parse`` checks a body, with the request's id; ``respond`` answers.

        What ``parse`` tells ``Ignored`` of is named in the answer's headers. ``resume`` puts into a
        body what it refers to.

        ``parse`` may run on a thread, where the body is large. All raise ``LeapjsonError`` for
        what they refuse.
        """
        self._resume = resume
        self._path = path
        self._service = api.service
        self._config = api.config
        self._parse = parse
        self._respond = respond

    async def answer(self, request: Request) -> Response:
        ticket: Ticket = request.state.ticket
        request_id: str = request.state.request_id
        timeline = self._service.arrive(self._path)
        ignored = Ignored(refuses=self._config.unknown_fields == "refuse")
        try:
            async with ticket.deadline().holds("the request was not read"):
                with ticket.reading() as keep:
                    read, size = await read_body(
                        request,
                        keep=keep,
                        max_bytes=self._config.max_body_bytes,
                        max_nesting=self._config.max_nesting,
                    )
                    body: Mapping[str, Any] = read
                    if self._resume is not None:
                        body, more = await self._resume(read, request)
                        size += more
                    call = await in_thread_if_large(
                        size, lambda: self._parse(body, request_id, ignored)
                    )
            response = await while_connected(request.receive, self._respond(call, timeline, ticket))
            response.headers.update(ignored.headers)
            return response
        except (ClientLeft, ClientDisconnect):
            timeline.end(status=CLIENT_LEFT, finish_reason="abort")
            return Response(status_code=CLIENT_LEFT)
        except Exception as error:
            if not isinstance(error, LeapjsonError):
                logger.exception("a request failed")
            timeline.end(status=status_of(error), finish_reason="error")
            return error_response(error, self._path)
