"""From a request's JSON to what is to be generated and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.answer.prompt import Conversation
from app.answer.reasoning import AS_IT_IS
from app.answer.tools import FunctionTool
from app.core.errors import InvalidRequest
from app.core.specs import JsonSchema
from app.http.answering import AnswerCall
from app.http.config import ApiConfig
from app.http.messages.blocks import TEXTS, template_messages
from app.http.messages.render import messages_renderer
from app.http.messages.wire import (
    ConversationFields,
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
from app.http.models import ServedModels
from app.http.requests.generation import generation_request, token_limit
from app.http.requests.ignored import Ignored
from app.http.requests.images import ImageReader
from app.http.requests.messages import begun_answer, check_message_count
from app.http.requests.reasoning import (
    Asked,
    ReasoningFields,
    asked_reasoning,
    template_words,
)
from app.http.requests.told import told
from app.http.requests.tools import ToolChoice, leave_out_others, tool_use
from app.http.requests.wire import Other


def messages_call(
    body: Mapping[str, Any],
    request_id: str,
    ignored: Ignored,
    config: ApiConfig,
    models: ServedModels,
) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire = MessagesRequest.read(body, ignored)
    model = models.find(wire.model)
    content, param = _content(wire, config)
    conversation, tools = read_conversation(wire, ignored, config)
    choice = _tool_choice(wire)
    limit, max_tokens = token_limit(wire, "max_tokens")
    request = generation_request(
        wire,
        request_id,
        model.adapter,
        [conversation],
        content=content,
        tools=tool_use(tools, choice, not choice.once, config),
        max_tokens=max_tokens,
        logprobs=None,
        choices=wire,
    )
    return AnswerCall(
        request,
        names={
            "prompt": "messages",
            "max_tokens": limit,
            "constraint": "tools" if content is None else param,
        },
        renderer=messages_renderer(wire, request_id, model),
        stream=bool(wire.stream),
        logprobs=False,
    )


def read_conversation(
    wire: ConversationFields, ignored: Ignored, config: ApiConfig
) -> tuple[Conversation, list[FunctionTool]]:
    """What the prompt shows, and all tools of the request. Raises ``InvalidRequest``."""
    check_message_count(wire.messages, config.max_messages)
    tools = _tools(wire, ignored)
    shown = () if isinstance(wire.tool_choice, NoTool) else tools
    images = ImageReader(config.images, TEXTS, "image", kind="blocks")
    messages, passages = template_messages(wire.system, wire.messages, images, ignored)
    _clear_thinking(wire, messages, ignored)
    begun = None
    if wire.messages[-1].role == "assistant":
        begun = begun_answer(messages, f"messages[{len(wire.messages) - 1}]")
        passages = passages[:-1]
    reasoning = _reasoning(wire, config)
    note = told(wire.schema_in_prompt, _content(wire, config)[0], config, by_format=True)
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


def _tools(wire: ConversationFields, ignored: Ignored) -> list[FunctionTool]:
    tools: dict[str, FunctionTool] = {}
    leave_out_others(wire.tools, ignored)
    for number, tool in enumerate(wire.tools or ()):
        if isinstance(tool, OtherTool):
            continue
        if tool.name in tools:
            raise InvalidRequest(
                f"two tools are named {tool.name!r}", param=f"tools[{number}].name"
            )
        # Anthropic leaves objects open unless told to be strict.
        strict = bool(tool.strict)
        tools[tool.name] = FunctionTool(tool.name, tool.description, tool.input_schema, strict)
    return list(tools.values())


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


def _content(wire: ConversationFields, config: ApiConfig) -> tuple[JsonSchema | None, str]:
    """What the content has to be, and the field that says so. Raises ``InvalidRequest``."""
    new = wire.output_config.format if wire.output_config else None
    if new is not None and wire.output_format is not None:
        raise InvalidRequest(
            "output_format is the older name of output_config.format; send one of them",
            param="output_format",
        )
    asked: JsonSchemaOutput | None = new or wire.output_format
    param = "output_config.format" if wire.output_format is None else "output_format"
    if asked is None:
        return None, param
    return JsonSchema(asked.schema_, close_objects=True, whitespace=config.whitespace), param
