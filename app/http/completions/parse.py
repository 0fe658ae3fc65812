"""``POST /v1/completions``: OpenAI's JSON, with extensions -> generation request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field, WithJsonSchema

from app.answer.prompt import Prompt, TextPrompt, TokenPrompt
from app.core.errors import InvalidRequest
from app.http.completions.write import Completion, CompletionChunk, completion_renderer, token_name
from app.http.endpoint import AnswerCall, Api, endpoint
from app.http.openapi import GENERATES, describe
from app.http.requests.constraints import ConstraintFields
from app.http.requests.fields import GenerationFields, answer_call, stream_options, token_limit
from app.http.requests.unsupported import COMPLETIONS, NO_EFFECT
from app.http.requests.wire import Count, Ignored, TokenLimit, invalid, missing

_TOKEN_SCHEMA = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        _TOKEN_SCHEMA,
        {"type": "array", "minItems": 1, "items": _TOKEN_SCHEMA},
    ]
}


class CompletionRequest(GenerationFields, ConstraintFields):
    """The fields this server acts on; None means the default, as OpenAI takes null."""

    unsupported = COMPLETIONS
    no_effect = NO_EFFECT

    model: str
    # Checked by hand: a union would check every one of a million tokens four times over.
    prompt: Annotated[Any, WithJsonSchema(_PROMPT_SCHEMA)]
    n: Count | None = None
    best_of: Count | None = None
    max_tokens: TokenLimit | None = None
    """16 where it is missing or null, as OpenAI has it for this endpoint."""
    echo: bool | None = None
    """The text begins with the prompt; with ``logprobs``, its tokens are reported as well."""
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    """Number of likeliest tokens to report for each token, with all log-probabilities."""


PATH = "/v1/completions"
DEFAULT_MAX_TOKENS = 16
"""OpenAI's default, for this endpoint only."""

_EXPECTED = "a text, a list of texts, a list of token ids, or a list of lists of token ids"
_SLICE = 1 << 16
"""Number of tokens that are checked at a time; other threads may run in between."""


def completion_call(body: Mapping[str, Any], ignored: Ignored, api: Api) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire, vocabulary = CompletionRequest.read(body, ignored), api.vocabulary
    model = api.models.find(wire.model)
    n = wire.n or 1
    if wire.best_of not in (None, n):
        raise InvalidRequest(
            f"best_of is {wire.best_of} and n is {n}; this server generates no choices beyond n: "
            "leave best_of out",
            param="best_of",
        )
    limit = token_limit(wire, "max_tokens", default=DEFAULT_MAX_TOKENS)
    content = param, spec = api.constraints.read(wire, wire.response_format, ignored)
    prompts = _prompts(
        wire.prompt, n=n, max_choices=api.config.max_n, vocabulary_size=vocabulary.size
    )
    scores_prompt = wire.echo and wire.logprobs is not None
    if scores_prompt and spec is not None:
        raise InvalidRequest(
            f"echo with logprobs cannot be combined with {param}; leave one out", param="echo"
        )
    return answer_call(
        wire,
        model,
        prompts,
        content,
        limit,
        partial(
            completion_renderer,
            model=model,
            stream=stream_options(wire) if wire.stream else None,
            vocabulary=vocabulary,
            token_name=token_name(vocabulary, api.service.tokenizer),
            logprobs=wire.logprobs is not None,
            echoed=prompts if wire.echo else (),
        ),
        prompt="prompt",
        n=n,
        logprobs=wire.logprobs,
        prompt_logprobs=wire.logprobs if scores_prompt else None,
    )


def _prompts(prompt: Any, *, n: int, max_choices: int, vocabulary_size: int) -> list[Prompt]:
    """The prompts in order; ``n`` choices of each are asked for.

    Raises ``InvalidRequest`` that names the prompt; takes time linear in the number of tokens.
    """
    if prompt is None:
        raise missing("prompt")
    if isinstance(prompt, str):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise InvalidRequest(f"prompt must be {_EXPECTED}", param="prompt")
    if isinstance(prompt[0], int):
        prompt = [prompt]
        param = "prompt"
    else:
        param = "prompt[{number}]"
    if n > max_choices and len(prompt) == 1:
        raise InvalidRequest(f"n is {n} and the limit is {max_choices}", param="n")
    if (asked := len(prompt) * n) > max_choices:
        raise InvalidRequest(
            f"{len(prompt)} prompts with n = {n} ask for {asked} choices and the limit is "
            f"{max_choices}; send fewer prompts in one request, or lower n",
            param="prompt",
        )
    if all(isinstance(each, str) for each in prompt):
        return [TextPrompt(text) for text in prompt]
    for number, tokens in enumerate(prompt):
        place = param.format(number=number)
        if not isinstance(tokens, list) or not tokens:
            raise invalid(place, f"prompt must be {_EXPECTED}")
        check_token_ids(tokens, place, vocabulary_size)
    return [TokenPrompt(tokens) for tokens in prompt]


def check_token_ids(tokens: Sequence[Any], param: str, vocabulary_size: int) -> None:
    """Raises ``InvalidRequest`` at the first item that is no token of this model."""
    for start in range(0, len(tokens), _SLICE):
        part = tokens[start : start + _SLICE]
        # bool is a kind of int in Python and no token id.
        if set(map(type, part)) == {int} and min(part) >= 0 and max(part) < vocabulary_size:
            continue
        number, token = next(
            (start + offset, token)
            for offset, token in enumerate(part)
            if type(token) is not int or not 0 <= token < vocabulary_size
        )
        where = f"{param}[{number}]"
        if type(token) is not int:
            raise InvalidRequest(f"{where} is not a token id: token ids are integers", param=where)
        raise InvalidRequest(
            f"{where} is the token id {token}; the vocabulary has ids 0 to {vocabulary_size - 1}",
            param=where,
        )


router = APIRouter()
router.post(
    PATH,
    openapi_extra=describe(
        "Continue a text",
        Completion,
        event=CompletionChunk,
        bodies=[CompletionRequest],
        errors=GENERATES,
    ),
)(endpoint(PATH, completion_call))
