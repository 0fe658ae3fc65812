"""Builds the FastAPI application."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse

from app.http import batches, files, model_routes, page, schemas, tokens
from app.http.chat import parse as chat
from app.http.completions import parse as completions
from app.http.edge import Edge
from app.http.endpoint import Api, api_of
from app.http.errors import install_error_handlers
from app.http.keys import METRICS_PATH, tenant_of
from app.http.messages import parse as messages
from app.http.openapi import Shape, describe, install_openapi, response
from app.http.responses import parse as responses
from app.telemetry.watch import Telemetry

QUEUED_PATHS = frozenset({chat.PATH, completions.PATH, messages.PATH, responses.PATH, schemas.PATH})
"""Paths whose POST requests enter the queue: answers and compilations."""


class Status(Shape):
    status: str


class Version(Shape):
    version: str
    products: str
    """The matrix multiplication code in use, and the measured times by which it was chosen."""


router = APIRouter()
"""Routes for health, readiness, metrics and version."""
_NOT_WELL = {503: response(Status, HTTPStatus(503).phrase)}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}


@router.get("/health", openapi_extra=describe("Liveness probe", Status, others=_NOT_WELL))
async def health(request: Request) -> JSONResponse:
    """Liveness: 503 asks for a restart."""
    fault = api_of(request).service.fault
    return JSONResponse({"status": fault or "ok"}, 503 if fault else 200)


@router.get("/ready", openapi_extra=describe("Readiness probe", Status, others=_NOT_WELL))
async def ready(request: Request) -> JSONResponse:
    """Readiness: 503 asks to send new requests elsewhere."""
    service = api_of(request).service
    reason = service.fault or ("draining" if service.admission.draining else None)
    return JSONResponse({"status": reason or "ready"}, 503 if reason else 200)


@router.get(
    METRICS_PATH,
    openapi_extra=describe(
        "Metrics in the Prometheus text format",
        others={200: {"description": "The metrics", "content": _TEXT}},
    ),
)
async def metrics(request: Request) -> Response:
    api = api_of(request)

    async def render() -> tuple[bytes, str]:
        return api.render_metrics()

    content, content_type = await api.scrapes.run(tenant_of(request.scope), render)
    return Response(content, media_type=content_type)


@router.get("/version", openapi_extra=describe("The server's version", Version))
async def version(request: Request) -> dict[str, str]:
    config = api_of(request).config
    return {"version": config.version, "products": config.products}


_ROUTERS = (
    chat.router,
    completions.router,
    responses.router,
    messages.router,
    tokens.router,
    schemas.router,
    model_routes.router,
    files.router,
    batches.router,
    router,
)


def build_app(
    api: Api,
    *,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
    telemetry: Callable[[FastAPI], Telemetry] | None = None,
) -> FastAPI:
    """``lifespan`` starts and stops what ``api`` needs. ``telemetry`` is called when all
    routes are installed."""
    app = FastAPI(
        title="Leapjson",
        version=api.config.version,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,  # ours is installed below
        docs_url=None,  # FastAPI's own pages load their scripts from a third party
        redoc_url=None,
    )
    app.state.api = api
    for each in _ROUTERS if api.config.page is None else (*_ROUTERS, page.router):
        app.router.routes.extend(each.routes)  # include_router would process each a second time
    install_error_handlers(app)
    install_openapi(app, _ROUTERS, api.config)
    app.add_middleware(
        Edge,
        config=api.config,
        admission=api.service.admission,
        queued_paths=QUEUED_PATHS,
        telemetry=None if telemetry is None else telemetry(app),
    )
    return app
