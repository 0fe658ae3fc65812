"""From a request's JSON to what is to be generated and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.answer.images import without_images
from app.answer.prompt import Conversation
from app.answer.tools import FunctionTool
from app.core.constraint import Vocabulary
from app.core.errors import InvalidRequest
from app.core.verbatim import Passage
from app.http.answering import AnswerCall
from app.http.chat.messages import template_messages
from app.http.chat.render import chat_renderer
from app.http.chat.wire import (
    AllowedToolsChoice,
    ChatCompletionRequest,
    ConversationFields,
    NamedCustomTool,
    NamedFunction,
)
from app.http.config import ApiConfig
from app.http.models import ServedModels
from app.http.requests.constraints import ConstraintReader, JsonSchemaResponse
from app.http.requests.generation import generation_request, token_limit
from app.http.requests.ignored import Ignored
from app.http.requests.images import ImageReader
from app.http.requests.messages import check_message_count
from app.http.requests.reasoning import ReasoningFields, asked_reasoning
from app.http.requests.template_options import template_options
from app.http.requests.told import told
from app.http.requests.tools import ToolChoice, function_tools, leave_out_others, tool_use
from app.http.requests.wire import Other


def chat_call(
    body: Mapping[str, Any],
    request_id: str,
    ignored: Ignored,
    config: ApiConfig,
    models: ServedModels,
    constraints: ConstraintReader,
    vocabulary: Vocabulary,
) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = ChatCompletionRequest.read(body, ignored)
    model = models.find(wire.model)
    if wire.n is not None and wire.n > config.max_n:
        raise InvalidRequest(f"n is {wire.n} and the limit is {config.max_n}", param="n")
    if wire.top_logprobs and not wire.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    content = constraints.read(wire, wire.response_format, ignored)
    choice = _tool_choice(wire)
    limit, max_tokens = token_limit(wire, "max_tokens", "max_completion_tokens")
    conversation, tools = read_conversation(wire, ignored, config, show_tools=choice.mode != "none")
    format = wire.response_format
    inner = format.json_schema if isinstance(format, JsonSchemaResponse) else None
    note = told(
        wire.schema_in_prompt,
        content.spec,
        config,
        by_format=format is not None,
        name=inner.name if inner else None,
        description=inner.description if inner else None,
    )
    request = generation_request(
        wire,
        request_id,
        model.adapter,
        [replace(conversation, told=note)],
        content=content.spec,
        tools=tool_use(tools, choice, wire.parallel_tool_calls, config),
        n=wire.n or 1,
        max_tokens=max_tokens,
        logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
        choices=wire,
    )
    return AnswerCall(
        request,
        names={
            "prompt": "messages",
            "max_tokens": limit,
            "constraint": "tools" if content.spec is None else content.param,
        },
        renderer=chat_renderer(wire, request_id, model, vocabulary),
        stream=bool(wire.stream),
        logprobs=bool(wire.logprobs),
    )


def read_conversation(
    wire: ConversationFields, ignored: Ignored, config: ApiConfig, *, show_tools: bool = True
) -> tuple[Conversation, list[FunctionTool]]:
    """What the prompt shows, and all tools of the request. Raises ``InvalidRequest``."""
    check_message_count(wire.messages, config.max_messages)
    images = ImageReader(config.images)
    messages = template_messages(wire.messages, images)
    leave_out_others(wire.tools, ignored)
    tools = function_tools(
        (f"tools[{number}].{tool.type}", tool.definition)
        for number, tool in enumerate(wire.tools or ())
        if not isinstance(tool, Other)
    )
    options = template_options(wire.chat_template_kwargs, config)
    asked = asked_reasoning(_reasoning(wire), config, effort=wire.reasoning_effort)
    passages = [
        Passage(
            f"messages[{number}]",
            without_images(message["content"] or ""),
            message["role"] == "user",
        )
        for number, message in enumerate(messages)
    ]
    conversation = Conversation(
        messages,
        tools if show_tools else (),
        options | asked.options,
        passages,
        asked.use,
        images=images.sources,
    )
    return conversation, tools


def _reasoning(wire: ConversationFields) -> ReasoningFields | None:
    """OpenRouter's fields, its older one included."""
    if wire.include_reasoning is None:
        return wire.reasoning
    excluded = not wire.include_reasoning
    fields = wire.reasoning or ReasoningFields()
    if fields.exclude not in (None, excluded):
        raise InvalidRequest(
            "include_reasoning and reasoning.exclude say the contrary of each other",
            param="include_reasoning",
        )
    return fields.model_copy(update={"exclude": excluded})


def _tool_choice(wire: ChatCompletionRequest) -> ToolChoice:
    match wire.tool_choice:
        case None:
            return ToolChoice()
        case NamedFunction(name=name) | NamedCustomTool(name=name):
            return ToolChoice("required", [name], once=True)
        case AllowedToolsChoice(allowed_tools=allowed):
            return ToolChoice(allowed.mode, [each.name for each in allowed.tools])
    return ToolChoice(wire.tool_choice)
