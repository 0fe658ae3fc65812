"""From a request's JSON to ``GenerationRequest``; a complaint names the field and the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from app.api.config import ApiConfig
from app.api.wire import (
    HARMLESS,
    NEUTRAL,
    ChatCompletionRequest,
    ChoiceResponse,
    GrammarResponse,
    JsonObjectResponse,
    JsonSchemaResponse,
    Message,
    RegexResponse,
    ResponseFormat,
    unsupported_field,
)
from app.core.constraint import Choice, ConstraintSpec, Grammar, JsonObject, JsonSchema, Regex
from app.core.errors import InvalidRequest, UnknownModel
from app.core.request import GenerationRequest, SamplingParams


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A checked request: what to generate, and how to answer."""

    generation: GenerationRequest
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: bool


def chat_call(body: Mapping[str, Any], request_id: str, config: ApiConfig) -> ChatCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = _validate(body)
    if wire.model != config.served_model:
        raise UnknownModel(
            f"the model {wire.model!r} does not exist here; this server serves "
            f"{config.served_model!r}",
            param="model",
        )
    n = wire.n or 1
    _check_bounds(wire, n, config)
    options = wire.stream_options
    return ChatCall(
        generation=GenerationRequest(
            request_id=request_id,
            messages=[_message(message) for message in wire.messages],
            constraint=_constraint(wire.response_format, config.whitespace),
            sampling=_sampling(wire),
            n=n,
            max_tokens=wire.max_completion_tokens or wire.max_tokens,
            stop=_stop(wire.stop),
            seed=wire.seed,
            on_budget=wire.on_budget or "finish",
            leap=wire.leap is not False,
        ),
        stream=bool(wire.stream),
        include_usage=options is not None and options.include_usage,
        continuous_usage=options is not None and options.continuous_usage_stats,
        logprobs=bool(wire.logprobs),
    )


def _validate(body: Mapping[str, Any]) -> ChatCompletionRequest:
    unsupported = unsupported_field(body)
    if unsupported is not None:
        raise InvalidRequest(
            f"{unsupported} is not supported by this server; leave it out", param=unsupported
        )
    known = {
        name: value for name, value in body.items() if name not in NEUTRAL and name not in HARMLESS
    }
    try:
        return ChatCompletionRequest.model_validate(known)
    except ValidationError as error:
        raise _complaint(error, body) from None


def _complaint(error: ValidationError, body: Mapping[str, Any]) -> InvalidRequest:
    """The first field that is wrong, in OpenAI's words where it has words for it."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    details = [each for each in details if each["loc"][:1] == details[0]["loc"][:1]]
    # Of a union's branches, the one that got furthest into the input says most, and one that
    # dislikes the value more than one that dislikes its type.
    detail = max(details, key=lambda each: (len(each["loc"]), not each["type"].endswith("_type")))
    missing = detail["type"] == "missing"
    param = _param(detail["loc"], body, missing=missing)
    if missing:
        return InvalidRequest(f"Missing required parameter: {param!r}.", param=param)
    if detail["type"] == "extra_forbidden":
        return InvalidRequest(f"Unrecognized request argument supplied: {param}", param=param)
    return InvalidRequest(f"{param}: {detail['msg']}", param=param)


def _param(location: Sequence[str | int], body: Any, *, missing: bool) -> str:
    """``("messages", 0, "content", "str")`` as ``messages[0].content``.

    A step that leads nowhere in the body names a branch of a union and is left out, but for the
    last one where a field is missing.
    """
    path = ""
    value = body
    if location[0] == "response_format":
        # What follows is the union's branch, which may have the name of a field (json_schema).
        location = [location[0], *location[2:]]
    for position, step in enumerate(location):
        if isinstance(step, int) and isinstance(value, list):
            path += f"[{step}]"
            value = value[step]
        elif isinstance(value, dict) and step in value:
            path += f".{step}"
            value = value[step]
        elif missing and position == len(location) - 1:
            path += f".{step}"
    return path.removeprefix(".")


def _check_bounds(wire: ChatCompletionRequest, n: int, config: ApiConfig) -> None:
    if n > config.max_n:
        raise InvalidRequest(f"n is {n} and the limit is {config.max_n}", param="n")
    if len(wire.messages) > config.max_messages:
        raise InvalidRequest(
            f"there are {len(wire.messages)} messages and the limit is {config.max_messages}",
            param="messages",
        )
    if wire.top_logprobs and not wire.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    if wire.stream_options is not None and not wire.stream:
        raise InvalidRequest("stream_options needs stream to be true", param="stream_options")
    if "" in _stop(wire.stop):
        raise InvalidRequest("stop has an empty string", param="stop")
    both = wire.max_tokens, wire.max_completion_tokens
    if None not in both and both[0] != both[1]:
        raise InvalidRequest(
            "max_tokens and max_completion_tokens differ; send one of them", param="max_tokens"
        )


def _message(message: Message) -> dict[str, Any]:
    """In the chat template's terms; templates know ``system``, which ``developer`` replaced."""
    content = message.content
    rendered: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": content if isinstance(content, str) else "\n".join(p.text for p in content),
    }
    if message.name is not None:
        rendered["name"] = message.name
    if message.tool_call_id is not None:
        rendered["tool_call_id"] = message.tool_call_id
    return rendered


def _constraint(
    response_format: ResponseFormat | None, default_whitespace: str
) -> ConstraintSpec | None:
    match response_format:
        case JsonObjectResponse(whitespace=whitespace):
            return JsonObject(whitespace or default_whitespace)
        case JsonSchemaResponse(json_schema=asked, whitespace=whitespace):
            return JsonSchema(
                asked.schema_,
                close_objects=asked.strict is not False,
                whitespace=whitespace or default_whitespace,
            )
        case RegexResponse(pattern=pattern):
            return Regex(pattern)
        case ChoiceResponse(choices=choices):
            return Choice(tuple(choices))
        case GrammarResponse(grammar=text, syntax=syntax):
            return Grammar(text, syntax)
    return None


def _sampling(wire: ChatCompletionRequest) -> SamplingParams:
    # OpenAI takes top_p = 0 for "only the likeliest"; a nucleus of no mass would keep nothing.
    only_likeliest = wire.top_p == 0
    return SamplingParams(
        temperature=1.0 if wire.temperature is None else wire.temperature,
        top_p=wire.top_p or 1.0,
        top_k=1 if only_likeliest else max(wire.top_k or 0, 0),
        min_p=wire.min_p or 0.0,
        repetition_penalty=wire.repetition_penalty or 1.0,
        frequency_penalty=wire.frequency_penalty or 0.0,
        presence_penalty=wire.presence_penalty or 0.0,
        logit_bias=wire.logit_bias or {},
        logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
    )


def _stop(stop: str | Sequence[str] | None) -> Sequence[str]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)
