"""From a request's JSON to ``GenerationRequest``; a complaint names the field and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.answer.language import answer
from app.core.errors import InvalidRequest
from app.core.request import Conversation, GenerationRequest
from app.http.chat.messages import template_messages
from app.http.chat.tools import function_tools, tool_use
from app.http.chat.wire import HARMLESS, NEUTRAL, ChatCompletionRequest
from app.http.choices import Expected
from app.http.config import ApiConfig
from app.http.endpoint import Caller
from app.http.requests.constraints import ConstraintReader
from app.http.requests.sampling import ending, sampling_params
from app.http.requests.template_options import template_options
from app.http.requests.wire import check_model, read


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A checked request: what to generate, and how to answer."""

    generation: GenerationRequest
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: bool
    expected: Expected


def chat_call(
    body: Mapping[str, Any], caller: Caller, config: ApiConfig, constraints: ConstraintReader
) -> ChatCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = read(ChatCompletionRequest, body, NEUTRAL, HARMLESS)
    check_model(wire.model, config.served_model)
    _check_bounds(wire, config)
    content = constraints.read(wire)
    use = tool_use(wire, config.whitespace)
    options = wire.stream_options
    return ChatCall(
        generation=GenerationRequest(
            request_id=caller.request_id,
            prompts=[
                Conversation(
                    template_messages(wire.messages),
                    () if wire.tool_choice == "none" else function_tools(wire.tools),
                    template_options(wire.reasoning_effort, wire.chat_template_kwargs, config),
                )
            ],
            constraint=answer(content.spec, use, config.chat_format.tools),
            constraint_param="tools" if content.spec is None else content.param,
            sampling=sampling_params(wire, (wire.top_logprobs or 0) if wire.logprobs else None),
            n=wire.n or 1,
            max_tokens=wire.max_completion_tokens or wire.max_tokens,
            max_tokens_param="max_completion_tokens"
            if wire.max_completion_tokens
            else "max_tokens",
            tenant=caller.tenant,
            **ending(wire),
        ),
        stream=bool(wire.stream),
        include_usage=options is not None and options.include_usage,
        continuous_usage=options is not None and options.continuous_usage_stats,
        logprobs=bool(wire.logprobs),
        expected=Expected(() if use is None else use.names, content_first=content.spec is None),
    )


def _check_bounds(wire: ChatCompletionRequest, config: ApiConfig) -> None:
    if wire.n is not None and wire.n > config.max_n:
        raise InvalidRequest(f"n is {wire.n} and the limit is {config.max_n}", param="n")
    if len(wire.messages) > config.max_messages:
        raise InvalidRequest(
            f"there are {len(wire.messages)} messages and the limit is {config.max_messages}",
            param="messages",
        )
    if wire.top_logprobs and not wire.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    if wire.stream_options is not None and not wire.stream:
        raise InvalidRequest("stream_options needs stream to be true", param="stream_options")
    both = wire.max_tokens, wire.max_completion_tokens
    if None not in both and both[0] != both[1]:
        raise InvalidRequest(
            "max_tokens and max_completion_tokens differ; send one of them", param="max_tokens"
        )
