"""From a request's JSON to what is to be generated and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.core.constraint import Vocabulary
from app.core.errors import InvalidRequest
from app.http.answering import AnswerCall
from app.http.completions.logprobs import TokenName
from app.http.completions.prompts import read_prompts
from app.http.completions.render import completion_renderer
from app.http.completions.wire import CompletionRequest
from app.http.config import ApiConfig
from app.http.models import ServedModels
from app.http.requests.constraints import ConstraintReader
from app.http.requests.generation import generation_request, token_limit
from app.http.requests.ignored import Ignored

DEFAULT_MAX_TOKENS = 16
"""OpenAI's, for this endpoint alone."""


def completion_call(
    body: Mapping[str, Any],
    request_id: str,
    ignored: Ignored,
    config: ApiConfig,
    models: ServedModels,
    constraints: ConstraintReader,
    vocabulary: Vocabulary,
    token_name: TokenName,
) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = CompletionRequest.read(body, ignored)
    model = models.find(wire.model)
    n = wire.n or 1
    if wire.best_of not in (None, n):
        raise InvalidRequest(
            f"best_of is {wire.best_of}, but n is {n} and this server generates no choices that it "
            "does not return; leave best_of out",
            param="best_of",
        )
    limit, max_tokens = token_limit(wire, "max_tokens", default=DEFAULT_MAX_TOKENS)
    content = constraints.read(wire, wire.response_format, ignored)
    prompts = read_prompts(
        wire.prompt, n=n, max_choices=config.max_n, vocabulary_size=vocabulary.size
    )
    scores_prompt = wire.echo and wire.logprobs is not None
    if scores_prompt and content.spec is not None:
        raise InvalidRequest(
            f"echo with logprobs is for free text, and {content.param} is given; leave one out",
            param="echo",
        )
    request = generation_request(
        wire,
        request_id,
        model.adapter,
        prompts,
        content=content.spec,
        n=n,
        max_tokens=max_tokens,
        logprobs=wire.logprobs,
        choices=wire,
    )
    if scores_prompt:
        request = replace(request, prompt_logprobs=wire.logprobs)
    return AnswerCall(
        request,
        names={"prompt": "prompt", "max_tokens": limit, "constraint": content.param},
        renderer=completion_renderer(
            wire, request_id, model, vocabulary, token_name, prompts if wire.echo else ()
        ),
        stream=bool(wire.stream),
        logprobs=wire.logprobs is not None,
    )
