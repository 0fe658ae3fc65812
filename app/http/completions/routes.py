"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from app.core.constraint import Vocabulary
from app.http.answering import AnswerCall, AnswerEndpoint
from app.http.completions.logprobs import token_name
from app.http.completions.request import completion_call
from app.http.config import ApiConfig
from app.http.endpoint import Caller
from app.http.requests.constraints import ConstraintReader
from app.serving.service import GenerationService

PATH = "/v1/completions"


def completions_router(
    service: GenerationService,
    vocabulary: Vocabulary,
    config: ApiConfig,
    constraints: ConstraintReader,
) -> APIRouter:
    """The router of completions."""
    name = token_name(vocabulary, service.tokenizer)

    def parse(body: Mapping[str, Any], caller: Caller) -> AnswerCall:
        return completion_call(body, caller, config, constraints, vocabulary.size, name)

    router = APIRouter()
    router.post(PATH)(AnswerEndpoint(PATH, service, config, parse).answer)
    return router
