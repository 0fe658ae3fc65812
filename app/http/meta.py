"""What the server says about itself: health, metrics, version."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from app.http.config import ApiConfig
from app.http.keys import METRICS_PATH
from app.http.openapi import Shape, response, tells
from app.serving.service import GenerationService


class Status(Shape):
    status: str


class Version(Shape):
    version: str


def meta_router(
    service: GenerationService, config: ApiConfig, render_metrics: Callable[[], tuple[bytes, str]]
) -> APIRouter:
    """``render_metrics`` gives the exposition and its content type."""
    router = APIRouter()
    not_well = {503: response(Status, HTTPStatus(503).phrase)}

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
