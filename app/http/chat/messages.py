"""Messages as clients send them -> messages as the chat template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.answer.custom import custom_arguments
from app.core.errors import InvalidRequest
from app.http.chat.wire import CustomToolCall, Message
from app.http.requests.images import ImageReader
from app.http.requests.messages import (
    called_arguments,
    joined_text,
    template_call,
    template_role,
)
from app.http.requests.wire import missing


def template_messages(messages: Sequence[Message], images: ImageReader) -> list[dict[str, Any]]:
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


def _check(message: Message, param: str, called: set[str]) -> None:
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


def _template_message(message: Message, param: str, images: ImageReader) -> dict[str, Any]:
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
            if isinstance(each, CustomToolCall)
            else template_call(
                each.id, each.function.name, called_arguments(each.function.arguments)
            )
            for each in message.tool_calls
        ]
    return rendered
