"""``/v1/batches`` as OpenAI has it, and ``/v1/usage``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field, create_model

from app.core.errors import InvalidRequest
from app.http.endpoint import Api, api_of, endpoint
from app.http.errors import NotKept, StoreOff
from app.http.files import KEPT_SECONDS, expiry, page, paging
from app.http.keys import owner_of
from app.http.openapi import Page, Shape, describe
from app.http.requests.wire import Body, Ignored, Metadata, Wire
from app.serving.admission import Ticket
from app.store.rows import COUNTS
from app.store.store import Store

PATH = "/v1/batches"
_ONE = f"{PATH}/{{batch_id}}"
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
"""Paths that the requests of a batch may use."""
WINDOW_SECONDS = 86_400
_MOST_LISTED = 100
_MOST_DAYS = 366

_MOMENTS = (
    "in_progress", "expires", "finalizing", "completed", "failed", "expired", "cancelling",
    "cancelled",
)  # fmt: skip


class ExpiresAfter(Wire):
    anchor: Literal["created_at"]
    seconds: int


class BatchRequest(Body):
    input_file_id: Annotated[str, Field(max_length=64)]
    endpoint: Literal[ENDPOINTS]  # type: ignore[valid-type]
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchError(Shape):
    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrors(Shape):
    object: Literal["list"]
    data: list[BatchError]


class RequestCounts(Shape):
    total: int
    completed: int
    failed: int


class _BatchObject(Shape):
    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: Literal[
        "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
        "cancelled",
    ]  # fmt: skip
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    request_counts: RequestCounts
    metadata: dict[str, str] | None


BatchObject = create_model(
    "BatchObject", __base__=_BatchObject, **{f"{each}_at": (int | None, ...) for each in _MOMENTS}
)  # type: ignore[call-overload]


UsageDay = create_model(
    "UsageDay", __base__=Shape, day=(str, ...), **dict.fromkeys(COUNTS, (int, ...))
)  # type: ignore[call-overload]


class UsageList(Shape):
    object: Literal["list"]
    data: list[UsageDay]  # type: ignore[valid-type]


def _parse(body: Mapping[str, Any], ignored: Ignored, api: Api) -> BatchRequest:
    api.stored("batches")
    return BatchRequest.read(body, ignored)


async def _create(call: BatchRequest, ticket: Ticket, api: Api) -> dict[str, Any]:
    after, seconds = call.output_expires_after, KEPT_SECONDS
    if after is not None:
        seconds = expiry(after.anchor, after.seconds, "output_expires_after")
    store, owner = api.stored("batches"), api.config.api_keys.owners.get(ticket.tenant, "")
    file = await store.run(store.state.find_file, owner, call.input_file_id)
    if file is None or file["purpose"] != "batch":
        raise InvalidRequest(
            f"there is no file {call.input_file_id!r} with the purpose batch", param="input_file_id"
        )
    row = {
        "endpoint": call.endpoint,
        "input_file_id": call.input_file_id,
        "input_bytes": file["bytes"],
        "completion_window": call.completion_window,
        "window_seconds": WINDOW_SECONDS,
        "output_seconds": seconds,
        "metadata": call.metadata,
    }
    batch = await store.run(store.state.add_batch, owner, row, api.config.key_batches)
    api.wake()
    return _shown(batch)


router = APIRouter()
router.post(
    PATH,
    openapi_extra=describe(
        "Answer the requests of a file",
        BatchObject,
        bodies=[BatchRequest],
        errors=[400, 404, 413, 429, 503],
    ),
)(endpoint(PATH, _parse, _create))


async def _find(batch_id: str, request: Request) -> tuple[Store, Mapping[str, Any]]:
    store = api_of(request).stored("batches")
    found = await store.run(store.state.find_batch, owner_of(request.scope), batch_id)
    if found is None:
        message = f"there is no batch {batch_id[:64]!r}, or it belongs to another API key"
        raise NotKept(message, param="batch_id")
    return store, found


@router.get(_ONE, openapi_extra=describe("A batch", BatchObject, errors=[404, 503]))
async def retrieve(batch_id: str, request: Request) -> dict[str, Any]:
    _, found = await _find(batch_id, request)
    return _shown(found)


@router.post(
    f"{_ONE}/cancel", openapi_extra=describe("Cancel a batch", BatchObject, errors=[400, 404, 503])
)
async def cancel(batch_id: str, request: Request) -> dict[str, Any]:
    store, found = await _find(batch_id, request)
    if found["status"] not in ("validating", "in_progress", "cancelling", "cancelled"):
        raise InvalidRequest(
            f"the batch is {found['status']} and can no longer be cancelled", param="batch_id"
        )
    await store.run(store.state.cancel, batch_id)
    api_of(request).wake()
    return await retrieve(batch_id, request)


@router.get(
    PATH,
    openapi_extra=describe(
        "The batches of an API key",
        Page[BatchObject],  # type: ignore[valid-type]
        query=("limit", "after"),
        errors=[400, 404, 503],
    ),
)
async def list_batches(request: Request) -> dict[str, Any]:
    after, limit, _ = paging(request, _MOST_LISTED, 20)
    store, owner = api_of(request).stored("batches"), owner_of(request.scope)
    found = await store.run(store.state.list_batches, owner, after, limit + 1)
    return page([_shown(row) for row in found], limit)


@router.get(
    "/v1/usage",
    openapi_extra=describe(
        "Requests and tokens of an API key, by day",
        UsageList,
        query=("start", "end"),
        errors=[400, 404, 503],
    ),
)
async def find_usage(request: Request) -> dict[str, Any]:
    """``start`` and ``end`` are days of UTC, both included; by default the last 30."""
    if (usage := api_of(request).usage) is None:
        raise StoreOff("usage counts")
    last = request.query_params.get("end", f"{datetime.now(UTC):%Y-%m-%d}")
    first = request.query_params.get("start", f"{_day(last, 'end') - timedelta(29):%Y-%m-%d}")
    if not 0 <= (_day(last, "end") - _day(first, "start")).days < _MOST_DAYS:
        raise InvalidRequest(
            f"start and end must span 1 to {_MOST_DAYS} days, with start first", param="start"
        )
    rows = await usage.find(owner_of(request.scope), first, last)
    names = ("day", *COUNTS)
    return {"object": "list", "data": [{name: row[name] for name in names} for row in rows]}


def _day(text: str, param: str) -> datetime:
    try:
        if re.fullmatch(r"[12]\d{3}-\d\d-\d\d", text, re.ASCII):
            return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        pass
    raise InvalidRequest(f"{param} is {text[:64]!r}; write a day like 2026-11-26", param=param)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    errors = row.get("errors")
    names = ("id", "endpoint", "input_file_id", "completion_window", "status", "created_at")
    others = ("output_file_id", "error_file_id", "metadata", *[f"{each}_at" for each in _MOMENTS])
    return {
        "object": "batch",
        **{name: row[name] for name in names},
        **{name: row.get(name) for name in others},
        "errors": None if errors is None else {"object": "list", "data": errors},
        "request_counts": {name: row[name] for name in ("total", "completed", "failed")},
    }
