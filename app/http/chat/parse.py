"""``POST /v1/chat/completions``: from its JSON to what is generated, and how that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter

from app.answer.custom import custom_arguments
from app.answer.images import without_images
from app.answer.prompt import Begun, Conversation
from app.answer.tools import FunctionTool
from app.core.errors import InvalidRequest
from app.core.verbatim import Passage
from app.http.chat.wire import (
    AllowedToolsChoice,
    ChatCompletionRequest,
    ChatCustomCall,
    ChatMessage,
    ConversationFields,
    NamedCustomTool,
    NamedFunction,
)
from app.http.chat.write import ChatCompletion, ChatCompletionChunk, chat_renderer
from app.http.config import ApiConfig
from app.http.endpoint import AnswerCall, Api, answer_router
from app.http.openapi import GENERATES, tells
from app.http.requests.generation import answer_call, token_limit
from app.http.requests.ignored import Ignored
from app.http.requests.images import ImageReader
from app.http.requests.messages import (
    begun_answer,
    called_arguments,
    check_message_count,
    joined_text,
    template_call,
    template_role,
)
from app.http.requests.prompt import template_options, told
from app.http.requests.reasoning import ReasoningFields, asked_reasoning, with_thinking
from app.http.requests.tools import ToolChoice, function_tools, leave_out_others, tool_use
from app.http.requests.wire import Other, missing

PATH = "/v1/chat/completions"


def chat_router(api: Api) -> APIRouter:
    """The router of chat completions."""
    operation = tells(
        "Answer a conversation",
        ChatCompletion,
        event=ChatCompletionChunk,
        bodies=[ChatCompletionRequest],
        errors=GENERATES,
    )
    return answer_router(api, PATH, chat_call, operation)


def chat_call(body: Mapping[str, Any], request_id: str, ignored: Ignored, api: Api) -> AnswerCall:
    """Raises ``InvalidRequest`` (or ``UnknownModel``) with the field in ``param``."""
    wire, config = ChatCompletionRequest.read(body, ignored), api.config
    model = api.models.find(wire.model)
    if wire.n is not None and wire.n > config.max_n:
        raise InvalidRequest(f"n is {wire.n} and the limit is {config.max_n}", param="n")
    if wire.top_logprobs and not wire.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    content = api.constraints.read(wire, wire.response_format, ignored)
    choice = _tool_choice(wire)
    limit = token_limit(wire, "max_tokens", "max_completion_tokens")
    conversation, tools = read_conversation(wire, ignored, config, show_tools=choice.mode != "none")
    note = told(wire.schema_in_prompt, content.spec, config, wire.response_format)
    return answer_call(
        wire,
        request_id,
        model,
        [replace(conversation, told=note)],
        content,
        limit,
        chat_renderer(wire, request_id, model, api.vocabulary),
        tools=tool_use(tools, choice, wire.parallel_tool_calls, config),
        n=wire.n or 1,
        logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
    )


def read_conversation(
    wire: ConversationFields, ignored: Ignored, config: ApiConfig, *, show_tools: bool = True
) -> tuple[Conversation, list[FunctionTool]]:
    """What the prompt shows, and all tools of the request. Raises ``InvalidRequest``."""
    check_message_count(wire.messages, config.max_messages)
    images = ImageReader(config.images, "text", "image_url")
    messages = _template_messages(wire.messages, images)
    begun = _begun(wire, messages)
    leave_out_others(wire.tools, ignored)
    tools = function_tools(
        (f"tools[{number}].{tool.type}", tool.definition)
        for number, tool in enumerate(wire.tools or ())
        if not isinstance(tool, Other)
    )
    options = template_options(wire.chat_template_kwargs, config, ignored)
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
        begun=begun,
        opens=wire.add_generation_prompt is not False or begun is not None,
    )
    return conversation, tools


def _begun(wire: ConversationFields, messages: list[dict[str, Any]]) -> Begun | None:
    """The beginning of the answer, where the last of ``messages`` is that: it is taken off."""
    if not wire.continue_final_message:
        return None
    if wire.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other; leave one out",
            param="add_generation_prompt",
        )
    return begun_answer(messages, "continue_final_message")


def _reasoning(wire: ConversationFields) -> ReasoningFields | None:
    """OpenRouter's fields, its older one included, and the switch of other servers."""
    if wire.include_reasoning is None:
        return with_thinking(wire.reasoning, wire.thinking)
    excluded = not wire.include_reasoning
    fields = with_thinking(wire.reasoning, wire.thinking) or ReasoningFields()
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


def _template_messages(
    messages: Sequence[ChatMessage], images: ImageReader
) -> list[dict[str, Any]]:
    """In the chat template's terms, with marks for what ``images`` collects.

    Raises ``InvalidRequest`` that names the message.
    """
    called: set[str] = set()
    rendered = []
    for number, message in enumerate(messages):
        param = f"messages[{number}]"
        _check(message, param, called)
        called.update(call.id for call in message.tool_calls or ())
        rendered.append(_template_message(message, param, images))
    return rendered


def _check(message: ChatMessage, param: str, called: set[str]) -> None:
    """What a role needs and what it cannot have."""
    assistant = message.role == "assistant"
    if message.content is None and not assistant:
        raise missing(f"{param}.content")
    if message.content is None and not message.tool_calls and message.refusal is None:
        raise InvalidRequest(
            f"{param}: an assistant's message needs content or tool_calls", param=f"{param}.content"
        )
    for field in ("tool_calls", "refusal", "reasoning_content", "reasoning"):
        if not assistant and getattr(message, field):
            raise InvalidRequest(
                f"{param}: only messages of the role 'assistant' have {field}",
                param=f"{param}.{field}",
            )
    if message.role != "tool":
        return
    if message.tool_call_id is None:
        raise missing(f"{param}.tool_call_id")
    if message.tool_call_id not in called:
        raise InvalidRequest(
            f"{param}: no assistant's message before this one has a tool call with the id "
            f"{message.tool_call_id!r}",
            param=f"{param}.tool_call_id",
        )


def _template_message(message: ChatMessage, param: str, images: ImageReader) -> dict[str, Any]:
    content = message.refusal
    if message.content is not None:
        imageless = None if message.role == "user" else message.role
        content = joined_text(message.content, f"{param}.content", images, role=imageless)
    rendered: dict[str, Any] = {"role": template_role(message.role), "content": content}
    for field in ("name", "tool_call_id"):
        value = getattr(message, field)
        if value is not None:
            rendered[field] = value
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        rendered["reasoning_content"] = reasoning
    if message.tool_calls:
        rendered["tool_calls"] = [
            template_call(each.id, each.custom.name, custom_arguments(each.custom.input))
            if isinstance(each, ChatCustomCall)
            else template_call(
                each.id, each.function.name, called_arguments(each.function.arguments)
            )
            for each in message.tool_calls
        ]
    return rendered
