"""From a request's JSON to ``GenerationRequest``; a complaint names the field and the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from app.answer.language import answer
from app.core.errors import InvalidRequest, RequestError
from app.core.request import Conversation, FunctionTool, GenerationRequest
from app.http.choices import Expected
from app.http.config import ApiConfig
from app.http.endpoint import Caller
from app.http.requests.constraints import (
    ConstraintReader,
    JsonSchemaFormat,
    JsonSchemaResponse,
    ResponseFormat,
)
from app.http.requests.sampling import ending, sampling_params
from app.http.requests.template_options import template_options
from app.http.requests.tools import ToolChoice, check_names, tool_use
from app.http.requests.wire import check_model, read
from app.http.responses.items import template_messages
from app.http.responses.settings import settings
from app.http.responses.wire import (
    HARMLESS,
    MOVED,
    NEUTRAL,
    AllowedTools,
    FunctionToolParam,
    JsonSchemaText,
    NamedTool,
    Other,
    ReasoningOptions,
    ResponsesRequest,
    TextFormat,
)

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
"""Asks for reasoning in a form that may be sent back. Here it comes as it is, which may be."""


@dataclass(frozen=True, slots=True)
class ResponsesCall:
    """A checked request: what to generate, and how to answer."""

    generation: GenerationRequest
    settings: Mapping[str, Any]
    """What the response says about the request."""
    stream: bool
    logprobs: bool
    expected: Expected


def responses_call(
    body: Mapping[str, Any], caller: Caller, config: ApiConfig, constraints: ConstraintReader
) -> ResponsesCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    _check_moved(body)
    wire = read(ResponsesRequest, body, NEUTRAL, HARMLESS)
    try:
        return _call(wire, caller, config, constraints)
    except RequestError as error:
        raise in_own_terms(error) from None


def _call(
    wire: ResponsesRequest, caller: Caller, config: ApiConfig, constraints: ConstraintReader
) -> ResponsesCall:
    check_model(wire.model, config.served_model)
    _check(wire, config)
    content = constraints.read(wire.model_copy(update={"response_format": _format(wire)}))
    tools = _function_tools(wire)
    choice = _tool_choice(wire)
    use = tool_use(
        tools,
        choice,
        parallel=wire.parallel_tool_calls is not False,
        whitespace=config.whitespace,
    )
    effort = wire.reasoning.effort if wire.reasoning else None
    # Clients set either of the two (langchain-openai sends top_logprobs alone).
    logprobs = LOGPROBS in (wire.include or ()) or bool(wire.top_logprobs)
    return ResponsesCall(
        generation=GenerationRequest(
            request_id=caller.request_id,
            prompts=[
                Conversation(
                    template_messages(wire.instructions, wire.input),
                    () if choice.mode == "none" else tools,
                    template_options(effort, wire.chat_template_kwargs, config),
                )
            ],
            constraint=answer(content.spec, use, config.chat_format.tools),
            constraint_param="tools" if content.spec is None else content.param,
            sampling=sampling_params(wire, (wire.top_logprobs or 0) if logprobs else None),
            max_tokens=wire.max_output_tokens,
            max_tokens_param="max_output_tokens",
            tenant=caller.tenant,
            **ending(wire),
        ),
        settings=settings(wire),
        stream=bool(wire.stream),
        logprobs=logprobs,
        expected=Expected(() if use is None else use.names, content_first=content.spec is None),
    )


Error = TypeVar("Error", bound=Exception)

_OWN_NAMES = {
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
}
_SHARED_NAME = re.compile(r"\b(" + "|".join(map(re.escape, _OWN_NAMES)) + r")\b")


def in_own_terms(error: Error) -> Error:
    """``error`` with the names that its fields have here; those of chat completions differ.

    Another object, as one error may be raised to several requests that wait for one schema.
    """
    if not isinstance(error, RequestError):
        return error
    renamed = type(error).__new__(type(error), _own_names(str(error)))
    renamed.__dict__.update(error.__dict__)
    renamed.message = str(renamed)
    renamed.param = _own_param(error.param)
    return renamed


def _own_names(text: str) -> str:
    return _SHARED_NAME.sub(lambda found: _OWN_NAMES[found.group()], text)


def _own_param(param: str | None) -> str | None:
    if param is None:
        return None
    if re.match(r"messages\b", param):
        return "input"  # the items before it may have become another number of messages
    return _own_names(re.sub(r"^(tools\[\d+\])\.function\b", r"\1", param))


def _check_moved(body: Mapping[str, Any]) -> None:
    for name, here in MOVED.items():
        if body.get(name) is not None:
            raise InvalidRequest(
                f"{name} is a field of chat completions; here it is called {here}", param=name
            )


def _check(wire: ResponsesRequest, config: ApiConfig) -> None:
    """Bounds, and what fields ask of one another."""
    if not isinstance(wire.input, str) and len(wire.input) > config.max_messages:
        raise InvalidRequest(
            f"there are {len(wire.input)} items and the limit is {config.max_messages}",
            param="input",
        )
    for number, value in enumerate(wire.include or ()):
        if value not in (LOGPROBS, ENCRYPTED):
            raise InvalidRequest(
                f"include takes {LOGPROBS!r} and {ENCRYPTED!r}, not {value!r}",
                param=f"include[{number}]",
            )
    if wire.stream_options is not None and not wire.stream:
        raise InvalidRequest("stream_options needs stream to be true", param="stream_options")
    if wire.text is not None and wire.text.verbosity not in (None, "medium"):
        raise _unsupported("text.verbosity")
    if wire.reasoning is not None:
        _check_reasoning(wire.reasoning)


def _check_reasoning(reasoning: ReasoningOptions) -> None:
    for name in ("summary", "generate_summary"):
        if getattr(reasoning, name) not in (None, "auto"):
            raise InvalidRequest(
                f"reasoning.{name}: this server makes no summaries, it shows the reasoning itself; "
                "leave it out or send 'auto'",
                param=f"reasoning.{name}",
            )
    if reasoning.context not in (None, "auto"):
        raise _unsupported("reasoning.context")
    if reasoning.mode not in (None, "standard"):
        raise _unsupported("reasoning.mode")


def _unsupported(param: str) -> InvalidRequest:
    return InvalidRequest(f"{param} is not supported by this server; leave it out", param=param)


def _format(wire: ResponsesRequest) -> ResponseFormat | None:
    """``text.format`` as chat completions have it."""
    asked: TextFormat | None = wire.text.format if wire.text else None
    if not isinstance(asked, JsonSchemaText):
        return asked
    inner = None
    if asked.schema_ is not None:
        if asked.name is None:
            raise InvalidRequest(
                "Missing required parameter: 'text.format.name'.", param="text.format.name"
            )
        inner = JsonSchemaFormat(
            name=asked.name,
            schema=asked.schema_,
            description=asked.description,
            strict=asked.strict,
        )
    elif asked.schema_id is None:
        raise InvalidRequest(
            "Missing required parameter: 'text.format.schema'.", param="text.format.schema"
        )
    return JsonSchemaResponse(
        type="json_schema",
        json_schema=inner,
        schema_id=asked.schema_id,
        whitespace=asked.whitespace,
    )


def _function_tools(wire: ResponsesRequest) -> list[FunctionTool]:
    """What the prompt shows, in the order given. Raises ``InvalidRequest``."""
    tools = []
    for number, tool in enumerate(wire.tools or ()):
        if not isinstance(tool, FunctionToolParam):
            raise InvalidRequest(
                f"tools[{number}]: tools of the type {tool.type!r} are not supported; this server "
                "takes function",
                param=f"tools[{number}].type",
            )
        tools.append(FunctionTool(tool.name, tool.description, tool.parameters, tool.strict))
    check_names(tools, "tools[{}].name")
    return tools


def _tool_choice(wire: ResponsesRequest) -> ToolChoice:
    match wire.tool_choice:
        case None:
            return ToolChoice()
        case NamedTool(name=name):
            return ToolChoice("required", [name], once=True)
        case AllowedTools(mode=mode, tools=tools):
            return ToolChoice(mode, [tool.name for tool in tools])
        case Other(type=kind):
            raise InvalidRequest(
                f"a tool_choice of the type {kind!r} is not supported; this server takes none, "
                "auto, required, function and allowed_tools",
                param="tool_choice.type",
            )
    return ToolChoice(wire.tool_choice)
