"""What the server says about itself: models, health, metrics, version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from app.http.config import ApiConfig
from app.http.requests.wire import check_model
from app.serving.service import GenerationService


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

    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [served]}

    @router.get("/v1/models/{model:path}")
    async def retrieve_model(model: str) -> dict[str, Any]:
        check_model(model, config.served_model)
        return served

    @router.get("/health")
    async def health() -> JSONResponse:
        """Liveness: 503 asks for a restart."""
        fault = service.fault
        return JSONResponse({"status": fault or "ok"}, 503 if fault else 200)

    @router.get("/ready")
    async def ready() -> JSONResponse:
        """Readiness: 503 asks to send new requests elsewhere."""
        reason = service.fault or ("draining" if service.admission.draining else None)
        return JSONResponse({"status": reason or "ready"}, 503 if reason else 200)

    @router.get("/metrics")
    async def metrics() -> Response:
        content, content_type = render_metrics()
        return Response(content, media_type=content_type)

    @router.get("/version")
    async def version() -> dict[str, str]:
        return {"version": config.version}

    return router
