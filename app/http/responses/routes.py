"""``/v1/responses``: to create one; the routes of stored responses say that none is kept."""

from __future__ import annotations

import functools

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.core.constraint import Vocabulary
from app.http.answering import answer_router
from app.http.config import ApiConfig
from app.http.errors import error_object
from app.http.models import ServedModels
from app.http.openapi import GENERATES, tells
from app.http.requests.constraints import ConstraintReader
from app.http.responses.answers import ResponseEvent, ResponseObject
from app.http.responses.request import responses_call
from app.http.responses.wire import ResponsesRequest
from app.serving.service import GenerationService

PATH = "/v1/responses"


def responses_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    models: ServedModels,
    constraints: ConstraintReader,
) -> APIRouter:
    """The router of responses."""
    parse = functools.partial(
        responses_call, config=config, models=models, constraints=constraints, vocabulary=vocabulary
    )
    operation = tells(
        "Answer a list of items",
        ResponseObject,
        event=ResponseEvent,
        bodies=[ResponsesRequest],
        errors=GENERATES,
    )
    router = answer_router(PATH, operation, service, config, parse)

    for method, path, summary in (
        ("GET", "", "No response is kept"),
        ("DELETE", "", "No response is kept to be deleted"),
        ("POST", "/cancel", "No response runs in the background"),
        ("GET", "/input_items", "No response's input is kept"),
    ):
        router.add_api_route(
            f"{PATH}/{{response_id}}{path}",
            _not_kept,
            methods=[method],
            openapi_extra=tells(summary, errors=[404]),
        )
    return router


async def _not_kept(response_id: str) -> JSONResponse:
    message = f"there is no response {response_id!r}: this server keeps no responses"
    return JSONResponse(error_object(message, param="response_id"), 404)
