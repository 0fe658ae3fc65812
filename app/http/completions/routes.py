"""``POST /v1/completions``."""

from __future__ import annotations

import functools

from fastapi import APIRouter

from app.core.constraint import Vocabulary
from app.http.answering import answer_router
from app.http.completions.answers import Completion, CompletionChunk
from app.http.completions.logprobs import token_name
from app.http.completions.request import completion_call
from app.http.completions.wire import CompletionRequest
from app.http.config import ApiConfig
from app.http.models import ServedModels
from app.http.openapi import GENERATES, tells
from app.http.requests.constraints import ConstraintReader
from app.serving.service import GenerationService

PATH = "/v1/completions"


def completions_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    models: ServedModels,
    constraints: ConstraintReader,
) -> APIRouter:
    """The router of completions."""
    parse = functools.partial(
        completion_call,
        config=config,
        models=models,
        constraints=constraints,
        vocabulary=vocabulary,
        token_name=token_name(vocabulary, service.tokenizer),
    )
    operation = tells(
        "Continue a text",
        Completion,
        event=CompletionChunk,
        bodies=[CompletionRequest],
        errors=GENERATES,
    )
    return answer_router(PATH, operation, service, config, parse)
