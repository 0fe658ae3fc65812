"""``/v1/responses``: to create one, and those that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import to_json

from app.answer.prompt import Conversation
from app.core.errors import InvalidRequest
from app.http.answering import answer_router
from app.http.endpoint import Api, Endpoint, json_of
from app.http.errors import NotKept
from app.http.openapi import GENERATES, tells
from app.http.requests.ignored import Ignored
from app.http.responses.answers import (
    CountedInput,
    DeletedResponse,
    InputItems,
    ResponseEvent,
    ResponseObject,
)
from app.http.responses.kept import Conversations, not_kept
from app.http.responses.request import read_conversation, read_format, responses_call
from app.http.responses.wire import ConversationFields, ResponsesRequest
from app.serving.admission import Ticket
from app.serving.kept_responses import KeptResponse, ResponseStore

PATH = "/v1/responses"
COUNT = f"{PATH}/input_tokens"
_ONE = f"{PATH}/{{response_id}}"

_MOST_LISTED = 100


def responses_router(api: Api, store: ResponseStore | None) -> APIRouter:
    """The router of responses. ``store`` None: none are kept."""

    async def resume(body: dict[str, Any], request: Request) -> tuple[Mapping[str, Any], int]:
        return (body, 0) if store is None else await conversations(request).resume(body)

    def conversations(request: Request) -> Conversations:
        assert store is not None
        return Conversations(store, _owner(request), api.config.max_body_bytes)

    operation = tells(
        "Answer a list of items",
        ResponseObject,
        event=ResponseEvent,
        bodies=[ResponsesRequest],
        errors=GENERATES,
    )
    router = answer_router(PATH, operation, api, responses_call, resume)

    def parse_count(body: Mapping[str, Any], request_id: str, ignored: Ignored) -> Conversation:
        wire = ConversationFields.read(body, ignored)
        api.models.find(wire.model)
        content = api.constraints.response_format(read_format(wire), ignored, "text.format")
        return read_conversation(wire, body, ignored, api.config, content)[0]

    async def count(prompt: Conversation, ticket: Ticket) -> dict[str, Any]:
        tokens = await api.service.tokenize(prompt, ticket)
        return {"object": "response.input_tokens", "input_tokens": len(tokens)}

    endpoint = Endpoint(COUNT, api, parse=parse_count, respond=json_of(count), resume=resume)
    operation = tells(
        "The tokens of a response's prompt",
        CountedInput,
        bodies=[ConversationFields],
        errors=(400, 404, 413, 429, 504),
    )
    router.post(COUNT, openapi_extra=operation)(endpoint.answer)

    async def kept(response_id: str, request: Request) -> KeptResponse:
        found = None if store is None else await store.find(_owner(request), response_id)
        if found is None:
            raise NotKept(not_kept(response_id), param="response_id")
        return found

    @router.get(_ONE, openapi_extra=tells("A kept response", ResponseObject, errors=[400, 404]))
    async def retrieve(response_id: str, request: Request) -> Response:
        if request.query_params.get("stream") == "true":
            raise InvalidRequest(
                "kept responses are not streamed; leave stream out", param="stream"
            )
        found = await kept(response_id, request)
        return Response(found.response, media_type="application/json")

    @router.delete(_ONE, openapi_extra=tells("Delete a kept one", DeletedResponse, errors=[404]))
    async def delete(response_id: str, request: Request) -> Response:
        await kept(response_id, request)
        assert store is not None
        await store.delete(_owner(request), response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    @router.post(f"{_ONE}/cancel", openapi_extra=tells("None can be cancelled", errors=[400, 404]))
    async def cancel(response_id: str, request: Request) -> Response:
        await kept(response_id, request)
        raise InvalidRequest("no response runs in the background; leave the connection to end one")

    @router.get(
        f"{_ONE}/input_items",
        openapi_extra=tells("The items it was made from", InputItems, errors=[400, 404, 413]),
    )
    async def input_items(response_id: str, request: Request) -> Response:
        """``order`` (desc, asc), ``limit`` and ``after``, an item's id, as OpenAI has them."""
        found = await kept(response_id, request)
        items = await conversations(request).input_of(found)
        return Response(to_json(_page(items, request.query_params)), media_type="application/json")

    return router


def _owner(request: Request) -> str:
    """Whose responses a request sees: those of its API key, or of all that have none."""
    owner: str = request.scope.get("state", {}).get("tenant", "")
    return owner


def _page(items: list[dict[str, Any]], asked: Mapping[str, str]) -> dict[str, Any]:
    """A part of ``items`` as a list object. Raises ``InvalidRequest``."""
    order, limit, after = asked.get("order", "desc"), asked.get("limit", "20"), asked.get("after")
    if order not in ("asc", "desc"):
        raise InvalidRequest(f"order is {order[:64]!r}; it is asc or desc", param="order")
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit) <= _MOST_LISTED:
        raise InvalidRequest(f"limit has to be 1 to {_MOST_LISTED}", param="limit")
    if order == "desc":
        items = items[::-1]
    if after is not None:
        names = [each["id"] for each in items]
        if after not in names:
            raise InvalidRequest(f"after: there is no item {after[:64]!r}", param="after")
        items = items[names.index(after) + 1 :]
    shown = items[: int(limit)]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(items) > len(shown),
    }
