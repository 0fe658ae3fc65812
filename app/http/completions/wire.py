"""Completion requests as they are on the wire (OpenAI API reference, and extensions)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from app.http.requests.constraints import ConstraintFields
from app.http.requests.generation import GenerationFields
from app.http.requests.unserved import COMPLETIONS, NO_EFFECT
from app.http.requests.wire import Count, TokenLimit, Unserved

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

    unserved: ClassVar[Mapping[str, Unserved]] = COMPLETIONS
    no_effect: ClassVar[frozenset[str]] = NO_EFFECT

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
    """Report each token's log-probability, and those of so many likeliest tokens beside it."""
