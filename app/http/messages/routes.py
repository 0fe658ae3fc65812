"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response
from pydantic_core import to_json

from app.answer.prompt import Conversation
from app.http.answering import answer_router
from app.http.config import ApiConfig
from app.http.endpoint import Endpoint
from app.http.errors import ANTHROPIC
from app.http.messages.answers import AnsweredMessage, CountedTokens, MessageEvent
from app.http.messages.request import messages_call, read_conversation
from app.http.messages.wire import CountTokensRequest, MessagesRequest
from app.http.models import ServedModels
from app.http.openapi import GENERATES, MessagesError, tells
from app.http.requests.ignored import Ignored
from app.serving.admission import Ticket
from app.serving.service import GenerationService
from app.serving.timeline import Timeline

PATH = ANTHROPIC
COUNT = f"{PATH}/count_tokens"


def messages_router(
    service: GenerationService, config: ApiConfig, models: ServedModels
) -> APIRouter:
    """The router of both."""
    operation = tells(
        "Answer a conversation, in Anthropic's words",
        AnsweredMessage,
        event=MessageEvent,
        bodies=[MessagesRequest],
        errors=GENERATES,
        envelope=MessagesError,
    )
    parse = functools.partial(messages_call, config=config, models=models)
    router = answer_router(PATH, operation, service, config, parse)

    def parse_count(body: Mapping[str, Any], request_id: str, ignored: Ignored) -> Conversation:
        wire = CountTokensRequest.read(body, ignored)
        models.find(wire.model)
        return read_conversation(wire, ignored, config)[0]

    async def count(prompt: Conversation, timeline: Timeline, ticket: Ticket) -> Response:
        tokens = await service.tokenize(prompt, ticket)
        timeline.end(status=200, finish_reason="stop")
        return Response(to_json({"input_tokens": len(tokens)}), media_type="application/json")

    endpoint = Endpoint(COUNT, service, config, parse=parse_count, respond=count)
    operation = tells(
        "The tokens of a conversation's prompt",
        CountedTokens,
        bodies=[CountTokensRequest],
        errors=(400, 404, 413, 429, 504),
        envelope=MessagesError,
    )
    router.post(COUNT, openapi_extra=operation)(endpoint.answer)
    return router
