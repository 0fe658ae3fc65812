"""What the server says about itself: models, health, metrics, version."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from app.http.config import ApiConfig
from app.http.middleware.auth import METRICS_PATH
from app.http.openapi import Shape, response, tells
from app.http.requests.wire import check_model
from app.serving.service import GenerationService


class ModelObject(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(Shape):
    object: Literal["list"]
    data: list[ModelObject]


class Status(Shape):
    status: str


class Version(Shape):
    version: str


def meta_router(
    service: GenerationService, config: ApiConfig, render_metrics: Callable[[], tuple[bytes, str]]
) -> APIRouter:
    """``render_metrics`` gives the exposition and its content type."""
    router = APIRouter()
    served = {
        "id": config.served_model,
        "object": "model",
        "created": config.created,
        "owned_by": "leapjson",
        "max_model_len": config.max_model_len,
    }
    not_well = {503: response(Status, HTTPStatus(503).phrase)}

    @router.get("/v1/models", openapi_extra=tells("The model that is served", ModelList))
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [served]}

    @router.get(
        "/v1/models/{model:path}",
        openapi_extra=tells("A model by its name", ModelObject, errors=[404]),
    )
    async def retrieve_model(model: str) -> dict[str, Any]:
        check_model(model, config.served_model)
        return served

    @router.get("/health", openapi_extra=tells("Whether it lives", Status, others=not_well))
    async def health() -> JSONResponse:
        """Liveness: 503 asks for a restart."""
        fault = service.fault
        return JSONResponse({"status": fault or "ok"}, 503 if fault else 200)

    @router.get("/ready", openapi_extra=tells("Whether it takes requests", Status, others=not_well))
    async def ready() -> JSONResponse:
        """Readiness: 503 asks to send new requests elsewhere."""
        reason = service.fault or ("draining" if service.admission.draining else None)
        return JSONResponse({"status": reason or "ready"}, 503 if reason else 200)

    text = {"text/plain": {"schema": {"type": "string"}}}
    operation = tells(
        "Metrics in Prometheus' text format",
        others={200: {"description": "The metrics", "content": text}},
    )

    @router.get(METRICS_PATH, openapi_extra=operation)
    async def metrics() -> Response:
        content, content_type = render_metrics()
        return Response(content, media_type=content_type)

    @router.get("/version", openapi_extra=tells("The server's version", Version))
    async def version() -> dict[str, str]:
        return {"version": config.version}

    return router
