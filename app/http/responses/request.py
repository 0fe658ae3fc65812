"""From a request's JSON to what is to be generated and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.answer.prompt import Conversation
from app.answer.told import Told
from app.core.constraint import ConstraintSpec, Vocabulary
from app.core.errors import InvalidRequest
from app.http.answering import AnswerCall
from app.http.config import ApiConfig
from app.http.models import ServedModels
from app.http.requests.constraints import (
    ConstraintReader,
    JsonSchemaFormat,
    JsonSchemaResponse,
    ResponseFormat,
)
from app.http.requests.generation import generation_request, token_limit
from app.http.requests.ignored import Ignored
from app.http.requests.images import ImageReader
from app.http.requests.reasoning import asked_reasoning
from app.http.requests.template_options import template_options
from app.http.requests.told import told
from app.http.requests.tools import ToolChoice, function_tools, leave_out_others, tool_use
from app.http.requests.wire import Other, missing
from app.http.responses.items import template_messages
from app.http.responses.render import responses_renderer
from app.http.responses.wire import (
    AllowedTools,
    JsonSchemaText,
    NamedTool,
    ResponsesRequest,
    TextFormat,
)

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
"""Asks for reasoning that can be sent back. Here it always can, as it is not encrypted."""


def responses_call(
    body: Mapping[str, Any],
    request_id: str,
    ignored: Ignored,
    config: ApiConfig,
    models: ServedModels,
    constraints: ConstraintReader,
    vocabulary: Vocabulary,
) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = ResponsesRequest.read(body, ignored)
    model = models.find(wire.model)
    _check(wire, ignored, config)
    content = constraints.read(wire, _format(wire), ignored, "text.format")
    leave_out_others(wire.tools, ignored)
    tools = function_tools(
        (f"tools[{number}]", tool)
        for number, tool in enumerate(wire.tools or ())
        if not isinstance(tool, Other)
    )
    choice = _tool_choice(wire)
    reasoning = asked_reasoning(wire.reasoning, config)
    # Clients set either of the two (langchain-openai sends top_logprobs alone).
    logprobs = LOGPROBS in (wire.include or ()) or bool(wire.top_logprobs)
    limit, max_tokens = token_limit(wire, "max_output_tokens")
    images = ImageReader(config.images)
    messages, passages = template_messages(wire.instructions, wire.input, images)
    conversation = Conversation(
        messages,
        () if choice.mode == "none" else tools,
        template_options(wire.chat_template_kwargs, config) | reasoning.options,
        passages,
        reasoning.use,
        _told(wire, content.spec, config),
        images.sources,
    )
    request = generation_request(
        wire,
        request_id,
        model.adapter,
        [conversation],
        content=content.spec,
        tools=tool_use(tools, choice, wire.parallel_tool_calls, config),
        max_tokens=max_tokens,
        logprobs=(wire.top_logprobs or 0) if logprobs else None,
        choices=wire,
    )
    return AnswerCall(
        request,
        names={
            "prompt": "input",
            "max_tokens": limit,
            "constraint": "tools" if content.spec is None else content.param,
        },
        renderer=responses_renderer(wire, request_id, model, vocabulary if logprobs else None),
        stream=bool(wire.stream),
        logprobs=logprobs,
    )


def _told(wire: ResponsesRequest, content: ConstraintSpec | None, config: ApiConfig) -> Told | None:
    """What the prompt tells of the answer's schema."""
    format = wire.text.format if wire.text else None
    named = format if isinstance(format, JsonSchemaText) else None
    return told(
        wire.schema_in_prompt,
        content,
        config,
        by_format=format is not None,
        name=named.name if named else None,
        description=named.description if named else None,
    )


def _check(wire: ResponsesRequest, ignored: Ignored, config: ApiConfig) -> None:
    """Bounds, and fields that need or exclude one another."""
    if not isinstance(wire.input, str) and len(wire.input) > config.max_messages:
        raise InvalidRequest(
            f"there are {len(wire.input)} items and the limit is {config.max_messages}",
            param="input",
        )
    for number, value in enumerate(wire.include or ()):
        if value not in (LOGPROBS, ENCRYPTED):
            reason = f"include takes {LOGPROBS!r} and {ENCRYPTED!r}, not {value!r}"
            ignored.leave_out(f"include[{number}]", reason, name=f"include[]={value}")


def _format(wire: ResponsesRequest) -> ResponseFormat | None:
    """``text.format`` as chat completions have it."""
    asked: TextFormat | None = wire.text.format if wire.text else None
    if not isinstance(asked, JsonSchemaText):
        return asked
    inner = None
    if asked.schema_ is not None:
        if asked.name is None:
            raise missing("text.format.name")
        inner = JsonSchemaFormat(
            name=asked.name,
            schema=asked.schema_,
            description=asked.description,
            strict=asked.strict,
        )
    elif asked.schema_id is None:
        raise missing("text.format.schema")
    return JsonSchemaResponse(
        type="json_schema",
        json_schema=inner,
        schema_id=asked.schema_id,
        whitespace=asked.whitespace,
    )


def _tool_choice(wire: ResponsesRequest) -> ToolChoice:
    match wire.tool_choice:
        case None:
            return ToolChoice()
        case NamedTool(name=name):
            return ToolChoice("required", [name], once=True)
        case AllowedTools(mode=mode, tools=tools):
            return ToolChoice(mode, [tool.name for tool in tools])
        case Other(type=type):
            raise InvalidRequest(
                f"a tool_choice of the type {type!r} is not supported; this server takes none, "
                "auto, required, function, custom and allowed_tools",
                param="tool_choice.type",
            )
    return ToolChoice(wire.tool_choice)
