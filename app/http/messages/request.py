"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: from JSON to what is generated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from app.answer.prompt import Conversation
from app.answer.reasoning import AS_IT_IS
from app.answer.tools import FunctionTool
from app.core.errors import InvalidRequest
from app.core.specs import JsonSchema
from app.http.answering import AnswerCall, answer_router
from app.http.config import ApiConfig
from app.http.endpoint import Api, Endpoint, json_of
from app.http.errors import ANTHROPIC
from app.http.messages.answers import AnsweredMessage, CountedTokens, MessageEvent
from app.http.messages.blocks import TEXTS, template_messages
from app.http.messages.render import messages_renderer
from app.http.messages.wire import (
    ConversationFields,
    CountTokensRequest,
    FreeChoice,
    JsonSchemaOutput,
    MessagesRequest,
    NamedTool,
    NoTool,
    OtherTool,
    ThinkingDisabled,
    ThinkingEnabled,
    ThinkingTurns,
)
from app.http.openapi import GENERATES, MessagesError, tells
from app.http.requests.constraints import NamedConstraint
from app.http.requests.generation import answer_call, token_limit
from app.http.requests.ignored import Ignored
from app.http.requests.images import ImageReader
from app.http.requests.messages import begun_answer, check_message_count
from app.http.requests.prompt import told
from app.http.requests.reasoning import Asked, ReasoningFields, asked_reasoning, template_words
from app.http.requests.tools import ToolChoice, function_tools, leave_out_others, tool_use
from app.http.requests.wire import Other
from app.serving.admission import Ticket

PATH = ANTHROPIC
COUNT = f"{PATH}/count_tokens"


def messages_router(api: Api) -> APIRouter:
    """The router of both."""
    operation = tells(
        "Answer a conversation, in Anthropic's words",
        AnsweredMessage,
        event=MessageEvent,
        bodies=[MessagesRequest],
        errors=GENERATES,
        envelope=MessagesError,
    )
    router = answer_router(PATH, operation, api, messages_call)

    def parse_count(body: Mapping[str, Any], request_id: str, ignored: Ignored) -> Conversation:
        wire = CountTokensRequest.read(body, ignored)
        api.models.find(wire.model)
        return read_conversation(wire, ignored, api.config)[0]

    async def count(prompt: Conversation, ticket: Ticket) -> dict[str, Any]:
        return {"input_tokens": len(await api.service.tokenize(prompt, ticket))}

    operation = tells(
        "The tokens of a conversation's prompt",
        CountedTokens,
        bodies=[CountTokensRequest],
        errors=(400, 404, 413, 429, 504),
        envelope=MessagesError,
    )
    endpoint = Endpoint(COUNT, api, parse=parse_count, respond=json_of(count))
    router.post(COUNT, openapi_extra=operation)(endpoint.answer)
    return router


def messages_call(
    body: Mapping[str, Any], request_id: str, ignored: Ignored, api: Api
) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = MessagesRequest.read(body, ignored)
    model = api.models.find(wire.model)
    content = _content(wire, api.config)
    conversation, tools = read_conversation(wire, ignored, api.config)
    choice = _tool_choice(wire)
    return answer_call(
        wire,
        request_id,
        model,
        [conversation],
        content,
        token_limit(wire, "max_tokens"),
        messages_renderer(wire, request_id, model),
        tools=tool_use(tools, choice, not choice.once, api.config),
    )


def read_conversation(
    wire: ConversationFields, ignored: Ignored, config: ApiConfig
) -> tuple[Conversation, list[FunctionTool]]:
    """What the prompt shows, and all tools of the request. Raises ``InvalidRequest``."""
    check_message_count(wire.messages, config.max_messages)
    leave_out_others(wire.tools, ignored)
    tools = function_tools(
        (f"tools[{number}]", tool)
        for number, tool in enumerate(wire.tools or ())
        if not isinstance(tool, OtherTool)
    )
    shown = () if isinstance(wire.tool_choice, NoTool) else tools
    images = ImageReader(config.images, TEXTS, "image", kind="blocks")
    messages, passages = template_messages(wire.system, wire.messages, images, ignored)
    _clear_thinking(wire, messages, ignored)
    begun = None
    if wire.messages[-1].role == "assistant":
        begun = begun_answer(messages, f"messages[{len(wire.messages) - 1}]")
        passages = passages[:-1]
    reasoning = _reasoning(wire, config)
    note = told(wire.schema_in_prompt, _content(wire, config).spec, config, by_format=True)
    conversation = Conversation(
        messages, shown, reasoning.options, passages, reasoning.use, note, images.sources, begun
    )
    return conversation, tools


def _clear_thinking(
    wire: ConversationFields, messages: list[dict[str, Any]], ignored: Ignored
) -> None:
    """Take the thinking out of ``messages`` that ``context_management`` does not keep."""
    edits = wire.context_management.edits if wire.context_management else ()
    for number, edit in enumerate(edits):
        if isinstance(edit, Other):
            param = f"context_management.edits[{number}].type"
            reason = f"{param}: edits of the type {edit.type!r} are not supported; leave it out"
            ignored.leave_out(param, reason, name=f"context_management.edits[].type={edit.type}")
        elif isinstance(edit.keep, ThinkingTurns):
            thought = [each for each in messages if "reasoning_content" in each]
            for message in thought[: -edit.keep.value]:
                del message["reasoning_content"]


def _tool_choice(wire: ConversationFields) -> ToolChoice:
    match wire.tool_choice:
        case NoTool():
            return ToolChoice("none")
        case NamedTool(name=name, disable_parallel_tool_use=once):
            return ToolChoice("required", [name], once=bool(once))
        case FreeChoice(type=type, disable_parallel_tool_use=once):
            return ToolChoice("auto" if type == "auto" else "required", once=bool(once))
    return ToolChoice()


def _reasoning(wire: ConversationFields, config: ApiConfig) -> Asked:
    """``effort`` is about the whole answer: it alone does not ask for reasoning."""
    effort = wire.output_config.effort if wire.output_config else None
    match wire.thinking:
        case ThinkingDisabled():
            return asked_reasoning(ReasoningFields(enabled=False), config, param="thinking")
        case ThinkingEnabled(budget_tokens=budget):
            fields = ReasoningFields(effort=effort, max_tokens=budget)
            return asked_reasoning(fields, config, param="thinking")
    adaptive = True if wire.thinking else None
    return Asked(AS_IT_IS, template_words(adaptive, effort, None, config))


def _content(wire: ConversationFields, config: ApiConfig) -> NamedConstraint:
    """What the content has to be. Raises ``InvalidRequest``."""
    new = wire.output_config.format if wire.output_config else None
    if new is not None and wire.output_format is not None:
        raise InvalidRequest(
            "output_format is the older name of output_config.format; send one of them",
            param="output_format",
        )
    asked: JsonSchemaOutput | None = new or wire.output_format
    param = "output_config.format" if wire.output_format is None else "output_format"
    if asked is None:
        return NamedConstraint(None, param)
    schema = JsonSchema(asked.schema_, close_objects=True, whitespace=config.whitespace)
    return NamedConstraint(schema, param)
