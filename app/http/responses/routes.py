"""``/v1/responses``: to create one, and to hear that none is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.core.constraint import Vocabulary
from app.http.answering import AnswerCall, AnswerEndpoint
from app.http.config import ApiConfig
from app.http.endpoint import Caller
from app.http.requests.constraints import ConstraintReader
from app.http.responses.request import responses_call
from app.serving.service import GenerationService

PATH = "/v1/responses"


def responses_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    constraints: ConstraintReader,
) -> APIRouter:
    """The router of responses."""

    def parse(body: Mapping[str, Any], caller: Caller) -> AnswerCall:
        return responses_call(body, caller, config, constraints, vocabulary)

    router = APIRouter()
    router.post(PATH)(AnswerEndpoint(PATH, service, config, parse).answer)

    @router.get(PATH + "/{response_id}")
    async def retrieve_response(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    @router.delete(PATH + "/{response_id}")
    async def delete_response(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    @router.post(PATH + "/{response_id}/cancel")
    async def cancel_response(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    @router.get(PATH + "/{response_id}/input_items")
    async def list_input_items(response_id: str) -> JSONResponse:
        return _not_kept(response_id)

    return router


def _not_kept(response_id: str) -> JSONResponse:
    message = f"there is no response {response_id!r}: this server keeps no responses"
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "response_id",
        "code": None,
    }
    return JSONResponse({"error": error}, 404)
