"""From a request's JSON to ``GenerationRequest``; a complaint names the field and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core.errors import InvalidRequest
from app.core.request import GenerationRequest
from app.http.completions.prompts import read_prompts
from app.http.completions.wire import HARMLESS, NEUTRAL, CompletionRequest
from app.http.config import ApiConfig
from app.http.endpoint import Caller
from app.http.requests.constraints import ConstraintReader
from app.http.requests.sampling import ending, sampling_params
from app.http.requests.wire import check_model, read

DEFAULT_MAX_TOKENS = 16
"""OpenAI's, for this endpoint alone."""


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """A checked request: what to generate, and how to answer."""

    generation: GenerationRequest
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: bool


def completion_call(
    body: Mapping[str, Any],
    caller: Caller,
    config: ApiConfig,
    constraints: ConstraintReader,
    vocabulary_size: int,
) -> CompletionCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = read(CompletionRequest, body, NEUTRAL, HARMLESS)
    check_model(wire.model, config.served_model)
    n = wire.n or 1
    _check(wire, n)
    options = wire.stream_options
    constraint = constraints.read(wire)
    return CompletionCall(
        generation=GenerationRequest(
            request_id=caller.request_id,
            prompts=read_prompts(
                wire.prompt, n=n, max_choices=config.max_n, vocabulary_size=vocabulary_size
            ),
            constraint=constraint.spec,
            constraint_param=constraint.param,
            sampling=sampling_params(wire, wire.logprobs),
            n=n,
            max_tokens=wire.max_tokens or DEFAULT_MAX_TOKENS,
            tenant=caller.tenant,
            **ending(wire),
        ),
        stream=bool(wire.stream),
        include_usage=options is not None and options.include_usage,
        continuous_usage=options is not None and options.continuous_usage_stats,
        logprobs=wire.logprobs is not None,
    )


def _check(wire: CompletionRequest, n: int) -> None:
    if wire.best_of not in (None, n):
        raise InvalidRequest(
            f"best_of is {wire.best_of}, but n is {n} and this server generates no choices that it "
            "does not return; leave best_of out",
            param="best_of",
        )
    if wire.stream_options is not None and not wire.stream:
        raise InvalidRequest("stream_options needs stream to be true", param="stream_options")
