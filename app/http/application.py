"""The FastAPI application, put together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse

from app.core.constraint import Vocabulary
from app.http.batches import batches_router, usage_router
from app.http.chat.parse import PATH as CHAT
from app.http.chat.parse import chat_router
from app.http.completions.parse import PATH as COMPLETIONS
from app.http.completions.parse import completions_router
from app.http.config import ApiConfig
from app.http.edge import Edge
from app.http.endpoint import Api
from app.http.errors import install_error_handlers
from app.http.files import files_router
from app.http.keys import METRICS_PATH
from app.http.messages.parse import PATH as MESSAGES
from app.http.messages.parse import messages_router
from app.http.model_routes import models_router
from app.http.models import ServedModels
from app.http.openapi import Shape, describe, install_openapi, response
from app.http.page import page_router
from app.http.requests.constraints import ConstraintReader
from app.http.responses.parse import PATH as RESPONSES
from app.http.responses.parse import responses_router
from app.http.schemas import PATH as SCHEMAS
from app.http.schemas import schemas_router
from app.http.tokens import tokens_router
from app.serving.compiling.graphs import Graphs
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.kept_responses import ResponseStore
from app.serving.service import GenerationService
from app.serving.usage import UsageByKey
from app.store.store import Store
from app.telemetry.watch import Telemetry

QUEUED_PATHS = frozenset({CHAT, COMPLETIONS, MESSAGES, RESPONSES, SCHEMAS})
"""Paths where a POST asks for an answer, or for a compilation."""


class Status(Shape):
    status: str


class Version(Shape):
    version: str
    products: str
    """The code that multiplies the model's matrices, and the times by which it was chosen."""


def build_app(
    config: ApiConfig,
    *,
    service: GenerationService,
    vocabulary: Vocabulary,
    schemas: SchemaRegistry,
    graphs: Graphs,
    responses: ResponseStore | None = None,
    store: Store | None = None,
    usage: UsageByKey | None = None,
    wake: Callable[[], None] = lambda: None,
    render_metrics: Callable[[], tuple[bytes, str]],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
    telemetry: Callable[[FastAPI], Telemetry] | None = None,
) -> FastAPI:
    """``lifespan`` starts and stops what ``service`` needs. ``responses`` None: none are kept.
    ``store`` and ``usage`` None: there are no files and batches. ``wake`` is called when a batch is
    made or cancelled. ``telemetry`` is made when the routes are complete."""
    app = FastAPI(
        title="Leapjson",
        version=config.version,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's own pages load their scripts from a third party
        redoc_url=None,
    )
    constraints = ConstraintReader(config.whitespace, schemas.schema)
    models = ServedModels(config, service.adapters)
    api = Api(service, vocabulary, config, models, constraints, schemas.fetch)
    routers = (
        chat_router(api),
        completions_router(api),
        responses_router(api, responses),
        messages_router(api),
        tokens_router(api),
        schemas_router(api, schemas, graphs),
        models_router(api),
        files_router(store, config),
        batches_router(api, store, wake),
        usage_router(usage),
        _meta_router(service, config, render_metrics),
    )
    for router in routers:
        app.router.routes.extend(router.routes)  # to include it would examine each a second time
    if config.page is not None:
        app.include_router(page_router(config.page))
    install_error_handlers(app)
    install_openapi(app, routers, config)
    app.add_middleware(
        Edge,
        config=config,
        admission=service.admission,
        queued_paths=QUEUED_PATHS,
        telemetry=None if telemetry is None else telemetry(app),
    )
    return app


def _meta_router(
    service: GenerationService, config: ApiConfig, render_metrics: Callable[[], tuple[bytes, str]]
) -> APIRouter:
    """What the server says about itself. ``render_metrics`` gives the exposition and its type."""
    router = APIRouter()
    not_well = {503: response(Status, HTTPStatus(503).phrase)}

    @router.get("/health", openapi_extra=describe("Liveness probe", Status, others=not_well))
    async def health() -> JSONResponse:
        """Liveness: 503 asks for a restart."""
        fault = service.fault
        return JSONResponse({"status": fault or "ok"}, 503 if fault else 200)

    @router.get("/ready", openapi_extra=describe("Readiness probe", Status, others=not_well))
    async def ready() -> JSONResponse:
        """Readiness: 503 asks to send new requests elsewhere."""
        reason = service.fault or ("draining" if service.admission.draining else None)
        return JSONResponse({"status": reason or "ready"}, 503 if reason else 200)

    text = {"text/plain": {"schema": {"type": "string"}}}
    operation = describe(
        "Metrics in the Prometheus text format",
        others={200: {"description": "The metrics", "content": text}},
    )

    @router.get(METRICS_PATH, openapi_extra=operation)
    async def metrics() -> Response:
        content, content_type = render_metrics()
        return Response(content, media_type=content_type)

    @router.get("/version", openapi_extra=describe("The server's version", Version))
    async def version() -> dict[str, str]:
        return {"version": config.version, "products": config.products}

    return router
