"""The FastAPI application, put together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI

from app.api.chat.routes import PATH as CHAT
from app.api.chat.routes import chat_router
from app.api.completions.routes import PATH as COMPLETIONS
from app.api.completions.routes import completions_router
from app.api.config import ApiConfig
from app.api.constraints import ConstraintReader
from app.api.errors import install_error_handlers
from app.api.headers import install_edges
from app.api.meta import meta_router
from app.api.openapi import install_openapi
from app.api.responses.routes import PATH as RESPONSES
from app.api.responses.routes import responses_router
from app.api.schemas import PATH as SCHEMAS
from app.api.schemas import schemas_router
from app.api.tokens import tokens_router
from app.core.constraint import Vocabulary
from app.serving.compiling.schema_registry import SchemaRegistry
from app.serving.service import GenerationService

TAKE_ROOM = frozenset({CHAT, COMPLETIONS, RESPONSES, SCHEMAS})
"""Where a POST asks for an answer, or for a compilation."""


def build_app(
    config: ApiConfig,
    *,
    service: GenerationService,
    vocabulary: Vocabulary,
    schemas: SchemaRegistry,
    render_metrics: Callable[[], tuple[bytes, str]],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """``lifespan`` starts and stops what ``service`` needs."""
    app = FastAPI(
        title="Leapjson", version=config.version, lifespan=lifespan, redirect_slashes=False
    )
    constraints = ConstraintReader(config.whitespace, schemas.schema)
    app.include_router(chat_router(service, vocabulary, config, constraints))
    app.include_router(completions_router(service, vocabulary, config, constraints))
    app.include_router(responses_router(service, vocabulary, config, constraints))
    app.include_router(tokens_router(service, vocabulary, config))
    app.include_router(schemas_router(schemas, service, config, constraints))
    app.include_router(meta_router(service, config, render_metrics))
    install_error_handlers(app)
    install_openapi(app, config)
    install_edges(app, config, service, TAKE_ROOM)
    return app
