"""``POST /v1/chat/completions``."""

from __future__ import annotations

import functools

from fastapi import APIRouter

from app.core.constraint import Vocabulary
from app.http.answering import answer_router
from app.http.chat.answers import ChatCompletion, ChatCompletionChunk
from app.http.chat.request import chat_call
from app.http.chat.wire import ChatCompletionRequest
from app.http.config import ApiConfig
from app.http.models import ServedModels
from app.http.openapi import GENERATES, tells
from app.http.requests.constraints import ConstraintReader
from app.serving.service import GenerationService

PATH = "/v1/chat/completions"


def chat_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    models: ServedModels,
    constraints: ConstraintReader,
) -> APIRouter:
    """The router of chat completions."""
    parse = functools.partial(
        chat_call, config=config, models=models, constraints=constraints, vocabulary=vocabulary
    )
    operation = tells(
        "Answer a conversation",
        ChatCompletion,
        event=ChatCompletionChunk,
        bodies=[ChatCompletionRequest],
        errors=GENERATES,
    )
    return answer_router(PATH, operation, service, config, parse)
