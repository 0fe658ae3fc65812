"""The FastAPI application, put together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI

from app.api.chat import chat_router
from app.api.config import ApiConfig
from app.api.errors import install_error_handlers
from app.api.meta import meta_router
from app.api.request_ids import RequestIds
from app.core.constraint import Vocabulary
from app.serving.service import GenerationService


def build_app(
    config: ApiConfig,
    *,
    service: GenerationService,
    vocabulary: Vocabulary,
    render_metrics: Callable[[], tuple[bytes, str]],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """``lifespan`` starts and stops what ``service`` needs."""
    app = FastAPI(
        title="Leapjson", version=config.version, lifespan=lifespan, redirect_slashes=False
    )
    app.include_router(chat_router(service, vocabulary, config))
    app.include_router(meta_router(service, config, render_metrics))
    install_error_handlers(app)
    app.add_middleware(RequestIds)
    return app
